"""Reads and stats through Python, for `cargo xtask bindings-bench`; `speed.c` and `speed.rs` of `crates/capi/examples`
do the same.

    python speed.py IMAGE

For each line of the input (`read`, `readinto` or `stat`) it does the work once, and prints the seconds.
"""

import sys
import time

import spinney

PIECE = 1 << 20
FILES = 1000
STATS = 100_000


def main(image):
    with spinney.open(image) as volume:
        raw = volume.open("/large", "rb", buffering=0)
        buffer = bytearray(PIECE)
        paths = [volume / "dir" / f"file-{index}" for index in range(FILES)]

        def read():
            raw.seek(0)
            while raw.read(PIECE):
                pass

        def readinto():
            raw.seek(0)
            while raw.readinto(buffer):
                pass

        def stat():
            for _ in range(STATS // FILES):
                for path in paths:
                    path.stat()

        works = {"read": read, "readinto": readinto, "stat": stat}
        for line in sys.stdin:
            work = works[line.strip()]
            begun = time.perf_counter()
            work()
            print(f"{time.perf_counter() - begun:.6f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
