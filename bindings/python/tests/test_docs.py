"""Examples in the documentation run as they are written."""

import doctest
import inspect
import io
import os
import pathlib
import re

import pytest

import spinney

README = pathlib.Path(os.environ.get("SPINNEY_EXAMPLES", pathlib.Path(__file__).parent)).parent / "README.md"


def test_docstrings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(spinney) == (0, 3)


def test_every_public_name_has_a_docstring():
    for owner in (spinney, spinney.Volume, spinney.Path, spinney.Stat, spinney.Progress, spinney._file.RawFile):
        for name in dir(owner):
            thing = getattr(owner, name)
            # Those of `io` are documented there.
            is_own = owner is not spinney._file.RawFile or not hasattr(io.RawIOBase, name)
            if not name.startswith("_") and callable(thing) and is_own:
                assert inspect.getdoc(thing), f"{owner.__name__}.{name}"


def test_the_readme(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    from spinney.fsspec import SpinneyFileSystem

    import fsspec

    fsspec.register_implementation("spinney", SpinneyFileSystem, clobber=True)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 3
    exec(blocks[0], {})
    with spinney.open("site.img", writable=True) as volume:
        (volume / "etc").mkdir()
        (volume / "etc/passwd").write_text("root\n")
    exec(blocks[1], {})
    exec(blocks[2], {})
