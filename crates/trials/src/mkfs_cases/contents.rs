//! Cases about the contents that an image is made with.

use super::Bench;
use crate::system::{Mount, attach, mkfs_program, run as run_program};
use anyhow::{Context as _, Result, ensure};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// The source of the contents, with two files.
fn source(bench: &Bench) -> Result<PathBuf> {
    let base = bench.path("src");
    std::fs::create_dir(&base)?;
    std::fs::write(base.join("small"), b"some bytes")?;
    std::fs::write(base.join("large"), vec![9; 5 << 20])?;
    Ok(base)
}

pub(super) fn keeps_size(bench: &Bench) -> Result<()> {
    source(bench)?;
    for mib in [128, 256, 1024, 2048] {
        let image = bench.made("--rootdir src", mib * MIB)?;
        ensure!(std::fs::metadata(&image)?.len() == mib * MIB, "{mib} MiB became others");
    }
    Ok(())
}

pub(super) fn special_files(bench: &Bench) -> Result<()> {
    let base = source(bench)?;
    let path = |name: &str| base.join(name).to_string_lossy().into_owned();
    run_program("mknod", &[path("fifo"), "p".to_owned()])?;
    run_program("mknod", &[path("char"), "c".into(), "1".into(), "2".into()])?;
    run_program("mknod", &[path("block"), "b".into(), "1".into(), "2".into()])?;
    let _socket = std::os::unix::net::UnixListener::bind(base.join("socket"))?;
    let image = bench.made("--rootdir src", 256 * MIB)?;
    let mount = bench.mount(&image)?;
    for name in ["fifo", "char", "block", "socket"] {
        let [there, here] = [base.as_path(), mount.path()].map(|dir| std::fs::symlink_metadata(dir.join(name)));
        let (there, here) = (there?, here?);
        ensure!((there.mode(), there.rdev()) == (here.mode(), here.rdev()), "{name} differs");
    }
    mount.unmount()
}

pub(super) fn makes_file(bench: &Bench) -> Result<()> {
    source(bench)?;
    bench.mkfs("-q -f --rootdir src new.img")?;
    bench.check(&bench.path("new.img"))
}

pub(super) fn shrinks_if_asked(bench: &Bench) -> Result<()> {
    source(bench)?;
    let size_of = |image: &Path| -> Result<u64> {
        let text = bench.inspect(&["dump-super"], image)?;
        let line = text.lines().find(|line| line.starts_with("total_bytes")).context("total_bytes")?;
        Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
    };
    let image = bench.made("--rootdir src", 512 * MIB)?;
    ensure!(size_of(&image)? == 512 * MIB, "it shrank");
    let image = bench.made("--rootdir src --shrink", 512 * MIB)?;
    let size = size_of(&image)?;
    ensure!(size < 128 * MIB && std::fs::metadata(&image)?.len() == size, "it has {size} bytes");
    let mount = bench.mount(&image)?;
    ensure!(std::fs::read(mount.path().join("large"))? == vec![9; 5 << 20], "other contents");
    mount.unmount()
}

pub(super) fn inline_extents(bench: &Bench) -> Result<()> {
    let base = source(bench)?;
    let limits = [512usize, 1024, 2048, 4096, 16 << 10];
    let sizes = limits.iter().flat_map(|limit| [limit - 1, *limit, limit + 1]);
    for size in sizes.clone() {
        std::fs::write(base.join(size.to_string()), vec![7; size])?;
    }
    let image = bench.made("--rootdir src", 256 * MIB)?;
    let mount = bench.mount(&image)?;
    for size in sizes {
        ensure!(std::fs::read(mount.path().join(size.to_string()))? == vec![7; size], "{size} bytes differ");
    }
    mount.unmount()
}

pub(super) fn dangling_links(bench: &Bench) -> Result<()> {
    let base = source(bench)?;
    symlink("/no/such/file", base.join("lost"))?;
    symlink("x".repeat(3000), base.join("long"))?;
    let image = bench.made("--rootdir src", 256 * MIB)?;
    let mount = bench.mount(&image)?;
    ensure!(std::fs::read_link(mount.path().join("lost"))? == Path::new("/no/such/file"), "another target");
    mount.unmount()
}

pub(super) fn near_the_size(bench: &Bench) -> Result<()> {
    let base = bench.path("src");
    std::fs::create_dir(&base)?;
    let large = base.join("large");
    run_program("dd", &["if=/dev/urandom", &format!("of={}", large.display()), "bs=1M", "count=128", "status=none"])?;
    bench.made("--rootdir src -d dup -b 350M", 1024 * MIB).map(drop)
}

pub(super) fn top_attributes(bench: &Bench) -> Result<()> {
    // A file system that keeps attributes, which one in memory may not.
    let outer = bench.image("outer.img", 256 * MIB)?;
    run_program(&mkfs_program(), &["-q", "-f", &outer.to_string_lossy()])?;
    let mount = Mount::new(&outer, "rw")?;
    let base = mount.path().join("source");
    std::fs::create_dir(&base)?;
    std::fs::write(base.join("inner"), b"")?;
    let shown = base.to_string_lossy().into_owned();
    run_program("chmod", &["750", &shown])?;
    run_program("chown", &["1000:1000", &shown])?;
    run_program("setfattr", &["-n", "user.top", "-v", "of the top", &shown])?;
    run_program("setfattr", &["-n", "user.inner", "-v", "of a file", &base.join("inner").to_string_lossy()])?;
    bench.image("a.img", 256 * MIB)?;
    bench.mkfs(&format!("-q -f --rootdir {shown} a.img"))?;
    mount.unmount()?;
    let image = bench.path("a.img");
    bench.check(&image)?;
    let mount = bench.mount(&image)?;
    let top = std::fs::metadata(mount.path())?;
    ensure!((top.mode() & 0o7777, top.uid(), top.gid()) == (0o750, 1000, 1000), "other attributes");
    for (path, name, value) in [("", "user.top", "of the top"), ("inner", "user.inner", "of a file")] {
        let path = mount.path().join(path);
        let found =
            run_program("getfattr", &["--only-values", "--absolute-names", "-n", name, &path.to_string_lossy()])?;
        ensure!(found == value, "{name} is {found}");
    }
    mount.unmount()
}

pub(super) fn outside_links(bench: &Bench) -> Result<()> {
    let base = source(bench)?;
    std::fs::hard_link(base.join("small"), bench.path("outside"))?;
    for number in 0..10 {
        std::fs::hard_link(base.join("large"), base.join(format!("again{number}")))?;
    }
    let image = bench.made("--rootdir src", 256 * MIB)?;
    let mount = bench.mount(&image)?;
    let links = |name: &str| -> Result<u64> { Ok(std::fs::metadata(mount.path().join(name))?.nlink()) };
    let found = (links("small")?, links("large")?);
    mount.unmount()?;
    ensure!(found == (1, 11), "numbers of links: {found:?}");
    Ok(())
}

/// Two file systems with the same inode numbers, one mounted inside of the other.
pub(super) fn equal_inode_numbers(bench: &Bench) -> Result<()> {
    let mut devices = Vec::new();
    for name in ["0.img", "1.img"] {
        let image = bench.image(name, 256 * MIB)?;
        run_program(&mkfs_program(), &["-q", "-f", &image.to_string_lossy()])?;
        let mount = Mount::new(&image, "rw")?;
        for dir in ["dir1", "dir2"] {
            std::fs::create_dir(mount.path().join(dir))?;
        }
        std::fs::write(mount.path().join("file1"), name)?;
        mount.unmount()?;
        devices.push(attach(&image, false)?);
    }
    let made = nested(bench, &devices);
    for device in devices {
        run_program("losetup", &["-d", &device])?;
    }
    made?;
    let mount = bench.mount(&bench.path("a.img"))?;
    let outer = std::fs::read_to_string(mount.path().join("file1"))?;
    let inner = std::fs::read_to_string(mount.path().join("dir1/file1"))?;
    mount.unmount()?;
    ensure!((outer.as_str(), inner.as_str()) == ("0.img", "1.img"), "files were taken for one: {outer}, {inner}");
    Ok(())
}

fn nested(bench: &Bench, devices: &[String]) -> Result<()> {
    let [first, second] = devices else { anyhow::bail!("two devices") };
    let outer = Mount::of_device(first, "rw")?;
    let inside = outer.path().join("dir1");
    run_program("mount", &["-t", "btrfs", second, &inside.to_string_lossy()])?;
    bench.image("a.img", 256 * MIB)?;
    let made = bench.mkfs(&format!("-q -f --rootdir {} a.img", outer.path().display()));
    run_program("umount", &[&inside])?;
    outer.unmount()?;
    made?;
    bench.check(&bench.path("a.img"))
}

pub(super) fn subvolumes(bench: &Bench) -> Result<()> {
    let base = source(bench)?;
    for dir in ["sub/nested", "other", "read", "plain"] {
        std::fs::create_dir_all(base.join(dir))?;
        std::fs::write(base.join(dir).join("file"), dir)?;
    }
    let options = "--subvol sub --subvol rw:sub/nested --subvol ro:read --subvol default:other";
    let image = bench.made(&format!("--rootdir src {options}"), 256 * MIB)?;
    let mount = Mount::new(&image, "ro,subvolid=5")?;
    let list = run_program("btrfs", &["subvolume", "list", &mount.path().to_string_lossy()])?;
    let read_only = run_program("btrfs", &["property", "get", &mount.path().join("read").to_string_lossy(), "ro"])?;
    mount.unmount()?;
    ensure!(list.lines().count() == 4, "{list}");
    ensure!(read_only.trim() == "ro=true", "{read_only}");
    let mount = bench.mount(&image)?;
    let default = std::fs::read_to_string(mount.path().join("file"))?;
    mount.unmount()?;
    ensure!(default == "other", "another default: {default}");
    for wrong in ["--subvol none", "--subvol small", "--subvol sub --subvol sub", "--subvol ../src"] {
        bench.refused(&format!("-q -f --rootdir src {wrong} a.img"))?;
    }
    Ok(())
}

pub(super) fn compression(bench: &Bench) -> Result<()> {
    let base = source(bench)?;
    std::fs::write(base.join("incompressible"), std::fs::read("/proc/self/exe")?)?;
    let kinds = ["zlib", "zlib:9", "lzo", "zstd", "zstd:1", "zstd:15", "no"];
    for kind in kinds {
        let image = bench.made(&format!("--rootdir src --compress {kind}"), 512 * MIB)?;
        let mount = bench.mount(&image)?;
        for name in ["small", "large", "incompressible"] {
            ensure!(std::fs::read(mount.path().join(name))? == std::fs::read(base.join(name))?, "{kind}: {name}");
        }
        mount.unmount()?;
    }
    for wrong in ["gzip", "zlib:10", "zstd:16", "lzo:3"] {
        bench.refused(&format!("-q -f --rootdir src --compress {wrong} a.img"))?;
    }
    Ok(())
}

pub(super) fn inode_flags(bench: &Bench) -> Result<()> {
    let base = source(bench)?;
    std::fs::create_dir_all(base.join("dir/below"))?;
    std::fs::write(base.join("dir/below/file"), vec![1; 1 << 16])?;
    let image = bench.made("--rootdir src --inode-flags nodatacow:dir --inode-flags nodatasum:large", 256 * MIB)?;
    let mount = bench.mount(&image)?;
    let flags = run_program("lsattr", &["-d".into(), mount.path().join("dir/below/file")])?;
    mount.unmount()?;
    ensure!(flags.split_whitespace().next().is_some_and(|flags| flags.contains('C')), "{flags}");
    let tree = bench.inspect(&["dump-tree", "-t", "fs"], &image)?;
    ensure!(tree.contains("NODATASUM"), "no file without checksums");
    Ok(())
}
