"""Attributes: modes, owners, times, xattrs, access control lists and flags, changed by whom they may be."""

import fcntl
import os
import stat
import struct

import calls
from calls import FS_APPEND, FS_IMMUTABLE, FS_NOATIME, FS_NOCOW, FS_NODUMP, acl
from contents import WAYS
from frame import PROGRAM_BYTES, GROUP, LONG_AGO, MEMBER, OWNER, SHIFTED, STRANGER, attempt

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


@attempt("stranger member owner owner+group nocaps root-fowner root-fsetid cap:fowner cap:fowner+fsetid userns "
         "userns-owner userns-range")
def change_modes(scene):
    for name in ("f6777", "f2666", "f0644", "f1000"):
        scene.file(name, 0o600)
    scene.file("shifted", 0o600, SHIFTED, SHIFTED)
    scene.file("of-root", 0o600, 0, 0)
    scene.dir("d", 0o755)
    os.symlink("f0644", scene.path("symlink"))
    yield
    for name in ("f6777", "f2666", "f0644", "f1000"):
        scene.do(name, os.chmod, scene.path(name), int(name[1:], 8))
    for name in ("shifted", "of-root"):
        scene.do(name, os.chmod, scene.path(name), 0o4755)
    scene.do("folder", os.chmod, scene.path("d"), 0o7777)
    fd = scene.open(scene.path("f0644"), os.O_RDONLY)
    if fd is not None:
        scene.do("handle", os.fchmod, fd, 0o6755)
    scene.do("symlink", calls.call, calls.SYS_FCHMODAT2, calls.AT_FDCWD, calls.text(scene.path("symlink")), 0o600,
             0x100)


@attempt("stranger member owner owner+group nocaps root root-chown root-fsetid root-fowner cap:chown "
         "cap:fowner cap:chown+fowner userns userns-owner "
         "userns-range userns-zero")
def change_owners(scene):
    """Of files with set-user bits, which go with the change, and capabilities."""
    wanted = ((STRANGER, -1), (-1, GROUP), (-1, STRANGER), (-1, MEMBER), (OWNER, -1), (0, 0), (-1, -1), (OWNER, GROUP))
    for index, _ in enumerate(wanted):
        path = scene.program(f"f{index}", 0o6755, OWNER, OWNER)
        os.setxattr(path, "security.capability", calls.capability(13))
        scene.file(f"bare{index}", 0o2644, OWNER, OWNER)
    for name in ("other-group", "own-group"):
        scene.file(name, 0o2644, OWNER, STRANGER)
    os.setxattr(scene.file("powerful", 0o755), "security.capability", calls.capability(13))
    scene.dir("d", 0o6755, OWNER, OWNER)
    scene.file("shifted", 0o6755, SHIFTED, SHIFTED)
    os.symlink("f0", scene.path("symlink"))
    os.chown(scene.path("symlink"), OWNER, OWNER, follow_symlinks=False)
    yield
    for index, (uid, gid) in enumerate(wanted):
        os.stat(scene.path(f"f{index}"))
        for name in (f"f{index}", f"bare{index}"):
            scene.do(f"{name} {uid} {gid}", os.chown, scene.path(name), uid, gid)
            scene.mode(scene.path(name))
    scene.do("other group", os.chown, scene.path("other-group"), -1, -1)
    scene.do("own group", os.chown, scene.path("own-group"), -1, OWNER)
    scene.do("capability", os.chown, scene.path("powerful"), -1, -1)
    scene.do("folder", os.chown, scene.path("d"), -1, GROUP)
    scene.do("shifted", os.chown, scene.path("shifted"), 1, 1)
    scene.do("symlink", os.chown, scene.path("symlink"), -1, GROUP, follow_symlinks=False)
    scene.run(scene.path("f0"))


@attempt("stranger member owner nocaps root-fowner cap:fowner cap:dac_override userns userns-owner")
def change_times(scene):
    for name, mode in (("closed", 0o644), ("open", 0o666), ("group", 0o664), ("append", 0o666), ("fixed", 0o666)):
        scene.file(name, mode)
    calls.set_flags_of(scene.path("append"), FS_APPEND)
    calls.set_flags_of(scene.path("fixed"), FS_IMMUTABLE)
    scene.dir("d", 0o777)
    os.symlink("open", scene.path("symlink"))
    os.chown(scene.path("symlink"), OWNER, OWNER, follow_symlinks=False)
    yield
    for name in ("closed", "open", "group", "append", "fixed", "d"):
        scene.do(f"{name} explicit", os.utime, scene.path(name), (7, 9))
        scene.do(f"{name} now", os.utime, scene.path(name))
    scene.do("symlink", os.utime, scene.path("symlink"), (11, 13), follow_symlinks=False)
    fd = scene.open(scene.path("closed"), os.O_RDONLY)
    scene.do("handle explicit", os.utime, fd, (15, 17))
    scene.do("handle now", os.utime, fd)


NAMES = ("user.x", "trusted.x", "security.x", "security.capability", "security.selinux", "system.x",
         "btrfs.compression", "unknown.x", "user.", "trusted.")


@attempt("stranger member owner nocaps root root-sys_admin cap:sys_admin cap:dac_override cap:fowner cap:setfcap "
         "userns userns-owner userns-range")
def extended_attributes(scene):
    scene.dir("sticky", 0o1777, 0, 0)
    for name, mode in (("open", 0o666), ("closed", 0o600), ("readable", 0o644)):
        path = scene.file(name, mode)
        os.setxattr(path, "user.there", b"user value")
        os.setxattr(path, "trusted.there", b"trusted value")
        os.setxattr(path, "security.there", b"security value")
    os.symlink("open", scene.path("symlink"))
    os.mkfifo(scene.path("fifo"))
    os.chmod(scene.path("fifo"), 0o666)
    yield
    for name in ("open", "closed", "readable", "sticky", "symlink", "fifo"):
        path, follow = scene.path(name), {"follow_symlinks": False}
        scene.do(f"{name} list", lambda: sorted(os.listxattr(path, **follow)))
        for attribute in ("user.there", "trusted.there", "security.there"):
            scene.do(f"{name} get {attribute}", os.getxattr, path, attribute, **follow)
            scene.do(f"{name} replace {attribute}", os.setxattr, path, attribute, b"new", os.XATTR_REPLACE, **follow)
            scene.do(f"{name} remove {attribute}", os.removexattr, path, attribute, **follow)
        for attribute in NAMES:
            value = calls.capability(10) if attribute.endswith("capability") else b"zlib"
            scene.do(f"{name} set {attribute}", os.setxattr, path, attribute, value, os.XATTR_CREATE, **follow)


@attempt("stranger member owner nocaps root-fowner cap:fowner cap:fowner+fsetid userns userns-owner userns-range")
def set_access_lists(scene):
    listed = acl(("u", 6, None), ("user", 7, STRANGER), ("g", 4, None), ("m", 7, None), ("o", 0, None))
    plain = acl(("u", 7, None), ("g", 5, None), ("o", 1, None))
    broken = acl(("u", 7, None), ("user", 7, STRANGER), ("g", 5, None), ("o", 1, None))
    for name in ("f", "plain", "broken", "removed", "bits"):
        scene.file(name, 0o666)
    os.chmod(scene.path("bits"), 0o6755)
    os.setxattr(scene.path("removed"), ACCESS, listed)
    scene.dir("d", 0o777)
    os.symlink("f", scene.path("symlink"))
    yield
    scene.do("set", os.setxattr, scene.path("f"), ACCESS, listed)
    scene.mode(scene.path("f"))
    scene.do("plain", os.setxattr, scene.path("plain"), ACCESS, plain)
    scene.mode(scene.path("plain"))
    scene.do("broken", os.setxattr, scene.path("broken"), ACCESS, broken)
    scene.do("remove", os.removexattr, scene.path("removed"), ACCESS)
    scene.mode(scene.path("removed"))
    scene.do("bits", os.setxattr, scene.path("bits"), ACCESS, plain)
    scene.mode(scene.path("bits"))
    scene.do("get", os.getxattr, scene.path("f"), ACCESS)
    scene.do("default", os.setxattr, scene.path("d"), DEFAULT, listed)
    scene.do("default of file", os.setxattr, scene.path("f"), DEFAULT, listed)
    scene.do("symlink", os.setxattr, scene.path("symlink"), ACCESS, listed, follow_symlinks=False)
    scene.do("chmod", os.chmod, scene.path("f"), 0o640)
    scene.do("get after chmod", os.getxattr, scene.path("f"), ACCESS)


@attempt("stranger member owner owner+group primary nocaps cap:dac_override cap:dac_read_search userns userns-owner "
         "userns-zero")
def access_by_lists(scene):
    lists = {
        "named": acl(("u", 6, None), ("user", 6, STRANGER), ("g", 0, None), ("m", 7, None), ("o", 0, None)),
        "masked": acl(("u", 6, None), ("user", 6, STRANGER), ("g", 6, None), ("m", 4, None), ("o", 6, None)),
        "denied": acl(("u", 6, None), ("user", 0, STRANGER), ("g", 6, None), ("m", 7, None), ("o", 6, None)),
        "group": acl(("u", 6, None), ("g", 0, None), ("group", 6, GROUP), ("m", 6, None), ("o", 0, None)),
        "group-denied": acl(("u", 6, None), ("g", 0, None), ("group", 0, GROUP), ("m", 7, None), ("o", 7, None)),
        "two-groups": acl(("u", 6, None), ("g", 4, None), ("group", 2, MEMBER), ("group", 4, GROUP), ("m", 7, None),
                          ("o", 0, None)),
        "no-mask-bits": acl(("u", 6, None), ("user", 7, OWNER), ("g", 7, None), ("m", 0, None), ("o", 7, None)),
    }
    for name, value in lists.items():
        scene.file(name, 0o600)
        os.setxattr(scene.path(name), ACCESS, value)
        scene.dir(f"d-{name}", 0o700)
        scene.file(f"d-{name}/f", 0o666)
        os.setxattr(scene.path(f"d-{name}"), ACCESS, value.replace(struct.pack("<H", 6), struct.pack("<H", 7)))
    yield
    for name in lists:
        for label, flags in (("r", os.O_RDONLY), ("w", os.O_WRONLY), ("rw", os.O_RDWR)):
            scene.open(scene.path(name), flags, f"{name} {label}")
        scene.do(f"{name} list", lambda: os.listdir(scene.path(f"d-{name}")))
        scene.do(f"{name} stat", os.stat, scene.path(f"d-{name}/f"))
        scene.do(f"{name} make", os.mkdir, scene.path(f"d-{name}/new"))
        scene.do(f"{name} unlink", os.unlink, scene.path(f"d-{name}/f"))


@attempt("stranger member owner root nocaps userns")
def lists_are_inherited(scene):
    scene.dir("d", 0o777)
    os.setxattr(scene.path("d"), DEFAULT, acl(("u", 7, None), ("user", 6, STRANGER), ("g", 5, None),
                                              ("group", 7, GROUP), ("m", 6, None), ("o", 1, None)))
    scene.dir("plain", 0o2777, 0, GROUP)
    os.setxattr(scene.path("plain"), DEFAULT, acl(("u", 6, None), ("g", 4, None), ("o", 0, None)))
    yield
    for folder in ("d", "plain"):
        at = lambda name: scene.path(f"{folder}/{name}")
        os.umask(0o077)
        for name, mode in (("f", 0o666), ("f2", 0o6770), ("f3", 0o000)):
            scene.do(f"{folder} {name}", lambda: os.close(os.open(at(name), os.O_CREAT | os.O_WRONLY, mode)))
        scene.do(f"{folder} mkdir", os.mkdir, at("sub"), 0o777)
        scene.do(f"{folder} mkdir below", os.mkdir, at("sub/below"), 0o7750)
        scene.do(f"{folder} mknod", os.mknod, at("fifo"), stat.S_IFIFO | 0o666)
        scene.do(f"{folder} symlink", os.symlink, "x", at("symlink"))
        fd = scene.open(scene.path(folder), os.O_RDWR | os.O_TMPFILE, f"{folder} temporary")
        if fd is not None:
            scene.do(f"{folder} link", calls.linkat, calls.AT_FDCWD, f"/proc/self/fd/{fd}", at("linked"),
                     calls.AT_SYMLINK_FOLLOW)


@attempt("stranger member owner root nocaps root-linux_immutable cap:linux_immutable cap:fowner userns userns-owner "
         "userns-zero")
def change_flags(scene):
    wanted = (FS_IMMUTABLE, FS_APPEND, FS_NODUMP, FS_NOATIME, FS_NOCOW, 0x8, 0x4, 0x400, 0x40000000, 0x10000)
    for index, _ in enumerate(wanted):
        scene.file(f"f{index}", 0o666, data=b"")
    for name, flags in (("immutable", FS_IMMUTABLE), ("append", FS_APPEND)):
        scene.file(name, 0o666)
        calls.set_flags_of(scene.path(name), flags)
    scene.dir("d", 0o777)
    yield
    for index, flags in enumerate(wanted):
        fd = scene.open(scene.path(f"f{index}"), os.O_RDONLY)
        scene.do(f"set {flags:x}", calls.set_flags, fd, flags)
    for name in ("immutable", "append", "d"):
        fd = scene.open(scene.path(name), os.O_RDONLY)
        scene.do(f"{name} add", calls.set_flags, fd, FS_IMMUTABLE | FS_APPEND)
        scene.do(f"{name} clear", calls.set_flags, fd, 0)
        scene.do(f"{name} extended", calls.set_extended_flags, fd, 0x80)
        scene.do(f"{name} extended immutable", calls.set_extended_flags, fd, 0x08)
        scene.do(f"{name} project", calls.set_extended_flags, fd, 0, 7)


@attempt("stranger owner root nocaps")
def immutable_files(scene):
    changed_files(scene, FS_IMMUTABLE)
    yield
    change_file(scene)


@attempt("stranger owner root nocaps")
def append_only_files(scene):
    changed_files(scene, FS_APPEND)
    yield
    change_file(scene)


def changed_files(scene, flags):
    path = scene.file("f", 0o666, data=b"x" * PROGRAM_BYTES)
    os.setxattr(path, "user.there", b"1")
    scene.file("other", 0o666)
    scene.handle = os.open(path, os.O_RDWR)
    scene.appending = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.chmod(scene.folder, 0o777)
    calls.set_flags_of(path, flags)


def change_file(scene):
    path = scene.path("f")
    for label, flags in (("r", os.O_RDONLY), ("w", os.O_WRONLY), ("rw", os.O_RDWR),
                         ("append", os.O_WRONLY | os.O_APPEND), ("truncate", os.O_WRONLY | os.O_TRUNC),
                         ("append truncate", os.O_WRONLY | os.O_APPEND | os.O_TRUNC)):
        scene.open(path, flags, f"open {label}")
    for way, change in WAYS.items():
        if way not in ("splice", "mapped"):
            scene.do(way, change, path)
    scene.do("chmod", os.chmod, path, 0o777)
    scene.do("chown", os.chown, path, -1, -1)
    scene.do("utimes", os.utime, path, (1, 1))
    scene.do("now", os.utime, path)
    scene.do("xattr", os.setxattr, path, "user.x", b"1")
    scene.do("remove xattr", os.removexattr, path, "user.there")
    scene.do("list", os.setxattr, path, ACCESS, acl(("u", 7, None), ("g", 5, None), ("o", 1, None)))
    scene.do("link", os.link, path, scene.path("linked"))
    scene.do("rename", os.rename, path, scene.path("renamed"))
    scene.do("rename over", os.rename, scene.path("other"), path)
    scene.do("unlink", os.unlink, path)


def by_handle(scene, fd):
    """Changes by a handle that is older than the flag."""
    scene.do("write", os.write, fd, b"abc")
    scene.do("truncate", os.ftruncate, fd, 0)
    scene.do("punch", calls.fallocate, fd, 3, 0, 4096)
    scene.do("collapse", calls.fallocate, fd, calls.FALLOC_COLLAPSE, 0, 4096)
    scene.do("copy", copy_from_other, scene, fd)


def older_handle(label, flags, is_appending):
    def act(scene):
        changed_files(scene, flags)
        yield
        by_handle(scene, scene.appending if is_appending else scene.handle)
    act.__name__ = f"{label}_file_by_older_{'appending_' if is_appending else ''}handle"
    return act


for _is_appending in (False, True):
    attempt("stranger owner root")(older_handle("immutable", FS_IMMUTABLE, _is_appending))
    attempt("stranger owner root")(older_handle("append_only", FS_APPEND, _is_appending))


def copy_from_other(scene, fd):
    other = os.open(scene.path("other"), os.O_RDONLY)
    try:
        os.copy_file_range(other, fd, 4, 0, 0)
    finally:
        os.close(other)


@attempt("stranger owner root")
def listing_and_versions(scene):
    path = scene.file("f", 0o644)
    yield
    fd = scene.open(path, os.O_RDONLY)
    scene.do("get flags", lambda: hex(calls.get_flags(fd)))
    scene.do("set version", fcntl.ioctl, fd, calls.IOC_SETVERSION, bytes(8))
    scene.do("trim", fcntl.ioctl, fd, calls.FITRIM, bytes(24))
    scene.do("freeze", lambda: None if os.getuid() == 0 else fcntl.ioctl(fd, calls.FIFREEZE, 0))
