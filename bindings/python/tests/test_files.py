"""Open files, as `io` has them."""

import errno
import io
import os
import random

import pytest

import spinney


def test_modes(volume):
    path = volume / "file"
    with pytest.raises(FileNotFoundError):
        path.open()
    with path.open("x") as file:
        file.write("one\n")
    with pytest.raises(FileExistsError):
        path.open("x")
    with path.open("a") as file:
        file.write("two\n")
    with path.open("r+") as file:
        assert file.read(3) == "one"
        file.seek(0)
        file.write("ONE")
    with path.open() as file:
        assert list(file) == ["ONE\n", "two\n"]
    with path.open("a+b") as file:
        file.write(b"three")
        file.seek(0)
        assert file.read() == b"ONE\ntwo\nthree"
    with path.open("wb") as file:
        assert file.tell() == 0
    assert path.read_bytes() == b""
    for wrong in ("", "rw", "rr", "q", "r+b+", "bt", "rbt"):
        with pytest.raises(ValueError):
            path.open(wrong)
    with pytest.raises(ValueError):
        path.open("rb", encoding="utf-8")
    with pytest.raises(ValueError):
        path.open("r", buffering=0)
    with volume.open("file", "w") as file:
        assert isinstance(file, io.TextIOWrapper) and file.encoding == "utf-8"
    with pytest.raises(IsADirectoryError):
        volume.root.open()
    with pytest.raises(IsADirectoryError):
        volume.root.open("w")


def test_raw_files(volume):
    with (volume / "file").open("w+b", buffering=0) as raw:
        assert isinstance(raw, spinney._file.RawFile) and isinstance(raw, io.RawIOBase)
        assert raw.readable() and raw.writable() and raw.seekable() and raw.mode == "w+b" and raw.name == "/file"
        assert raw.write(bytearray(b"0123456789")) == 10 and raw.write(memoryview(b"abcdef")[::2]) == 3
        assert raw.tell() == 13 and raw.seek(2) == 2 and raw.read(4) == b"2345"
        target = bytearray(20)
        assert raw.readinto(target) == 7 and target[:7] == b"6789ace" and raw.readinto(target) == 0
        assert raw.seek(-3, os.SEEK_END) == 10 and raw.seek(1, os.SEEK_CUR) == 11 and raw.readall() == b"ce"
        assert raw.truncate(4) == 4 and raw.tell() == 13 and raw.read() == b""
        raw.write(b"!")
        raw.seek(0)
        assert raw.read() == b"0123" + bytes(9) + b"!"
        assert raw.pread(2, 1) == b"12" and raw.pwrite(b"Z", 0) == 1 and raw.pread(99, 13) == b"!"
        assert raw.stat().st_size == 14
        raw.sync()
        raw.sync(data_only=True)
        with pytest.raises(io.UnsupportedOperation):
            raw.fileno()
        with pytest.raises(TypeError):
            raw.write("text")


def test_access_is_kept(volume):
    (volume / "file").write_bytes(b"1")
    with (volume / "file").open("rb", buffering=0) as raw:
        for act in (lambda: raw.write(b""), lambda: raw.truncate(0)):
            with pytest.raises(io.UnsupportedOperation):
                act()
    with (volume / "file").open("wb", buffering=0) as raw:
        with pytest.raises(io.UnsupportedOperation):
            raw.read(1)
        with pytest.raises(io.UnsupportedOperation):
            raw.readinto(bytearray(1))


def test_positions_that_cannot_be(volume):
    with (volume / "file").open("w+b", buffering=0) as raw:
        for act in (
            lambda: raw.seek(-1),
            lambda: raw.seek(-1, os.SEEK_CUR),
            lambda: raw.pread(1, -1),
            lambda: raw.pwrite(b"", -1),
            lambda: raw.truncate(-1),
        ):
            with pytest.raises(OSError) as refused:
                act()
            assert refused.value.errno == errno.EINVAL
        with pytest.raises(ValueError):
            raw.seek(0, 9)
        with pytest.raises(OverflowError):
            raw.seek(1 << 80)
        with pytest.raises((OSError, OverflowError)):
            raw.pwrite(b"x", (1 << 63) - 1)
        assert raw.seek(1 << 40) == 1 << 40 and raw.read(10) == b"" and raw.read(1 << 50) == b""


def test_holes(btrfs):
    with (btrfs / "sparse").open("w+b", buffering=0) as raw:
        raw.pwrite(b"x" * 4096, 1 << 20)
        raw.truncate(4 << 20)
        raw.sync()
        assert raw.seek(0, os.SEEK_DATA) == 1 << 20 and raw.seek(1 << 20, os.SEEK_HOLE) == (1 << 20) + 4096
        with pytest.raises(OSError) as refused:
            raw.seek(2 << 20, os.SEEK_DATA)
        assert refused.value.errno == errno.ENXIO
        (extent,) = raw.extents()
        assert (extent.offset, extent.length, extent.kind) == (1 << 20, 4096, "data") and extent.logical


def test_a_file_that_is_unlinked_stays_open(volume):
    with (volume / "file").open("w+b") as file:
        (volume / "file").unlink()
        file.write(b"still here")
        file.seek(0)
        assert file.read() == b"still here"
    assert not (volume / "file").exists()


def test_random_operations_as_a_host_file(volume, tmp_path):
    choose = random.Random(1)
    with open(tmp_path / "model", "w+b") as theirs, (volume / "file").open("w+b") as ours:
        for _ in range(400):
            act = choose.choice(["write", "read", "seek", "truncate", "flush", "readline", "peek"])
            size = choose.choice([1, 10, 5000, 300000])
            if act == "write":
                data = choose.randbytes(size) if hasattr(choose, "randbytes") else bytes(size)
                assert ours.write(data) == theirs.write(data)
            elif act == "seek":
                place = choose.randrange(600000)
                assert ours.seek(place) == theirs.seek(place)
            elif act == "truncate":
                assert ours.truncate(size) == theirs.truncate(size)
            elif act == "flush":
                assert ours.flush() == theirs.flush()
            elif act == "read":
                assert ours.read(size) == theirs.read(size)
            elif act == "readline":
                assert ours.readline(100) == theirs.readline(100)
            assert ours.tell() == theirs.tell()
        ours.flush()
        theirs.flush()
    assert (volume / "file").read_bytes() == (tmp_path / "model").read_bytes()


def test_what_is_written_is_there_after_opening_again(tmp_path):
    for format in spinney.formats():
        path = tmp_path / f"{format}.img"
        with spinney.make(path, format, size=128 << 20) as volume:
            data = os.urandom(3 << 20)
            (volume / "data").write_bytes(data)
            left_open = (volume / "buffered").open("w")
            left_open.write("closed by the volume")
        assert left_open.closed
        with spinney.open(path) as volume:
            assert (volume / "data").read_bytes() == data
            assert (volume / "buffered").read_text() == "closed by the volume"
        assert spinney.check(path, data=True)


def test_text(volume):
    path = volume / "text"
    assert path.write_text("grüße\n", encoding="latin-1") == 6
    assert path.read_bytes() == b"gr\xfc\xdfe\n" and path.read_text("latin-1") == "grüße\n"
    with pytest.raises(UnicodeDecodeError):
        path.read_text()
    assert path.read_text(errors="replace") == "gr\ufffd\ufffde\n"
    path.write_text("a\nb", newline="\r\n")
    assert path.read_bytes() == b"a\r\nb" and path.read_text() == "a\nb"
    with pytest.raises(TypeError):
        path.write_text(b"bytes")
    with pytest.raises(TypeError):
        path.write_bytes("text")


def test_copy_shares_extents(btrfs):
    (btrfs / "a").write_bytes(os.urandom(1 << 20))
    (btrfs / "a").chmod(0o755)
    assert btrfs.copy("a", btrfs / "b") == 1 << 20
    assert (btrfs / "b").read_bytes() == (btrfs / "a").read_bytes() and (btrfs / "b").stat().st_mode & 0o777 == 0o755
    btrfs.sync()
    places = []
    for name in ("a", "b"):
        with (btrfs / name).open("rb", buffering=0) as raw:
            places.append([extent.logical for extent in raw.extents()])
    assert places[0] == places[1]


def test_a_full_volume(tmp_path):
    with spinney.make(tmp_path / "small.img", size=64 << 20) as volume:
        with pytest.raises(OSError) as refused:
            for index in range(100):
                (volume / f"{index}").write_bytes(os.urandom(4 << 20))
                volume.sync()
        assert refused.value.errno == errno.ENOSPC and refused.value.blame == "space"
        for path in list(volume.root.iterdir()):
            path.unlink()
        volume.sync()
        (volume / "again").write_bytes(b"x")
