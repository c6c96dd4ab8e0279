"""Subvolumes, snapshots, differences, send and receive."""

import errno
import io
import os
import stat
import uuid

import pytest

import spinney


@pytest.fixture
def history(btrfs):
    """A subvolume with two snapshots of different states."""
    btrfs.create_subvolume("home")
    (btrfs / "home/letter").write_text("Dear Ada,")
    (btrfs / "home/old").write_text("old")
    (btrfs / "home/data").write_bytes(os.urandom(1 << 20))
    btrfs.snapshot("home", "monday")
    (btrfs / "home/letter").rename("home/sent")
    (btrfs / "home/old").unlink()
    (btrfs / "home/new").mkdir()
    with (btrfs / "home/data").open("r+b") as file:
        file.seek(64 << 10)
        file.write(b"x" * 4096)
    btrfs.snapshot("home", btrfs / "tuesday")
    return btrfs


def test_subvolumes(history):
    records = {record.path: record for record in history.subvolumes()}
    assert set(records) == {"home", "monday", "tuesday"}
    home, monday = records["home"], records["monday"]
    assert (home.parent_id, home.dir_id, home.read_only, home.parent_uuid) == (5, 256, False, None)
    assert monday.read_only and monday.parent_uuid == home.uuid and isinstance(monday.uuid, uuid.UUID)
    assert monday.otime_ns > 0 and monday.created >= home.created and monday.received_uuid is None
    assert history.subvolume("monday") == monday and history.subvolume().id == 5
    with pytest.raises(OSError) as refused:
        (history / "monday/x").touch()
    assert refused.value.errno == errno.EROFS
    history.set_read_only("monday", False)
    (history / "monday/x").touch()
    history.delete_subvolume("tuesday")
    assert not (history / "tuesday").exists()
    writable = history.snapshot("home", "trial", read_only=False)
    (writable / "x").touch()
    assert not (history / "home/x").exists()
    with pytest.raises(OSError) as refused:
        history.subvolume("home/new")
    assert refused.value.errno == errno.EINVAL


def test_differences_are_typed(history):
    changes = history.diff("monday", "tuesday")
    by_path = {change.paths[0]: change for change in changes}
    renamed, removed, added, data = (by_path[name] for name in ("sent", "old", "new", "data"))
    assert renamed.names == (spinney.NameChange("letter", "sent"),) and isinstance(renamed, spinney.Changed)
    assert isinstance(removed, spinney.Removed) and isinstance(added, spinney.Added)
    assert stat.S_ISDIR(added.type_bits) and stat.S_ISREG(removed.type_bits)
    ((first, end),) = data.data
    assert first <= 64 << 10 and end >= (64 << 10) + 4096 and data.size is None and data.path == "data"
    assert history.diff("monday", "monday") == ()
    assert hash(added) != hash(removed)


def test_send_and_receive(history, tmp_path):
    whole, rest = io.BytesIO(), io.BytesIO()
    steps = []
    history.send("monday", whole, progress=lambda progress: steps.append(progress.bytes))
    history.send("tuesday", rest, parent="monday", version=2, compressed_data=True)
    assert steps and steps[-1] == len(whole.getvalue()) and len(rest.getvalue()) < 200_000
    with spinney.make(tmp_path / "other.img", size=256 << 20) as other:
        (other / "in").mkdir()
        (first,) = other.receive(io.BytesIO(whole.getvalue()), "in")
        (second,) = other.receive(io.BytesIO(rest.getvalue()), other / "in")
        assert first.path.strip("/") == "in/monday" and second.is_snapshot and not first.is_snapshot
        assert second.uuid == history.subvolume("tuesday").uuid
        for name in ("sent", "data"):
            assert (other / "in/tuesday" / name).read_bytes() == (history / "home" / name).read_bytes()
        assert other.subvolume("in/monday").received_uuid == history.subvolume("monday").uuid


def test_send_to_file_descriptors(history, tmp_path):
    read, write = os.pipe()
    import threading

    def receive():
        with spinney.make(tmp_path / "other.img", size=256 << 20) as other:
            other.receive(read)
            assert (other / "monday/letter").read_text() == "Dear Ada,"
            done.append(True)

    done = []
    thread = threading.Thread(target=receive)
    thread.start()
    history.send("monday", write)
    os.close(write)
    thread.join()
    os.close(read)
    assert done


def test_send_refuses_writable_subvolumes(history):
    with pytest.raises(PermissionError, match="only read-only ones are sent"):
        history.send("home", io.BytesIO())


def test_exceptions_of_the_streams_come_through(history):
    class Full:
        def write(self, data):
            raise ZeroDivisionError("full")

    with pytest.raises(ZeroDivisionError, match="full"):
        history.send("monday", Full())
    with pytest.raises(AttributeError):
        history.send("monday", object())

    class Broken:
        def read(self, size):
            raise KeyError("broken")

    with pytest.raises(KeyError):
        history.receive(Broken())

    class TooMuch:
        def read(self, size):
            return bytes(size + 1)

    with pytest.raises(TypeError):
        history.receive(TooMuch())

    class Text:
        def read(self, size):
            return "text"

    with pytest.raises(TypeError):
        history.receive(Text())
    with pytest.raises(OSError, match="input is empty"):
        history.receive(io.BytesIO())
    with pytest.raises(OSError):
        history.receive(io.BytesIO(b"no stream at all" * 10))


def test_a_stream_that_is_cut_short_leaves_nothing(history, tmp_path):
    whole = io.BytesIO()
    history.send("monday", whole)
    with spinney.make(tmp_path / "other.img", size=256 << 20) as other:
        with pytest.raises(OSError, match="stream"):
            other.receive(io.BytesIO(whole.getvalue()[:-100]))
        assert other.subvolumes() == () and list(other.root.iterdir()) == []


def test_f2fs_has_no_subvolumes(tmp_path):
    with spinney.make(tmp_path / "f2fs.img", "f2fs", size=128 << 20) as volume:
        for act in (
            volume.subvolumes,
            lambda: volume.create_subvolume("x"),
            lambda: volume.snapshot("/", "x"),
            lambda: volume.diff("/", "/"),
            lambda: volume.send("/", io.BytesIO()),
            lambda: volume.receive(io.BytesIO()),
            lambda: volume.set_label("x"),
        ):
            with pytest.raises(OSError) as refused:
                act()
            assert refused.value.errno == errno.EOPNOTSUPP and "no" in refused.value.strerror
