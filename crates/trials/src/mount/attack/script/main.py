"""Makes the attempts on a mount: main.py DIR SIDE PHASE [--short] [--without=SUBSTRING] [SUBSTRING...]; one
line of JSON for each.
main.py --look DIR FOLDER SINCE ...: what is in folders of a mount, as after an attempt."""

import json
import os
import sys

import calls
import frame

import contents  # noqa: F401 - registers attempts
import names  # noqa: F401
import attributes  # noqa: F401
import places  # noqa: F401

PROTECTION = ("hardlinks", "symlinks", "regular", "fifos")


def protect(values):
    """Sets fs.protected_*, and returns what they were."""
    old = []
    for name, value in zip(PROTECTION, values):
        path = f"/proc/sys/fs/protected_{name}"
        with open(path) as file:
            old.append(file.read().strip())
        with open(path, "w") as file:
            file.write(value)
    return old


def make_all(top, side, phase, only, without, is_short):
    os.umask(0o022)
    for number, (function, identity, when, short) in enumerate(frame.ATTEMPTS):
        name = f"{function.__name__.replace('_', '-')} {identity}"
        if when != phase or (is_short and not short) or (only and not any(part in name for part in only)):
            continue
        if any(part in name for part in without):
            continue
        outcome = frame.make(top, number, function, identity, side == "spinney")
        print(json.dumps(outcome), flush=True)


def main():
    if sys.argv[1] == "--look":
        top = sys.argv[2]
        for line in sys.stdin:
            folder, since = line.split()
            found = frame.record(os.path.join(top, folder), float(since))
            print(json.dumps({"folder": folder, "after": found}), flush=True)
        return
    top, side, phase, *words = sys.argv[1:]
    is_short = "--short" in words
    without = [word.removeprefix("--without=") for word in words if word.startswith("--without=")]
    only = [word for word in words if not word.startswith("--")]
    old = protect(("1", "1", "2", "2"))
    try:
        make_all(top, side, phase, only, without, is_short)
    finally:
        protect(old)


main()
