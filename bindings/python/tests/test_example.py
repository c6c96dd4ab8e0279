"""The example: which files take most space in three snapshots."""

import os
import pathlib
import subprocess
import sys

import spinney

FOLDER = pathlib.Path(os.environ.get("SPINNEY_EXAMPLES", pathlib.Path(__file__).parent.parent / "examples"))


def test_space(btrfs, tmp_path):
    btrfs.create_subvolume("main")
    (btrfs / "main/log").write_bytes(os.urandom(1 << 20))
    (btrfs / "main/same").write_bytes(os.urandom(512 << 10))
    (btrfs / "main/small").write_bytes(b"x" * 100)
    btrfs.snapshot("main", "one")
    with (btrfs / "main/log").open("ab") as file:
        file.write(os.urandom(256 << 10))
    btrfs.snapshot("main", "two")
    (btrfs / "main/late").write_bytes(os.urandom(2 << 20))
    (btrfs / "main/same").unlink()
    btrfs.snapshot("main", "three")
    btrfs.close()
    picture = tmp_path / "space.png"
    words = [sys.executable, FOLDER / "space.py", tmp_path / "disk.img", "--picture", picture]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["total", "one", "two", "three", "file"]
    table = {row[-1]: [int(number.replace(",", "")) for number in row[:-1]] for row in rows[1:]}
    assert list(table) == ["late", "log", "same", "small"]
    assert table["late"] == [2 << 20, 0, 0, 2 << 20] and table["same"] == [512 << 10, 512 << 10, 0, 0]
    assert table["log"] == [(1 << 20) + (256 << 10), 1 << 20, 256 << 10, 0] and table["small"] == [100, 100, 0, 0]
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert done.returncode == 1 and "matplotlib" in done.stderr
    else:
        assert done.returncode == 0 and picture.read_bytes().startswith(b"\x89PNG"), done.stderr
