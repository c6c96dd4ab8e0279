"""Set-user bits, capabilities of files, and what opening, writing and running them allows."""

import fcntl
import mmap
import os

import calls
from calls import aligned, fallocate
from frame import AFTER_PROGRAM, GROUP, OWNER, attempt

# Who may write to a file that everybody may write to, and is not its owner.
WRITERS = "stranger member root-fsetid nocaps userns"
CAPABILITY = calls.capability(13)


def write_buffered(path):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, open(path, "rb").read(4096))
    os.close(fd)


def write_direct(path):
    start = aligned(open(path, "rb").read(4096))
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    os.writev(fd, [start])
    os.close(fd)


def write_dsync(path):
    start = open(path, "rb").read(4096)
    fd = os.open(path, os.O_WRONLY | os.O_DSYNC)
    os.write(fd, start)
    os.close(fd)


def write_mapped(path):
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, 4096) as memory:
        memory[:16] = bytes(memory[:16])
        memory.flush()
    os.fsync(fd)
    os.close(fd)


def append(path):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"more")
    os.close(fd)


def truncate(path):
    os.truncate(path, os.stat(path).st_size)


def truncate_handle(path):
    fd = os.open(path, os.O_WRONLY)
    os.ftruncate(fd, os.fstat(fd).st_size + 10)
    os.close(fd)


def truncate_open(path):
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


def splice(path):
    reader, writer = os.pipe()
    os.write(writer, open(path, "rb").read(4096))
    fd = os.open(path, os.O_WRONLY)
    os.splice(reader, fd, 4096)
    for each in (reader, writer, fd):
        os.close(each)


def copy_range(path):
    source = os.open(path, os.O_RDONLY)
    target = os.open(path, os.O_WRONLY)
    os.copy_file_range(source, target, 4096, AFTER_PROGRAM, AFTER_PROGRAM)
    os.close(source)
    os.close(target)


def falloc(mode, offset, length):
    def change(path):
        fd = os.open(path, os.O_WRONLY)
        try:
            fallocate(fd, mode, offset, length)
        finally:
            os.close(fd)
    return change


WAYS = {
    "buffered": write_buffered, "direct": write_direct, "dsync": write_dsync, "mapped": write_mapped,
    "append": append, "truncate": truncate, "truncate_handle": truncate_handle,
    "truncate_open": truncate_open, "splice": splice, "copy_range": copy_range,
    "allocate": falloc(0, 0, 1 << 20), "keep_size": falloc(calls.FALLOC_KEEP_SIZE, 1 << 20, 4096),
    "punch": falloc(calls.FALLOC_PUNCH_HOLE | calls.FALLOC_KEEP_SIZE, AFTER_PROGRAM, 4096),
    "zero": falloc(calls.FALLOC_ZERO, AFTER_PROGRAM, 4096),
    "collapse": falloc(calls.FALLOC_COLLAPSE, AFTER_PROGRAM, 4096),
    "insert": falloc(calls.FALLOC_INSERT, AFTER_PROGRAM, 4096),
}


def after_change(way, change):
    """A program that runs as its owner is changed by another, and run."""
    def act(scene):
        path = scene.program(mode=0o6777)
        bare = scene.file("bare", 0o2666, data=b"x" * 2 * AFTER_PROGRAM)
        powerful = scene.program("powerful", 0o777)
        os.setxattr(powerful, "security.capability", CAPABILITY)
        yield
        for each in (path, bare, powerful):
            os.stat(each)  # The kernel may remember the bits.
            scene.do("change", change, each)
            scene.mode(each)
        scene.do("capability", os.getxattr, powerful, "security.capability")
        scene.run(path)
        scene.run(powerful, "run powerful")
    act.__name__ = f"set_user_after_{way}"
    return act


for _way, _change in WAYS.items():
    attempt(WRITERS, short=_way in ("buffered", "direct", "mapped", "truncate", "copy_range"))(
        after_change(_way, _change))


@attempt("stranger member cap:fsetid")
def set_user_through_an_old_handle(scene):
    """The bits are set after the stranger opened the file."""
    path = scene.program(mode=0o777)
    handle, direct = os.open(path, os.O_WRONLY), os.open(path, os.O_WRONLY | os.O_DIRECT)
    start = open(path, "rb").read(4096)
    yield
    # As the owner would, while the stranger holds handles: by the parent's rights kept in `handle`.
    scene.do("write", os.write, handle, start)
    scene.do("write direct", os.writev, direct, [aligned(start)])
    scene.mode(path)
    scene.run(path)


@attempt("stranger owner member root")
def set_user_program(scene):
    own = scene.program("set-user", 0o4755, OWNER, GROUP)
    group = scene.program("set-group", 0o2755, OWNER, GROUP)
    bare = scene.program("set-group-only", 0o2745, OWNER, GROUP)
    yield
    for path in (own, group, bare):
        scene.run(path, os.path.basename(path))


@attempt("stranger userns userns-plain userns-range root")
def capability_program(scene):
    path = scene.program("f", 0o755)
    os.setxattr(path, "security.capability", CAPABILITY)
    yield
    scene.run(path)


@attempt("stranger owner member owner+group nocaps cap:dac_override cap:dac_read_search root-dac_override "
         "userns userns-range")
def open_modes(scene):
    for mode in (0o000, 0o400, 0o040, 0o004, 0o200, 0o020, 0o002, 0o777, 0o070):
        scene.file(f"f{mode:03o}", mode)
    scene.file("shifted", 0o600, 100000, 100000)
    yield
    for name in ("f000", "f400", "f040", "f004", "f200", "f020", "f002", "f777", "f070", "shifted"):
        for label, flags in (("r", os.O_RDONLY), ("w", os.O_WRONLY), ("rw", os.O_RDWR), ("path", os.O_PATH)):
            scene.open(scene.path(name), flags, f"{name} {label}")
        scene.do(f"{name} access", lambda: str([os.access(scene.path(name), bit) for bit in (4, 2, 1)]))


@attempt("stranger member owner nocaps cap:dac_override userns")
def run_modes(scene):
    for mode in (0o711, 0o100, 0o010, 0o001, 0o600, 0o666, 0o000):
        scene.program(f"f{mode:03o}", mode, OWNER, GROUP)
    yield
    for name in ("f711", "f100", "f010", "f001", "f600", "f666", "f000"):
        scene.run(scene.path(name), name)
        scene.open(scene.path(name), os.O_RDONLY, f"{name} read")


@attempt("stranger owner userns")
def reopen_with_more_rights(scene):
    read = os.open(scene.file("r", 0o600, 0, 0), os.O_RDONLY)
    path_only = os.open(scene.file("p", 0o600, 0, 0), os.O_PATH)
    append_only = os.open(scene.file("a", 0o602, 0, 0), os.O_WRONLY | os.O_APPEND)
    readable = os.open(scene.file("rr", 0o644, 0, 0), os.O_RDONLY)
    yield
    for label, fd in (("read", read), ("path", path_only), ("append", append_only), ("readable", readable)):
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
            scene.open(f"/proc/self/fd/{fd}", flags, f"{label} {flags:o}")
        scene.do(f"{label} chmod", os.fchmod, fd, 0o777)
        scene.do(f"{label} truncate", os.ftruncate, fd, 0)
        scene.do(f"{label} utimes", os.utime, fd, (5, 5))
        scene.do(f"{label} xattr", os.setxattr, fd, "user.x", b"y")


@attempt("owner stranger")
def handle_keeps_rights(scene):
    path = scene.file("f", 0o644)
    write = os.open(path, os.O_RDWR)
    os.chmod(path, 0)
    os.chown(path, 0, 0)
    yield
    scene.do("write", os.write, write, b"through the handle")
    scene.do("read", os.pread, write, 7, 0)
    scene.do("truncate", os.ftruncate, write, 4)
    scene.do("sync", os.fsync, write)
    scene.do("allocate", fallocate, write, 0, 0, 8192)


@attempt("stranger member owner nocaps cap:dac_read_search userns userns-range")
def open_by_handle(scene):
    handle = calls.handle_of(scene.file("f", 0o600, 0, 0))
    own = calls.handle_of(scene.file("own", 0o666))
    mount = os.open(scene.folder, os.O_RDONLY)
    yield
    for label, each in (("other", handle), ("own", own)):
        fd = scene.do(label, calls.open_handle, mount, each, os.O_RDONLY)
        if fd is not None:
            scene.do(f"{label} read", os.read, fd, 3)


@attempt("stranger member owner owner+group root cap:fowner userns")
def temporary_file_gets_a_name(scene):
    scene.dir("open", 0o777)
    scene.dir("closed", 0o755)
    scene.dir("group", 0o2777)
    yield
    for name in ("open", "closed", "group"):
        fd = scene.open(scene.path(name), os.O_RDWR | os.O_TMPFILE, f"{name} open", 0o6777)
        if fd is None:
            continue
        scene.do(f"{name} write", os.write, fd, b"temporary")
        scene.do(f"{name} link", calls.linkat, calls.AT_FDCWD, f"/proc/self/fd/{fd}",
                 scene.path("open/linked-" + name), calls.AT_SYMLINK_FOLLOW)
        scene.do(f"{name} link empty path", calls.linkat, fd, "",
                 scene.path("open/empty-" + name), calls.AT_EMPTY_PATH)
        os.close(fd)
    fd = scene.open(scene.path("open"), os.O_RDWR | os.O_TMPFILE | os.O_EXCL, "exclusive")
    if fd is not None:
        scene.do("exclusive link", calls.linkat, calls.AT_FDCWD, f"/proc/self/fd/{fd}",
                 scene.path("open/never"), calls.AT_SYMLINK_FOLLOW)


@attempt("stranger member owner root cap:fowner userns")
def open_without_access_time(scene):
    path = scene.file("f", 0o666)
    fd = os.open(path, os.O_RDONLY)
    yield
    scene.open(path, os.O_RDONLY | os.O_NOATIME)
    scene.do("set flag", fcntl.fcntl, fd, fcntl.F_SETFL, os.O_NOATIME)
    scene.open(scene.path(), os.O_RDONLY | os.O_NOATIME, "folder")


@attempt("stranger member")
def open_to_create(scene):
    """Creating flags on files of others, in folders that are everybody's (fs.protected_regular)."""
    scene.dir("sticky", 0o1777, 0, 0)
    scene.dir("open", 0o777)
    for folder in ("sticky", "open"):
        scene.file(f"{folder}/f", 0o666)
        scene.file(f"{folder}/read", 0o444)
    yield
    for folder in ("sticky", "open"):
        scene.open(scene.path(f"{folder}/f"), os.O_WRONLY | os.O_CREAT, f"{folder} create")
        scene.open(scene.path(f"{folder}/f"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, f"{folder} exclusive")
        scene.open(scene.path(f"{folder}/f"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, f"{folder} truncate")
        scene.open(scene.path(f"{folder}/read"), os.O_RDONLY | os.O_TRUNC, f"{folder} read truncate")
        scene.open(scene.path(f"{folder}/new"), os.O_WRONLY | os.O_CREAT, f"{folder} new", 0o7777)


@attempt("owner stranger nocaps")
def write_limits(scene):
    import resource
    import signal
    path = scene.file("f", 0o666)
    yield
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    fd = scene.open(path, os.O_RDWR)
    for label, function in (
        ("write", lambda: os.pwrite(fd, b"x" * 8192, 4096)), ("beyond", lambda: os.pwrite(fd, b"x", 9000)),
        ("truncate", lambda: os.ftruncate(fd, 10000)), ("allocate", lambda: fallocate(fd, 0, 0, 1 << 20)),
    ):
        scene.do(label, function)


@attempt("stranger member owner")
def clone_of_what_is_not_readable(scene):
    scene.file("source", 0o600, 0, 0, b"secret" * 1000)
    scene.file("f", 0o666)
    scene.file("mine", 0o600, OWNER)
    yield
    source = scene.open(scene.path("source"), os.O_RDONLY, "source")
    target = scene.open(scene.path("f"), os.O_RDWR, "target")
    if source is not None:
        scene.do("copy", os.copy_file_range, source, target, 100)
    read_only = scene.open(scene.path("f"), os.O_RDONLY, "read only target")
    scene.do("copy to read only", os.copy_file_range, target, read_only, 4)
    write_only = scene.open(scene.path("f"), os.O_WRONLY, "write only source")
    scene.do("copy from write only", os.copy_file_range, write_only, target, 4)
