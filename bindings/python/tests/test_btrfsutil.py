"""The verbs of libbtrfsutil, on open volumes and on `IMAGE:/PATH`."""

import errno

import pytest

import spinney
from spinney import btrfsutil


@pytest.fixture(params=["volume", "image"])
def at(request, tmp_path):
    """A function from a path in a volume to the argument of the verbs."""
    path = tmp_path / "disk.img"
    volume = spinney.make(path, size=128 << 20)
    if request.param == "volume":
        yield lambda inner: volume / inner
        volume.close()
    else:
        volume.close()
        yield lambda inner: f"{path}:/{inner}"


def test_subvolumes(at):
    btrfsutil.create_subvolume(at("a"))
    assert btrfsutil.is_subvolume(at("a")) and btrfsutil.is_subvolume(at(""))
    info = btrfsutil.subvolume_info(at("a"))
    assert (info.parent_id, info.dir_id, info.flags) == (5, 256, 0) and info.id >= 256
    assert len(info.uuid) == 16 and info.parent_uuid == info.received_uuid == bytes(16)
    assert info.otime > 1_600_000_000 and info.stime == info.rtime == 0.0 and info.ctime > 0
    assert btrfsutil.subvolume_id(at("a")) == info.id and btrfsutil.subvolume_id(at("")) == 5
    assert btrfsutil.subvolume_path(at(""), info.id) == "a" and btrfsutil.subvolume_path(at("")) == ""
    assert btrfsutil.subvolume_info(at(""), info.id).uuid == info.uuid
    assert btrfsutil.subvolume_info(at("")).parent_id == 0
    with pytest.raises(OSError) as refused:
        btrfsutil.subvolume_info(at(""), 9999)
    assert refused.value.errno == errno.ENOENT
    with pytest.raises(FileExistsError):
        btrfsutil.create_subvolume(at("a"))
    btrfsutil.delete_subvolume(at("a"))
    assert isinstance(btrfsutil.deleted_subvolumes(at("")), list)
    with pytest.raises(FileNotFoundError):
        btrfsutil.subvolume_info(at("a"))


def test_read_only_and_default(at):
    btrfsutil.create_subvolume(at("a"))
    assert not btrfsutil.get_subvolume_read_only(at("a"))
    btrfsutil.set_subvolume_read_only(at("a"))
    assert btrfsutil.get_subvolume_read_only(at("a")) and btrfsutil.subvolume_info(at("a")).flags == 1
    btrfsutil.set_subvolume_read_only(at("a"), False)
    assert not btrfsutil.get_subvolume_read_only(at("a"))
    assert btrfsutil.get_default_subvolume(at("")) == 5
    number = btrfsutil.subvolume_id(at("a"))
    if isinstance(at(""), spinney.Path):
        btrfsutil.set_default_subvolume(at("a"))
        assert btrfsutil.get_default_subvolume(at("")) == number
        btrfsutil.set_default_subvolume(at(""), 5)
        btrfsutil.set_default_subvolume(at(""), number)
        assert btrfsutil.get_default_subvolume(at("")) == number


def test_snapshots(at):
    btrfsutil.create_subvolume(at("a"))
    btrfsutil.create_subvolume(at("a/b"))
    btrfsutil.create_subvolume(at("a/b/c"))
    btrfsutil.create_snapshot(at("a"), at("flat"), read_only=True)
    assert btrfsutil.get_subvolume_read_only(at("flat")) and not btrfsutil.is_subvolume(at("flat/b"))
    assert btrfsutil.subvolume_info(at("flat")).parent_uuid == btrfsutil.subvolume_info(at("a")).uuid
    btrfsutil.create_snapshot(at("a"), at("deep"), recursive=True)
    assert btrfsutil.is_subvolume(at("deep/b")) and btrfsutil.is_subvolume(at("deep/b/c"))
    with pytest.raises(OSError):
        btrfsutil.create_snapshot(at("a"), at("x"), recursive=True, read_only=True)
    with pytest.raises(OSError) as refused:
        btrfsutil.delete_subvolume(at("deep"))
    assert refused.value.errno == errno.ENOTEMPTY
    btrfsutil.delete_subvolume(at("deep"), recursive=True)
    found = dict(btrfsutil.SubvolumeIterator(at("")))
    assert set(found) == {"a", "a/b", "a/b/c", "flat"}


def test_iteration(at):
    for name in ("a", "a/b", "a/b/c", "d"):
        btrfsutil.create_subvolume(at(name))
    before = [name for name, _ in btrfsutil.SubvolumeIterator(at(""))]
    after = [name for name, _ in btrfsutil.SubvolumeIterator(at(""), post_order=True)]
    assert set(before) == set(after) == {"a", "a/b", "a/b/c", "d"}
    assert before.index("a") < before.index("a/b") < before.index("a/b/c")
    assert after.index("a") > after.index("a/b") > after.index("a/b/c")
    top = btrfsutil.subvolume_id(at("a"))
    with btrfsutil.SubvolumeIterator(at(""), top=top, info=True) as inner:
        rows = list(inner)
    assert [name for name, _ in rows] == ["b", "b/c"] and all(info.parent_id >= top for _, info in rows)


def test_syncs(at):
    btrfsutil.sync(at(""))
    number = btrfsutil.start_sync(at(""))
    assert number > 0
    btrfsutil.wait_sync(at(""), number)
    btrfsutil.wait_sync(at(""))
    with pytest.raises(OSError):
        btrfsutil.wait_sync(at(""), number + 1000)


def test_refusals(at, tmp_path):
    for options in ({"async_": True}, {"qgroup_inherit": object()}):
        with pytest.raises(OSError) as refused:
            btrfsutil.create_subvolume(at("x"), **options)
        assert refused.value.errno == errno.EOPNOTSUPP
    try:
        import btrfsutil as host  # noqa: F401
    except ImportError:
        for act in (btrfsutil.subvolume_info, btrfsutil.SubvolumeIterator):
            with pytest.raises(OSError) as refused:
                act(tmp_path)
            assert refused.value.errno == errno.EOPNOTSUPP
