"""Measures reads and stats through Python, for comparison with `crates/python/examples/speed.rs`.

    python speed.py IMAGE

Makes the image if there is none: a file of 1 GiB, and a directory of 1000 files.
"""

import os
import sys
import time

import spinney

PIECE = 1 << 20
STATS = 100_000
RUNS = 5


def make(image):
    with spinney.make(image, size=3 << 30) as volume:
        (volume / "dir").mkdir()
        for index in range(1000):
            (volume / "dir" / f"file-{index}").touch()
        with (volume / "large").open("wb", buffering=0) as file:
            for _ in range(64):
                file.write(os.urandom(16 * PIECE))


def best(act):
    times = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    return min(times)


def main(image):
    if not os.path.exists(image):
        make(image)
    with spinney.open(image) as volume:
        names = [f"/dir/file-{index}" for index in range(1000)]
        paths = [volume / name for name in names]
        raw = volume.open("/large", "rb", buffering=0)
        buffer = bytearray(PIECE)

        def read():
            raw.seek(0)
            while raw.read(PIECE):
                pass

        def readinto():
            raw.seek(0)
            while raw.readinto(buffer):
                pass

        def buffered():
            with volume.open("/large", "rb") as file:
                while file.read(PIECE):
                    pass

        def stat():
            for _ in range(STATS // len(paths)):
                for path in paths:
                    path.stat()

        def join_and_stat():
            for _ in range(STATS // len(names)):
                for name in names:
                    (volume / name).stat()

        for act in (read, readinto, buffered, stat, join_and_stat):
            print(f"{act.__name__} {best(act):.3f} s")


if __name__ == "__main__":
    main(sys.argv[1])
