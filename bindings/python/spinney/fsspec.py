"""Images as file systems of fsspec, under the protocol `spinney`.

>>> import fsspec
>>> with fsspec.open("spinney://etc/passwd::site.img", "rt") as file:
...     print(file.readline())

`fsspec.filesystem("spinney", fo="site.img")` gives the file system itself. `fo` may also be an open `spinney.Volume`. An
image that is not on this host is first copied to it, by fsspec's `simplecache`, and is then read-only.
"""

from __future__ import annotations

import datetime
import os
import shutil
import stat as stat_module
from typing import Any, Dict, List, Mapping, Optional, Union

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import isfilelike

from ._images import open as open_image
from ._path import Path
from ._volume import Volume


class SpinneyFileSystem(fsspec.AbstractFileSystem):
    """The files of an image of btrfs or f2fs. Names have no leading slash; symbolic links are followed."""

    protocol = "spinney"
    root_marker = ""
    # An instance keeps its image open, and others out of it if it may write.
    cachable = False

    def __init__(
        self,
        fo: Union[str, "os.PathLike[str]", Volume] = "",
        writable: bool = False,
        target_protocol: Optional[str] = None,
        target_options: Optional[Mapping[str, Any]] = None,
        options: Optional[Mapping[str, Union[str, bytes, None]]] = None,
        auto_mkdir: bool = False,
        **kwargs: Any,
    ) -> None:
        """
        Parameters
        ----------
        fo: the image: a path or URL, or an open volume, which stays open.
        writable: opens the image for writing.
        target_protocol, target_options: the file system that `fo` is on, if it is not that of the host.
        options: those of `spinney.open`.
        auto_mkdir: makes the directory of a file that is written.
        """
        super().__init__(**kwargs)
        self.auto_mkdir = auto_mkdir
        self.fo = fo
        self._owns = not isinstance(fo, Volume)
        if isinstance(fo, Volume):
            self.volume = fo
        else:
            image = _local(fo, target_protocol, dict(target_options or {}), writable)
            self.volume = open_image(image, writable, options=options)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Makes changes durable and closes the image, unless `fo` was an open volume."""
        if getattr(self, "_owns", False) and hasattr(self, "volume"):
            self.volume.close()

    @property
    def fsid(self) -> str:
        return f"spinney-{self.volume.info.uuid}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        path = super()._strip_protocol(path)
        return path.lstrip("/") if isinstance(path, str) else path

    def _at(self, path: Any) -> Path:
        return self.volume / self._strip_protocol(path)

    def info(self, path: Any, **kwargs: Any) -> Dict[str, Any]:
        path = self._strip_protocol(path)
        return _info(path, self.volume / path)

    def ls(self, path: Any, detail: bool = True, **kwargs: Any) -> List[Any]:
        path = self._strip_protocol(path)
        here = self.volume / path
        try:
            entries = list(here._scan())
        except NotADirectoryError:
            return [_info(path, here)] if detail else [path]
        prefix = path + "/" if path else ""
        names = sorted(name for name, _ in entries)
        if not detail:
            return [prefix + name for name in names]
        return [_info(prefix + name, here / name) for name in names]

    def exists(self, path: Any, **kwargs: Any) -> bool:
        return self._at(path).exists()

    def lexists(self, path: Any, **kwargs: Any) -> bool:
        return self._at(path).exists(follow_symlinks=False)

    def isfile(self, path: Any) -> bool:
        return self._at(path).is_file()

    def isdir(self, path: Any) -> bool:
        return self._at(path).is_dir()

    def islink(self, path: Any) -> bool:
        """True for a symbolic link."""
        return self._at(path).is_symlink()

    def created(self, path: Any) -> datetime.datetime:
        return _time(self._at(path).stat().st_birthtime)

    def modified(self, path: Any) -> datetime.datetime:
        return _time(self._at(path).stat().st_mtime)

    def _open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        if not autocommit:
            raise NotImplementedError("spinney has no transactions of fsspec")
        at = self._at(path)
        if "r" not in mode:
            self._make_parent(at)
        file = at.open(mode, buffering=block_size if isinstance(block_size, int) and block_size > 1 else -1)
        # A program may keep the file alone, and this file system closes its image when nothing refers to it.
        file.raw._owner = self
        return file

    def cat_file(self, path: Any, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any) -> bytes:
        if start is None and end is None:
            return self._at(path).read_bytes()
        with self._at(path).open("rb", buffering=0) as file:
            size = file.stat().st_size
            first, last = (_position(place, size, other) for place, other in ((start, 0), (end, size)))
            return file.pread(max(last - first, 0), first)

    def pipe_file(self, path: Any, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self._open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def mkdir(self, path: Any, create_parents: bool = True, **kwargs: Any) -> None:
        self._at(path).mkdir(parents=create_parents)

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        self._at(path).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path: Any) -> None:
        self._at(path).rmdir()

    def rm_file(self, path: Any) -> None:
        self._at(path).unlink()

    def _rm(self, path: Any) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for name in path if isinstance(path, list) else self.expand_path(path, recursive=False):
            at = self._at(name)
            if not at.is_dir() or at.is_symlink():
                at.unlink()
            elif recursive:
                at.rmtree()
            else:
                raise ValueError("Cannot delete directory, set recursive=True")

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        source, target = self._at(path1), self._at(path2)
        self._make_parent(target)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            self.volume.copy(source, target)

    def mv(self, path1: Any, path2: Any, recursive: bool = True, **kwargs: Any) -> None:
        source, target = self._at(path1), self._at(path2)
        if target.is_dir():
            target = target / source.name
        self._make_parent(target)
        source.rename(target)

    def get_file(self, rpath: Any, lpath: Any, callback: Any = None, outfile: Any = None, **kwargs: Any) -> None:
        target = outfile if outfile is not None else lpath
        if isfilelike(target):
            with self._at(rpath).open("rb") as source:
                shutil.copyfileobj(source, target)
        elif self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
        else:
            super().get_file(rpath, lpath, **({} if callback is None else {"callback": callback}), **kwargs)

    def touch(self, path: Any, truncate: bool = True, **kwargs: Any) -> None:
        at = self._at(path)
        self._make_parent(at)
        at.touch()
        if truncate:
            at.write_bytes(b"")

    def link(self, src: Any, dst: Any, **kwargs: Any) -> None:
        """Gives a file one more name."""
        self._at(dst).hardlink_to(self._at(src))

    def symlink(self, src: Any, dst: Any, **kwargs: Any) -> None:
        """Makes a symbolic link at `dst`."""
        self._at(dst).symlink_to(src)

    def chmod(self, path: Any, mode: int) -> None:
        """Sets the permission bits."""
        self._at(path).chmod(mode)

    def _make_parent(self, path: Path) -> None:
        if self.auto_mkdir:
            path.parent.mkdir(parents=True, exist_ok=True)


def _info(name: str, path: Path) -> Dict[str, Any]:
    found = path.lstat()
    is_link = stat_module.S_ISLNK(found.st_mode)
    result: Dict[str, Any] = {"name": name, "islink": is_link}
    if is_link:
        result["destination"] = str(path.readlink())
        try:
            found = path.stat()
        except OSError:
            # It leads nowhere, and is itself all there is.
            pass
    kinds = {stat_module.S_IFDIR: "directory", stat_module.S_IFREG: "file"}
    result["type"] = kinds.get(stat_module.S_IFMT(found.st_mode), "other")
    result["size"] = found.st_size if result["type"] == "file" else 0
    result["created"] = found.st_birthtime
    for field in ("mode", "uid", "gid", "mtime", "ino", "nlink"):
        result[field] = getattr(found, f"st_{field}")
    return result


def _position(place: Optional[int], size: int, otherwise: int) -> int:
    """A place in a file that may be counted from its end."""
    if place is None:
        return otherwise
    return max(size + place, 0) if place < 0 else place


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)


def _local(fo: Any, protocol: Optional[str], options: Dict[str, Any], writable: bool) -> str:
    """The path on this host of the image."""
    if not isinstance(fo, (str, os.PathLike)):
        raise TypeError(f"fo: expected a path, a URL or a volume, found {type(fo).__name__}")
    fo = os.fspath(fo)
    if protocol is None and "://" not in fo:
        return fo
    protocol = protocol or fo.split("://", 1)[0]
    fs = fsspec.filesystem(protocol, **options)
    if isinstance(fs, LocalFileSystem):
        return fs._strip_protocol(fo)
    if writable:
        raise ValueError(f"an image on {protocol} can only be read")
    if not getattr(fs, "local_file", False):
        fs = fsspec.filesystem("simplecache", fs=fs)
    with fs.open(fo, "rb") as file:
        return file.name
