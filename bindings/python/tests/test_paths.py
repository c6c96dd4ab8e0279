"""Paths and metadata, as pathlib has them."""

import errno
import os
import pathlib
import stat

import pytest

import spinney


def test_paths_are_put_together_as_pathlib_does(btrfs):
    path = btrfs / "a" / "b.tar.gz"
    pure = pathlib.PurePosixPath("/a/b.tar.gz")
    for name in ("name", "stem", "suffix", "suffixes", "parts"):
        assert getattr(path, name) == getattr(pure, name)
    assert str(path) == "/a/b.tar.gz" and path == btrfs / "/a//./b.tar.gz/"
    assert path.parent == btrfs / "a" and btrfs.root.parent == btrfs.root and btrfs.root.name == ""
    assert [str(parent) for parent in path.parents] == ["/a", "/"]
    assert str(path.with_suffix(".zip")) == "/a/b.tar.zip" and str(path.with_name("c")) == "/a/c"
    assert str(btrfs / "a" / "/b") == "/b" and str(btrfs / ".." / "x") == "/../x" and str(btrfs / "") == "/"
    assert str(path.relative_to("/a")) == "b.tar.gz" and path.is_relative_to("a") and not path.is_relative_to("b")
    assert path.match("*.gz") and str(path.joinpath("c", "d")) == "/a/b.tar.gz/c/d"
    assert btrfs / pathlib.PurePosixPath("a") == btrfs / b"a" == btrfs / (btrfs / "a")
    assert sorted([btrfs / "b", btrfs / "a"])[0].name == "a" and len({btrfs / "a", btrfs / "/a"}) == 1
    assert repr(path) == "Path('/a/b.tar.gz')" and bytes(path) == b"/a/b.tar.gz"
    with pytest.raises(TypeError):
        os.fspath(path)


def test_a_path_of_another_volume_is_refused(btrfs, image):
    with spinney.open(image) as other:
        with pytest.raises(ValueError):
            btrfs / (other / "etc")
        with pytest.raises(ValueError):
            btrfs.copy(other / "etc/passwd", "x")


def test_stat(volume):
    path = volume / "file"
    path.write_bytes(b"12345")
    path.chmod(0o640)
    path.chown(1000, 100)
    path.utime(ns=(-1, 4_000_000_000_123_456_789))
    found = path.stat()
    assert found.st_size == 5 and stat.S_ISREG(found.st_mode) and stat.filemode(found.st_mode) == "-rw-r-----"
    assert (found.st_uid, found.st_gid, found.st_nlink, found.st_dev) == (1000, 100, 1, 0)
    assert found.st_atime_ns == -1 and found.st_mtime_ns == 4_000_000_000_123_456_789
    assert found.st_mtime == pytest.approx(4_000_000_000.123)
    # f2fs as it is made by default keeps no time of creation.
    assert found.st_birthtime > 1_600_000_000 or volume.info.format == "f2fs"
    path.chown(gid=7)
    assert (path.stat().st_uid, path.stat().st_gid) == (1000, 7)
    path.utime((1.5, 2.5))
    assert path.stat().st_mtime_ns == 2_500_000_000 and path.stat() == path.lstat()
    assert "st_size=5" in repr(path.stat())


def test_kinds_of_nodes(volume):
    (volume / "dir").mkdir(0o700)
    (volume / "file").touch()
    (volume / "link").symlink_to("file")
    (volume / "loose").symlink_to("nowhere")
    (volume / "fifo").mknod(stat.S_IFIFO | 0o600)
    (volume / "null").mknod(stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (volume / "disk").mknod(stat.S_IFBLK | 0o666, os.makedev(8, 1))
    (volume / "socket").mknod(stat.S_IFSOCK | 0o666)
    assert (volume / "dir").is_dir() and (volume / "dir").stat().st_mode & 0o7777 == 0o700
    assert (volume / "file").is_file() and (volume / "link").is_file() and (volume / "link").is_symlink()
    assert not (volume / "loose").exists() and (volume / "loose").exists(follow_symlinks=False)
    assert (volume / "fifo").is_fifo() and (volume / "socket").is_socket()
    assert (volume / "null").is_char_device() and (volume / "disk").is_block_device()
    assert not (volume / "file" / "below").exists() and not (volume / "none").is_dir()
    with pytest.raises(OSError) as refused:
        (volume / "bad").mknod(stat.S_IFLNK)
    assert refused.value.errno == errno.EINVAL


def test_directories(volume):
    with pytest.raises(FileNotFoundError):
        (volume / "a/b").mkdir()
    (volume / "a/b/c").mkdir(parents=True)
    with pytest.raises(FileExistsError):
        (volume / "a").mkdir()
    (volume / "a").mkdir(exist_ok=True)
    volume.root.mkdir(exist_ok=True)
    with pytest.raises(FileExistsError):
        volume.root.mkdir()
    with pytest.raises(OSError) as refused:
        (volume / "a").rmdir()
    assert refused.value.errno == errno.ENOTEMPTY
    (volume / "a/b/c").rmdir()
    (volume / "a/file").touch()
    with pytest.raises(FileExistsError):
        (volume / "a/file").mkdir(exist_ok=True)
    with pytest.raises(NotADirectoryError):
        (volume / "a/file").iterdir()
    assert sorted(path.name for path in (volume / "a").iterdir()) == ["b", "file"]
    (volume / "a").rmtree()
    assert list(volume.root.iterdir()) == [] or {path.name for path in volume.root.iterdir()} <= {"lost+found"}


def test_a_large_directory_is_listed_once(volume):
    (volume / "d").mkdir()
    names = {f"name-{index}" for index in range(1200)}
    for name in names:
        (volume / "d" / name).touch()
    listed = [path.name for path in (volume / "d").iterdir()]
    assert len(listed) == 1200 and set(listed) == names


def test_glob_as_pathlib(volume, tmp_path):
    host = tmp_path / "tree"
    for name in ("a/x.py", "a/b/y.py", "a/b/.z.py", "c.txt", "a/b/c/w.txt", "[odd]"):
        for root in (host, volume / "tree"):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    for root in (host, volume / "tree"):
        (root / "up").symlink_to("a")
    inner = volume / "tree"
    for pattern in ("*", "*.py", "**/*.py", "a/*", "a/**/*.txt", "*/b/?.py", "[ac]*", "none/*", "a/b", "up/*", "c.txt/*"):
        ours = sorted(str(path.relative_to(inner)) for path in inner.glob(pattern))
        theirs = sorted(str(path.relative_to(host)) for path in host.glob(pattern))
        assert ours == theirs, pattern
    assert len(list(inner.rglob("*.py"))) == 3 and len(list(inner.glob("**/b/**/*.txt"))) == 1
    for pattern in ("", "/a"):
        with pytest.raises(ValueError):
            inner.glob(pattern)


def test_walk_as_os_walk(volume, tmp_path):
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / "t" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name / "file").touch()
    volume.import_(tmp_path / "t", "t")
    for top_down in (True, False):
        ours = [(str(path.relative_to("/t")), set(dirs), set(files)) for path, dirs, files in (volume / "t").walk(top_down)]
        theirs = [
            (os.path.relpath(path, tmp_path / "t"), set(dirs), set(files))
            for path, dirs, files in os.walk(tmp_path / "t", topdown=top_down)
        ]
        assert sorted(ours, key=str) == sorted(theirs, key=str)
        assert (ours[0] if top_down else ours[-1])[0] == "."


def test_links(volume):
    (volume / "file").write_text("x")
    (volume / "hard").hardlink_to("file")
    (volume / "soft").symlink_to(volume / "file")
    assert (volume / "hard").samefile("file") and (volume / "file").stat().st_nlink == 2
    assert str((volume / "soft").readlink()) == "/file" and (volume / "soft").resolve() == volume / "file"
    with pytest.raises(OSError) as refused:
        (volume / "file").readlink()
    assert refused.value.errno == errno.EINVAL
    (volume / "loop").symlink_to("loop")
    with pytest.raises(OSError) as refused:
        (volume / "loop").stat()
    assert refused.value.errno == errno.ELOOP
    assert not (volume / "loop").exists() and (volume / "loop").is_symlink()
    (volume / "soft").chown(5, 6)
    assert (volume / "file").stat().st_uid == 5 and (volume / "soft").lstat().st_uid == 0
    (volume / "soft").chown(8, follow_symlinks=False)
    assert (volume / "soft").lstat().st_uid == 8


def test_renames(volume):
    (volume / "a").write_text("a")
    (volume / "b").write_text("b")
    with pytest.raises(FileExistsError):
        (volume / "a").rename_new("b")
    assert (volume / "a").rename(volume / "b") == volume / "b"
    assert (volume / "b").read_text() == "a" and not (volume / "a").exists()
    (volume / "d/e").mkdir(parents=True)
    with pytest.raises(OSError) as refused:
        (volume / "d").rename("d/e/f")
    assert refused.value.errno == errno.EINVAL
    with pytest.raises(IsADirectoryError):
        (volume / "b").replace("d")
    with pytest.raises(FileNotFoundError):
        (volume / "none").rename("x")


def test_unlink_and_touch(volume):
    (volume / "file").touch(0o600)
    assert (volume / "file").stat().st_mode & 0o7777 == 0o600
    (volume / "file").utime(ns=(0, 0))
    (volume / "file").touch()
    assert (volume / "file").stat().st_mtime_ns > 0
    with pytest.raises(FileExistsError):
        (volume / "file").touch(exist_ok=False)
    (volume / "file").unlink()
    (volume / "file").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (volume / "file").unlink()


def test_extended_attributes(volume):
    path = volume / "file"
    path.touch()
    assert path.get_xattr("user.a") is None and path.list_xattrs() == []
    path.set_xattr("user.a", b"\0\xff")
    path.set_xattr(b"user.b", bytearray(b""))
    assert path.get_xattr("user.a") == b"\0\xff" and path.get_xattr("user.b") == b""
    assert sorted(path.list_xattrs()) == ["user.a", "user.b"]
    with pytest.raises(FileExistsError):
        path.set_xattr("user.a", b"", os.XATTR_CREATE)
    with pytest.raises(OSError) as refused:
        path.set_xattr("user.c", b"", os.XATTR_REPLACE)
    assert refused.value.errno == errno.ENODATA
    path.remove_xattr("user.a")
    with pytest.raises(OSError) as refused:
        path.remove_xattr("user.a")
    assert refused.value.errno == errno.ENODATA
    with pytest.raises(ValueError):
        path.set_xattr("user.a", b"", 9)


def test_names_that_are_not_text(volume):
    raw = b"caf\xe9-\xff"
    text = raw.decode("utf-8", "surrogateescape")
    (volume / raw).write_bytes(b"1")
    assert (volume / text).read_bytes() == b"1" and [path.name for path in volume.root.glob("caf*")] == [text]
    assert bytes(volume / raw) == b"/" + raw
    (volume / "snow-\u2603").symlink_to(raw)
    assert os.fsencode(str((volume / "snow-\u2603").readlink())) == raw
    with pytest.raises(FileNotFoundError) as missing:
        (volume / b"none-\xff").stat()
    assert missing.value.filename == "/none-\udcff"


def test_names_that_no_file_can_have(volume):
    for act in ("stat", "touch", "mkdir", "unlink", "read_bytes", "exists"):
        with pytest.raises(ValueError, match="null byte"):
            getattr(volume / "a\0b", act)()
    with pytest.raises(OSError) as refused:
        (volume / ("x" * 256)).touch()
    assert refused.value.errno == errno.ENAMETOOLONG
    for wrong in (1, None, 1.5, object()):
        with pytest.raises(TypeError):
            volume / wrong


def test_the_volume(tmp_path):
    path = tmp_path / "disk.img"
    import uuid

    number = uuid.uuid4()
    with spinney.make(path, size=256 << 20, label="disk", uuid=number, owner=(3, 4)) as volume:
        assert not volume.read_only and not volume.closed
        assert volume.root.stat().st_uid == 3
        volume.set_label("other")
        info = volume.info
        assert (info.format, info.uuid, info.total_bytes) == ("btrfs", number, 256 << 20)
        space = volume.statvfs()
        assert space.f_blocks * space.f_frsize == 256 << 20 and space.f_namemax == 255
        assert volume.resize(512 << 20) == 512 << 20
    assert volume.closed and spinney.recognise(path) == "btrfs" and set(spinney.formats()) == {"btrfs", "f2fs"}
    with spinney.open(path, options={"skip_balance": None}) as volume:
        assert volume.info.label == "other" and volume.info.total_bytes == 512 << 20
        assert volume.read_only and volume.statvfs().f_flag & os.ST_RDONLY
        with pytest.raises(OSError) as refused:
            (volume / "x").touch()
        assert refused.value.errno == errno.EROFS
    with spinney.open(f"{path}?offset=0", writable=True, owner=(9, 9)) as volume:
        (volume / "x").touch()
        assert (volume / "x").stat().st_uid == 9
    (tmp_path / "zeros").write_bytes(bytes(100000))
    assert spinney.recognise(tmp_path / "zeros") is None
