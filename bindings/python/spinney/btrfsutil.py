"""The functions of libbtrfsutil's module `btrfsutil`, on images: `import spinney.btrfsutil as btrfsutil`.

A path is a `spinney.Path` or `spinney.Volume`, or the text `IMAGE:/PATH`, for which each call opens and closes the image.
Any other path is one of the host: the module `btrfsutil` gets it, if it is installed, for the kernel's mounts. Without
that such a path is refused with `EOPNOTSUPP`.

Each function has both names that libbtrfsutil gives it: `create_subvolume`, and since 1.4 `subvolume_create`.

Differences: nothing needs root. `async_` and quota groups are refused with `EOPNOTSUPP`, failures are plain `OSError`
(which `BtrfsUtilError` names), and `SubvolumeInfo.ctime` is that of the root directory of the subvolume, 0.0 for one that is deleted.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat as stat_module
import typing
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import _spinney
from ._images import open as open_image
from ._path import Path
from ._types import Subvolume
from ._volume import Volume

__all__ = [
    "BtrfsUtilError",
    "SubvolumeInfo",
    "SubvolumeIterator",
    "create_snapshot",
    "create_subvolume",
    "delete_subvolume",
    "deleted_subvolumes",
    "filesystem_get_label",
    "fs_start_sync",
    "fs_sync",
    "fs_wait_sync",
    "get_default_subvolume",
    "get_subvolume_read_only",
    "is_subvolume",
    "set_default_subvolume",
    "set_subvolume_read_only",
    "start_sync",
    "subvolume_create",
    "subvolume_delete",
    "subvolume_get_default",
    "subvolume_get_id",
    "subvolume_get_info",
    "subvolume_get_path",
    "subvolume_get_read_only",
    "subvolume_id",
    "subvolume_info",
    "subvolume_is_valid",
    "subvolume_list_deleted",
    "subvolume_path",
    "subvolume_set_default",
    "subvolume_set_read_only",
    "subvolume_snapshot",
    "sync",
    "wait_sync",
]

#: Number of the top-level subvolume.
TOP_LEVEL = 5
#: Bit of `SubvolumeInfo.flags` of a read-only subvolume.
READ_ONLY = 1
#: Inode number of the root directory of every subvolume.
ROOT_INODE = 256
SECOND_NS = 1_000_000_000
NO_UUID = bytes(16)

AnyPath = Union[Path, Volume, str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_Function = typing.TypeVar("_Function", bound=Callable[..., Any])


#: The class of all failures.
BtrfsUtilError = OSError


class SubvolumeInfo(NamedTuple):
    """A subvolume, with the fields of libbtrfsutil. Times are seconds since 1970."""

    id: int
    parent_id: int
    dir_id: int
    flags: int
    uuid: bytes
    parent_uuid: bytes
    received_uuid: bytes
    generation: int
    ctransid: int
    otransid: int
    stransid: int
    rtransid: int
    ctime: float
    otime: float
    stime: float
    rtime: float


def _or_host(function: _Function) -> _Function:
    """Hands a call with a path of the host to the module `btrfsutil`."""

    @functools.wraps(function)
    def call(path: AnyPath, *args: Any, **kwargs: Any) -> Any:
        if _is_ours(path):
            return function(path, *args, **kwargs)
        return _of_host(function.__name__, path)(path, *args, **kwargs)

    return typing.cast(_Function, call)


@_or_host
def is_subvolume(path: AnyPath) -> bool:
    """True if the root of a subvolume is at the path."""
    with _at(path) as at:
        found = at.stat()
        return stat_module.S_ISDIR(found.st_mode) and found.inode == ROOT_INODE and found.subvolume != 0


@_or_host
def subvolume_id(path: AnyPath) -> int:
    """The number of the subvolume that contains the path."""
    with _at(path) as at:
        return at.stat().subvolume


@_or_host
def subvolume_path(path: AnyPath, id: int = 0) -> str:
    """The path from the top level of a subvolume: by its number, or that which contains `path`."""
    with _at(path) as at:
        return _record(at, id).path


@_or_host
def subvolume_info(path: AnyPath, id: int = 0) -> SubvolumeInfo:
    """The facts of a subvolume: by its number, or that which contains `path`."""
    with _at(path) as at:
        return _info(at.volume, _record(at, id))


@_or_host
def get_subvolume_read_only(path: AnyPath) -> bool:
    """True if the subvolume is read-only."""
    with _at(path) as at:
        return _record(at, 0).read_only


@_or_host
def set_subvolume_read_only(path: AnyPath, read_only: bool = True) -> None:
    """Makes a subvolume read-only, or writable again."""
    with _at(path, True) as at:
        at.volume.set_read_only(at, read_only)


@_or_host
def get_default_subvolume(path: AnyPath) -> int:
    """The number of the subvolume that is opened and mounted by default."""
    with _at(path) as at:
        return _spinney.default_subvolume(at.volume._native)


@_or_host
def set_default_subvolume(path: AnyPath, id: int = 0) -> None:
    """Chooses the subvolume that is opened and mounted by default: by its number, or that at `path`."""
    with _at(path, True) as at:
        target = str(at) if id == 0 else "/" + _record(at, id).path
        _spinney.set_default_subvolume(at.volume._native, target)


@_or_host
def create_subvolume(path: AnyPath, async_: bool = False, qgroup_inherit: Any = None) -> None:
    """Makes an empty subvolume."""
    _refuse(async_, qgroup_inherit)
    with _at(path, True) as at:
        at.volume.create_subvolume(at)


@_or_host
def create_snapshot(
    source: AnyPath,
    path: Union[AnyPath, str],
    recursive: bool = False,
    read_only: bool = False,
    async_: bool = False,
    qgroup_inherit: Any = None,
) -> None:
    """Makes a snapshot; with `recursive` also of the subvolumes in it. Both paths are of one volume.

    An existing directory as `path` gets the snapshot under the name of the source.
    """
    _refuse(async_, qgroup_inherit)
    if recursive and read_only:
        raise OSError(errno.EINVAL, "a recursive snapshot cannot be read-only")
    with _at(source, True) as at:
        target = at.volume / _within(source, path)
        if target.is_dir():
            target = target / at.name
        below = _below(at.volume, at.stat().subvolume) if recursive else []
        at.volume.snapshot(at, target, read_only=read_only)
        for relative, record in below:
            place = target / relative
            # The snapshot has an empty directory there.
            place.rmdir()
            at.volume.snapshot("/" + record.path, place, read_only=False)


@_or_host
def delete_subvolume(path: AnyPath, recursive: bool = False) -> None:
    """Deletes a subvolume; with `recursive` first those in it."""
    with _at(path, True) as at:
        below = _below(at.volume, at.stat().subvolume) if recursive else []
        for relative, _ in reversed(below):
            at.volume.delete_subvolume(at / relative)
        at.volume.delete_subvolume(at)


@_or_host
def deleted_subvolumes(path: AnyPath) -> List[int]:
    """Numbers of the subvolumes that are deleted and whose space is not free yet."""
    with _at(path) as at:
        return [record["id"] for record in _spinney.deleted_subvolumes(at.volume._native)]


@_or_host
def sync(path: AnyPath) -> None:
    """Makes everything durable."""
    with _at(path, True) as at:
        at.volume.sync()


@_or_host
def start_sync(path: AnyPath) -> int:
    """Makes everything durable, and returns the number of the commit."""
    with _at(path, True) as at:
        at.volume.sync()
        return _spinney.generation(at.volume._native)


@_or_host
def wait_sync(path: AnyPath, transid: int = 0) -> None:
    """Returns at once after `start_sync`; without it, as `sync`."""
    with _at(path, True) as at:
        if transid == 0:
            at.volume.sync()
        elif transid > _spinney.generation(at.volume._native):
            raise OSError(errno.EINVAL, f"no commit has the number {transid} yet")


@_or_host
def filesystem_get_label(path: AnyPath) -> str:
    """The label of the volume."""
    with _at(path) as at:
        return at.volume.info.label


# The names since libbtrfsutil 1.4.
fs_sync = sync
fs_start_sync = start_sync
fs_wait_sync = wait_sync
subvolume_is_valid = is_subvolume
subvolume_get_id = subvolume_id
subvolume_get_path = subvolume_path
subvolume_get_info = subvolume_info
subvolume_get_read_only = get_subvolume_read_only
subvolume_set_read_only = set_subvolume_read_only
subvolume_get_default = get_default_subvolume
subvolume_set_default = set_default_subvolume
subvolume_create = create_subvolume
subvolume_snapshot = create_snapshot
subvolume_delete = delete_subvolume
subvolume_list_deleted = deleted_subvolumes


class SubvolumeIterator:
    """Iterates over the subvolumes below a subvolume: pairs of the path from it, and the number or `SubvolumeInfo`.

    `top` is its number; 0 for the subvolume that contains `path`. Parents come before the subvolumes in them, with
    `post_order` after them.
    """

    def __new__(cls, path: AnyPath, *args: Any, **kwargs: Any) -> Any:
        if _is_ours(path):
            return super().__new__(cls)
        return _of_host("SubvolumeIterator", path)(path, *args, **kwargs)

    def __init__(self, path: AnyPath, top: int = 0, info: bool = False, post_order: bool = False) -> None:
        with _at(path) as at:
            found = _below(at.volume, top or at.stat().subvolume)
            rows = [(name, _info(at.volume, record) if info else record.id) for name, record in found]
        self._rows = iter(reversed(rows) if post_order else rows)

    def __iter__(self) -> SubvolumeIterator:
        return self

    def __next__(self) -> Tuple[str, Union[int, SubvolumeInfo]]:
        return next(self._rows)

    def __enter__(self) -> SubvolumeIterator:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration."""
        self._rows = iter(())


def _is_ours(path: AnyPath) -> bool:
    return isinstance(path, (Path, Volume)) or _in_image(path) is not None


def _of_host(name: str, path: Any) -> Callable[..., Any]:
    try:
        import btrfsutil  # type: ignore[import-not-found]
    except ImportError:
        text = "not IMAGE:/PATH, and for mounts the module btrfsutil is not installed"
        raise OSError(errno.EOPNOTSUPP, text, os.fspath(path)) from None
    return typing.cast(Callable[..., Any], getattr(btrfsutil, name))


def _in_image(path: Any) -> Optional[Tuple[str, str]]:
    """Image and path of `IMAGE:/PATH`."""
    text = os.fspath(path)
    text = os.fsdecode(text)
    image, colon, inner = text.partition(":/")
    return (image, "/" + inner) if colon and os.path.exists(image) and not os.path.isdir(image) else None


@contextlib.contextmanager
def _at(path: AnyPath, writable: bool = False) -> Iterator[Path]:
    """The path in its volume, which is opened for the block if the path names an image."""
    if isinstance(path, (Path, Volume)):
        yield path if isinstance(path, Path) else path.root
        return
    image, inner = _in_image(path) or ("", "")
    with open_image(image, writable) as volume:
        yield volume / inner


def _within(source: AnyPath, path: Any) -> Any:
    """The target of a snapshot as a path in the volume of the source."""
    if isinstance(path, (Path, Volume)):
        return path if isinstance(path, Path) else path.root
    given, ours = _in_image(path), None if isinstance(source, (Path, Volume)) else _in_image(source)
    if ours is None and given is None:
        return path
    if ours is None or given is None or not os.path.samefile(ours[0], given[0]):
        raise OSError(errno.EXDEV, "a snapshot is made in the image of its source", os.fspath(path))
    return given[1]


def _refuse(async_: bool, qgroup_inherit: Any) -> None:
    if async_ or qgroup_inherit is not None:
        raise OSError(errno.EOPNOTSUPP, "async_ and qgroup_inherit are not supported")


def _record(at: Path, id: int) -> Subvolume:
    native = at.volume._native
    return Subvolume._of(_spinney.subvolume_info(native, id or at.stat().subvolume))


def _info(volume: Volume, record: Subvolume) -> SubvolumeInfo:
    ctime = 0.0
    # A handle on one subvolume does not see the others.
    with contextlib.suppress(OSError):
        ctime = (volume / ("/" + record.path)).stat().st_ctime
    return SubvolumeInfo(
        record.id,
        record.parent_id,
        record.dir_id,
        READ_ONLY if record.read_only else 0,
        record.uuid.bytes,
        NO_UUID if record.parent_uuid is None else record.parent_uuid.bytes,
        NO_UUID if record.received_uuid is None else record.received_uuid.bytes,
        record.generation,
        record.changed,
        record.created,
        record.sent,
        record.received,
        ctime,
        record.otime_ns / SECOND_NS,
        record.stime_ns / SECOND_NS,
        record.rtime_ns / SECOND_NS,
    )


def _below(volume: Volume, top: int) -> List[Tuple[str, Subvolume]]:
    """The subvolumes below one, parents first, with their paths from it."""
    children: Dict[int, List[Subvolume]] = {}
    for record in volume.subvolumes():
        children.setdefault(record.parent_id, []).append(record)
    prefix = Subvolume._of(_spinney.subvolume_info(volume._native, top)).path
    start = len(prefix) + 1 if prefix else 0
    found, todo = [], list(reversed(children.get(top, [])))
    while todo:
        record = todo.pop()
        found.append((record.path[start:], record))
        todo.extend(reversed(children.get(record.id, [])))
    return found
