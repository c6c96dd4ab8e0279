#!/usr/bin/env python3
"""fork_speed.py DIR: times copies of trees of several sizes, each made by one start of a program.

Makes one image with a base of each size in DIR and mounts it; then, in turns, `spinney fork`, the kernel's `btrfs
subvolume snapshot` (a loop device), a mount of overlayfs, and `cp -a --reflink` of the smaller trees. Prints the
median, the 99th of 100 and the longest time, and what starting the program takes. Needs root. SPINNEY names the program.
"""
import argparse, os, subprocess, sys, time


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return done.stdout


def timed(*words):
    begin = time.perf_counter()
    call(*words)
    return time.perf_counter() - begin


def make_tree(path, files):
    """`files` empty files, at most 1,000 in a directory."""
    for first in range(0, files, 1000):
        folder = os.path.join(path, f"d{first // 1000}")
        os.makedirs(folder)
        for number in range(first, min(first + 1000, files)):
            os.close(os.open(os.path.join(folder, f"f{number}"), os.O_CREAT | os.O_WRONLY))


def show(way, files, times):
    times = sorted(1000 * one for one in times)
    print(f"{way:12} {files:9,} files: median {times[len(times) // 2]:7.2f} ms, "
          f"p99 {times[max(0, -(-len(times) * 99 // 100) - 1)]:7.2f}, longest {times[-1]:7.2f}, {len(times)} copies",
          flush=True)


def overlay(at, base, name):
    """The words that mount `base` below a layer of its own, for which this makes the directories."""
    upper, work, mounted = at("over-data", f"{name}-upper"), at("over-data", f"{name}-work"), at("over", name)
    for folder in (upper, work, mounted):
        os.makedirs(folder)
    options = f"lowerdir={at('tree', base)},upperdir={upper},workdir={work}"
    return ("mount", "-t", "overlay", "overlay", "-o", options, mounted)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("dir", help="a directory for the images; its file system holds all the bases")
    arguments.add_argument("--files", default="1,100000,1000000", help="sizes of the bases, by commas")
    arguments.add_argument("--copies", type=int, default=200)
    given = arguments.parse_args()
    program = os.environ.get("SPINNEY", "spinney")
    sizes = [int(size) for size in given.files.split(",")]
    at = lambda *names: os.path.join(given.dir, *names)
    for name in ("tree", "ours", "kernel", "lower", "over"):
        os.makedirs(at(name), exist_ok=True)
    for size in sizes:
        make_tree(at("tree", f"base{size}"), size)
    subvolumes = [word for size in sizes for word in ("--subvol", f"base{size}")]
    for image in ("ours.img", "kernel.img"):
        call(program, "mkfs", "-q", "-f", "-b", "12G", *subvolumes, "-r", at("tree"), at(image))
    try:
        call(program, "mount", at("ours.img"), at("ours"))
        call("mount", "-o", "loop", at("kernel.img"), at("kernel"))
        times = {}
        for number in range(given.copies):
            for size in sizes:
                base, name = f"base{size}", f"{size}-{number}"
                ways = (
                    ("fork", (program, "fork", at("ours", base), at("ours", name))),
                    ("kernel", ("btrfs", "subvolume", "snapshot", at("kernel", base), at("kernel", name))),
                    ("overlayfs", overlay(at, base, name)),
                )
                for way, words in ways:
                    times.setdefault((way, size), []).append(timed(*words))
                call("umount", at("over", name))
            times.setdefault(("start", 0), []).append(timed(program, "--version"))
        for (way, size), found in sorted(times.items()):
            show(way, size, found)
        for size in (size for size in sizes if size <= 100000):
            words = ("cp", "-a", "--reflink", at("kernel", f"base{size}"), at("kernel", f"cp-{size}"))
            show("cp --reflink", size, [timed(*words)])
    finally:
        subprocess.run([program, "umount", at("ours")], timeout=300)
        subprocess.run(["umount", at("kernel")], timeout=300)


main()
