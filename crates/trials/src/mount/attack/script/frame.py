"""How an attempt is made: a child process prepares the scene as root, becomes somebody else, acts;
what it saw and what is there afterwards is the outcome."""

import hashlib
import json
import os
import select
import shutil
import signal
import stat
import tempfile
import time
import traceback

import calls

OWNER, MEMBER, STRANGER, SHIFTED = 1000, 1001, 65534, 100000
GROUP = 2000
LONG_AGO = 1_000_000_000
SECONDS_MAX = 20
# A program that shows as whom it runs.
PROGRAM = shutil.which("cat")
# It is made this long, so that what is changed behind AFTER_PROGRAM leaves it running.
PROGRAM_BYTES, AFTER_PROGRAM = 512 << 10, 256 << 10
SHOWN = ("Uid", "Gid", "Groups", "CapPrm", "CapEff")

ATTEMPTS = []


def attempt(identities, when="always", short=True):
    """Registers a function as an attempt by each of some identities."""
    def register(function):
        for identity in identities.split():
            ATTEMPTS.append((function, identity, when, short))
        return function
    return register


class Scene:
    """The folder of an attempt, and what was tried in it."""

    def __init__(self, top, folder, is_ours):
        self.top, self.folder, self.is_ours = top, folder, is_ours
        self.steps, self.before = [], None

    def path(self, name=""):
        return os.path.join(self.folder, name) if name else self.folder

    def file(self, name="f", mode=0o644, uid=OWNER, gid=GROUP, data=b"old contents\n"):
        path = self.path(name)
        with open(path, "wb") as out:
            out.write(data)
        os.chown(path, uid, gid)
        os.chmod(path, mode)
        return path

    def program(self, name="f", mode=0o755, uid=0, gid=0):
        with open(PROGRAM, "rb") as source:
            return self.file(name, mode, uid, gid, source.read().ljust(PROGRAM_BYTES, b"x"))

    def dir(self, name="d", mode=0o755, uid=OWNER, gid=GROUP):
        path = self.path(name)
        os.mkdir(path)
        os.chown(path, uid, gid)
        os.chmod(path, mode)
        return path

    def bind(self, name, flags):
        """Binds a folder of the scene over itself in a mount namespace of its own."""
        calls.unshare(calls.CLONE_NEWNS)
        calls.mount("none", "/", "none", calls.MS_REC | calls.MS_PRIVATE)
        path = self.path(name)
        calls.mount(path, path, "none", calls.MS_BIND)
        calls.mount("none", path, "none", calls.MS_BIND | calls.MS_REMOUNT | flags)
        return path

    def freeze(self):
        """The whole volume becomes read-only, for everybody; `main` makes it writable again."""
        calls.mount("none", self.top, "none", calls.MS_REMOUNT | calls.MS_RDONLY)

    def do(self, label, function, *arguments, **named):
        """Makes one step and remembers how it ended; its result, or None."""
        try:
            result = function(*arguments, **named)
        except OSError as error:
            self.steps.append([label, calls.name_of(error)])
            return None
        shown = result
        if isinstance(result, bytes):
            shown = result.hex() if len(result) <= 64 else hashlib.sha256(result).hexdigest()
        elif not isinstance(result, (list, str, bool, type(None))):
            shown = "done"
        self.steps.append([label, "done" if shown is None else shown])
        return result

    def note(self, label, value):
        self.steps.append([label, value])

    def open(self, path, flags, label=None, mode=0o666):
        return self.do(label or "open", os.open, path, flags, mode)

    def run(self, path, label="run"):
        """As whom a program runs."""
        self.do(label, run_program, path)

    def mode(self, path):
        """What stat says of permission bits, which the kernel may remember by itself."""
        label = f"{os.path.relpath(path, self.folder)} mode"
        self.do(label, lambda: oct(stat.S_IMODE(os.stat(path).st_mode)))


def run_program(path):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            os.dup2(writer, 1)
            os.execv(path, ["cat", "/proc/self/status"])
        except OSError as error:
            os.write(1, b"errno " + str(error.errno).encode())
        finally:
            os._exit(0)
    os.close(writer)
    output = b""
    while part := os.read(reader, 65536):
        output += part
    os.close(reader)
    os.waitpid(pid, 0)
    if output.startswith(b"errno "):
        raise OSError(int(output[6:]), "exec")
    lines = [line.split(":") for line in output.decode().splitlines()]
    return "; ".join(f"{line[0]} {' '.join(line[1].split())}" for line in lines if line[0] in SHOWN)


def record(folder, since=None):
    """Everything below a folder: attributes, xattrs, flags and contents."""
    found = {}
    pending = [folder]
    while pending:
        path = pending.pop()
        info = os.lstat(path)
        found[os.path.relpath(path, folder)] = describe(path, info, since)
        if stat.S_ISDIR(info.st_mode):
            pending += [os.path.join(path, name) for name in sorted(os.listdir(path))]
    return found


def describe(path, info, since):
    kind = stat.S_IFMT(info.st_mode)
    entry = {
        "kind": {stat.S_IFDIR: "dir", stat.S_IFREG: "file", stat.S_IFLNK: "link"}.get(kind, oct(kind)),
        "mode": oct(stat.S_IMODE(info.st_mode)), "owner": f"{info.st_uid}:{info.st_gid}",
        "mtime": age(info.st_mtime_ns, since), "atime": set_time(info.st_atime_ns, since),
        "xattrs": {},
    }
    for name in sorted(os.listxattr(path, follow_symlinks=False)):
        entry["xattrs"][name] = os.getxattr(path, name, follow_symlinks=False).hex()
    if kind == stat.S_IFLNK:
        entry["target"] = os.readlink(path)
    elif kind in (stat.S_IFDIR, stat.S_IFREG):
        fd = os.open(path, os.O_RDONLY | os.O_NOATIME)
        try:
            entry["flags"] = flags_of(fd)
            if kind == stat.S_IFREG:
                entry["links"], entry["size"] = info.st_nlink, info.st_size
                content = b""
                while part := os.read(fd, 1 << 20):
                    content += part
                short = len(content) <= 64
                entry["content"] = repr(content) if short else hashlib.sha256(content).hexdigest()
        finally:
            os.close(fd)
    else:
        entry["device"] = info.st_rdev
    return entry


def flags_of(fd):
    """None at all for what stands for another subvolume in a snapshot."""
    try:
        return hex(calls.get_flags(fd))
    except OSError:
        return "none"


def age(nanoseconds, since):
    """A time as it can be compared: of the scene, of the attempt, or a certain one."""
    seconds = nanoseconds / 1e9
    if seconds == LONG_AGO:
        return "old"
    if since is not None and seconds >= since - 2:
        return "new"
    return str(nanoseconds)


def set_time(nanoseconds, since):
    """A time that somebody set; whether reads are noticed depends on what the kernel remembers."""
    shown = age(nanoseconds, since)
    return "-" if shown in ("old", "new") else shown


def as_user(uid, function, *arguments):
    """Does something for the scene as its owner."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            become_user(uid, uid, [])
            function(*arguments)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(pid, 0)[1] != 0:
        raise RuntimeError("the scene could not be prepared")


def make_old(folder):
    """Gives all that is there one old time."""
    for base, dirs, files in os.walk(folder, topdown=False):
        for name in dirs + files:
            try:
                os.utime(os.path.join(base, name), (LONG_AGO, LONG_AGO), follow_symlinks=False)
            except OSError:
                pass  # It is immutable, or in a place that is read-only.
    os.utime(folder, (LONG_AGO, LONG_AGO))


def become(identity):
    """The process becomes someone; what each name means."""
    users = {
        "root": (0, 0, []), "stranger": (STRANGER, STRANGER, []), "owner": (OWNER, OWNER, []),
        "owner+group": (OWNER, GROUP, []), "member": (MEMBER, MEMBER, [GROUP]),
        "primary": (MEMBER, GROUP, []),
    }
    if identity in users:
        become_user(*users[identity])
    elif identity == "nocaps":
        # Root of a container that was given nothing.
        os.setgroups([])
        calls.set_caps(0, True)
    elif identity.startswith("root-"):
        without = sum(1 << calls.CAPS[name] for name in identity.split("-")[1:])
        calls.set_caps(((1 << calls.CAP_LAST + 1) - 1) & ~without, True)
    elif identity.startswith("cap:"):
        calls.prctl(8, 1)
        become_user(STRANGER, STRANGER, [])
        calls.set_caps(sum(1 << calls.CAPS[name] for name in identity[4:].split("+")), False)
    elif identity.startswith("userns"):
        enter_namespace(identity)
    else:
        raise ValueError(identity)


def become_user(uid, gid, groups):
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    calls.prctl(4, 1)


def enter_namespace(identity):
    """userns: root there is a stranger here; -plain: a stranger with one number and no capability;
    -range: root there is one of 65,536 shifted numbers; -zero: root there is root here."""
    maps = {
        "userns": ("0 65534 1", "0 65534 1"), "userns-plain": ("1234 65534 1", "1234 65534 1"),
        "userns-owner": ("0 1000 1", "0 1000 1"), "userns-zero": ("0 0 1", "0 0 1"),
        "userns-range": (f"0 {SHIFTED} 65536", f"0 {SHIFTED} 65536"),
    }
    uid_map, gid_map = maps[identity]
    user = {"userns-owner": OWNER, "userns-zero": 0, "userns-range": 0}.get(identity, STRANGER)
    os.setgroups([])
    is_range = identity == "userns-range"
    target, (wait, go), (back, done) = os.getpid(), os.pipe(), os.pipe()
    if is_range and os.fork() == 0:
        os.read(wait, 1)
        write_map(target, uid_map, gid_map)
        os.write(done, b"x")
        os._exit(0)
    if not is_range:
        become_user(user, user, [])
    calls.unshare(calls.CLONE_NEWUSER | calls.CLONE_NEWNS)
    if is_range:
        os.write(go, b"x")
        os.read(back, 1)
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    else:
        with open("/proc/self/setgroups", "w") as out:
            out.write("deny")
        write_map("self", uid_map, gid_map)
    for fd in (wait, go, back, done):
        os.close(fd)
    if identity == "userns-plain":
        calls.set_caps(0, True)


def write_map(process, uid_map, gid_map):
    for name, line in (("uid_map", uid_map), ("gid_map", gid_map)):
        with open(f"/proc/{process}/{name}", "w") as out:
            out.write(line)


def make(top, number, function, identity, is_ours):
    """One attempt in a child; its outcome."""
    name = function.__name__.replace("_", "-")
    folder = os.path.join(top, f"{number:03}-{name}-{identity.replace(':', '-')}")
    os.mkdir(folder)
    start = time.time()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        child(Scene(top, folder, is_ours), function, identity, writer)
    os.close(writer)
    said = b""
    end = time.monotonic() + SECONDS_MAX
    while select.select([reader], [], [], max(0, end - time.monotonic()))[0]:
        part = os.read(reader, 65536)
        if not part:
            break
        said += part
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(reader)
    os.waitpid(pid, 0)
    outcome = json.loads(said) if said else {"steps": [["end", "it took too long"]], "before": {}}
    if is_read_only(top):
        calls.mount("none", top, "none", calls.MS_REMOUNT)
    outcome.update(attempt=name, identity=identity, folder=os.path.basename(folder), since=start)
    outcome["after"] = record(folder, start)
    return outcome


def is_read_only(path):
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def child(scene, function, identity, writer):
    start = time.time()
    os.umask(0o022)
    try:
        acts = function(scene)
        next(acts)
        make_old(scene.folder)
        scene.before = record(scene.folder, start)
        frozen = getattr(scene, "freezes", False)
        if frozen:
            scene.freeze()
        become(identity)
        next(acts, None)
    except BaseException:
        scene.steps.append(["script", traceback.format_exc()])
    try:
        with os.fdopen(writer, "w") as out:
            json.dump({"steps": scene.steps, "before": scene.before or {}}, out)
    finally:
        os._exit(0)
