"""Threads share volumes and files, and run at the same time."""

import concurrent.futures
import threading
import time

import spinney


def test_threads_write_different_files(volume):
    def work(number):
        for index in range(20):
            path = volume / f"{number}-{index}"
            path.write_bytes(bytes([number]) * 50_000)
            assert path.read_bytes() == bytes([number]) * 50_000

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(list(volume.root.glob("*-*"))) == 160


def test_threads_share_the_position_of_a_file(volume):
    with (volume / "file").open("w+b", buffering=0) as raw:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda index: raw.write(b"%07d\n" % index), range(400)))
        raw.seek(0)
        assert sorted(raw.readall().splitlines()) == [b"%07d" % index for index in range(400)]


def test_threads_append(volume):
    def work(number):
        with (volume / "log").open("ab", buffering=0) as raw:
            for _ in range(50):
                raw.write(b"%d\n" % number)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert (volume / "log").stat().st_size == 4 * 50 * 2


def test_closing_while_others_work(tmp_path):
    for _ in range(3):
        volume = spinney.make(tmp_path / "disk.img", size=128 << 20)
        started = threading.Barrier(5)

        def work(number):
            started.wait()
            try:
                for index in range(100_000):
                    (volume / f"{number}-{index}").write_bytes(b"x" * 1000)
            except ValueError as error:
                return "closed" in str(error)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            done = [pool.submit(work, number) for number in range(4)]
            started.wait()
            time.sleep(0.05)
            volume.close()
            assert all(future.result() for future in done)
        assert spinney.check(tmp_path / "disk.img")


def test_other_threads_run_during_calls(tmp_path):
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    with spinney.make(tmp_path / "disk.img", size=256 << 20) as volume:
        data = bytes(range(256)) * (64 << 12)
        thread.start()
        begun = time.monotonic()
        (volume / "file").write_bytes(data)
        volume.sync()
        assert (volume / "file").read_bytes() == data
        ended = time.monotonic()
        stop.set()
        thread.join()
    # Between calls alone it would run once or twice.
    assert len([tick for tick in ticks if begun < tick < ended]) > 8
