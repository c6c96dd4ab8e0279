"""Opens, makes, checks and recognises images."""

from __future__ import annotations

import builtins
import os
import uuid as uuid_module
from typing import Callable, Iterable, Mapping, Optional, Tuple, Union

from . import _spinney
from ._types import CheckReport
from ._volume import Volume

HostPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
ProgressCallback = Callable[[_spinney.Progress], Optional[bool]]


def open(
    image: HostPath,
    writable: bool = False,
    *,
    owner: Tuple[int, int] = (0, 0),
    options: Optional[Mapping[str, Union[str, bytes, None]]] = None,
) -> Volume:
    """Opens the volume in an image file or on an unmounted block device, and recognises its format.

    `IMAGE?offset=N&size=M` names a part of a device, and `A,B` a volume on several devices.
    `owner` is the user and group of new files. `options` are those of `mount -o` for the format: `{"subvol": "/home"}`;
    one without a value is `None`.

    Raises `OSError`: `FileNotFoundError`, `PermissionError`; `EBUSY` if another program has it open, unless both only
    read; `EIO` for a damaged volume or one of no known format; `EINVAL`, `EOPNOTSUPP` for an option.
    """
    given = [(name, _value(value)) for name, value in (options or {}).items()]
    return Volume(_spinney.open_volume(os.fspath(image), writable, owner, given), image)


def make(
    image: HostPath,
    format: str = "btrfs",
    *,
    size: Optional[int] = None,
    label: str = "",
    uuid: Optional[uuid_module.UUID] = None,
    owner: Tuple[int, int] = (0, 0),
    options: Optional[Mapping[str, str]] = None,
) -> Volume:
    """Makes a volume and opens it for writing.

    `image` is an unmounted block device or an image file, which is created if `size`, in bytes, is given. Everything in
    it is overwritten, without asking. `options` are those of the format: btrfs has `csum` and `nodesize`.

    Raises `OSError`: `EINVAL` for an unknown format or option, `ENOSPC` for a size that is too small; else as `open`.
    """
    given = list((options or {}).items())
    number = None if uuid is None else list(uuid.bytes)
    return Volume(_spinney.make_volume(os.fspath(image), format, size, (label, number), owner, given), image)


def check(
    image: HostPath,
    *,
    data: bool = False,
    passes: Iterable[str] = (),
    threads: Optional[int] = None,
    progress: Optional[ProgressCallback] = None,
) -> CheckReport:
    """Checks the volume in an image, and writes nothing. Damage is in the report, which is true for a sound volume.

    `data` also reads the data of all files. `progress` is called with a `Progress` now and then, by this thread; the
    check is cancelled if it returns `False` (`OSError` with `ECANCELED`) or raises an exception, and by Ctrl-C.
    """
    return CheckReport._of(_spinney.check_image(os.fspath(image), list(passes), data, threads, progress))


def formats() -> Tuple[str, ...]:
    """Names of the formats."""
    return tuple(_spinney.format_names())


def recognise(image: HostPath) -> Optional[str]:
    """The format of an image, also one that only other programs read; `None` for none that is known."""
    with builtins.open(image, "rb") as file:
        return _spinney.recognise_image(file.read(_spinney.HEAD_BYTES))


def _value(value: Union[str, bytes, None]) -> Optional[bytes]:
    return os.fsencode(value) if isinstance(value, str) else value
