"""System calls that Python does not have, and the values that they take."""

import ctypes
import errno
import fcntl
import mmap
import os
import struct

LIBC = ctypes.CDLL(None, use_errno=True)

SYS_CAPSET = 126
SYS_RENAMEAT2 = 316
SYS_LINKAT = 265
SYS_NAME_TO_HANDLE_AT = 303
SYS_OPEN_BY_HANDLE_AT = 304
SYS_FCHMODAT2 = 452

AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
RENAME_WHITEOUT = 4

FALLOC_KEEP_SIZE = 1
FALLOC_PUNCH_HOLE = 2
FALLOC_COLLAPSE = 8
FALLOC_ZERO = 16
FALLOC_INSERT = 32

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

CLONE_NEWNS = 0x20000
CLONE_NEWUSER = 0x10000000

CAPS = {
    "chown": 0, "dac_override": 1, "dac_read_search": 2, "fowner": 3, "fsetid": 4, "setgid": 6,
    "setuid": 7, "linux_immutable": 9, "sys_admin": 21, "mknod": 27, "setfcap": 31,
}
CAP_LAST = 40

FS_IMMUTABLE = 0x10
FS_APPEND = 0x20
FS_NODUMP = 0x40
FS_NOATIME = 0x80
FS_NOCOW = 0x800000

IOC_GETFLAGS = 0x80086601
IOC_SETFLAGS = 0x40086602
IOC_FSGETXATTR = 0x801C581F
IOC_FSSETXATTR = 0x401C5820
IOC_GETVERSION = 0x80087601
IOC_SETVERSION = 0x40087602
FICLONE = 0x40049409
FITRIM = 0xC0185879
FIFREEZE = 0xC0045877

SUBVOL_CREATE = 0x5000940E
SNAP_DESTROY = 0x5000940F
SNAP_CREATE = 0x50009401
SNAP_CREATE_V2 = 0x50009417
SNAP_DESTROY_V2 = 0x5000943F
SUBVOL_GETFLAGS = 0x80089419
SUBVOL_SETFLAGS = 0x4008941A
INO_LOOKUP = 0xD0009412
DEFAULT_SUBVOL = 0x40089413
TREE_SEARCH = 0xD0009411
DEFRAG = 0x50009402
SET_FSLABEL = 0x41009432
SET_RECEIVED = 0xC0C09425
ROOT_DIR = 256


def fail():
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def call(number, *arguments):
    result = LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        fail()
    return result


def text(path):
    return ctypes.c_char_p(os.fsencode(path))


def renameat2(old, new, flags):
    call(SYS_RENAMEAT2, AT_FDCWD, text(old), AT_FDCWD, text(new), flags)


def linkat(old_dir, old, new, flags):
    call(SYS_LINKAT, old_dir, text(old), AT_FDCWD, text(new), flags)


def fallocate(fd, mode, offset, length):
    if LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) < 0:
        fail()


def mount(source, target, kind, flags, data=None):
    data = data and text(data)
    if LIBC.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), data) < 0:
        fail()


def ioctl(fd, command, argument=b""):
    """Of any length, where Python's takes 1,024 bytes unless it may write to them."""
    buffer = bytearray(argument)
    fcntl.ioctl(fd, command, buffer, True)
    return bytes(buffer)


def unshare(flags):
    if LIBC.unshare(flags) < 0:
        fail()


def prctl(option, value=0):
    if LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) < 0:
        fail()


def held_caps():
    """What the process may have at most."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1], 16) for line in lines if line.startswith("CapPrm"))


def set_caps(bits, drop_bounding):
    """Leaves the process the capabilities `bits`, as far as it has them, and no others."""
    bits &= held_caps()
    if drop_bounding:
        for cap in range(CAP_LAST + 1):
            if not bits >> cap & 1:
                LIBC.prctl(24, ctypes.c_ulong(cap), 0, 0, 0)
    header = struct.pack("<II", 0x20080522, 0)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    data = struct.pack("<IIIIII", low, low, 0, high, high, 0)
    call(SYS_CAPSET, header, data)


def handle_of(path):
    """A file handle, as name_to_handle_at gives it."""
    buffer = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0) + bytes(128))
    mount_id = ctypes.c_int()
    call(SYS_NAME_TO_HANDLE_AT, AT_FDCWD, text(path), buffer, ctypes.byref(mount_id), 0)
    return buffer.raw


def open_handle(mount_fd, handle, flags):
    return call(SYS_OPEN_BY_HANDLE_AT, mount_fd, ctypes.c_char_p(handle), flags)


def get_flags(fd):
    return struct.unpack("<I", ioctl(fd, IOC_GETFLAGS, bytes(8))[:4])[0]


def set_flags(fd, flags):
    ioctl(fd, IOC_SETFLAGS, struct.pack("<Q", flags))


def set_flags_of(path, flags):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        set_flags(fd, flags)
    finally:
        os.close(fd)


def set_extended_flags(fd, flags, project=0):
    ioctl(fd, IOC_FSSETXATTR, struct.pack("<IIIII8x", flags, 0, 0, project, 0))


def aligned(content):
    """The bytes in memory that O_DIRECT accepts."""
    memory = mmap.mmap(-1, (len(content) + 4095) // 4096 * 4096)
    memory[: len(content)] = content
    return memory


def acl(*entries):
    """The bytes of an access control list: (tag, permissions, id or None)."""
    tags = {"u": 1, "user": 2, "g": 4, "group": 8, "m": 16, "o": 32}
    body = struct.pack("<I", 2)
    for tag, permissions, number in entries:
        body += struct.pack("<HHI", tags[tag], permissions, 0xFFFFFFFF if number is None else number)
    return body


def capability(cap):
    """security.capability: one capability, permitted and effective."""
    return struct.pack("<IIIII", 0x02000001, 1 << cap, 0, 0, 0)


def subvol_args(fd, name):
    return struct.pack("<q4088s", fd, os.fsencode(name))


def subvol_args_v2(fd, name, transid=0, flags=0):
    return struct.pack("<qQQ32s4040s", fd, transid, flags, b"", os.fsencode(name))


def name_of(error):
    return errno.errorcode.get(error.errno, str(error.errno))
