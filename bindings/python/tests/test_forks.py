"""Forks, their merges, and trees for tests."""

import errno
import threading

import pytest

from spinney.testing import Fixture, mounted_tree, tree


def fill(root):
    (root / "shelf").mkdir()
    (root / "shelf" / "book").write_text("1\n2\n3\n")
    (root / "notes").write_text("kept")


@pytest.fixture
def base(btrfs):
    btrfs.create_subvolume("base")
    fill(btrfs / "base")
    return btrfs


def test_a_fork_is_changed_looked_at_merged_and_dropped(base):
    made = base.fork("base", "trial")
    assert (made.path, made.base, made.read_only, made.limit) == ("/trial", "/base", False, None)
    (base / "trial/shelf/book").write_text("one\n2\n3\n")
    (base / "trial/new").write_text("new\n")
    assert {type(change).__name__ for change in base.fork_changes("trial")} == {"Added", "Changed"}
    assert b"-1\n+one\n 2\n" in base.fork_patch("trial")
    (base / "base/shelf/book").write_text("1\n2\nthree\n")
    merged = base.merge_fork("trial")
    assert (merged.target, merged.changes, merged.conflicts, merged.is_merged) == ("/base", 2, (), True)
    assert (base / "base/shelf/book").read_text() == "one\n2\nthree\n"
    assert [fork.path for fork in base.forks()] == ["/trial"]
    base.drop_fork("trial")
    assert base.forks() == () and not (base / "trial").exists()


def test_conflicts_are_listed_and_resolved_as_asked(base):
    base.fork("base", "trial")
    (base / "trial/notes").write_text("theirs")
    (base / "base/notes").write_text("ours")
    refused = base.merge_fork("trial")
    assert not refused.is_merged and [conflict.path for conflict in refused.conflicts] == ["notes"]
    assert (base / "base/notes").read_text() == "ours"
    merged = base.merge_fork("trial", strategy="theirs")
    assert merged.is_merged and (base / "base/notes").read_text() == "theirs"
    assert (base / "base" / merged.conflicts[0].kept).read_text() == "ours"


def test_what_is_no_fork_is_refused(base):
    for call in (base.fork_changes, base.merge_fork, base.drop_fork):
        with pytest.raises(OSError) as raised:
            call("base")
        assert raised.value.errno == errno.EINVAL and "not a fork" in raised.value.strerror
    with pytest.raises(OSError):
        base.fork("base", "../outside")
    with pytest.raises(OSError):
        base.fork("base", "trial", limit=1 << 20)
    with pytest.raises(OSError):
        base.merge_fork("base", strategy="mine")


def test_forks_expire(base):
    base.fork("base", "old", expires=1)
    base.fork("base", "young", expires=1 << 40)
    assert base.drop_expired_forks() == ("/old",)
    assert [fork.path for fork in base.forks()] == ["/young"]


def test_copies_of_a_fixture_do_not_see_each_other():
    with Fixture(fill, size=256 << 20) as fixture:
        failures = []

        def one(number):
            for _ in range(5):
                with fixture.copy() as root:
                    if (root / "notes").read_text() != "kept":
                        failures.append(number)
                    (root / "notes").write_text(str(number))
                    (root / "shelf/book").unlink()

        threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert failures == []
        assert [found.path for found in fixture.volume.subvolumes()] == ["prepared"]


copied = tree(fill, size=256 << 20)
mounted = mounted_tree(fill, size=256 << 20)


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_the_tree_as_it_was(copied, turn):
    assert (copied / "notes").read_text() == "kept"
    (copied / "notes").write_text(f"turn {turn}")


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_the_mounted_tree_as_it_was(mounted, turn):
    assert (mounted / "notes").read_text() == "kept"
    (mounted / "notes").write_text(f"turn {turn}")
    (mounted / "shelf/book").unlink()
