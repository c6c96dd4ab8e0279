"""The public names and signatures are those that api.txt records. SPINNEY_BLESS=1 records the present ones."""

import inspect
import os
import pathlib

import pytest

import spinney
from spinney import btrfsutil, testing

RECORDED = pathlib.Path(os.environ.get("SPINNEY_TESTS", pathlib.Path(__file__).parent)) / "api.txt"


def signature(thing):
    """Names, kinds and defaults of the parameters; types are in the stubs."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ""
    return "(" + ", ".join(str(one.replace(annotation=inspect.Parameter.empty)) for one in parameters) + ")"


def members(name, owner):
    for member in sorted(vars(owner)):
        if member.startswith("_") and member not in ("__enter__", "__exit__", "__truediv__", "__init__"):
            continue
        thing = inspect.getattr_static(owner, member)
        thing = getattr(thing, "__func__", thing)
        if isinstance(thing, property):
            yield f"{name}.{member}"
        elif callable(thing) and inspect.isroutine(thing):
            yield f"{name}.{member}{signature(thing)}"


def present():
    lines = set()
    modules = [("spinney", spinney), ("spinney.btrfsutil", btrfsutil), ("spinney.testing", testing)]
    try:
        from spinney import fsspec

        modules.append(("spinney.fsspec", fsspec))
    except ImportError:
        pytest.skip("needs fsspec")
    for name, module in modules:
        own = getattr(module, "__all__", None)
        for public in own or [name for name in vars(module) if not name.startswith("_")]:
            thing = getattr(module, public)
            if own is None and getattr(thing, "__module__", "") != name:
                continue
            if inspect.isclass(thing) and (thing.__module__ or "").startswith("spinney"):
                lines.add(f"class {name}.{public}")
                lines.update(members(f"{name}.{public}", thing))
                for field in getattr(thing, "__dataclass_fields__", {}) or getattr(thing, "_fields", ()):
                    lines.add(f"{name}.{public}.{field}")
            elif callable(thing):
                lines.add(f"{name}.{public}{signature(thing)}")
            else:
                lines.add(f"{name}.{public}")
    return lines


def test_the_interface_is_as_recorded():
    now = present()
    if os.environ.get("SPINNEY_BLESS"):
        RECORDED.write_text("".join(f"{line}\n" for line in sorted(now)))
    recorded = set(RECORDED.read_text().splitlines())
    assert len(recorded) > 100
    assert not recorded - now, "programs may depend on what is gone"
    assert not now - recorded, "record with SPINNEY_BLESS=1"
