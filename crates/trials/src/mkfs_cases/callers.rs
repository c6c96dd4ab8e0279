//! Cases that are no tests of btrfs-progs: the calls that builders of images make, with their options in their order.
//! Each image has the label, UUID, profiles and subvolumes that were asked for, and the kernel mounts it.

use super::Bench;
use crate::system::{Mount, attach, btrfs_program, run as run_program};
use anyhow::{Context as _, Result, ensure};
use std::path::Path;

const MIB: u64 = 1 << 20;
const UUID: &str = "4f2c3f9e-1d3c-4a57-9d2b-6f0a6f6f7a11";

/// A root directory as builders have it.
fn source(bench: &Bench) -> Result<()> {
    let base = bench.path("root");
    for dir in ["usr/bin", "etc", "home", "var/log"] {
        std::fs::create_dir_all(base.join(dir))?;
    }
    std::fs::write(base.join("etc/os-release"), "ID=test\n")?;
    std::fs::write(base.join("usr/bin/tool"), vec![3; 300_000])?;
    Ok(())
}

/// The value of a field of the superblock.
fn field(bench: &Bench, image: &Path, name: &str) -> Result<String> {
    let text = bench.inspect(&["dump-super"], image)?;
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    let value = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(value.with_context(|| format!("no {name} in the superblock"))?.to_owned())
}

fn is_named(bench: &Bench, image: &Path, label: &str, uuid: Option<&str>) -> Result<()> {
    let found = field(bench, image, "label")?;
    ensure!(found == label, "label: expected {label}, found {found}");
    if let Some(uuid) = uuid {
        let found = field(bench, image, "fsid")?;
        ensure!(found == uuid, "UUID: expected {uuid}, found {found}");
    }
    Ok(())
}

/// systemd-repart makes a file system in a file, and copies it to the partition.
pub(super) fn repart(bench: &Bench) -> Result<()> {
    source(bench)?;
    let image = bench.image("a.img", 400 * MIB)?;
    let subvolumes = "--subvol rw:home --subvol default:usr --inode-flags nodatacow:var/log";
    bench.mkfs(&format!(
        "-L root -U {UUID} --nodiscard -r root -q --compress zstd:3 --sectorsize=4096 a.img {subvolumes}"
    ))?;
    bench.check(&image)?;
    is_named(bench, &image, "root", Some(UUID))?;
    let mount = Mount::new(&image, "ro,subvolid=5")?;
    let point = mount.path().to_string_lossy().into_owned();
    let list = run_program(&btrfs_program(), &["subvolume", "list", &point])?;
    ensure!(list.contains("path home") && list.contains("path usr"), "{list}");
    let default = run_program(&btrfs_program(), &["subvolume", "get-default", &point])?;
    ensure!(default.contains("path usr"), "{default}");
    ensure!(std::fs::read(mount.path().join("usr/bin/tool"))? == vec![3; 300_000], "other contents");
    mount.unmount()
}

/// systemd-repart without contents, on a loop device that it has locked.
pub(super) fn repart_on_device(bench: &Bench) -> Result<()> {
    let image = bench.image("a.img", 400 * MIB)?;
    let device = attach(&image, false)?;
    let mkfs = bench.mkfs.to_string_lossy().into_owned();
    let line = format!("flock -x {device} {mkfs} -L data -U {UUID} -q --sectorsize=4096 {device}");
    let made = run_program("sh", &["-c", &line]);
    let mounted = made.and_then(|_| Mount::of_device(&device, "rw")).and_then(Mount::unmount);
    run_program("losetup", &["-d", &device])?;
    mounted?;
    bench.check(&image)?;
    is_named(bench, &image, "data", Some(UUID))
}

pub(super) fn mkosi(bench: &Bench) -> Result<()> {
    let image = bench.made("-L root -d single -m single --nodiscard", 512 * MIB)?;
    is_named(bench, &image, "root", None)?;
    let chunks = bench.inspect(&["dump-tree", "-t", "chunk"], &image)?;
    ensure!(!chunks.contains("DUP"), "metadata is stored twice");
    Ok(())
}

/// osbuild's stages work on the loop device of a partition.
pub(super) fn osbuild(bench: &Bench) -> Result<()> {
    let image = bench.image("a.img", 300 * MIB)?;
    let device = attach(&image, false)?;
    let made = bench.mkfs(&format!("-U {UUID} -L fedora -m single {device}"));
    let used = made.and_then(|_| Mount::of_device(&device, "rw,compress=zstd:1")).and_then(|mount| {
        for name in ["root", "home"] {
            let path = mount.path().join(name).to_string_lossy().into_owned();
            run_program(&btrfs_program(), &["subvolume", "create", &path])?;
        }
        mount.unmount()
    });
    run_program("losetup", &["-d", &device])?;
    used?;
    bench.check(&image)?;
    is_named(bench, &image, "fedora", Some(UUID))
}

/// disko gives the device first, and asks `blkid` whether there is a file system.
pub(super) fn disko(bench: &Bench) -> Result<()> {
    let image = bench.image("a.img", 300 * MIB)?;
    let device = attach(&image, false)?;
    let made = bench.mkfs(&format!("{device} -f -L nixos"));
    let used = made.and_then(|_| {
        run_program("udevadm", &["settle"]).ok();
        let kind = run_program("blkid", &["-p", "-o", "value", "-s", "TYPE", &device])?;
        ensure!(kind.trim() == "btrfs", "blkid: {kind}");
        let mount = Mount::of_device(&device, "rw")?;
        let path = mount.path().join("nix").to_string_lossy().into_owned();
        run_program(&btrfs_program(), &["subvolume", "create", &path])?;
        mount.unmount()
    });
    run_program("losetup", &["-d", &device])?;
    used?;
    bench.check(&image)?;
    is_named(bench, &image, "nixos", None)
}

pub(super) fn kiwi(bench: &Bench) -> Result<()> {
    let image = bench.image("a.img", 400 * MIB)?;
    bench.mkfs(&format!("-L ROOT --byte-count {} -U {UUID} a.img", 300 * MIB))?;
    bench.check(&image)?;
    ensure!(field(bench, &image, "total_bytes")? == (300 * MIB).to_string(), "another size");
    is_named(bench, &image, "ROOT", Some(UUID))
}

/// genimage makes the file with its size first.
pub(super) fn genimage(bench: &Bench) -> Result<()> {
    source(bench)?;
    let image = bench.image("a.img", 200 * MIB)?;
    bench.mkfs("-L gen -r root --shrink a.img")?;
    bench.check(&image)?;
    is_named(bench, &image, "gen", None)?;
    let mount = bench.mount(&image)?;
    ensure!(std::fs::read_to_string(mount.path().join("etc/os-release"))? == "ID=test\n", "other contents");
    mount.unmount()
}
