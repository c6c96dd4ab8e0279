"""Open volumes."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import os
import sys
import time
import types
import warnings
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple, Type, Union

from . import _spinney
from ._path import AnyPath, Path, raw_path
from ._types import Change, Fork, Info, Merged, Received, Subvolume

ProgressCallback = Callable[[_spinney.Progress], Optional[bool]]


class Volume:
    """An open volume, used by paths: `volume / "etc" / "passwd"` is a `Path`. `spinney.open` and `spinney.make` give
    it.

    Paths begin at the root of the volume, with or without a leading slash. A `with` block closes the volume.
    """

    def __init__(self, native: _spinney.Volume, image: Any) -> None:
        self._native = native
        self._image = image
        self._process = os.getpid()
        #: Files and listings that `close` closes first.
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        _volumes.add(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "read-only" if self.read_only else "writable"
        return f"<spinney.Volume {self._image!r} {state}>"

    def __enter__(self) -> Volume:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        self.close()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and self._process == os.getpid() and not native.is_closed:
            warnings.warn(f"unclosed volume {self._image!r}", ResourceWarning, source=self)
            self.close()

    def __truediv__(self, path: AnyPath) -> Path:
        return self.root / path

    def __reduce__(self) -> Any:
        raise TypeError("a volume cannot be pickled: open the image in the other process")

    @property
    def root(self) -> Path:
        """The root directory."""
        return Path(self)

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._native.is_closed

    @property
    def read_only(self) -> bool:
        """True if nothing can be written."""
        return self._native.is_read_only

    @property
    def info(self) -> Info:
        """Format, label, UUID and sizes."""
        return Info._of(self._native.info())

    def statvfs(self) -> os.statvfs_result:
        """The space of the volume, as `os.statvfs` shows that of a mount."""
        status = self._native.status()
        flags = os.ST_RDONLY if self.read_only else 0
        return os.statvfs_result((*status[:8], flags, status[8]))

    def sync(self) -> None:
        """Makes everything durable that was changed before the call."""
        self._native.sync()

    def close(self) -> None:
        """Closes the files that are open, makes everything durable and closes the volume. Further calls do nothing.

        The volume is closed also if that raises an exception.
        """
        if self._process != os.getpid():
            # The volume is open in the parent process, which alone can write.
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self._native.close)
            for file in list(self._open):
                # One that is just being closed may be what kept the volume.
                if not getattr(file, "closed", False):
                    stack.callback(file.close)

    def open(
        self,
        path: AnyPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> Any:
        """Opens a file as the built-in `open` does; text is UTF-8 by default."""
        return (self.root / path).open(mode, buffering, encoding, errors, newline)

    def set_label(self, label: Union[str, bytes]) -> None:
        """Changes the label (btrfs)."""
        self._native.set_label(label)

    def resize(self, size: int) -> int:
        """Makes the volume, and its image file, larger or smaller. Returns the size in bytes."""
        return self._native.resize(size)

    def copy(self, source: AnyPath, target: AnyPath) -> int:
        """Copies contents and permissions of a file, sharing its extents where the format can. Returns the bytes."""
        return self._native.copy(self._raw(source), self._raw(target))

    def import_(self, source: Any, target: AnyPath = "/", *, progress: Optional[ProgressCallback] = None) -> None:
        """Copies everything below the host directory `source` into the directory `target`, which is created if missing.

        Owners, permissions, times, attributes, links, devices and holes are kept. `progress` is called with a
        `Progress` now and then, by this thread; the copy is cancelled if it returns `False` (`OSError` with
        `ECANCELED`) or raises an exception, and by Ctrl-C. Complete files stay then.
        """
        self._native.import_tree(os.fspath(source), self._raw(target), progress)

    def export(self, source: AnyPath, target: Any, *, progress: Optional[ProgressCallback] = None) -> None:
        """Copies everything below the directory `source` into the host directory `target`, which is created if missing.

        Nothing is written outside `target`, whatever the image contains. Set-user and set-group bits, capabilities and
        device nodes are left out, and what the host refuses to this process. `progress` is as in `import_`.
        """
        self._native.export_tree(self._raw(source), os.fspath(target), progress)

    def create_subvolume(self, path: AnyPath) -> Path:
        """Makes an empty subvolume."""
        self._native.create_subvolume(self._raw(path))
        return self / path

    def snapshot(self, source: AnyPath, target: AnyPath, *, read_only: bool = True) -> Path:
        """Makes a snapshot of the subvolume at `source`, in one commit, whatever its size."""
        self._native.snapshot(self._raw(source), self._raw(target), read_only)
        return self / target

    def delete_subvolume(self, path: AnyPath) -> None:
        """Deletes a subvolume with everything in it."""
        self._native.delete_subvolume(self._raw(path))

    def subvolumes(self) -> Tuple[Subvolume, ...]:
        """All subvolumes but the top level, in the order of their numbers."""
        return tuple(Subvolume._of(record) for record in _spinney.subvolumes(self._native))

    def subvolume(self, path: AnyPath = "/") -> Subvolume:
        """The subvolume whose root is at `path`."""
        id = _spinney.subvolume_at(self._native, self._raw(path))
        return Subvolume._of(_spinney.subvolume_info(self._native, id))

    def set_read_only(self, path: AnyPath, read_only: bool = True) -> None:
        """Makes a subvolume read-only, or writable again."""
        _spinney.set_subvolume_read_only(self._native, self._raw(path), read_only)

    def diff(self, old: AnyPath, new: AnyPath) -> Tuple[Change, ...]:
        """The differences between two subvolumes, in the order of inode numbers.

        Only the tree blocks that the two do not share are read.
        """
        changes = _spinney.diff(self._native, self._raw(old), self._raw(new))
        return tuple(Change._of(record) for record in changes)

    def fork(
        self,
        base: AnyPath,
        target: AnyPath,
        *,
        read_only: bool = False,
        limit: Optional[int] = None,
        expires: Optional[float] = None,
    ) -> Fork:
        """Makes a fork of the subvolume at `base`: a copy of a tree of any size, at once, that knows what it began with.

        `limit` are the bytes that its own data may take, which needs quotas. `expires` is when
        `drop_expired_forks` drops it, in seconds since 1970.
        """
        when = None if expires is None else int(expires)
        made = _spinney.fork(self._native, self._raw(base), self._raw(target), read_only, (limit, when))
        return Fork._of(made)

    def forks(self) -> Tuple[Fork, ...]:
        """All forks, in the order of their paths."""
        return tuple(Fork._of(record) for record in _spinney.forks(self._native))

    def fork_changes(self, path: AnyPath) -> Tuple[Change, ...]:
        """The changes of the fork at `path` since it was made, or since its last merge into its base."""
        return tuple(Change._of(record) for record in _spinney.fork_changes(self._native, self._raw(path)))

    def fork_patch(self, path: AnyPath) -> bytes:
        """The changes of the fork at `path` as a patch for `git apply`."""
        return _spinney.fork_patch(self._native, self._raw(path))

    def merge_fork(self, path: AnyPath, *, into: Optional[AnyPath] = None, strategy: str = "fail") -> Merged:
        """Brings the changes of the fork at `path` into its base, or into another subvolume: all of them, or none.

        It is a merge of three trees, and of texts by lines. Conflicts are no error: with the strategy `fail` nothing is
        merged then, with `ours` the target's version is taken, with `theirs` the fork's, and the other one is kept
        beside it.
        """
        other = None if into is None else self._raw(into)
        return Merged._of(_spinney.merge_fork(self._native, self._raw(path), other, strategy))

    def drop_fork(self, path: AnyPath) -> None:
        """Deletes the fork at `path`, at once; its space is freed in the background."""
        _spinney.drop_fork(self._native, self._raw(path))

    def drop_expired_forks(self) -> Tuple[str, ...]:
        """Deletes the forks that have expired. Returns their paths."""
        return tuple(str(path) for path in _spinney.drop_expired_forks(self._native, int(time.time())))

    def send(
        self,
        subvolume: AnyPath,
        output: Any,
        *,
        parent: Optional[AnyPath] = None,
        clones: Iterable[AnyPath] = (),
        version: int = 1,
        compressed_data: bool = False,
        no_data: bool = False,
        progress: Optional[ProgressCallback] = None,
    ) -> None:
        """Writes the send stream of a read-only subvolume to `output`: a file descriptor, or an object with `write`.

        `parent` is a snapshot that the receiver has, and `clones` are further ones to clone data from. `progress` is as
        in `import_`; a stream that was cancelled is incomplete.
        """
        others = [self._raw(clone) for clone in clones]
        given = None if parent is None else self._raw(parent)
        form = (version, compressed_data, no_data)
        with _stream(output, "wb") as stream:
            _spinney.send(self._native, self._raw(subvolume), stream, (given, others), form, progress)
            if isinstance(output, int):
                stream.flush()

    def receive(
        self, input: Any, directory: AnyPath = "/", *, progress: Optional[ProgressCallback] = None
    ) -> Tuple[Received, ...]:
        """Builds subvolumes from the send streams of `input`: a file descriptor, or an object with `read`.

        After a failure the incomplete subvolume is deleted; earlier ones stay. `progress` is as in `import_`.
        """
        import uuid

        with _stream(input, "rb") as stream:
            rows = _spinney.receive(self._native, stream, self._raw(directory), progress)
        return tuple(
            Received(path, id, uuid.UUID(bytes=bytes(number)), snapshot) for path, id, number, snapshot in rows
        )

    def _raw(self, path: AnyPath) -> Union[str, bytes]:
        return raw_path(self, path)


@contextlib.contextmanager
def _stream(stream: Any, mode: str) -> Iterator[Any]:
    if not isinstance(stream, int):
        yield stream
        return
    with builtins.open(stream, mode, closefd=False, buffering=0) as file:
        yield _Whole(file) if mode == "wb" else file


class _Whole:
    """A raw file that writes everything it is given."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        return len(data)

    def flush(self) -> None:
        self._file.flush()


#: Volumes that may be open.
_volumes: weakref.WeakSet[Volume] = weakref.WeakSet()


def _close_all() -> None:
    for volume in list(_volumes):
        if volume._process != os.getpid():
            continue
        try:
            volume.close()
        except Exception as error:
            print(f"spinney: {volume._image!r} at exit: {error}", file=sys.stderr)


atexit.register(_close_all)
os.register_at_fork(after_in_child=_spinney.after_fork)
