"""Paths within a volume, with the methods of `pathlib.Path`."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import pathlib
import re
import stat as stat_module
import typing
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Union

from . import _file, _spinney

if typing.TYPE_CHECKING:
    from ._volume import Volume

AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]", "Path"]

SECOND_NS = 1_000_000_000
#: Symbolic links in one path, at most, as in Linux.
LINKS_MAX = 40


class Path:
    """A path within a volume, from its root. `path / "name"` goes on; nothing is looked up until a method needs it.

    The methods are those of `pathlib.Path`, with further ones for extended attributes, owners and times. A path is no
    `os.PathLike`: functions for the host's files would take it as one of theirs.
    """

    __slots__ = ("__weakref__", "_text", "_volume")

    def __init__(self, volume: Volume, *parts: AnyPath) -> None:
        self._volume = volume
        self._text = "/"
        for part in parts:
            self._text = _join(self._text, _text(volume, part))

    @classmethod
    def _at(cls, volume: Volume, text: str) -> Path:
        path = cls.__new__(cls)
        path._volume = volume
        path._text = text
        return path

    # The path as text.

    @property
    def volume(self) -> Volume:
        """The volume."""
        return self._volume

    @property
    def _pure(self) -> pathlib.PurePosixPath:
        return pathlib.PurePosixPath(self._text)

    def __str__(self) -> str:
        return self._text

    def __bytes__(self) -> bytes:
        return self._text.encode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        return f"Path({self._text!r})"

    def __hash__(self) -> int:
        return hash((id(self._volume), self._text))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self._volume is other._volume and self._text == other._text

    def __lt__(self, other: Path) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self._pure < other._pure

    def __truediv__(self, part: AnyPath) -> Path:
        return self._at(self._volume, _join(self._text, _text(self._volume, part)))

    def joinpath(self, *parts: AnyPath) -> Path:
        """The path with further parts; an absolute one begins again at the root."""
        path = self
        for part in parts:
            path = path / part
        return path

    def as_posix(self) -> str:
        """The path as text."""
        return self._text

    @property
    def parts(self) -> Tuple[str, ...]:
        """`/` and the names."""
        return self._pure.parts

    @property
    def name(self) -> str:
        """The last name; empty for the root."""
        return self._text.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The last name without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The last suffix of the name, such as `.gz`."""
        return self._pure.suffix

    @property
    def suffixes(self) -> List[str]:
        """All suffixes of the name."""
        return self._pure.suffixes

    @property
    def parent(self) -> Path:
        """The directory that the path is in; for the root the root."""
        return self._at(self._volume, self._text.rpartition("/")[0] or "/")

    @property
    def parents(self) -> Sequence[Path]:
        """All directories above the path, the nearest first."""
        return tuple(self._at(self._volume, str(parent)) for parent in self._pure.parents)

    def with_name(self, name: str) -> Path:
        """The path with another last name."""
        return self._at(self._volume, str(self._pure.with_name(name)))

    def with_suffix(self, suffix: str) -> Path:
        """The path with another suffix."""
        return self._at(self._volume, str(self._pure.with_suffix(suffix)))

    def relative_to(self, other: AnyPath) -> pathlib.PurePosixPath:
        """The path from `other` on."""
        return self._pure.relative_to(_text(self._volume, other))

    def is_relative_to(self, other: AnyPath) -> bool:
        """True if the path is `other` or below it."""
        other = _join("/", _text(self._volume, other))
        return other == "/" or self._text == other or self._text.startswith(other + "/")

    def match(self, pattern: str) -> bool:
        """True if the end of the path matches the pattern."""
        return self._pure.match(pattern)

    # Looking.

    def stat(self, *, follow_symlinks: bool = True) -> _spinney.Stat:
        """The attributes of the node."""
        return self._volume._native.stat(self._text, follow_symlinks)

    def lstat(self) -> _spinney.Stat:
        """The attributes of the node, also of a symbolic link."""
        return self._volume._native.stat(self._text, False)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """True if the path leads to a node."""
        return self._type(follow_symlinks) is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """True for a directory."""
        return self._type(follow_symlinks) == stat_module.S_IFDIR

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """True for a regular file."""
        return self._type(follow_symlinks) == stat_module.S_IFREG

    def is_symlink(self) -> bool:
        """True for a symbolic link."""
        return self._type(False) == stat_module.S_IFLNK

    def is_fifo(self) -> bool:
        """True for a named pipe."""
        return self._type(True) == stat_module.S_IFIFO

    def is_socket(self) -> bool:
        """True for a socket."""
        return self._type(True) == stat_module.S_IFSOCK

    def is_block_device(self) -> bool:
        """True for a block device."""
        return self._type(True) == stat_module.S_IFBLK

    def is_char_device(self) -> bool:
        """True for a character device."""
        return self._type(True) == stat_module.S_IFCHR

    def _type(self, follow: bool) -> Optional[int]:
        try:
            return stat_module.S_IFMT(self._volume._native.stat(self._text, follow).st_mode)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise

    def samefile(self, other: AnyPath) -> bool:
        """True if both paths lead to one node."""
        ours, theirs = self.stat(), Path(self._volume, other).stat()
        return ours.st_ino == theirs.st_ino

    def resolve(self) -> Path:
        """The path without symbolic links and `..`; it has to exist."""
        return self._at(self._volume, self._volume._native.canonicalize(self._text))

    def readlink(self) -> pathlib.PurePosixPath:
        """The target of a symbolic link, as it is written there."""
        return pathlib.PurePosixPath(self._volume._native.read_link(self._text))

    def iterdir(self) -> Iterator[Path]:
        """The entries of the directory, in no order."""
        prefix = self._text if self._text == "/" else self._text + "/"
        # Failures to open it are raised by this call, not by the first step of the iteration.
        entries = self._scan()
        return (self._at(self._volume, prefix + name) for name, _ in entries)

    def _scan(self) -> Iterator[Tuple[str, int]]:
        """Names and type bits of the entries."""
        listing = self._volume._native.read_dir(self._text)
        self._volume._open.add(listing)
        return _entries(listing)

    def walk(
        self, top_down: bool = True, follow_symlinks: bool = False
    ) -> Iterator[Tuple[Path, List[str], List[str]]]:
        """Directories with the names of directories and others in them, as `os.walk` has them."""
        todo: List[Any] = [self]
        while todo:
            path = todo.pop()
            if isinstance(path, tuple):
                yield path
                continue
            dirs: List[str] = []
            others: List[str] = []
            for name, kind in path._scan():
                is_dir = kind == stat_module.S_IFDIR
                if kind == stat_module.S_IFLNK and follow_symlinks:
                    is_dir = (path / name).is_dir()
                (dirs if is_dir else others).append(name)
            if top_down:
                yield path, dirs, others
            else:
                todo.append((path, dirs, others))
            todo.extend(path / name for name in reversed(dirs))

    def glob(self, pattern: str) -> Iterator[Path]:
        """The paths below this one that match; `**` matches any number of directories, without following links."""
        parts = [part for part in str(pattern).split("/") if part not in ("", ".")]
        if not parts or str(pattern).startswith("/"):
            raise ValueError(f"unacceptable pattern: {pattern!r}")
        found = _select(self, parts)
        if parts.count("**") < 2:
            return found
        return iter(dict.fromkeys(found))

    def rglob(self, pattern: str) -> Iterator[Path]:
        """As `glob` with `**/` before the pattern."""
        return self.glob("**/" + pattern)

    # Contents.

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        permissions: int = 0o644,
    ) -> Any:
        """Opens the file as the built-in `open` does; text is UTF-8 by default. `buffering=0` gives the raw file."""
        flags, mode = _file.flags(mode)
        native = self._open(flags, permissions)
        raw = _file.RawFile(native, self._text, mode, self._volume)
        try:
            file = _file.wrap(raw, mode, buffering, encoding, errors, newline)
        except BaseException:
            raw.close()
            raise
        self._volume._open.add(file)
        return file

    def _open(self, flags: str, permissions: int) -> _spinney.File:
        path = self
        for _ in range(LINKS_MAX):
            try:
                return self._volume._native.open(path._text, flags, permissions)
            except OSError as error:
                if error.errno != errno.ESTALE or not path.is_symlink():
                    raise
            # A file is created where a link leads, which the library leaves to its caller.
            path = path.parent / path._target()
        raise OSError(errno.ELOOP, "too many symbolic links", self._text)

    def _target(self) -> str:
        return self._volume._native.read_link(self._text)

    def read_bytes(self) -> bytes:
        """The contents."""
        return self._volume._native.read(self._text)

    def read_text(self, encoding: Optional[str] = None, errors: Optional[str] = None) -> str:
        """The contents as text, by default UTF-8."""
        with io.TextIOWrapper(io.BytesIO(self.read_bytes()), encoding or "utf-8", errors) as text:
            return text.read()

    def write_bytes(self, data: Any) -> int:
        """Replaces the contents of the file, which is created if there is none. Returns the number of bytes."""
        data = _file._bytes(data)
        try:
            self._volume._native.write(self._text, data)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            with self.open("wb", buffering=0) as file:
                file.write(data)
        return len(data)

    def write_text(
        self,
        data: str,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> int:
        """As `write_bytes`, for text. Returns the number of characters."""
        if not isinstance(data, str):
            raise TypeError(f"data must be str, not {type(data).__name__}")
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return int(file.write(data))

    # Changes.

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory; `parents` also makes those above it."""
        try:
            self._volume._native.mknod(self._text, stat_module.S_IFDIR | (mode & 0o7777), 0)
        except FileNotFoundError:
            if not parents or self._text == "/":
                raise
            self._make_parents()
            self.mkdir(mode, exist_ok=exist_ok)
        except OSError:
            # The root is refused as a name that cannot be made, not as one that exists.
            if not exist_ok or not self.is_dir():
                if self._text == "/":
                    raise FileExistsError(errno.EEXIST, "already exists", self._text) from None
                raise

    def _make_parents(self) -> None:
        """Makes the missing directories above, without recursion: there may be very many."""
        missing, path = [], self.parent
        while path._text != "/":
            try:
                path.mkdir(exist_ok=True)
                break
            except FileNotFoundError:
                missing.append(path)
                path = path.parent
        for path in reversed(missing):
            path.mkdir(exist_ok=True)

    def mknod(self, mode: int, device: int = 0) -> None:
        """Makes a file or special file: `mode` has its type and permission bits, as for `os.mknod`."""
        self._volume._native.mknod(self._text, mode if stat_module.S_IFMT(mode) else mode | stat_module.S_IFREG, device)

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Makes an empty file; one that exists gets the present time."""
        flags = "wc" if exist_ok else "wx"
        existed = exist_ok and self.exists()
        self._open(flags, mode).close()
        if existed:
            self._volume._native.set_times(self._followed(True), None)

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes a name that is not a directory's."""
        try:
            self._volume._native.unlink(self._text)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """Removes an empty directory."""
        self._volume._native.remove_dir(self._text)

    def rmtree(self) -> None:
        """Removes a directory and everything below it; a symbolic link is removed itself."""
        self._volume._native.remove_tree(self._text)

    def rename(self, target: AnyPath) -> Path:
        """Renames it, replacing a file that has the name. Returns the new path. Paths start at the root."""
        return self._renamed(target, True)

    def replace(self, target: AnyPath) -> Path:
        """As `rename`."""
        return self._renamed(target, True)

    def rename_new(self, target: AnyPath) -> Path:
        """As `rename`, but raises `FileExistsError` if something has the name."""
        return self._renamed(target, False)

    def _renamed(self, target: AnyPath, replaces: bool) -> Path:
        path = Path(self._volume, target)
        self._volume._native.rename(self._text, path._text, replaces)
        return path

    def symlink_to(self, target: AnyPath, target_is_directory: bool = False) -> None:
        """Makes this path a symbolic link to `target`, which may be relative."""
        text = target._text if isinstance(target, Path) else os.fspath(target)
        self._volume._native.symlink(text, self._text)

    def hardlink_to(self, target: AnyPath) -> None:
        """Makes this path one more name of the file at `target`."""
        self._volume._native.link(raw_path(self._volume, target), self._text)

    def chmod(self, mode: int) -> None:
        """Sets the permission bits; follows symbolic links."""
        self._volume._native.set_permissions(self._text, mode & 0o7777)

    def chown(self, uid: int = -1, gid: int = -1, *, follow_symlinks: bool = True) -> None:
        """Sets owner and group; -1 leaves one."""
        owner = (None if number == -1 else number for number in (uid, gid))
        self._volume._native.set_owner(self._followed(follow_symlinks), *owner)

    def utime(
        self,
        times: Optional[Tuple[float, float]] = None,
        *,
        ns: Optional[Tuple[int, int]] = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of access and of the last change, by default to the present, as `os.utime`."""
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        if times is not None:
            ns = (int(times[0] * SECOND_NS), int(times[1] * SECOND_NS))
        given = None if ns is None else [divmod(time, SECOND_NS) for time in ns]
        self._volume._native.set_times(self._followed(follow_symlinks), given)

    def get_xattr(self, name: Union[str, bytes], *, follow_symlinks: bool = True) -> Optional[bytes]:
        """The value of an extended attribute; `None` if there is none of that name."""
        return self._volume._native.get_xattr(self._followed(follow_symlinks), name)

    def set_xattr(
        self, name: Union[str, bytes], value: bytes, flags: int = 0, *, follow_symlinks: bool = True
    ) -> None:
        """Sets an extended attribute; `flags` as `os.XATTR_CREATE` and `os.XATTR_REPLACE`."""
        self._volume._native.set_xattr(self._followed(follow_symlinks), name, _file._bytes(value), flags)

    def remove_xattr(self, name: Union[str, bytes], *, follow_symlinks: bool = True) -> None:
        """Removes an extended attribute."""
        self._volume._native.remove_xattr(self._followed(follow_symlinks), name)

    def list_xattrs(self, *, follow_symlinks: bool = True) -> List[str]:
        """The names of all extended attributes."""
        return self._volume._native.list_xattrs(self._followed(follow_symlinks))

    def _followed(self, follow: bool) -> str:
        if follow and self.is_symlink():
            return self._volume._native.canonicalize(self._text)
        return self._text


def raw_path(volume: Volume, path: AnyPath) -> Union[str, bytes]:
    """A path as the compiled module takes it."""
    if isinstance(path, Path):
        return _text(volume, path)
    return os.fspath(path)


def _text(volume: Volume, path: AnyPath) -> str:
    if isinstance(path, Path):
        if path._volume is not volume:
            raise ValueError(f"{path!r} is a path of another volume")
        return path._text
    path = os.fspath(path)
    return path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path


def _join(base: str, part: str) -> str:
    """The path `part` from `base`, without empty names and `.`."""
    if part.startswith("/"):
        base = ""
    elif base == "/":
        base = ""
    if "//" in part or "." in part or part.startswith("/") or part.endswith("/"):
        part = "/".join(name for name in part.split("/") if name not in ("", "."))
    return f"{base}/{part}" if part else base or "/"


def _entries(listing: _spinney.Listing) -> Iterator[Tuple[str, int]]:
    try:
        while batch := listing.batch():
            for name, kind in batch:
                yield name.decode("utf-8", "surrogateescape"), kind
    finally:
        listing.close()


def _select(path: Path, parts: List[str]) -> Iterator[Path]:
    if not parts:
        yield path
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _descend(path, rest)
    elif not re.search(r"[*?\[]", part):
        child = path / part
        if child.exists(follow_symlinks=False):
            yield from _select(child, rest)
    else:
        matches = re.compile(fnmatch.translate(part)).match
        for name, kind in _names(path):
            if matches(name) and (not rest or kind in (stat_module.S_IFDIR, stat_module.S_IFLNK)):
                yield from _select(path / name, rest)


def _descend(path: Path, rest: List[str]) -> Iterator[Path]:
    """Matches `rest` in the directory and all below it; without `rest` everything below it matches."""
    todo = [path]
    while todo:
        here = todo.pop()
        yield from _select(here, rest)
        dirs = []
        for name, kind in _names(here):
            if kind == stat_module.S_IFDIR:
                dirs.append(here / name)
            elif not rest:
                yield here / name
        todo.extend(reversed(dirs))


def _names(path: Path) -> List[Tuple[str, int]]:
    """The entries of a directory; none for another kind of node."""
    try:
        return list(path._scan())
    except (FileNotFoundError, NotADirectoryError):
        return []
