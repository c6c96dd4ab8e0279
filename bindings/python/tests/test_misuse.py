"""Uses that cannot be: an exception, nothing lost, no crash."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import warnings

import pytest

import spinney


def test_a_closed_volume(volume, tmp_path):
    path = volume / "file"
    path.write_bytes(b"1")
    file, raw = path.open("rb"), path.open("rb", buffering=0)
    names = iter((volume / "/").iterdir())
    volume.close()
    volume.close()
    assert volume.closed and "closed" in repr(volume) and file.closed and raw.closed
    for act in (
        path.stat,
        path.read_bytes,
        path.touch,
        path.open,
        path.iterdir,
        path.unlink,
        volume.sync,
        volume.statvfs,
        volume.subvolumes,
        lambda: volume.info,
        lambda: volume.read_only,
        lambda: volume.import_(tmp_path),
        lambda: volume.export("/", tmp_path / "out"),
        lambda: list(names),
        file.read,
        raw.read,
        lambda: raw.pread(1, 0),
        raw.stat,
        raw.extents,
    ):
        with pytest.raises(ValueError, match="closed"):
            act()


def test_the_image_is_free_after_close(volume, tmp_path):
    file = (volume / "file").open("w")
    names = iter((volume / "/").iterdir())
    volume.close()
    with spinney.open(tmp_path / "disk.img", writable=True) as again:
        assert (again / "file").exists()
    del file, names


def test_an_exception_in_a_block_keeps_what_was_written(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with spinney.make(tmp_path / "disk.img", size=128 << 20) as volume:
            (volume / "file").write_text("kept")
            1 / 0
    with spinney.open(tmp_path / "disk.img") as volume:
        assert (volume / "file").read_text() == "kept"


def test_a_volume_that_is_dropped_is_closed(tmp_path):
    volume = spinney.make(tmp_path / "disk.img", size=128 << 20)
    (volume / "file").write_text("kept")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del volume
        gc.collect()
    assert any(issubclass(warning.category, ResourceWarning) for warning in seen)
    with spinney.open(tmp_path / "disk.img") as volume:
        assert (volume / "file").read_text() == "kept"


def test_a_file_keeps_its_volume_open(image):
    file = spinney.open(image).open("etc/passwd")
    names = spinney.open(image).root.iterdir()
    gc.collect()
    assert file.readline() == "root:x:0:0\n" and sorted(path.name for path in names) == ["etc", "home"]
    file.close()


def test_volumes_are_not_pickled_or_copied(volume):
    for thing in (volume, volume / "x"):
        for act in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError):
                act(thing)


def test_wrong_types(volume):
    (volume / "file").touch()
    for act in (
        lambda: spinney.open(1),
        lambda: spinney.open(None),
        lambda: spinney.make("x", size="1G"),
        lambda: volume.resize("x"),
        lambda: (volume / "file").chmod("x"),
        lambda: (volume / "file").chown("x"),
        lambda: (volume / "file").set_xattr("user.a", "text"),
        lambda: (volume / "file").open("rb", buffering=0).read("x"),
        lambda: volume.import_(1),
    ):
        with pytest.raises(TypeError):
            act()
    with pytest.raises(ValueError):
        spinney.open("a\0b")
    for act in (lambda: volume.resize(-1), lambda: (volume / "file").chown(-2)):
        with pytest.raises(OverflowError):
            act()
    with pytest.raises(ValueError):
        (volume / "file").utime((1, 2), ns=(1, 2))


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


EXIT = """
import sys, spinney
volume = spinney.make(sys.argv[1], size=128 << 20)
file = (volume / "buffered").open("w")
file.write("kept")
(volume / "file").write_text("kept")
volume.me = volume
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "1 / 0"])
def test_exit_with_an_open_volume(tmp_path, end):
    done = run(EXIT + end, tmp_path / "disk.img")
    assert done.returncode == {"": 0, "sys.exit(3)": 3, "1 / 0": 1}[end], done.stderr
    assert "panicked" not in done.stderr
    with spinney.open(tmp_path / "disk.img") as volume:
        assert (volume / "file").read_text() == (volume / "buffered").read_text() == "kept"


def test_a_kill_leaves_the_last_sync(tmp_path):
    done = run(EXIT + "volume.sync()\n(volume / 'late').touch()\nimport os; os._exit(0)", tmp_path / "disk.img")
    assert done.returncode == 0, done.stderr
    with spinney.open(tmp_path / "disk.img") as volume:
        assert (volume / "file").read_text() == "kept" and not (volume / "late").exists()
    assert spinney.check(tmp_path / "disk.img", data=True)


FORK = """
import os, sys, spinney
volume = spinney.make(sys.argv[1], size=128 << 20)
file = (volume / "file").open("wb")
file.write(b"of the parent")
child = os.fork()
if child == 0:
    for act in (volume.sync, (volume / "x").touch, (volume / "file").stat):
        try:
            act()
            os._exit(1)
        except RuntimeError as error:
            assert "fork" in str(error)
    volume.close()
    del volume
    try:
        file.close()
    except RuntimeError:
        pass
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
file.close()
(volume / "after").touch()
volume.close()
"""


def test_a_child_process_cannot_use_the_volume(tmp_path):
    done = run(FORK, tmp_path / "disk.img")
    assert done.returncode == 0, done.stderr
    with spinney.open(tmp_path / "disk.img") as volume:
        assert (volume / "file").read_bytes() == b"of the parent" and (volume / "after").exists()
    assert spinney.check(tmp_path / "disk.img", data=True)


THREAD = """
import sys, threading, time, spinney
volume = spinney.make(sys.argv[1], size=128 << 20)
def work():
    index = 0
    while True:
        (volume / f"{index}").write_bytes(bytes(100000))
        index += 1
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""


def test_exit_while_threads_write(tmp_path):
    done = run(THREAD, tmp_path / "disk.img")
    assert done.returncode == 0 and "panicked" not in done.stderr, done.stderr
    assert spinney.check(tmp_path / "disk.img", data=True)
