"""Trees that tests may break: prepared once, and given to each test as a fresh copy within milliseconds.

In `conftest.py`:

    from spinney.testing import mounted_tree, tree

    site = tree("tests/data/site")              # a `spinney.Path`, without a mount
    database = mounted_tree("tests/data/db")    # a `pathlib.Path`, for programs; needs FUSE and the program `spinney`

and a test that takes `site` or `database` gets a copy that nobody else has, whatever earlier tests did.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any, Callable, Iterator, Optional, Union

from . import _images
from ._path import Path
from ._volume import Volume

#: Fills the tree: a directory of the host, or a function that is called with the root of the new tree.
Source = Union[str, "os.PathLike[str]", Callable[[Any], Any]]

_PREPARED = "prepared"
_SIZE = 16 << 30


class Fixture:
    """A prepared tree in a volume. `copy` gives a copy of it as a `spinney.Path`. No root and no FUSE is needed."""

    def __init__(self, source: Source, *, size: int = _SIZE, directory: Optional[str] = None) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="spinney-fixture-", dir=directory)
        self._numbers = itertools.count()
        try:
            self.volume: Volume = _images.make(os.path.join(self._home.name, "fixture.img"), size=size)
            self.volume.create_subvolume(_PREPARED)
            if callable(source):
                source(self.volume / _PREPARED)
            else:
                self.volume.import_(source, _PREPARED)
        except BaseException:
            self._home.cleanup()
            raise

    @contextlib.contextmanager
    def copy(self) -> Iterator[Path]:
        """A copy of the tree until the end of the block."""
        name = f"copy-{next(self._numbers)}"
        self.volume.snapshot(_PREPARED, name, read_only=False)
        try:
            yield self.volume / name
        finally:
            self.volume.delete_subvolume(name)

    def close(self) -> None:
        """Throws the tree away."""
        self.volume.close()
        self._home.cleanup()

    def __enter__(self) -> Fixture:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class MountedFixture:
    """As `Fixture`, on a mount: `copy` gives a `pathlib.Path`, for programs such as databases.

    It calls the program `spinney`, which `program` or `SPINNEY_PROGRAM` name if it is not in `PATH`.
    """

    def __init__(
        self, source: Source, *, size: int = _SIZE, directory: Optional[str] = None, program: Optional[str] = None
    ) -> None:
        self._program = program or os.environ.get("SPINNEY_PROGRAM") or "spinney"
        self._home = tempfile.TemporaryDirectory(prefix="spinney-fixture-", dir=directory)
        self._numbers = itertools.count()
        home = pathlib.Path(self._home.name)
        self._mount = home / "mount"
        self._mount.mkdir()
        image = home / "fixture.img"
        self._is_mounted = False
        try:
            self._run("mkfs", "-q", "--size", str(size), str(image))
            self._run("mount", str(image), str(self._mount))
            self._is_mounted = True
            self._run("subvolume", "create", str(self._mount / _PREPARED))
            if callable(source):
                source(self._mount / _PREPARED)
            else:
                self._run("put", "-q", os.path.join(os.fspath(source), "."), str(self._mount / _PREPARED))
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def copy(self) -> Iterator[pathlib.Path]:
        """A copy of the tree until the end of the block. Programs that use it have to end before."""
        path = self._mount / f"copy-{next(self._numbers)}"
        self._run("subvolume", "snapshot", str(self._mount / _PREPARED), str(path))
        try:
            yield path
        finally:
            self._run("subvolume", "delete", str(path))

    def close(self) -> None:
        """Unmounts the tree and throws it away."""
        if self._is_mounted:
            self._run("umount", str(self._mount))
            self._is_mounted = False
        self._home.cleanup()

    def __enter__(self) -> MountedFixture:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _run(self, *words: str) -> None:
        done = subprocess.run([self._program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"spinney {words[0]}: {done.stderr.decode(errors='replace').strip()}")


def tree(source: Source, *, scope: str = "session", **options: Any) -> Any:
    """A pytest fixture: a fresh copy of the tree in a volume for each test, prepared once for the `scope`."""
    return _pytest_fixture(Fixture, source, scope, options)


def mounted_tree(source: Source, *, scope: str = "session", **options: Any) -> Any:
    """A pytest fixture: a fresh copy of the tree on a mount for each test; the test is skipped where nothing mounts."""
    return _pytest_fixture(MountedFixture, source, scope, options)


def can_mount(program: Optional[str] = None) -> bool:
    """Whether this process may mount: there is the program, and `/dev/fuse` can be opened."""
    found = shutil.which(program or os.environ.get("SPINNEY_PROGRAM") or "spinney")
    return found is not None and os.access("/dev/fuse", os.R_OK | os.W_OK)


def _pytest_fixture(kind: Any, source: Source, scope: str, options: Any) -> Any:
    import pytest

    held: dict[str, Any] = {}

    @pytest.fixture
    def copied(request: Any) -> Iterator[Any]:
        if kind is MountedFixture and not can_mount(options.get("program")):
            pytest.skip("needs /dev/fuse and the program `spinney`")
        node = request.session if scope == "session" else request.node.getparent(pytest.Module)
        if held.get("node") is not node:
            if "fixture" in held:
                held.pop("fixture").close()
            held["fixture"] = kind(source, **options)
            held["node"] = node
            node.addfinalizer(lambda: held.pop("fixture").close() if "fixture" in held else None)
        with held["fixture"].copy() as path:
            yield path

    return copied
