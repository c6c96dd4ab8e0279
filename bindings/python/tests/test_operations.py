"""Check, import and export, with progress and cancellation."""

import _thread
import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import spinney


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    for index in range(40):
        (root / f"d{index}").mkdir(parents=True)
        (root / f"d{index}" / "file").write_bytes(os.urandom(200_000))
    (root / "link").symlink_to("d0/file")
    os.link(root / "d1/file", root / "hard")
    return root


def test_import_and_export(volume, tree, tmp_path):
    steps = []
    volume.import_(tree, "in/tree", progress=lambda progress: steps.append((progress.bytes, progress.inodes)))
    assert steps[-1][0] >= 40 * 200_000 and steps == sorted(steps)
    assert (volume / "in/tree/hard").samefile("in/tree/d1/file")
    volume.export("in/tree", tmp_path / "out")
    assert subprocess.run(["diff", "-r", tree, tmp_path / "out"]).returncode == 0
    assert os.readlink(tmp_path / "out/link") == "d0/file"


def test_a_callback_cancels_by_false(volume, tree):
    with pytest.raises(OSError) as cancelled:
        volume.import_(tree, progress=lambda progress: False)
    assert cancelled.value.errno == errno.ECANCELED
    volume.sync()


def test_other_answers_of_a_callback_mean_nothing(volume, tree):
    volume.import_(tree, progress=lambda progress: 0)
    assert len(list(volume.root.glob("d*"))) == 40


def test_exceptions_of_a_callback_come_through(volume, tree, image):
    def fail(progress):
        raise LookupError(progress.bytes)

    with pytest.raises(LookupError):
        volume.import_(tree, progress=fail)
    with pytest.raises(LookupError):
        spinney.check(image, progress=fail)
    with pytest.raises(TypeError):
        spinney.check(image, progress=lambda: None)
    (volume / "afterwards").touch()


def test_callbacks_run_in_the_calling_thread_and_may_use_the_volume(volume, tree):
    threads = []

    def look(progress):
        threads.append(threading.get_ident())
        assert list(volume.root.iterdir()) is not None
        repr(progress)

    volume.import_(tree, progress=look)
    assert set(threads) == {threading.get_ident()}


SLOW = """
import os, signal, sys, threading, time, spinney, _thread
# Ignored where a shell started the tests in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
class Slow:
    def __init__(self): self.left = 200
    def write(self, data):
        time.sleep(0.05)
        return len(data)
with spinney.make(sys.argv[1], size=512 << 20) as volume:
    volume.create_subvolume("s")
    (volume / "s/file").write_bytes(os.urandom(64 << 20))
    volume.snapshot("s", "r")
    print("ready", flush=True)
    try:
        volume.send("r", Slow())
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    (volume / "after").touch()
with spinney.open(sys.argv[1]) as volume:
    print((volume / "after").exists(), flush=True)
"""


def test_ctrl_c_cancels(tmp_path):
    command = [sys.executable, "-c", SLOW, tmp_path / "disk.img"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.read() == "interrupted\nTrue\n"
        assert time.monotonic() - begun < 10
    assert child.returncode == 0


def test_check(image):
    steps = []
    report = spinney.check(image, data=True, threads=1, progress=steps.append)
    assert report and report.errors == 0 and report.findings == () and report.inodes > 3 and report.bytes > 0
    assert steps and steps[-1].bytes == report.bytes
    one = spinney.check(image, passes=[report.passes[0]])
    assert one and report.passes[0] in one.passes and len(one.passes) < len(report.passes)
    with pytest.raises(OSError, match="no pass"):
        spinney.check(image, passes=["nonsense"])


def test_check_finds_damage(image):
    with open(image, "r+b") as file:
        data = file.read()
        block = bytes(range(256)) * 16
        place = data.find(block)
        assert place > 0
        file.seek(place)
        file.write(b"damage")
    report = spinney.check(image, data=True)
    assert not report and report.errors == sum(report.counts.values()) >= 1
    finding = report.findings[0]
    assert finding.code in report.counts and finding.about and "home/ada/notes" in str(report)
    with spinney.open(image) as volume:
        with pytest.raises(OSError) as damaged:
            (volume / "home/ada/notes").read_bytes()
    assert damaged.value.errno == errno.EIO and damaged.value.blame == "image"
