"""Mounts that forbid something, namespaces of users, and subvolumes."""

import os
import stat
import struct

import calls
from calls import FS_NODUMP, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, acl
from frame import GROUP, OWNER, SHIFTED, STRANGER, as_user, attempt

BY_NUMBER = 1 << 4
READ_ONLY = 1 << 1


def fill(scene, name="d"):
    scene.dir(name, 0o777)
    scene.file(f"{name}/f", 0o666)
    scene.file(f"{name}/g", 0o666)
    scene.dir(f"{name}/sub", 0o777)
    os.symlink("f", scene.path(f"{name}/symlink"))
    os.setxattr(scene.path(f"{name}/f"), "user.there", b"1")


def change_everything(scene, name="d"):
    """Tries each kind of change."""
    at = lambda part: scene.path(f"{name}/{part}")
    scene.open(at("f"), os.O_RDONLY, "open to read")
    scene.open(at("f"), os.O_WRONLY, "open to write")
    scene.open(at("f"), os.O_RDONLY | os.O_TRUNC, "open to truncate")
    scene.open(at("new"), os.O_WRONLY | os.O_CREAT, "create")
    scene.open(scene.path(name), os.O_RDWR | os.O_TMPFILE, "temporary")
    scene.do("truncate", os.truncate, at("f"), 1)
    scene.do("mkdir", os.mkdir, at("made"))
    scene.do("mknod", os.mknod, at("fifo"), stat.S_IFIFO | 0o666)
    scene.do("symlink", os.symlink, "x", at("symlink2"))
    scene.do("link", os.link, at("f"), at("linked"))
    scene.do("rename", os.rename, at("g"), at("renamed"))
    scene.do("unlink", os.unlink, at("g"))
    scene.do("rmdir", os.rmdir, at("sub"))
    scene.do("chmod", os.chmod, at("f"), 0o600)
    scene.do("chown", os.chown, at("f"), OWNER, OWNER)
    scene.do("utimes", os.utime, at("f"), (1, 1))
    scene.do("now", os.utime, at("f"))
    scene.do("xattr", os.setxattr, at("f"), "user.x", b"1")
    scene.do("remove xattr", os.removexattr, at("f"), "user.there")
    scene.do("list", os.setxattr, at("f"), "system.posix_acl_access",
             acl(("u", 7, None), ("user", 7, STRANGER), ("g", 5, None), ("m", 7, None), ("o", 1, None)))
    fd = scene.open(at("f"), os.O_RDONLY)
    scene.do("flags", calls.set_flags, fd, FS_NODUMP)
    scene.do("extended flags", calls.set_extended_flags, fd, 0x80)
    scene.do("handle chmod", os.fchmod, fd, 0o640)
    scene.do("handle utimes", os.utime, fd, (2, 2))
    scene.do("handle truncate", os.ftruncate, fd, 0)
    scene.do("reopen", lambda: os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR)))
    folder = scene.open(scene.path(name), os.O_RDONLY, "folder")
    scene.do("subvolume", calls.ioctl, folder, calls.SUBVOL_CREATE, calls.subvol_args(0, "subvolume"))
    scene.do("snapshot", snapshot, scene, folder, folder, "snapshot")


WHO = "stranger owner root nocaps"


@attempt(WHO + " userns")
def read_only_bind_mount(scene):
    fill(scene)
    scene.bind("d", MS_RDONLY)
    yield
    change_everything(scene)


@attempt(WHO + " userns")
def volume_made_read_only(scene):
    fill(scene)
    scene.freezes = True
    yield
    change_everything(scene)


@attempt("stranger owner root")
def volume_made_read_only_and_writable_again(scene):
    """The capability to write comes back with the mount's."""
    fill(scene)
    scene.freeze()
    calls.mount("none", scene.top, "none", calls.MS_REMOUNT)
    yield
    change_everything(scene)


@attempt(WHO)
def handle_older_than_the_read_only_bind_mount(scene):
    fill(scene)
    handle = os.open(scene.path("d/f"), os.O_RDWR)
    folder = os.open(scene.path("d"), os.O_RDONLY)
    scene.bind("d", MS_RDONLY)
    yield
    scene.do("write", os.write, handle, b"new")
    scene.do("truncate", os.ftruncate, handle, 1)
    scene.do("chmod", os.fchmod, handle, 0o700)
    scene.do("make", os.mkdir, "new", dir_fd=folder)


@attempt("stranger owner root userns")
def bind_mounts_without_programs_and_devices(scene):
    scene.dir("d", 0o777)
    scene.program("d/set-user", 0o4755)
    scene.program("d/set-group", 0o2755, OWNER, GROUP)
    scene.program("d/powerful", 0o755)
    os.setxattr(scene.path("d/powerful"), "security.capability", calls.capability(13))
    os.mknod(scene.path("d/null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.chmod(scene.path("d/null"), 0o666)
    calls.unshare(calls.CLONE_NEWNS)
    calls.mount("none", "/", "none", calls.MS_REC | calls.MS_PRIVATE)
    flags = {"nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}
    for name, flag in flags.items():
        scene.dir(name)
        calls.mount(scene.path("d"), scene.path(name), "none", calls.MS_BIND)
        calls.mount("none", scene.path(name), "none", calls.MS_BIND | calls.MS_REMOUNT | flag)
    yield
    for folder in ("d", *flags):
        for name in ("set-user", "set-group", "powerful"):
            scene.run(scene.path(f"{folder}/{name}"), f"{folder} {name}")
        scene.open(scene.path(f"{folder}/null"), os.O_RDWR, f"{folder} null")


@attempt("userns userns-owner userns-zero userns-range stranger root")
def mount_tricks_of_a_namespace(scene):
    """Binding, remounting and unmounting what is locked in a namespace of users."""
    fill(scene)
    scene.dir("target", 0o777)
    scene.bind("d", MS_RDONLY | MS_NOSUID)
    yield
    remount = calls.MS_BIND | calls.MS_REMOUNT
    scene.do("make writable", calls.mount, "none", scene.path("d"), "none", remount | MS_NOSUID)
    scene.do("make suid", calls.mount, "none", scene.path("d"), "none", remount | MS_RDONLY)
    scene.do("bind", calls.mount, scene.path("d"), scene.path("target"), "none", calls.MS_BIND | calls.MS_REC)
    scene.open(scene.path("target/f"), os.O_WRONLY, "write through it")
    if os.getuid() != 0 or scene.steps[0][1] != "done":
        scene.do("remount the volume", calls.mount, "none", scene.top, "none", calls.MS_REMOUNT | MS_RDONLY)


@attempt("userns-range root userns-zero")
def root_of_a_range(scene):
    """Root of a container owns what is of its numbers, and nothing else."""
    for name, user in (("inside", SHIFTED), ("user", SHIFTED + 5), ("outside", OWNER), ("root", 0)):
        scene.file(name, 0o600, user, user)
        scene.dir(f"d-{name}", 0o700, user, user)
        scene.file(f"d-{name}/f", 0o600, user, user)
    os.chown(scene.folder, SHIFTED, SHIFTED)
    yield
    for name in ("inside", "user", "outside", "root"):
        path = scene.path(name)
        scene.open(path, os.O_RDWR, f"{name} open")
        scene.do(f"{name} chmod", os.chmod, path, 0o6755)
        scene.do(f"{name} chown", os.chown, path, 7, 7)
        scene.do(f"{name} chown to root", os.chown, path, 0, 0)
        scene.do(f"{name} xattr", os.setxattr, path, "security.capability", calls.capability(13))
        scene.do(f"{name} get", os.getxattr, path, "security.capability")
        scene.do(f"{name} trusted", os.setxattr, path, "trusted.x", b"1")
        scene.do(f"{name} list", os.setxattr, path, "system.posix_acl_access",
                 acl(("u", 6, None), ("user", 6, 9), ("g", 4, None), ("m", 6, None), ("o", 0, None)))
        scene.do(f"{name} get list", os.getxattr, path, "system.posix_acl_access")
        scene.do(f"{name} folder", lambda: sorted(os.listdir(scene.path(f"d-{name}"))))
        scene.do(f"{name} unlink", os.unlink, scene.path(f"d-{name}/f"))
    scene.do("mknod", os.mknod, scene.path("device"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    scene.do("mkfifo", os.mkfifo, scene.path("fifo"))
    scene.do("make", lambda: os.close(os.open(scene.path("made"), os.O_CREAT | os.O_WRONLY, 0o6755)))


@attempt("userns userns-plain")
def making_files_as_an_unmapped_user(scene):
    """In a namespace in which the one who acts has no number."""
    scene.dir("open", 0o777, 0, 0)
    scene.dir("group", 0o2777, 0, GROUP)
    yield
    for folder in ("open", "group"):
        at = lambda name: scene.path(f"{folder}/{name}")
        scene.do(f"{folder} create", lambda: os.close(os.open(at("f"), os.O_CREAT | os.O_WRONLY, 0o6777)))
        scene.do(f"{folder} mkdir", os.mkdir, at("d"))
        scene.do(f"{folder} chown", os.chown, at("f"), 1, 1)
        scene.do(f"{folder} chmod", os.chmod, at("f"), 0o6755)
        scene.do(f"{folder} capability", os.setxattr, at("f"), "security.capability", calls.capability(13))
        scene.do(f"{folder} stat", lambda: f"{os.stat(at('f')).st_uid}:{os.stat(at('f')).st_gid}")


def number_of(fd):
    answer = calls.ioctl(fd, calls.INO_LOOKUP, struct.pack("<QQ", 0, calls.ROOT_DIR) + bytes(4080))
    return struct.unpack("<Q", answer[:8])[0]


def snapshot(scene, folder, source, name, flags=0):
    """A server knows no descriptors of others: it is told the source's number instead."""
    if scene.is_ours:
        args = calls.subvol_args_v2(0, name, number_of(source), flags | BY_NUMBER)
    else:
        args = calls.subvol_args_v2(source, name, 0, flags)
    calls.ioctl(folder, calls.SNAP_CREATE_V2, args)


def make_subvolume(scene, name, mode, uid=OWNER, gid=GROUP):
    """A subvolume with a file in it, made as root."""
    folder, last = os.path.split(scene.path(name))
    fd = os.open(folder, os.O_RDONLY)
    calls.ioctl(fd, calls.SUBVOL_CREATE, calls.subvol_args(0, last))
    os.close(fd)
    scene.file(f"{name}/f", 0o666)
    os.chown(scene.path(name), uid, gid)
    os.chmod(scene.path(name), mode)
    return os.open(scene.path(name), os.O_RDONLY)


def freeze(fd):
    calls.ioctl(fd, calls.SUBVOL_SETFLAGS, struct.pack("<Q", READ_ONLY))


SUBVOLUME_USERS = "stranger member owner root nocaps userns userns-owner userns-zero"


@attempt(SUBVOLUME_USERS, when="subvolumes")
def make_subvolumes(scene):
    folders = (("open", 0o777, OWNER), ("closed", 0o755, OWNER), ("group", 0o2775, OWNER), ("no-search", 0o776, OWNER),
               ("no-write", 0o775, 0), ("sticky", 0o1777, 0), ("set-group", 0o2777, 0))
    for name, mode, user in folders:
        scene.dir(name, mode, user, GROUP)
    for name, value in (
        ("named", acl(("u", 7, None), ("user", 7, STRANGER), ("g", 0, None), ("m", 7, None), ("o", 0, None))),
        ("masked", acl(("u", 7, None), ("user", 7, STRANGER), ("g", 7, None), ("m", 5, None), ("o", 5, None))),
        ("denied", acl(("u", 7, None), ("user", 0, STRANGER), ("g", 7, None), ("m", 7, None), ("o", 7, None))),
    ):
        scene.dir(f"list-{name}", 0o755)
        os.setxattr(scene.path(f"list-{name}"), "system.posix_acl_access", value)
    scene.dir("inherits", 0o777)
    os.setxattr(scene.path("inherits"), "system.posix_acl_default",
                acl(("u", 7, None), ("user", 6, STRANGER), ("g", 5, None), ("m", 6, None), ("o", 1, None)))
    scene.dir("fixed", 0o777)
    calls.set_flags_of(scene.path("fixed"), calls.FS_IMMUTABLE)
    scene.dir("append", 0o777)
    calls.set_flags_of(scene.path("append"), calls.FS_APPEND)
    handles = {name: os.open(scene.path(name), os.O_RDONLY) for name in sorted(os.listdir(scene.folder))}
    yield
    for name, fd in handles.items():
        scene.do(name, calls.ioctl, fd, calls.SUBVOL_CREATE, calls.subvol_args(0, "new"))
    open_folder = handles["open"]
    for name in ("", ".", "..", "a/b", "n" * 255, "n" * 256, "new"):
        scene.do(f"name {name[:3]} {len(name)}", calls.ioctl, open_folder, calls.SUBVOL_CREATE,
                 calls.subvol_args(0, name))


SOURCES = (("own", 0o700, OWNER), ("of-root", 0o755, 0), ("of-stranger", 0o700, STRANGER), ("hidden", 0o000, 0),
           ("group", 0o770, OWNER))


@attempt(SUBVOLUME_USERS, when="subvolumes")
def make_snapshots(scene):
    scene.dir("open", 0o777, 0, 0)
    scene.dir("closed", 0o755, 0, 0)
    sources = {}
    for name, mode, user in SOURCES:
        sources[name] = make_subvolume(scene, name, mode, user)
    folders = {name: os.open(scene.path(name), os.O_RDONLY) for name in ("open", "closed")}
    yield
    for name, source in sources.items():
        for kind, flags in (("", 0), ("-fixed", READ_ONLY)):
            scene.do(f"{name}{kind}", snapshot, scene, folders["open"], source, f"of-{name}{kind}", flags)
        scene.do(f"{name} in closed", snapshot, scene, folders["closed"], source, f"of-{name}")


def delete(fd, name):
    calls.ioctl(fd, calls.SNAP_DESTROY, calls.subvol_args(0, name))


@attempt(SUBVOLUME_USERS + " primary cap:fowner cap:dac_override", when="subvolumes")
def delete_subvolumes(scene):
    folders = {}
    for folder, mode, user in (("open", 0o777, 0), ("closed", 0o755, 0), ("sticky", 0o1777, 0), ("own", 0o1777, OWNER)):
        scene.dir(folder, 0o777, user, GROUP)
        for name, bits, uid in SOURCES:
            os.close(make_subvolume(scene, f"{folder}/{name}", bits, uid))
        os.close(make_subvolume(scene, f"{folder}/fixed", 0o777, OWNER))
        fd = os.open(scene.path(f"{folder}/fixed"), os.O_RDONLY)
        as_user(OWNER, freeze, fd)
        os.close(fd)
        scene.dir(f"{folder}/plain", 0o777)
        os.chmod(scene.path(folder), mode)
        folders[folder] = os.open(scene.path(folder), os.O_RDONLY)
    yield
    for folder, fd in folders.items():
        for name in [source[0] for source in SOURCES] + ["fixed", "plain", "missing"]:
            scene.do(f"{folder} {name}", delete, fd, name)
            scene.do(f"{folder} {name} rmdir", os.rmdir, name, dir_fd=fd)


@attempt("stranger member owner nocaps userns cap:dac_override", when="subvolumes")
def delete_by_list(scene):
    """Access control lists of the folder and of the subvolume decide, not the bits of the group."""
    lists = {
        "named": acl(("u", 7, None), ("user", 7, STRANGER), ("g", 0, None), ("m", 7, None), ("o", 0, None)),
        "masked": acl(("u", 7, None), ("user", 7, STRANGER), ("g", 7, None), ("m", 5, None), ("o", 5, None)),
        "denied": acl(("u", 7, None), ("user", 0, STRANGER), ("g", 7, None), ("m", 7, None), ("o", 7, None)),
    }
    folders = {}
    for name, value in lists.items():
        scene.dir(f"d-{name}", 0o755, 0, 0)
        os.close(make_subvolume(scene, f"d-{name}/s", 0o777))
        os.setxattr(scene.path(f"d-{name}"), "system.posix_acl_access", value)
        scene.dir(f"s-{name}", 0o777, 0, 0)
        os.close(make_subvolume(scene, f"s-{name}/s", 0o755))
        os.setxattr(scene.path(f"s-{name}/s"), "system.posix_acl_access", value)
        for prefix in "ds":
            folders[f"{prefix}-{name}"] = os.open(scene.path(f"{prefix}-{name}"), os.O_RDONLY)
    yield
    for name, fd in folders.items():
        scene.do(name, delete, fd, "s")


@attempt(SUBVOLUME_USERS + " cap:fowner", when="subvolumes")
def freeze_subvolumes(scene):
    handles = {name: make_subvolume(scene, name, mode, user) for name, mode, user in SOURCES}
    os.chmod(scene.folder, 0o755)
    plain = os.open(scene.dir("plain", 0o777), os.O_RDONLY)
    yield
    for name, fd in {**handles, "plain": plain}.items():
        for label, flags in (("fix", READ_ONLY), ("fix again", READ_ONLY), ("loosen", 0), ("unknown", 1 << 9)):
            scene.do(f"{name} {label}", calls.ioctl, fd, calls.SUBVOL_SETFLAGS, struct.pack("<Q", flags))
        scene.do(f"{name} flags", lambda: calls.ioctl(fd, calls.SUBVOL_GETFLAGS, bytes(8)))


@attempt("stranger owner root nocaps userns", when="subvolumes")
def changes_in_a_frozen_subvolume(scene):
    fd = make_subvolume(scene, "d", 0o777)
    fill(scene, "d/inner")
    handle = os.open(scene.path("d/inner/f"), os.O_RDONLY)
    as_user(OWNER, freeze, fd)
    scene.dir("outside", 0o777)
    scene.file("outside/f", 0o666)
    yield
    change_everything(scene, "d/inner")
    scene.do("chmod root", os.chmod, scene.path("d"), 0o700)
    scene.do("rename in", os.rename, scene.path("outside/f"), scene.path("d/f2"))
    scene.do("rename out", os.rename, scene.path("d/f"), scene.path("outside/f2"))
    scene.do("rename", os.rename, scene.path("d"), scene.path("d2"))
    scene.do("rename back", os.rename, scene.path("d2"), scene.path("d"))
    scene.do("rename away", os.rename, scene.path("d"), scene.path("outside/d2"))
    scene.do("flags of handle", calls.set_flags, handle, FS_NODUMP)


@attempt("stranger owner nocaps userns root", when="subvolumes")
def subvolumes_through_a_read_only_bind_mount(scene):
    scene.dir("d", 0o777)
    inner = make_subvolume(scene, "d/s", 0o777)
    os.close(inner)
    scene.bind("d", MS_RDONLY)
    yield
    fd = scene.open(scene.path("d"), os.O_RDONLY)
    source = scene.open(scene.path("d/s"), os.O_RDONLY, "source")
    scene.do("make", calls.ioctl, fd, calls.SUBVOL_CREATE, calls.subvol_args(0, "new"))
    scene.do("snapshot", snapshot, scene, fd, source, "snap")
    scene.do("freeze", calls.ioctl, source, calls.SUBVOL_SETFLAGS, struct.pack("<Q", READ_ONLY))
    scene.do("delete", delete, fd, "s")


def found_path(fd, argument):
    """Numbers and path; behind its end the kernel leaves what it had there."""
    answer = calls.ioctl(fd, calls.INO_LOOKUP, argument)
    return answer[:16] + answer[16:].split(b"\0")[0]


@attempt("stranger owner root nocaps userns", when="always")
def control_operations_without_the_option(scene):
    """What needs no option, what takes one, and what only root of the system may."""
    scene.dir("d", 0o777)
    own = os.open(scene.path("d"), os.O_RDONLY)
    yield
    scene.do("make", calls.ioctl, own, calls.SUBVOL_CREATE, calls.subvol_args(0, "new"))
    scene.do("snapshot", snapshot, scene, own, own, "snap")
    scene.do("delete", delete, own, "new")
    scene.do("default", calls.ioctl, own, calls.DEFAULT_SUBVOL, struct.pack("<Q", 4_000_000))
    scene.do("search", calls.ioctl, own, calls.TREE_SEARCH, bytes(4096))
    scene.do("path", found_path, own, struct.pack("<QQ", 5, 257) + bytes(4080))
