"""Cases that every file system has to pass: random operations on a volume and on the host, with the same outcome."""

import errno
import os
import random
import stat

import pytest

import spinney

NAMES = ["a", "b", "c"]
#: Numbers that file systems may choose between for one mistake.
ALIKE = [
    {errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL, errno.EBUSY, errno.EISDIR},
    {errno.EPERM, errno.EISDIR},
    {errno.ENOTDIR, errno.EINVAL},
]


def outcome(act):
    """The result of an operation, or its errno."""
    try:
        return act()
    except OSError as error:
        return error.errno
    except RuntimeError:
        # `pathlib` before Python 3.13.
        return errno.ELOOP


def same(ours, theirs):
    return ours == theirs or any(ours in group and theirs in group for group in ALIKE)


def tree(root, path, iterate):
    """Everything below a directory, by path."""
    found = {}
    for child in iterate(path):
        kind = child.lstat()
        name = str(child.relative_to(root))
        mode = stat.S_IFMT(kind.st_mode)
        row = [mode, kind.st_nlink if mode == stat.S_IFREG else 0]
        if mode == stat.S_IFLNK:
            row.append(str(child.readlink()))
        elif mode == stat.S_IFREG:
            row += [kind.st_size, child.read_bytes(), stat.S_IMODE(kind.st_mode)]
        else:
            found.update(tree(root, child, iterate))
        found[name] = row
    return found


def operations(choose):
    """An operation as a function from a root directory."""

    def path(root):
        for name in picked:
            root = root / name
        return root

    def other(root):
        for name in second:
            root = root / name
        return root

    picked = [choose.choice(NAMES) for _ in range(choose.randrange(1, 4))]
    second = [choose.choice(NAMES) for _ in range(choose.randrange(1, 4))]
    data = bytes([choose.randrange(256)]) * choose.choice([0, 1, 100, 5000, 100_000])
    size = choose.choice([0, 10, 4096, 50_000])

    def write(root, mode="wb"):
        with path(root).open(mode) as file:
            return file.write(data)

    def truncate(root):
        with path(root).open("r+b") as file:
            return file.truncate(size)

    return choose.choice(
        [
            lambda root: path(root).mkdir(0o755),
            lambda root: path(root).mkdir(0o755, parents=True, exist_ok=True),
            write,
            lambda root: write(root, "ab"),
            lambda root: write(root, "xb"),
            truncate,
            lambda root: path(root).rename(other(root)) and None,
            lambda root: path(root).unlink(),
            lambda root: path(root).rmdir(),
            lambda root: path(root).symlink_to("/".join(second)),
            lambda root: os.link(path(root), other(root), follow_symlinks=False)
            if isinstance(root, os.PathLike)
            else other(root).hardlink_to(path(root)),
            lambda root: path(root).chmod(0o640),
            lambda root: path(root).read_bytes(),
            lambda root: sorted(child.name for child in path(root).iterdir()),
            lambda root: (path(root).exists(), path(root).is_dir(), path(root).is_file(), path(root).is_symlink()),
            lambda root: str(path(root).resolve(strict=True).relative_to(root.resolve()))
            if isinstance(root, os.PathLike)
            else str(path(root).resolve().relative_to(root)),
        ]
    )


@pytest.mark.parametrize("seed", range(int(os.environ.get("SPINNEY_PYTHON_SEEDS", "3"))))
def test_random_operations_as_the_host(volume, tmp_path, seed):
    choose = random.Random(seed)
    host, ours = tmp_path / "host", volume / "here"
    host.mkdir()
    ours.mkdir()
    for number in range(300):
        act = operations(choose)
        left, right = outcome(lambda: act(ours)), outcome(lambda: act(host))
        assert same(left, right), (number, left, right)
        if number % 100 == 99:
            volume.sync()
            rows = [tree(root, root, lambda path: path.iterdir()) for root in (ours, host)]
            assert rows[0] == rows[1]
    image = tmp_path / "disk.img"
    volume.close()
    assert spinney.check(image, data=True)
    with spinney.open(image) as again:
        rows = [tree(root, root, lambda path: path.iterdir()) for root in (again / "here", host)]
        assert rows[0] == rows[1]


def test_names_of_all_lengths_and_bytes(volume):
    names = [b"x" * length for length in range(1, 256, 7)]
    names += [bytes([byte]) for byte in range(1, 256) if byte not in b"/."]
    for name in names:
        (volume / name).write_bytes(name)
    listed = {bytes(path)[1:] for path in volume.root.iterdir()}
    assert set(names) <= listed
    for name in names:
        assert (volume / name).read_bytes() == name


def test_a_deep_tree(volume):
    path = volume.root
    for _ in range(300):
        path = path / "directory"
        path.mkdir()
    (path / "end").touch()
    assert len(list(volume.root.rglob("end"))) == 1 and sum(1 for _ in volume.root.walk()) >= 301
    (volume / "directory").rmtree()
    assert not (volume / "directory").exists()
