"""The file system for fsspec, and fsspec's own tests for file systems."""

import gc
import os
import pathlib
import pickle

import pytest

import spinney

fsspec = pytest.importorskip("fsspec")

from spinney.fsspec import SpinneyFileSystem  # noqa: E402
from test_errors import messages  # noqa: E402


@pytest.fixture(autouse=True)
def registered():
    """The entry point registers it where the package is installed; the tests also run without that."""
    fsspec.register_implementation("spinney", SpinneyFileSystem, clobber=True)


def test_chained_urls(image):
    with fsspec.open(f"spinney://etc/passwd::{image}", "rt") as file:
        assert file.readline() == "root:x:0:0\n"
    with fsspec.open(f"spinney://etc/passwd::file://{image}") as file:
        assert file.read().startswith(b"root")
    with fsspec.open(f"spinney://home/link::simplecache::file://{image}") as file:
        assert len(file.read()) == 256_000
    files = fsspec.open_files(f"spinney://home/*/*::{image}")
    assert [file.path for file in files] == ["home/ada/notes"]
    del files, file
    with fsspec.open(f"spinney://new/file::{image}", "wb", spinney={"writable": True, "auto_mkdir": True}) as file:
        file.write(b"by url")
    with spinney.open(image) as volume:
        assert (volume / "new/file").read_bytes() == b"by url"


def test_a_file_keeps_its_image_open(image):
    url = f"spinney://etc/passwd::{image}"
    files = [fsspec.open(url).open(), fsspec.open(url, "rt").open(), fsspec.open_files([url])[0].open()]
    gc.collect()
    assert [len(file.read()) for file in files] == [27, 27, 27]
    for file in files:
        file.close()
    del file, files
    gc.collect()
    spinney.open(image, writable=True).close()


def test_images_that_are_elsewhere(image):
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/site.img", image.read_bytes())
    with fsspec.open("spinney://etc/passwd::memory://site.img", "rt") as file:
        assert file.readline() == "root:x:0:0\n"
    with pytest.raises(ValueError):
        fsspec.filesystem("spinney", fo="memory://site.img", writable=True)
    memory.rm("/site.img")


def read_all(files):
    """What reading everything in a file system raises."""
    raised, todo = [], [""]
    for _ in range(30):
        if not todo:
            break
        path = todo.pop()
        try:
            found = files.ls(path)
            if [one["name"] for one in found] == [path]:
                files.cat_file(path)
            else:
                todo.extend(one["name"] for one in found if not one["islink"])
        except OSError as error:
            raised.append(error)
    return raised


def test_images_that_lie(program):
    folder = os.environ.get("SPINNEY_HOSTILE")
    if not folder:
        pytest.skip("SPINNEY_HOSTILE does not name a folder of images")
    count = 0
    for image in sorted(pathlib.Path(folder).iterdir()):
        told = {error.strerror for error in messages(image, program)[0]}
        try:
            raised = read_all(fsspec.filesystem("spinney", fo=str(image)))
        except OSError as error:
            raised = [error]
        for error in raised:
            # The same exceptions as of `spinney.open`, which `test_errors` compares with the program.
            assert error.strerror in told, (image, error, told)
        count += len(raised)
    assert count > 0


def test_an_image_in_an_image(image, tmp_path):
    with spinney.make(tmp_path / "outer.img", size=256 << 20) as outer:
        (outer / "inner.img").write_bytes(image.read_bytes())
    url = f"spinney://etc/passwd::spinney://inner.img::{tmp_path / 'outer.img'}"
    with fsspec.open(url, "rt") as file:
        assert file.readline() == "root:x:0:0\n"


def test_the_file_system(image):
    fs = fsspec.filesystem("spinney", fo=str(image))
    assert fs.ls("", detail=False) == ["etc", "home"] and fs.ls("spinney://etc", detail=False) == ["etc/passwd"]
    assert fs.find("") == ["etc/passwd", "home/ada/notes", "home/link"] and fs.du("") >= 256_000
    link = fs.info("/home/link")
    assert (link["type"], link["size"], link["islink"], link["destination"]) == ("file", 256_000, True, "ada/notes")
    assert fs.info("")["type"] == "directory" and fs.isdir("etc") and fs.isfile("etc/passwd") and not fs.exists("x")
    assert fs.cat_file("etc/passwd", 0, 4) == b"root" and fs.cat_file("etc/passwd", -5) == b"1000\n"
    assert fs.cat_ranges(["etc/passwd"] * 2, [0, 5], [4, 6]) == [b"root", b"x"]
    assert fs.created("etc/passwd").year >= 2024 and fs.modified("etc/passwd").tzinfo is not None
    assert sorted(fs.glob("**/n*")) == ["home/ada/notes"] and fs.islink("home/link")
    with pytest.raises(FileNotFoundError):
        fs.ls("none")
    with pytest.raises(OSError):
        fs.touch("x")
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat("etc/passwd") == fs.cat("etc/passwd")
    fs.close()


def test_changes(image, tmp_path):
    fs = fsspec.filesystem("spinney", fo=image, writable=True)
    fs.makedirs("a/b", exist_ok=True)
    fs.pipe_file("a/b/file", b"1")
    with pytest.raises(FileExistsError):
        fs.pipe_file("a/b/file", b"1", mode="create")
    with pytest.raises(FileExistsError):
        fs.makedirs("a/b")
    fs.mv("a/b/file", "a/moved")
    fs.symlink("moved", "a/link")
    fs.link("a/moved", "a/hard")
    fs.chmod("a/moved", 0o600)
    assert fs.cat("a/link") == b"1" and fs.info("a/hard")["nlink"] == 2 and fs.lexists("a/link")
    with pytest.raises(ValueError):
        fs.rm("a")
    fs.get("a", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/moved").read_bytes() == b"1"
    fs.rm("a", recursive=True)
    assert not fs.exists("a")
    with fs.open("text", "w") as file:
        file.write("text")
    with fs.open("text", "a") as file:
        file.write("s")
    assert fs.cat("text") == b"texts"
    fs.close()


def test_an_open_volume(image):
    with spinney.open(image) as volume:
        fs = SpinneyFileSystem(volume)
        assert fs.cat("etc/passwd").startswith(b"root") and fs.fsid.startswith("spinney-")
        fs.close()
        assert not volume.closed
    with pytest.raises(TypeError):
        SpinneyFileSystem(3)


try:
    import fsspec.tests.abstract as abstract
except ImportError:
    # Older versions, and packages of distributions, come without these tests.
    abstract = None


@pytest.fixture(scope="module", params=["btrfs", "f2fs"])
def shared(request, tmp_path_factory):
    """A volume for many tests."""
    path = tmp_path_factory.mktemp("shared") / "disk.img"
    with spinney.make(path, request.param, size=256 << 20) as volume:
        yield volume


if abstract is not None:

    class Fixtures(abstract.AbstractFixtures):
        @pytest.fixture
        def fs(self, shared):
            (shared / "dir").mkdir()
            yield SpinneyFileSystem(shared, auto_mkdir=True)
            (shared / "dir").rmtree()

        @pytest.fixture
        def fs_path(self):
            return "dir"

    class TestCopy(abstract.AbstractCopyTests, Fixtures):
        pass

    class TestGet(abstract.AbstractGetTests, Fixtures):
        pass

    class TestPut(abstract.AbstractPutTests, Fixtures):
        pass

    class TestPipe(getattr(abstract, "AbstractPipeTests", object), Fixtures):
        pass

    class TestOpen(getattr(abstract, "AbstractOpenTests", object), Fixtures):
        pass
