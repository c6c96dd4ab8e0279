"""btrfs and f2fs images without root and without the kernel: make, read, change and check them.

>>> import spinney
>>> with spinney.make("site.img", size=128 << 20) as volume:
...     (volume / "etc").mkdir()
...     (volume / "etc" / "motd").write_text("hello")
5
>>> with spinney.open("site.img") as volume:
...     print((volume / "etc" / "motd").read_text())
hello

A change is durable after `Volume.sync` or `Volume.close`, which the end of a `with` block calls, and for one file after
`os.fsync`-like `File.sync`. The end of the interpreter closes the volumes that are open; a kill or crash leaves the
state of the last sync.

Names are `str`, in which surrogates stand for bytes that are not UTF-8, or `bytes`. Failures are `OSError`, of the
subclass that Python has for the errno: `strerror` is the message, `filename` the path, and `blame` the party at fault
("caller", "image", "device", "program", "space", ...). Threads may share everything. A volume cannot be pickled, and a
child process cannot use the volumes that its parent opened before a fork.
"""

from ._images import check, formats, make, open, recognise
from ._path import Path
from ._spinney import VERSION as __version__
from ._spinney import Progress, Stat
from ._types import (
    Added,
    Change,
    Changed,
    CheckReport,
    Conflict,
    Extent,
    Finding,
    Fork,
    Info,
    Merged,
    NameChange,
    Received,
    Removed,
    Subvolume,
)
from ._volume import Volume

__all__ = [
    "Added",
    "Change",
    "Changed",
    "CheckReport",
    "Conflict",
    "Extent",
    "Finding",
    "Fork",
    "Info",
    "Merged",
    "NameChange",
    "Path",
    "Progress",
    "Received",
    "Removed",
    "Stat",
    "Subvolume",
    "Volume",
    "__version__",
    "check",
    "formats",
    "make",
    "open",
    "recognise",
]
