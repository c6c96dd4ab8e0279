//! Cases about sizes, profiles and features of empty file systems.

use super::Bench;
use crate::system::{Mount, attach, btrfs_program, run as run_program};
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

/// All pairs of profiles that so many devices allow.
pub(super) fn profiles(bench: &Bench) -> Result<()> {
    let needs = [("single", 1), ("dup", 1), ("raid0", 1), ("raid1", 2), ("raid10", 2), ("raid1c3", 3), ("raid1c4", 4)];
    for count in 1..=4usize {
        let names: Vec<String> = (0..count).map(|number| format!("{number}.img")).collect();
        let fits = |needed: usize| needed <= count;
        for (data, needed) in needs {
            for (metadata, also) in needs {
                let images = names.iter().map(|name| bench.image(name, 256 * MIB)).collect::<Result<Vec<PathBuf>>>()?;
                let line = format!("-q -f -d {data} -m {metadata} {}", names.join(" "));
                if !fits(needed) || !fits(also) {
                    bench.refused(&line)?;
                    continue;
                }
                bench.mkfs(&line)?;
                let devices = images.iter().map(|image| attach(image, false)).collect::<Result<Vec<String>>>()?;
                let checked = scan_and_check(&devices);
                for device in &devices {
                    run_program("losetup", &["-d", device])?;
                }
                checked.with_context(|| line)?;
            }
        }
    }
    Ok(())
}

fn scan_and_check(devices: &[String]) -> Result<()> {
    let mut words = vec!["device", "scan"];
    words.extend(devices.iter().map(String::as_str));
    run_program(&btrfs_program(), &words)?;
    run_program(&btrfs_program(), &["check", "--readonly", devices.first().context("a device")?]).map(drop)
}

pub(super) fn no_mixed_by_default(bench: &Bench) -> Result<()> {
    bench.image("a.img", 1024 * MIB)?;
    let report = bench.mkfs("-b 512M -n 64k -f a.img")?;
    ensure!(report.contains("Metadata:") && !report.contains("Data+Metadata"), "{report}");
    Ok(())
}

pub(super) fn mixed_needs_small_nodes(bench: &Bench) -> Result<()> {
    bench.image("a.img", 512 * MIB)?;
    bench.refused("-f -M -s 4096 -n 16384 a.img")?;
    bench.made("-M", 512 * MIB).map(drop)
}

/// A file system in the second half of a file is a partition's; the first half is untouched.
pub(super) fn part_of_a_file(bench: &Bench) -> Result<()> {
    let image = bench.image("a.img", 512 * MIB)?;
    let part = "a.img?offset=268435456&size=268435456";
    bench.mkfs(&format!("-q -f {part}"))?;
    let device = run_program("losetup", &["--find", "--show", "--offset", "268435456", &image.to_string_lossy()])?;
    let device = device.trim().to_owned();
    let checked = run_program(&btrfs_program(), &["check", "--readonly", &device]);
    let mounted = Mount::of_device(&device, "ro").and_then(Mount::unmount);
    run_program("losetup", &["-d", &device])?;
    checked?;
    mounted?;
    let first = std::fs::read(&image)?;
    ensure!(first.iter().take(268_435_456).all(|byte| *byte == 0), "something was written before the part");
    Ok(())
}

pub(super) fn node_sizes(bench: &Bench) -> Result<()> {
    for size in ["4096", "8192", "16384", "32768", "65536", "4k", "16k", "64k"] {
        let image = bench.made(&format!("-n {size} -s 4096"), 300 * MIB)?;
        ensure!(bench.inspect(&["dump-super"], &image)?.contains("nodesize"), "no superblock");
    }
    Ok(())
}

pub(super) fn invalid_sizes(bench: &Bench) -> Result<()> {
    bench.image("a.img", 300 * MIB)?;
    for options in ["-n 2048", "-n 128k", "-n 12k", "-s 1000", "-s 512", "-n 0", "-s 64k -n 4k"] {
        bench.refused(&format!("-f {options} a.img"))?;
    }
    Ok(())
}

/// The size that the refusal of a small device names is enough.
pub(super) fn minimal_size(bench: &Bench) -> Result<()> {
    for options in ["", "-m single", "-m dup -d dup", "-n 64k", "-n 4k", "-M", "-M -m dup -d dup", "-n 64k -m single"] {
        bench.image("a.img", MIB)?;
        let message = bench.refused(&format!("-f {options} a.img"))?;
        let (_, least) = message.split_once("the least is ").with_context(|| message.clone())?;
        let (number, rest) = least.split_once(' ').context("a number and a unit")?;
        ensure!(rest.starts_with("MiB"), "{message}");
        let whole = number.split('.').next().unwrap_or(number);
        let mib: u64 = whole.parse().with_context(|| message.clone())?;
        bench.made(options, mib * MIB).with_context(|| format!("{options}: {mib} MiB are enough"))?;
    }
    Ok(())
}

pub(super) fn first_mib_is_reserved(bench: &Bench) -> Result<()> {
    for options in ["-m single", "-M -m single -d single", "-m dup", "-d dup -m dup", "-M -d dup -m dup"] {
        let image = bench.made(options, 512 * MIB)?;
        let tree = bench.inspect(&["dump-tree", "-t", "dev"], &image)?;
        let starts = tree.lines().filter_map(|line| line.split_once(" DEV_EXTENT ")?.1.split(')').next()?.parse().ok());
        let starts: Vec<u64> = starts.collect();
        ensure!(!starts.is_empty() && starts.iter().all(|start| *start >= MIB), "{options}: {starts:?}");
    }
    Ok(())
}

pub(super) fn top_level_has_uuid(bench: &Bench) -> Result<()> {
    let image = bench.made("", 512 * MIB)?;
    let tree = bench.inspect(&["dump-tree", "-t", "root"], &image)?;
    let (_, item) = tree.split_once("FS_TREE ROOT_ITEM").context("no item of the top level")?;
    let value = |name: &str| item.split(name).nth(1).and_then(|rest| rest.split_whitespace().next()).map(str::to_owned);
    let (uuid, otime) = (value("\tuuid ").context("a UUID")?, value("\totime ").context("a time")?);
    ensure!(uuid != "00000000-0000-0000-0000-000000000000", "no UUID");
    ensure!(!otime.starts_with("0.0"), "no time of creation");
    Ok(())
}

/// Three devices of 6 EiB do not fit into 64 bits with a sign.
pub(super) fn sum_overflows(bench: &Bench) -> Result<()> {
    let names = ["0.img", "1.img", "2.img"];
    for name in names {
        if bench.image(name, 6 << 60).is_err() {
            println!("    (files here cannot be that long: not tried)");
            return Ok(());
        }
    }
    let message = bench.refused(&format!("-f {}", names.join(" ")))?;
    ensure!(message.contains("8 EiB"), "{message}");
    Ok(())
}

pub(super) fn checksums(bench: &Bench) -> Result<()> {
    for name in ["crc32c", "xxhash", "xxhash64", "sha256", "blake2", "blake2b"] {
        let image = bench.made(&format!("--csum {name}"), 256 * MIB)?;
        bench.inspect(&["dump-super"], &image)?;
    }
    Ok(())
}

pub(super) fn checksums_mounted(bench: &Bench) -> Result<()> {
    for name in ["crc32c", "xxhash", "sha256", "blake2"] {
        let image = bench.made(&format!("--csum {name}"), 256 * MIB)?;
        let mount = Mount::new(&image, "rw")?;
        std::fs::write(mount.path().join("file"), vec![1; 1 << 20])?;
        mount.unmount()?;
        bench.check(&image)?;
    }
    Ok(())
}

pub(super) fn quota_is_refused(bench: &Bench) -> Result<()> {
    bench.image("a.img", 256 * MIB)?;
    let message = bench.refused("-f -O quota a.img")?;
    ensure!(message.contains("quota"), "{message}");
    Ok(())
}

pub(super) fn free_space_tree(bench: &Bench) -> Result<()> {
    let image = bench.made("-O free-space-tree", 512 * MIB)?;
    let superblock = bench.inspect(&["dump-super"], &image)?;
    ensure!(superblock.contains("FREE_SPACE_TREE |") && superblock.contains("FREE_SPACE_TREE_VALID"), "{superblock}");
    let image = bench.made("-O ^free-space-tree,^block-group-tree", 512 * MIB)?;
    ensure!(!bench.inspect(&["dump-super"], &image)?.contains("FREE_SPACE_TREE"), "the feature is on");
    Ok(())
}

pub(super) fn no_bitmaps(bench: &Bench) -> Result<()> {
    for options in ["", "-d dup", "-n 4k", "-M"] {
        let image = bench.made(options, 4096 * MIB)?;
        let tree = bench.inspect(&["dump-tree", "-t", "10"], &image)?;
        ensure!(tree.contains("FREE_SPACE_EXTENT") && !tree.contains("FREE_SPACE_BITMAP"), "{options}");
    }
    Ok(())
}

/// `btrfstune` converts our groups to the block-group tree, and back.
pub(super) fn converted_groups(bench: &Bench) -> Result<()> {
    let image = bench.made("-O ^block-group-tree", 512 * MIB)?;
    let mount = Mount::new(&image, "rw")?;
    std::fs::write(mount.path().join("file"), vec![0; 1 << 20])?;
    mount.unmount()?;
    for option in ["--convert-to-block-group-tree", "--convert-from-block-group-tree"] {
        if run_program("btrfstune", &[option, &image.to_string_lossy()]).is_err_and(|error| is_unknown(&error)) {
            println!("    (this btrfstune lacks {option}: not tried)");
            return Ok(());
        }
        bench.check(&image)?;
    }
    Ok(())
}

fn is_unknown(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("unrecognized option")
}

pub(super) fn block_group_tree(bench: &Bench) -> Result<()> {
    let image = bench.made("-O block-group-tree", 512 * MIB)?;
    ensure!(bench.inspect(&["dump-super"], &image)?.contains("BLOCK_GROUP_TREE"), "the feature is off");
    Ok(())
}
