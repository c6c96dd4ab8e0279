"""Exceptions: the classes, the messages of the program, and images that are damaged or lie."""

import errno
import os
import pathlib
import random
import subprocess

import pytest

import spinney


def test_classes_by_errno(volume):
    (volume / "dir").mkdir()
    (volume / "file").touch()
    cases = [
        (FileNotFoundError, lambda: (volume / "none").stat()),
        (FileExistsError, lambda: (volume / "dir").mkdir()),
        (NotADirectoryError, lambda: (volume / "file/x").touch()),
        (IsADirectoryError, lambda: (volume / "dir").read_bytes()),
        (IsADirectoryError, lambda: (volume / "dir").unlink()),
        (NotADirectoryError, lambda: (volume / "file").rmdir()),
    ]
    for kind, act in cases:
        with pytest.raises(kind) as raised:
            act()
        assert raised.value.blame == "caller" and raised.value.filename.startswith("/")
    with pytest.raises(FileNotFoundError) as raised:
        (volume / "none").stat()
    assert str(raised.value) == "[Errno 2] no such file or directory: '/none'"


def test_failures_of_opening(tmp_path, image):
    with pytest.raises(FileNotFoundError) as raised:
        spinney.open(tmp_path / "none")
    assert str(tmp_path / "none") in str(raised.value)
    (tmp_path / "text").write_bytes(b"text" * 50_000)
    for act in (spinney.open, spinney.check):
        with pytest.raises(OSError) as raised:
            act(tmp_path / "text")
        assert raised.value.errno == errno.EIO
    with pytest.raises(OSError) as raised:
        spinney.open(image, options={"nonsense": "1"})
    assert raised.value.errno == errno.EINVAL and "nonsense" in str(raised.value)
    with pytest.raises(OSError) as raised:
        spinney.make(tmp_path / "x.img", "ext9", size=1 << 30)
    assert raised.value.errno == errno.EINVAL and "ext9" in str(raised.value)
    with pytest.raises(OSError) as raised:
        spinney.make(tmp_path / "x.img", size=4096)
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(FileNotFoundError):
        spinney.make(tmp_path / "y.img")
    with spinney.open(image, writable=True):
        with pytest.raises(OSError) as raised:
            spinney.open(image)
        assert raised.value.errno == errno.EBUSY
    with spinney.open(image), spinney.open(image):
        pass


def messages(image, program):
    """Every message that reading everything in the image raises, and those of the program for the same."""
    ours, theirs = [], []

    def ask(path):
        words = [program, "cat" if path else "ls", image] + ([path.lstrip("/")] if path else [])
        done = subprocess.run(words, capture_output=True, timeout=60)
        theirs.append(os.fsdecode(done.stderr))

    try:
        volume = spinney.open(image)
    except OSError as error:
        ours.append(error)
        ask("")
        return ours, theirs
    with volume:
        todo = [volume.root]
        for _ in range(30):
            if not todo:
                break
            path = todo.pop()
            try:
                if path.lstat().st_mode & 0o170000 == 0o040000:
                    todo.extend(path.iterdir())
                elif path.is_file():
                    path.read_bytes()
            except OSError as error:
                ours.append(error)
                ask(str(path))
    return ours, theirs


def test_images_that_rot(image, program, tmp_path):
    choose = random.Random(1)
    whole = image.read_bytes()
    places = [place for place in range(0, len(whole), 4096) if any(whole[place : place + 4096])]
    failures = 0
    for number in range(5):
        damaged = bytearray(whole)
        # Both copies of metadata, as often as not.
        for place in choose.sample(places, max(len(places) // (8 if number % 2 else 2), 1)):
            damaged[place + choose.randrange(4096)] ^= 1 << choose.randrange(8)
        path = tmp_path / "damaged.img"
        path.write_bytes(damaged)
        failures += compare(path, program)
    assert failures > 0


def test_images_that_lie(program):
    folder = os.environ.get("SPINNEY_HOSTILE")
    if not folder:
        pytest.skip("SPINNEY_HOSTILE does not name a folder of images")
    images = sorted(pathlib.Path(folder).iterdir())
    assert images
    assert sum(compare(image, program) for image in images) > 0


def compare(image, program):
    """Compares each exception with the message of the program. Returns how many there were."""
    ours, theirs = messages(image, program)
    for error, text in zip(ours, theirs):
        assert error.errno in (errno.EIO, errno.EOPNOTSUPP, errno.EINVAL, errno.ELOOP, errno.ENOENT), error
        if text and error.errno == errno.EIO:
            assert error.strerror in text, (error, text)
    return len(ours)
