"""Shows which files take most space in the snapshots of an image, as a table and, where matplotlib is installed, as a
picture. The image is read as a file: nothing is mounted, and root is not needed.

    python space.py IMAGE [SNAPSHOT ...] [--count N] [--picture FILE.png]

Without names, all read-only subvolumes are compared, the oldest first. Snapshots share the extents that did not change:
each extent counts for the first snapshot that has it, so that the sums are the space on the disk.
"""

import argparse
import collections
import sys

import spinney


def extents(path):
    """Address and size on disk of each extent of a file; data among the metadata counts by its length."""
    with path.open("rb", buffering=0) as file:
        for extent in file.extents():
            if extent.logical is None:
                yield None, extent.length
            else:
                yield extent.logical, extent.disk_length or extent.length


def measure(volume, snapshots):
    """For each file, the bytes that each snapshot added."""
    sizes = collections.defaultdict(lambda: [0] * len(snapshots))
    seen = set()
    for index, snapshot in enumerate(snapshots):
        root = volume / snapshot
        for path in root.rglob("*"):
            if path.is_symlink() or not path.is_file():
                continue
            node = path.stat()
            for address, size in extents(path):
                # Small data has no address of its own: it is new where its inode changed.
                key = (node.inode, node.st_ctime_ns) if address is None else address
                if key not in seen:
                    seen.add(key)
                    sizes[str(path.relative_to(root))][index] += size
    return dict(sizes)


def show(sizes, snapshots, out=sys.stdout):
    """Prints the table."""
    print(f"{'total':>12}", *(f"{name[-12:]:>12}" for name in snapshots), "file", file=out)
    for name, added in sizes:
        print(f"{sum(added):>12,}", *(f"{size:>12,}" for size in added), name, file=out)


def draw(sizes, snapshots, picture):
    """Draws stacked bars, one for each file. Returns False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.4 * len(sizes)), layout="constrained")
    names = [name for name, _ in reversed(sizes)]
    left = [0.0] * len(sizes)
    for index, snapshot in enumerate(snapshots):
        widths = [added[index] / 1e6 for _, added in reversed(sizes)]
        axes.barh(names, widths, left=left, label=snapshot)
        left = [start + width for start, width in zip(left, widths)]
    axes.set_xlabel("MB on disk, by the snapshot that added them")
    axes.legend()
    figure.savefig(picture)
    return True


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("image")
    parser.add_argument("snapshots", nargs="*")
    parser.add_argument("--count", type=int, default=15, help="number of files to show")
    parser.add_argument("--picture", help="file to write the picture to")
    options = parser.parse_args(arguments)
    with spinney.open(options.image) as volume:
        found = sorted((record for record in volume.subvolumes() if record.read_only), key=lambda record: record.created)
        snapshots = options.snapshots or [record.path for record in found]
        sizes = measure(volume, snapshots)
    largest = sorted(sizes.items(), key=lambda row: (-sum(row[1]), row[0]))[: options.count]
    show(largest, snapshots)
    if options.picture and not draw(largest, snapshots, options.picture):
        print("matplotlib is not installed: no picture", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
