"""Images for the tests. `SPINNEY_PROGRAM` names the program, with which some tests compare."""

import os
import shutil

import pytest

import spinney

SIZE = 128 << 20


@pytest.fixture(params=["btrfs", "f2fs"])
def volume(request, tmp_path):
    """An empty volume of each format."""
    with spinney.make(tmp_path / "disk.img", request.param, size=SIZE) as made:
        yield made


@pytest.fixture
def btrfs(tmp_path):
    """An empty volume of btrfs."""
    with spinney.make(tmp_path / "disk.img", size=SIZE) as made:
        yield made


@pytest.fixture
def image(tmp_path):
    """An image with a few files."""
    path = tmp_path / "site.img"
    with spinney.make(path, size=64 << 20) as made:
        (made / "etc").mkdir()
        (made / "etc/passwd").write_text("root:x:0:0\nada:x:1000:1000\n")
        (made / "home/ada").mkdir(parents=True)
        (made / "home/ada/notes").write_bytes(bytes(range(256)) * 1000)
        (made / "home/link").symlink_to("ada/notes")
    return path


@pytest.fixture(scope="session")
def program():
    """The path of the program."""
    found = os.environ.get("SPINNEY_PROGRAM") or shutil.which("spinney")
    if not found:
        pytest.skip("SPINNEY_PROGRAM does not name the program")
    return found
