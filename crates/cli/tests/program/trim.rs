//! Free space in an image, and the space that the image takes on the host.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Bench, pattern};
use crate::mounted::Mounted;

const FILE_BYTES: usize = 32 << 20;
/// Deleted data is discarded within this time.
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// Offset of the magic number in the first mirror of the superblock.
const MIRROR_MAGIC_AT: u64 = (64 << 20) + 64;

fn host_bytes(bench: &Bench) -> u64 {
    fs::metadata(bench.path("a.img")).unwrap().blocks() * 512
}

/// An image with old data in its free space, and a small and a large file.
fn used_image(bench: &Bench) {
    fs::write(bench.path("a.img"), vec![0xff; 256 << 20]).unwrap();
    bench.ok("mkfs -q --force --nodiscard a.img");
    fs::write(bench.path("large"), pattern(FILE_BYTES)).unwrap();
    fs::write(bench.path("small"), pattern(100_000)).unwrap();
    bench.ok("put -q a.img small large /");
}

#[test]
fn what_is_free_goes_back_to_the_host_and_nothing_else() {
    let bench = Bench::new();
    used_image(&bench);
    assert!(host_bytes(&bench) >= 256 << 20);
    let report = bench.json("trim --json a.img");
    assert!(report["bytes"].as_u64() > Some(128 << 20), "{report}");
    let with_large = host_bytes(&bench);
    assert!((32 << 20..40 << 20).contains(&with_large), "{with_large}");
    bench.ok("rm a.img /large");
    assert!(host_bytes(&bench) >= 32 << 20);
    // No run is that long, except unallocated space.
    bench.ok("trim -q -m 200M a.img");
    assert!(host_bytes(&bench) >= 32 << 20);
    assert!(bench.ok("trim a.img").contains("given back"));
    let after = host_bytes(&bench);
    assert!(after < 8 << 20, "{after}");
    assert_eq!(bench.run("cat a.img /small").out, pattern(100_000));
    bench.check("a.img");
    let mut magic = [0; 8];
    fs::File::open(bench.path("a.img")).unwrap().read_exact_at(&mut magic, MIRROR_MAGIC_AT).unwrap();
    assert_eq!(&magic, b"_BHRfS_M");
    bench.ok("ls --super 1 a.img");
    let run = bench.run("trim missing.img");
    assert_eq!(run.status, 1, "{}", run.err);
}

/// Trimming punched blocks that the newer superblock still pointed at, which the next open used.
#[test]
fn all_copies_of_the_superblock_lead_to_what_is_kept() {
    let bench = Bench::new();
    fs::write(bench.path("more"), pattern(1 << 20)).unwrap();
    for (choice, kept, lost) in [("", "/more", "/small"), ("--super 1", "/small", "/more")] {
        used_image(&bench);
        let image = fs::File::options().read(true).write(true).open(bench.path("a.img")).unwrap();
        let mut older = [0; 4096];
        image.read_exact_at(&mut older, 64 << 20).unwrap();
        bench.ok("put -q a.img more /");
        bench.ok("rm a.img /small");
        image.write_all_at(&older, 64 << 20).unwrap();
        bench.ok(&format!("trim -q {choice} a.img"));
        for copy in ["", "--super 1"] {
            let run = bench.run(&format!("cat {copy} a.img {kept}"));
            assert_eq!(run.status, 0, "{choice}, {copy}: {}", run.err);
            assert_ne!(bench.run(&format!("cat {copy} a.img {lost}")).status, 0, "{choice}, {copy}");
        }
        bench.check("a.img");
    }
}

#[test]
fn a_mount_gives_back_what_is_deleted() {
    let Some(mounted) = Mounted::if_possible() else {
        return;
    };
    let bench = &mounted.bench;
    let has_fstrim = Command::new("fstrim").arg("-V").output().is_ok();
    for (options, tells_at_once) in [("-o discard", true), ("-o nodiscard", false)] {
        used_image(bench);
        bench.ok("trim -q a.img");
        bench.ok(&format!("mount {options} a.img mnt"));
        fs::remove_file(mounted.dir().join("large")).unwrap();
        assert!(host_bytes(bench) >= 32 << 20, "{options}");
        // The kernel decides when to tell the server that it has forgotten the file.
        let start = Instant::now();
        while !tells_at_once || host_bytes(bench) >= 8 << 20 {
            rustix::fs::syncfs(fs::File::open(mounted.dir()).unwrap()).unwrap();
            if start.elapsed() > if tells_at_once { TOLD_WITHIN } else { Duration::from_secs(1) } {
                break;
            }
        }
        assert_eq!(host_bytes(bench) < 8 << 20, tells_at_once, "{options}: {}", host_bytes(bench));
        if has_fstrim && !tells_at_once {
            let output = Command::new("fstrim").arg("-v").arg(mounted.dir()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(String::from_utf8_lossy(&output.stdout).contains("bytes) trimmed"));
            assert!(host_bytes(bench) < 8 << 20, "{}", host_bytes(bench));
        }
        assert_eq!(fs::read(mounted.dir().join("small")).unwrap(), pattern(100_000));
        mounted.unmount();
        bench.check("a.img");
    }
    let run = bench.run("mount -o discard=never a.img mnt");
    assert_eq!(run.status, 2, "{}", run.err);
}

/// An f2fs image with old data in its free space, and a small and a large file.
fn used_f2fs(bench: &Bench) {
    fs::write(bench.path("a.img"), vec![0xff; 128 << 20]).unwrap();
    bench.ok("mkfs -q -t f2fs --force --nodiscard a.img");
    fs::write(bench.path("large"), pattern(FILE_BYTES)).unwrap();
    fs::write(bench.path("small"), pattern(100_000)).unwrap();
    bench.ok("put -q a.img small large /");
}

#[test]
fn f2fs_gives_back_what_is_free_and_nothing_else() {
    let bench = Bench::new();
    used_f2fs(&bench);
    let report = bench.json("trim --json a.img");
    assert!(report["bytes"].as_u64() > Some(48 << 20), "{report}");
    let with_large = host_bytes(&bench);
    bench.ok("rm a.img /large");
    bench.ok("trim -q -m 1G a.img");
    // The removal may have written to blocks that were free.
    assert!(host_bytes(&bench) >= with_large, "{} of {with_large}", host_bytes(&bench));
    assert!(bench.ok("trim a.img").contains("given back"));
    let after = host_bytes(&bench);
    assert!(after + (30 << 20) < with_large, "{after} of {with_large}");
    assert_eq!(bench.run("cat a.img /small").out, pattern(100_000));
    bench.ok("check a.img");
}

#[test]
fn a_mount_of_f2fs_gives_back_what_is_deleted() {
    let Some(mounted) = Mounted::if_possible() else {
        return;
    };
    let bench = &mounted.bench;
    let has_fstrim = Command::new("fstrim").arg("-V").output().is_ok();
    for (options, tells_at_once) in [("-o discard", true), ("", false)] {
        used_f2fs(bench);
        bench.ok("trim -q a.img");
        let before = host_bytes(bench);
        bench.ok(&format!("mount {options} a.img mnt"));
        fs::remove_file(mounted.dir().join("large")).unwrap();
        let is_given_back = || host_bytes(bench) + (30 << 20) < before;
        let start = Instant::now();
        while !is_given_back() && start.elapsed() < if tells_at_once { TOLD_WITHIN } else { Duration::from_secs(1) } {
            rustix::fs::syncfs(fs::File::open(mounted.dir()).unwrap()).unwrap();
        }
        assert_eq!(is_given_back(), tells_at_once, "{options}: {} of {before}", host_bytes(bench));
        if has_fstrim && !tells_at_once {
            let output = Command::new("fstrim").arg("-v").arg(mounted.dir()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(is_given_back(), "{} of {before}", host_bytes(bench));
        }
        if !tells_at_once {
            bench.ok("trim -q mnt");
        }
        assert_eq!(fs::read(mounted.dir().join("small")).unwrap(), pattern(100_000));
        mounted.unmount();
        bench.ok("check a.img");
    }
}

/// `FITRIM` as of `ioctl(2)`, with the bounds of the kernel's tests.
#[test]
fn a_trim_that_begins_beyond_the_end_is_refused() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let program = r"
import errno, fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
size, most = int(sys.argv[2]), 2**64 - 1
def trim(start, length, least=0):
    try:
        return struct.unpack('QQQ', fcntl.ioctl(fd, 0xc0185879, struct.pack('QQQ', start, length, least)))[1]
    except OSError as error:
        return errno.errorcode[error.errno]
beyond = [(size, 4096), (size, most), (2 * size, most), (1 << 62, 1 << 30), (most, 4096), (most - 1, 1 << 20)]
for asked in beyond + [(0, 0), (0, 4095)]:
    found = trim(*asked)
    assert found == 'EINVAL', (asked, found)
for asked in [(0, most), (0, size), (size - 4096, most), (4096, 4096), (0, most, most), (0, most, 1 << 62)]:
    found = trim(*asked)
    assert isinstance(found, int), (asked, found)
assert trim(0, most, most) == 0
";
    let size = mounted.bench.json("info --json mnt")["total_bytes"].to_string();
    let run = Command::new("python3").args(["-c", program]).arg(mounted.dir()).arg(size).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    mounted.unmount();
    mounted.bench.check("a.img");
}
