"""Names: who may make, remove and rename what in whose folder."""

import os
import stat

import calls
from calls import RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, renameat2
from frame import GROUP, MEMBER, OWNER, STRANGER, attempt


def remove_all(scene, folder):
    """Tries every way to take names out of a folder, or to replace them."""
    at = lambda name: scene.path(f"{folder}/{name}")
    scene.do("rename out", os.rename, at("out"), scene.path("mine/out"))
    scene.do("rename in place", os.rename, at("place"), at("placed"))
    scene.do("rename over", os.rename, scene.path("mine/new"), at("over"))
    scene.do("exchange", renameat2, scene.path("mine/swap"), at("swap"), RENAME_EXCHANGE)
    scene.do("whiteout", renameat2, at("white"), at("whitened"), RENAME_WHITEOUT)
    scene.do("no replace", renameat2, scene.path("mine/swap"), at("over"), RENAME_NOREPLACE)
    scene.do("link", os.link, at("linked"), scene.path("mine/linked"))
    scene.do("link in", os.link, scene.path("mine/source"), at("source"))
    scene.do("unlink", os.unlink, at("gone"))
    scene.do("unlink own", os.unlink, at("own"))
    scene.do("rmdir", os.rmdir, at("empty"))
    scene.do("rename directory out", os.rename, at("sub"), scene.path("mine/sub"))
    scene.do("rename directory in", os.rename, scene.path("mine/child"), at("child"))
    scene.do("symlink", os.symlink, "somewhere", at("symlink"))
    scene.do("mkdir", os.mkdir, at("made"))
    scene.do("create", lambda: os.close(os.open(at("created"), os.O_WRONLY | os.O_CREAT, 0o666)))
    scene.do("mkfifo", os.mkfifo, at("fifo"))


USER_OF = {"stranger": STRANGER, "member": MEMBER, "owner": OWNER, "cap:fowner": STRANGER, "userns": STRANGER,
           "root-fowner": 0, "nocaps": 0, "cap:dac_override": STRANGER, "userns-owner": OWNER}


def fill(scene, folder, user):
    """A folder with files of the owner and one of the one who attacks, and a folder of that one."""
    scene.dir("mine", 0o755, user, user)
    for name in ("out", "place", "over", "swap", "white", "linked", "gone"):
        scene.file(f"{folder}/{name}", 0o666)
    scene.file(f"{folder}/own", 0o600, user, user)
    scene.dir(f"{folder}/empty")
    scene.dir(f"{folder}/sub", 0o777)
    for name in ("new", "swap", "source"):
        scene.file(f"mine/{name}", 0o644, user, user)
    scene.dir("mine/child", 0o755, user, user)


def in_folder(label, mode, uid, gid, identities, flags=0, short=True):
    """The attempts of `remove_all` in a folder with certain permissions."""
    def of(identity):
        def act(scene):
            scene.dir("there", 0o777, uid, gid)
            fill(scene, "there", USER_OF[identity])
            os.chmod(scene.path("there"), mode)
            calls.set_flags_of(scene.path("there"), flags)
            yield
            remove_all(scene, "there")
        act.__name__ = f"names_in_{label}"
        return act
    for identity in identities.split():
        attempt(identity, short=short)(of(identity))


EVERYBODY = "stranger member owner cap:fowner nocaps root-fowner userns userns-owner"
in_folder("sticky_folder_of_root", 0o1777, 0, 0, EVERYBODY)
in_folder("sticky_folder_of_owner", 0o1777, OWNER, GROUP, EVERYBODY)
in_folder("sticky_folder_of_group", 0o1775, 0, GROUP, "member stranger owner", short=False)
in_folder("closed_folder", 0o755, 0, 0, EVERYBODY + " cap:dac_override")
in_folder("group_folder", 0o2775, 0, GROUP, "stranger member owner nocaps", short=False)
in_folder("open_folder", 0o777, OWNER, GROUP, "stranger nocaps userns", short=False)
in_folder("write_without_search", 0o772, OWNER, GROUP, "stranger nocaps", short=False)
in_folder("immutable_folder", 0o777, OWNER, GROUP, "stranger owner root-fowner", calls.FS_IMMUTABLE)
in_folder("append_only_folder", 0o777, OWNER, GROUP, "stranger owner root-fowner", calls.FS_APPEND)


@attempt("stranger member owner nocaps root cap:dac_override cap:dac_read_search userns")
def folders_without_search_or_read(scene):
    for mode in (0o700, 0o711, 0o744, 0o722, 0o755, 0o750, 0o710, 0o740, 0o000):
        name = f"d{mode:03o}"
        scene.dir(name, 0o755)
        scene.file(f"{name}/f", 0o666)
        scene.dir(f"{name}/sub", 0o777)
        os.chmod(scene.path(name), mode)
    yield
    for mode in (0o700, 0o711, 0o744, 0o722, 0o755, 0o750, 0o710, 0o740, 0o000):
        name = f"d{mode:03o}"
        scene.do(f"{name} list", lambda: sorted(os.listdir(scene.path(name))))
        scene.do(f"{name} stat", lambda: oct(os.stat(scene.path(f"{name}/f")).st_mode))
        scene.open(scene.path(f"{name}/f"), os.O_RDWR, f"{name} open")
        scene.do(f"{name} missing", os.stat, scene.path(f"{name}/missing"))
        scene.do(f"{name} through", os.stat, scene.path(f"{name}/sub/../f"))
        scene.do(f"{name} enter", os.chdir, scene.path(name))
        scene.do(f"{name} make", os.mkdir, scene.path(f"{name}/new"))


@attempt("stranger owner")
def kept_working_directory(scene):
    """What is known already must not be found by those who may not look."""
    scene.dir("d", 0o755)
    scene.file("d/f", 0o666)
    scene.dir("d/sub", 0o777)
    inside = os.open(scene.path("d/sub"), os.O_RDONLY)
    folder = os.open(scene.path("d"), os.O_RDONLY)
    os.stat(scene.path("d/f"))
    os.chmod(scene.path("d"), 0o600)
    yield
    scene.do("up", os.stat, "../f", dir_fd=inside)
    scene.do("below", lambda: os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=inside)))
    scene.do("list", lambda: sorted(os.listdir(folder)))
    scene.do("stat", os.stat, "f", dir_fd=folder)
    scene.do("known", os.stat, scene.path("d/f"))


@attempt("stranger owner member cap:fowner root-fowner nocaps userns")
def hard_links_to_others_files(scene):
    """fs.protected_hardlinks: only to what one owns or may read and write, and no set-user programs."""
    scene.dir("open", 0o777, 0, 0)
    scene.file("read-only", 0o644)
    scene.file("writable", 0o666)
    scene.file("hidden", 0o600)
    scene.program("set-user", 0o4777)
    scene.program("set-group", 0o2777)
    scene.file("bare", 0o2666)
    os.mkfifo(scene.path("fifo"))
    os.chmod(scene.path("fifo"), 0o666)
    os.symlink("read-only", scene.path("symlink"))
    yield
    for name in ("read-only", "writable", "hidden", "set-user", "set-group", "bare", "fifo", "symlink"):
        scene.do(name, os.link, scene.path(name), scene.path(f"open/{name}"), follow_symlinks=False)


@attempt("stranger owner root")
def symlinks_in_sticky_folders(scene):
    """fs.protected_symlinks: those of others are not followed."""
    scene.dir("sticky", 0o1777, 0, 0)
    scene.file("target", 0o666)
    for name, user in (("of-root", 0), ("of-owner", OWNER), ("of-stranger", STRANGER), ("of-member", MEMBER)):
        os.symlink("../target", scene.path(f"sticky/{name}"))
        os.chown(scene.path(f"sticky/{name}"), user, user, follow_symlinks=False)
    yield
    for name in ("of-root", "of-owner", "of-stranger", "of-member"):
        scene.open(scene.path(f"sticky/{name}"), os.O_RDONLY, name)
        scene.do(f"{name} text", os.readlink, scene.path(f"sticky/{name}"))


@attempt("stranger member owner owner+group primary nocaps root cap:fsetid userns userns-owner userns-range")
def set_group_folder(scene):
    """What is made in one has its group; folders its bit; files lose theirs where the maker is no member."""
    scene.dir("d", 0o2777, 0, GROUP)
    scene.dir("plain", 0o777, 0, GROUP)
    yield
    for folder in ("d", "plain"):
        at = lambda name: scene.path(f"{folder}/{name}")
        scene.do(f"{folder} mkdir", os.mkdir, at("sub"), 0o777)
        for name, mode in (("f", 0o666), ("bits", 0o6775), ("bare", 0o2665)):
            scene.do(f"{folder} {name}", lambda: os.close(os.open(at(name), os.O_CREAT | os.O_WRONLY, mode)))
            scene.do(f"{folder} {name} chmod", os.chmod, at(name), mode)
        scene.do(f"{folder} fifo", os.mknod, at("fifo"), stat.S_IFIFO | 0o2775)
        scene.do(f"{folder} symlink", os.symlink, "x", at("symlink"))
        scene.do(f"{folder} mkdir bits", os.mkdir, at("bits-dir"), 0o7777)
        scene.do(f"{folder} chmod folder", os.chmod, at("sub"), 0o2770)


@attempt("stranger owner nocaps root cap:mknod root-mknod userns userns-range userns-zero")
def device_nodes(scene):
    scene.dir("open", 0o777, 0, 0)
    os.mknod(scene.path("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.chmod(scene.path("null"), 0o666)
    yield
    for name, mode, device in (
        ("char", stat.S_IFCHR, (1, 3)), ("block", stat.S_IFBLK, (7, 0)), ("white", stat.S_IFCHR, (0, 0)),
        ("fifo", stat.S_IFIFO, (0, 0)), ("socket", stat.S_IFSOCK, (0, 0)), ("file", stat.S_IFREG, (0, 0)),
    ):
        scene.do(name, os.mknod, scene.path(f"open/{name}"), mode | 0o666, os.makedev(*device))
    scene.open(scene.path("null"), os.O_RDWR, "open null")
    scene.open(scene.path("open/char"), os.O_RDWR, "open char")
    scene.do("whiteout", renameat2, scene.path("open/file"), scene.path("open/moved"), RENAME_WHITEOUT)


@attempt("stranger owner member cap:dac_override")
def rename_folder_of_another(scene):
    """Its entry `..` changes, which takes the right to write to it."""
    scene.dir("a", 0o777, 0, 0)
    scene.dir("b", 0o777, 0, 0)
    for name, mode in (("closed", 0o755), ("open", 0o777), ("group", 0o775), ("nothing", 0o700)):
        scene.dir(f"a/{name}", mode)
    yield
    for name in ("closed", "open", "group", "nothing"):
        scene.do(f"{name} within", os.rename, scene.path(f"a/{name}"), scene.path(f"a/{name}2"))
        scene.do(f"{name} away", os.rename, scene.path(f"a/{name}2"), scene.path(f"b/{name}"))
        scene.do(f"{name} away first", os.rename, scene.path(f"a/{name}"), scene.path(f"b/{name}"))
        scene.do(f"{name} exchange", renameat2, scene.path(f"b/{name}"), scene.path("a/open2"), RENAME_EXCHANGE)


@attempt("stranger root owner")
def names_that_are_mount_points(scene):
    scene.dir("d", 0o777)
    scene.dir("d/mounted", 0o777, STRANGER, STRANGER)
    scene.file("d/mounted/f", 0o666)
    scene.dir("d/other", 0o777, STRANGER, STRANGER)
    scene.bind("d/mounted", 0)
    yield
    scene.do("rmdir", os.rmdir, scene.path("d/mounted"))
    scene.do("rename", os.rename, scene.path("d/mounted"), scene.path("d/new"))
    scene.do("rename over", os.rename, scene.path("d/other"), scene.path("d/mounted"))
    scene.do("rename across", os.rename, scene.path("d/mounted/f"), scene.path("d/f"))
    scene.do("link across", os.link, scene.path("d/mounted/f"), scene.path("d/f"))


@attempt("stranger owner nocaps")
def unusual_names(scene):
    scene.dir("d", 0o777)
    scene.file("d/f", 0o666)
    yield
    at = lambda name: scene.path(f"d/{name}")
    scene.do("long", lambda: os.close(os.open(at("n" * 255), os.O_CREAT | os.O_WRONLY)))
    scene.do("too long", lambda: os.close(os.open(at("n" * 256), os.O_CREAT | os.O_WRONLY)))
    scene.do("file as folder", os.stat, at("f/x"))
    scene.do("slash", lambda: os.close(os.open(at("f/"), os.O_RDONLY)))
    scene.do("mkdir dot", os.mkdir, at("."))
    scene.do("mkdir dots", os.mkdir, at(".."))
    scene.do("rmdir dot", os.rmdir, at("."))
    scene.do("rmdir dots", os.rmdir, at(".."))
    scene.do("rename dot", os.rename, at("."), at("x"))
    scene.do("rename into itself", os.rename, scene.path("d"), at("d"))
    scene.do("symlink long", os.symlink, "t" * 4000, at("symlink"))
    scene.do("symlink too long", os.symlink, "t" * 4097, at("symlink2"))
    scene.do("symlink empty", os.symlink, "", at("symlink3"))
    scene.do("link folder", os.link, scene.path("d"), at("folder"))
