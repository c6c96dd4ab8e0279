"""Cases for what the tests of dissect.btrfs and of libbtrfsutil ask for. INTENTS.md lists each with its case here or in
another module."""

import errno
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import spinney
from spinney import btrfsutil

SUPERBLOCK = 65536
BLOCK = 4096
LARGE = b"a" * (5 << 20) + b"\n"


def fill(root):
    """A tree: nested directories, small and large files, a symbolic link."""
    (root / "path/to/a").mkdir(parents=True)
    (root / "path/to/a/file.txt").write_bytes(b"file in dir\n")
    (root / "small.txt").write_bytes(b"small file content goes here\n")
    (root / "large.txt").write_bytes(LARGE)
    (root / "link.txt").symlink_to("path/to/a/file.txt")


def look(root):
    """Fails unless the tree is as `fill` made it."""
    assert sorted(path.name for path in root.iterdir()) == ["large.txt", "link.txt", "path", "small.txt"]
    path = root / "path"
    assert path.is_dir() and not path.is_file() and not path.is_symlink()
    file = root / "path/to/a/file.txt"
    assert file.is_file() and file.stat().st_size == 12 and file.read_bytes() == b"file in dir\n"
    assert (root / "small.txt").stat().st_size == 29
    assert (root / "large.txt").read_bytes() == LARGE
    link = root / "link.txt"
    assert link.is_symlink() and str(link.readlink()) == "path/to/a/file.txt" and link.read_bytes() == b"file in dir\n"


@pytest.fixture
def mkfs():
    """A function that runs mkfs.btrfs."""
    program = shutil.which("mkfs.btrfs", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if not program:
        pytest.skip("needs mkfs.btrfs")
    return lambda *words: subprocess.run([program, "-q", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def sparse(path, size):
    with open(path, "wb") as file:
        file.truncate(size)
    return path


# dissect.btrfs


def test_a_tree_that_mkfs_put_in(mkfs, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    fill(source)
    os.chmod(source / "path", 0o2750)
    os.utime(source / "path", ns=(1_687_921_456_000_000_005, 1_687_921_452_000_000_007))
    image = sparse(tmp_path / "disk.img", 256 << 20)
    number = "74387226-fa97-4f42-a276-9bb07ce5e62d"
    mkfs("-L", "btrfs-default", "-U", number, "--rootdir", source, image)
    with spinney.open(image) as volume:
        assert volume.info.label == "btrfs-default" and str(volume.info.uuid) == number
        look(volume.root)
        found = (volume / "path").stat()
        assert found.st_mode == 0o042750 and (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
        # Some versions of mkfs.btrfs keep whole seconds.
        assert found.st_mtime_ns // 10**9 == 1_687_921_452


def test_a_subvolume_beside_files(btrfs, tmp_path):
    fill(btrfs.root)
    (btrfs.create_subvolume("subvol") / "some/more/dirs").mkdir(parents=True)
    (btrfs / "subvol/some/more/dirs/empty.txt").touch()
    (btrfs / "subvol/small.txt").write_text("file in subvolume\n")
    (btrfs / "subvol/cross-volume-link.txt").symlink_to("../link.txt")
    btrfs.close()
    with spinney.open(tmp_path / "disk.img") as volume:
        subvol = volume / "subvol"
        assert sorted(path.name for path in subvol.iterdir()) == ["cross-volume-link.txt", "small.txt", "some"]
        assert (subvol / "some/more/dirs/empty.txt").read_bytes() == b""
        assert (subvol / "small.txt").stat().st_size == 18
        assert str((subvol / "cross-volume-link.txt").readlink()) == "../link.txt"
        assert (subvol / "cross-volume-link.txt").read_bytes() == b"file in dir\n"
        assert btrfsutil.subvolume_path(subvol / "some/more") == "subvol"


def test_another_default_subvolume(btrfs, tmp_path):
    fill(btrfs.create_subvolume("main"))
    btrfsutil.set_default_subvolume(btrfs / "main")
    btrfs.close()
    image = tmp_path / "disk.img"
    with spinney.open(image) as volume:
        look(volume.root)
    with spinney.open(image, options={"subvol": "/"}) as volume:
        look(volume / "main")


def test_numbers_and_paths_of_nested_subvolumes(btrfs):
    (btrfs / "dir").mkdir()
    for name in ("dir/volume", "default", "default/volume"):
        btrfs.create_subvolume(name)
    found = {record.path: record.id for record in btrfs.subvolumes()}
    assert found == {"dir/volume": 256, "default": 257, "default/volume": 258}
    assert btrfs.subvolume("default/volume").id == 258 and btrfs.subvolume().id == 5


def test_a_snapshot_of_everything(btrfs):
    fill(btrfs.root)
    btrfs.snapshot("/", "snapshot")
    (btrfs / "small.txt").write_text("changed")
    (btrfs / "path/to/a/file.txt").unlink()
    (btrfs / "snapshot/small.txt").stat()
    names = [path.name for path in (btrfs / "snapshot").iterdir()]
    assert "small.txt" in names and (btrfs / "snapshot/large.txt").read_bytes() == LARGE
    assert (btrfs / "snapshot/path/to/a/file.txt").read_bytes() == b"file in dir\n"


@pytest.mark.parametrize("method", ["zlib", "lzo", "zstd"])
def test_compression(tmp_path, method):
    image = tmp_path / "disk.img"
    spinney.make(image, size=256 << 20).close()
    large, inline = method.encode() * (1 << 20) + b"\n", method.encode() * 256 + b"\n"
    with spinney.open(image, writable=True, options={"compress": method}) as volume:
        (volume / "large").write_bytes(large)
        (volume / "inline").write_bytes(inline)
    with spinney.open(image) as volume:
        assert (volume / "large").read_bytes() == large and (volume / "inline").read_bytes() == inline
        with (volume / "large").open("rb", buffering=0) as file:
            extents = file.extents()
        # Compression does not make one block smaller.
        assert {extent.compression for extent in extents if extent.length > BLOCK} == {method}
        assert max(extent.length for extent in extents) <= 128 << 10
        assert sum(extent.disk_length for extent in extents) < len(large) // 4
        with (volume / "inline").open("rb", buffering=0) as file:
            (extent,) = file.extents()
        assert extent.kind == "inline" and extent.length >= len(inline)


#: Profiles, their devices, and how many of these may be missing.
PROFILES = [
    ("dup", 2, 0),
    ("raid0", 2, 0),
    ("raid1", 2, 1),
    ("raid1c3", 3, 2),
    ("raid1c4", 4, 3),
    ("raid10", 4, 1),
    ("raid5", 3, 1),
    ("raid6", 4, 2),
]


#: Profiles that are read and not written.
READ_ONLY = ("raid5", "raid6")


@pytest.mark.parametrize("profile, count, spare", PROFILES, ids=[row[0] for row in PROFILES])
def test_profiles_and_missing_devices(mkfs, tmp_path, profile, count, spare):
    devices = [sparse(tmp_path / f"{number}.img", 300 << 20) for number in range(count)]
    mkfs("-d", profile, "-m", profile, *devices)

    def names(left):
        return ",".join(map(str, left))

    def read(left, **options):
        with spinney.open(names(left), **options) as volume:
            if profile in READ_ONLY:
                assert list(volume.root.iterdir()) == []
            else:
                look(volume.root)

    if profile in READ_ONLY:
        # Parity is not written; `cargo trials several-devices` reads what the kernel wrote.
        with pytest.raises(OSError) as error:
            spinney.open(names(devices), writable=True)
        assert error.value.errno == errno.EOPNOTSUPP
    else:
        with spinney.open(names(devices), writable=True) as volume:
            fill(volume.root)
    read(devices)
    degraded = {"degraded": None}
    if spare:
        read(devices[spare:], options=degraded)
    failures = 0
    for missing in range(count):
        left = [device for number, device in enumerate(devices) if number != missing]
        # Without the option no device may be missing.
        with pytest.raises(OSError):
            read(left)
        try:
            read(left, options=degraded)
        except OSError:
            failures += 1
    # All chunks of a volume without redundancy between devices may be on one of them.
    assert failures == 0 if spare else failures >= 1
    if spare > 1 or profile in ("raid1", "raid5"):
        with pytest.raises(OSError):
            read(devices[spare + 1 :] or [tmp_path / "none"], options=degraded)


def test_sparse_files(btrfs, tmp_path):
    ones = b"\x01" * BLOCK

    def write(name, *parts):
        with (btrfs / name).open("w+b", buffering=0) as file:
            for offset, count in parts:
                file.pwrite(ones * count, offset * BLOCK)
            file.truncate(60 * BLOCK)

    write("start", (40, 20))
    write("hole", (0, 20), (40, 20))
    write("end", (0, 20))
    write("all")
    btrfs.snapshot("/", "snapshot", read_only=False)
    with (btrfs / "snapshot/end").open("r+b", buffering=0) as file:
        file.pwrite(b"\x02", BLOCK + 123)
    btrfs.close()
    with spinney.open(tmp_path / "disk.img") as volume:

        def ranges(name):
            with (volume / name).open("rb", buffering=0) as file:
                found = [(extent.offset // BLOCK, extent.length // BLOCK) for extent in file.extents()]
            joined = []
            for offset, length in found:
                if joined and sum(joined[-1]) == offset:
                    joined[-1] = (joined[-1][0], joined[-1][1] + length)
                else:
                    joined.append((offset, length))
            return joined

        assert ranges("start") == [(40, 20)] and ranges("hole") == [(0, 20), (40, 20)]
        assert ranges("end") == [(0, 20)] and ranges("all") == []
        assert (volume / "hole").read_bytes() == ones * 20 + bytes(20 * BLOCK) + ones * 20
        assert (volume / "all").read_bytes() == bytes(60 * BLOCK)
        assert (volume / "end").read_bytes() == ones * 20 + bytes(40 * BLOCK)
        changed = bytearray(ones * 20 + bytes(40 * BLOCK))
        changed[BLOCK + 123] = 2
        assert (volume / "snapshot/end").read_bytes() == bytes(changed)


# libbtrfsutil


def refused(act, *arguments, **options):
    with pytest.raises(btrfsutil.BtrfsUtilError) as error:
        act(*arguments, **options)
    return error.value


def test_kinds_of_arguments(tmp_path, monkeypatch):
    image = tmp_path / "disk.img"
    spinney.make(image, size=128 << 20).close()
    for number, path in enumerate([f"{image}:/sub1", f"{image}:/sub2".encode(), pathlib.Path(f"{image}:/sub3")]):
        btrfsutil.create_subvolume(path)
        assert btrfsutil.is_subvolume(path) and btrfsutil.subvolume_id(path) == 256 + number
    monkeypatch.chdir(tmp_path)
    for path in ("disk.img:/sub4", "disk.img:/sub5/", "disk.img:/sub6//"):
        btrfsutil.create_subvolume(path)
        assert btrfsutil.is_subvolume(path.rstrip("/"))
    for path in (f"{image}:/sub1", f"{image}:/sub2".encode(), pathlib.Path(f"{image}:/sub3")):
        btrfsutil.delete_subvolume(path)
        assert isinstance(refused(btrfsutil.is_subvolume, path), FileNotFoundError)
    refused(btrfsutil.create_subvolume, f"{image}:/")
    refused(btrfsutil.delete_subvolume, f"{image}:/")


def test_directories_are_no_subvolumes(btrfs):
    (btrfs / "foo").mkdir()
    assert btrfsutil.is_subvolume(btrfs) and not btrfsutil.is_subvolume(btrfs / "foo")
    assert btrfsutil.subvolume_id(btrfs) == btrfsutil.subvolume_id(btrfs / "foo") == 5
    assert isinstance(refused(btrfsutil.is_subvolume, btrfs / "bar"), FileNotFoundError)


def test_paths_of_subvolumes(btrfs):
    btrfsutil.create_subvolume(btrfs / "subvol1")
    (btrfs / "dir1/dir2").mkdir(parents=True)
    btrfsutil.create_subvolume(btrfs / "dir1/dir2/subvol2")
    btrfsutil.create_subvolume(btrfs / "dir1/dir2/subvol2/subvol3")
    (btrfs / "subvol1/dir3").mkdir()
    btrfsutil.create_subvolume(btrfs / "subvol1/dir3/subvol4")
    paths = ["subvol1", "dir1/dir2/subvol2", "dir1/dir2/subvol2/subvol3", "subvol1/dir3/subvol4"]
    assert [btrfsutil.subvolume_path(btrfs, number) for number in range(256, 260)] == paths
    assert btrfsutil.subvolume_path(btrfs) == btrfsutil.subvolume_path(btrfs, 5) == ""
    # Longer than the kernel's limit for one path.
    at = btrfs.root
    for letter in "abcdefghijklmnopqrstuvwxyz":
        at = at / (letter * 255)
        btrfsutil.create_subvolume(at)
    assert btrfsutil.subvolume_path(at) == str(at).lstrip("/") and len(str(at)) > 4096


def test_information(btrfs):
    btrfsutil.create_subvolume(btrfs / "subvol")
    btrfsutil.create_snapshot(btrfs / "subvol", btrfs / "snapshot")
    top, info = btrfsutil.subvolume_info(btrfs), btrfsutil.subvolume_info(btrfs / "subvol")
    assert (top.id, top.parent_id, top.dir_id, top.flags) == (5, 0, 0, 0) and top.generation > 0
    assert (top.stransid, top.rtransid, top.stime, top.rtime) == (0, 0, 0, 0)
    assert isinstance(top.ctime, float) and isinstance(top.otime, float) and len(top.uuid) == 16
    assert (info.id, info.parent_id, info.dir_id, info.flags) == (256, 5, 256, 0)
    assert info.generation > 0 and info.ctransid > 0 and info.otransid > 0 and info.otime > 0
    assert (info.stransid, info.rtransid, info.stime, info.rtime) == (0, 0, 0, 0)
    assert btrfsutil.subvolume_info(btrfs / "snapshot").parent_uuid == info.uuid
    # A tree of the volume that is no subvolume.
    assert isinstance(refused(btrfsutil.subvolume_info, btrfs, 2), FileNotFoundError)


def test_read_only_of_the_top_level(btrfs):
    for value in (True, False, True, False):
        btrfsutil.set_subvolume_read_only(btrfs, value)
        assert btrfsutil.get_subvolume_read_only(btrfs) == value
        assert btrfsutil.subvolume_info(btrfs).flags & 1 == value


def test_snapshots_of_nested_subvolumes(btrfs):
    btrfsutil.create_subvolume(btrfs / "subvol")
    (btrfs / "subvol/dir").mkdir()
    btrfsutil.create_subvolume(btrfs / "subvol/nested")
    btrfsutil.create_subvolume(btrfs / "subvol/nested/more")
    (btrfs / "subvol/nested/more/inner").mkdir()
    btrfsutil.create_snapshot(btrfs / "subvol", btrfs / "snapshot1")
    assert (btrfs / "snapshot1/dir").is_dir() and (btrfs / "snapshot1/nested").stat().inode == 2
    assert not (btrfs / "snapshot1/nested/more").exists()
    btrfsutil.create_snapshot(btrfs / "subvol", btrfs / "snapshot2", recursive=True)
    assert (btrfs / "snapshot2/nested/more/inner").is_dir()
    btrfsutil.create_snapshot(btrfs / "subvol", btrfs / "snapshot3", read_only=True)
    assert btrfsutil.get_subvolume_read_only(btrfs / "snapshot3")


def test_deletion_with_what_is_nested(btrfs):
    for name in ("5", "5/foo", "5/bar", "5/bar/baz", "5/bar/qux", "5/quux"):
        btrfsutil.create_subvolume(btrfs / name)
    refused(btrfsutil.delete_subvolume, btrfs / "5")
    btrfsutil.delete_subvolume(btrfs / "5", recursive=True)
    assert not (btrfs / "5").exists() and btrfs.subvolumes() == ()


def test_iterators(btrfs):
    btrfsutil.create_subvolume(btrfs / "foo")
    with btrfsutil.SubvolumeIterator(btrfs, info=True) as rows:
        path, info = next(rows)
        assert path == "foo" and isinstance(info, btrfsutil.SubvolumeInfo) and (info.id, info.parent_id) == (256, 5)
        assert list(rows) == []
    btrfsutil.create_subvolume(btrfs / "foo/bar")
    btrfsutil.create_subvolume(btrfs / "foo/bar/baz")
    rows = [("foo", 256), ("foo/bar", 257), ("foo/bar/baz", 258)]
    assert list(btrfsutil.SubvolumeIterator(btrfs)) == list(btrfsutil.SubvolumeIterator(btrfs, top=0)) == rows
    assert list(btrfsutil.SubvolumeIterator(btrfs / "foo", top=5)) == rows
    assert list(btrfsutil.SubvolumeIterator(btrfs, post_order=True)) == rows[::-1]
    inner = [("bar", 257), ("bar/baz", 258)]
    assert list(btrfsutil.SubvolumeIterator(btrfs, top=256)) == inner
    assert list(btrfsutil.SubvolumeIterator(btrfs / "foo")) == inner
    (btrfs / "foo/bar/baz").rename("baz")
    (btrfs / "dir").mkdir()
    btrfsutil.create_subvolume(btrfs / "dir/qux")
    (btrfs / "dir/qux/dir2").mkdir()
    btrfsutil.create_subvolume(btrfs / "dir/qux/dir2/quux")
    rows = [("baz", 258), ("dir/qux", 259), ("dir/qux/dir2/quux", 260), ("foo", 256), ("foo/bar", 257)]
    assert sorted(btrfsutil.SubvolumeIterator(btrfs)) == rows
    assert sorted(btrfsutil.SubvolumeIterator(btrfs, post_order=True)) == rows
    with btrfsutil.SubvolumeIterator(btrfs) as closed:
        closed.close()
        assert list(closed) == []
        closed.close()


def test_syncs_reach_the_superblock(btrfs, tmp_path):
    def generation():
        with open(tmp_path / "disk.img", "rb") as image:
            image.seek(SUPERBLOCK + 64)
            assert image.read(8) == b"_BHRfS_M"
            return int.from_bytes(image.read(8), "little")

    seen = generation()
    for number, sync in enumerate(
        [
            lambda: btrfsutil.sync(btrfs),
            lambda: btrfsutil.wait_sync(btrfs, btrfsutil.start_sync(btrfs)),
            lambda: btrfsutil.wait_sync(btrfs),
        ]
    ):
        (btrfs / f"{number}").touch()
        sync()
        assert generation() > seen
        seen = generation()


def test_both_names_of_each_function(btrfs):
    btrfs.set_label("label")
    assert btrfsutil.filesystem_get_label(btrfs) == "label"
    btrfsutil.subvolume_create(btrfs / "a")
    btrfsutil.subvolume_snapshot(btrfs / "a", btrfs / "b")
    assert btrfsutil.subvolume_is_valid(btrfs / "b") and btrfsutil.subvolume_get_path(btrfs / "b") == "b"
    assert btrfsutil.subvolume_get_info(btrfs / "b").id == btrfsutil.subvolume_get_id(btrfs / "b") == 257
    btrfsutil.subvolume_set_read_only(btrfs / "b")
    assert btrfsutil.subvolume_get_read_only(btrfs / "b") and btrfsutil.subvolume_get_default(btrfs) == 5
    btrfsutil.subvolume_delete(btrfs / "b")
    btrfsutil.fs_wait_sync(btrfs, btrfsutil.fs_start_sync(btrfs))
    btrfsutil.fs_sync(btrfs)
    assert isinstance(btrfsutil.subvolume_list_deleted(btrfs), list)
    assert all(hasattr(btrfsutil, name) for name in btrfsutil.__all__)


def test_the_list_names_cases_that_exist():
    folder = pathlib.Path(__file__).parent
    text = (folder / "INTENTS.md").read_text()
    named = set(re.findall(r"`(test_\w+)\.(test_\w+)`", text))
    assert len(named) > 15
    for module, case in named:
        assert f"def {case}(" in (folder / f"{module}.py").read_text(), f"{module}.{case}"
