"""Open files as `io` has them."""

from __future__ import annotations

import io
from typing import Any, Tuple

from . import _spinney
from ._types import Extent

#: Bytes of the buffer of a file that is opened with `buffering=-1`.
BUFFER_BYTES = 128 << 10
#: Most bytes that are read at once to the end of a file.
PIECE_BYTES = 64 << 20


class RawFile(io.RawIOBase):
    """A file of a volume, unbuffered. Threads may share it: each read or write moves the position at once."""

    def __init__(self, native: _spinney.File, name: str, mode: str, owner: Any = None) -> None:
        super().__init__()
        self._native = native
        # What has to stay open as long as the file.
        self._owner = owner
        self.name = name
        self.mode = mode

    def __repr__(self) -> str:
        return f"<spinney.RawFile name={self.name!r} mode={self.mode!r} closed={self.closed}>"

    def readable(self) -> bool:
        self._refuse_closed()
        return "r" in self.mode or "+" in self.mode

    def writable(self) -> bool:
        self._refuse_closed()
        return "+" in self.mode or "r" not in self.mode

    def seekable(self) -> bool:
        self._refuse_closed()
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        if not self.readable():
            raise io.UnsupportedOperation("not readable")
        if size is None or size < 0:
            return self.readall()
        return self._native.read(size)

    def readall(self) -> bytes:
        pieces = []
        while piece := self.read(PIECE_BYTES):
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readinto(self, buffer: Any, /) -> int:
        with memoryview(buffer) as view, view.cast("B") as plain:
            data = self.read(len(plain))
            plain[: len(data)] = data
            return len(data)

    def write(self, data: Any, /) -> int:
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        return self._native.write(_bytes(data))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._native.seek(offset, whence)

    def tell(self) -> int:
        return self._native.seek(0, io.SEEK_CUR)

    def truncate(self, size: int | None = None, /) -> int:
        if not self.writable():
            raise io.UnsupportedOperation("truncate")
        size = self.tell() if size is None else size
        self._native.truncate(size)
        return size

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                self._native.close()
                self._owner = None

    def pread(self, size: int, offset: int) -> bytes:
        """Reads up to `size` bytes at `offset`, and leaves the position."""
        return self._native.pread(size, offset)

    def pwrite(self, data: Any, offset: int) -> int:
        """Writes all of `data` at `offset`, and leaves the position."""
        return self._native.pwrite(_bytes(data), offset)

    def sync(self, *, data_only: bool = False) -> None:
        """Makes the file durable, with the names that lead to it."""
        self._native.sync(data_only)

    def stat(self) -> _spinney.Stat:
        """The attributes of the file, also of one that has lost its names."""
        return self._native.stat()

    def extents(self) -> Tuple[Extent, ...]:
        """The places of the file's data on the device, in order."""
        return tuple(Extent(*row) for row in self._native.extents())

    def _refuse_closed(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


def flags(mode: str) -> Tuple[str, str]:
    """The flags of the compiled module for a mode of `open`, and the mode without `t`."""
    kinds = [letter for letter in mode if letter in "rwax"]
    if len(kinds) != 1 or len(set(mode)) != len(mode) or not set(mode) <= set("rwax+bt"):
        raise ValueError(f"invalid mode: {mode!r}")
    if "b" in mode and "t" in mode:
        raise ValueError("can't have text and binary mode at once")
    given = {"r": "r", "w": "wtc", "a": "ac", "x": "wx"}[kinds[0]]
    if "+" in mode:
        given += "rw" if kinds[0] != "a" else "r"
    return given, mode.replace("t", "")


def wrap(
    raw: RawFile,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> Any:
    """The file with the layers that the built-in `open` puts on one."""
    binary = "b" in mode
    if binary and (encoding is not None or errors is not None or newline is not None):
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
    if buffering == 0:
        if not binary:
            raise ValueError("can't have unbuffered text I/O")
        return raw
    size = buffering if buffering > 1 else BUFFER_BYTES
    buffered: Any
    if "+" in mode:
        buffered = io.BufferedRandom(raw, size)
    elif "r" in mode:
        buffered = io.BufferedReader(raw, size)
    else:
        buffered = io.BufferedWriter(raw, size)
    if binary:
        return buffered
    return io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline, line_buffering=buffering == 1)


def _bytes(data: Any) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        raise TypeError("a bytes-like object is required, not 'str'")
    with memoryview(data) as view:
        return view.tobytes()
