//! Makes scenes of btrfs images: files that a random tree lacks, made on purpose. `recipes` lists them.

use super::common;
use super::metadata::set_xattr;
use crate::system::{Mount, btrfs_program, run};
use anyhow::{Result, bail};
use rustix::fs::{FallocateFlags, IFlags};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use testkit::Random;

/// A named change of a mounted image; it gets a directory of its own, not yet made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) run: fn(&Mount, &Path, &mut Random) -> Result<()>,
}

pub(super) const NODES: Scene = Scene { name: "nodes", run: nodes };
pub(super) const LAYOUTS: Scene = Scene { name: "layouts", run: layouts };
pub(super) const SMALL_XATTRS: Scene = Scene { name: "xattrs", run: small_xattrs };
pub(super) const LARGE_XATTRS: Scene = Scene { name: "large-xattrs", run: large_xattrs };
pub(super) const COLLISIONS: Scene = Scene { name: "collisions", run: collisions };
pub(super) const FLAGS: Scene = Scene { name: "flags", run: flags };
pub(super) const LINKS: Scene = Scene { name: "links", run: links };
pub(super) const FRAGMENTS: Scene = Scene { name: "fragments", run: fragments };
pub(super) const COMPRESSED: Scene = Scene { name: "compressed", run: compressed };
pub(super) const SUBVOLUMES: Scene = Scene { name: "subvolumes", run: subvolumes };
pub(super) const QUOTAS: Scene = Scene { name: "quotas", run: quotas };

/// Every kind of inode.
fn nodes(_: &Mount, folder: &Path, random: &mut Random) -> Result<()> {
    common::nodes(folder, random)
}

/// Every layout of the bytes of a file: inline, regular, preallocated, holes, shared.
fn layouts(_: &Mount, folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let create = |name: &str| -> Result<File> {
        Ok(OpenOptions::new().create_new(true).read(true).write(true).open(folder.join(name))?)
    };
    for len in [0usize, 1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 131_072, 1_000_000] {
        create(&format!("len-{len}"))?.write_all_at(&random.content(len), 0)?;
    }
    let sparse = create("sparse")?;
    for position in [0u64, 1 << 20, 1 << 33, 1 << 50] {
        sparse.write_all_at(&random.noise(5000), position.saturating_add(random.below(10_000)))?;
    }
    create("only-hole")?.set_len((1 << 40) + 123)?;
    let inline_then_hole = create("inline-then-hole")?;
    inline_then_hole.write_all_at(&random.noise(300), 0)?;
    inline_then_hole.sync_all()?;
    inline_then_hole.set_len(10_000)?;
    let prealloc = create("prealloc")?;
    rustix::fs::fallocate(&prealloc, FallocateFlags::empty(), 0, 4 << 20)?;
    prealloc.write_all_at(&random.noise(300_000), 1 << 20)?;
    let beyond = create("prealloc-beyond-end")?;
    beyond.write_all_at(&random.noise(5000), 0)?;
    rustix::fs::fallocate(&beyond, FallocateFlags::KEEP_SIZE, 0, 1 << 20)?;
    let punched = create("punched")?;
    punched.write_all_at(&random.noise(1 << 20), 0)?;
    punched.sync_all()?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, punch, 65_536, 200_000)?;
    rustix::fs::fallocate(&punched, FallocateFlags::ZERO_RANGE, 500_001, 100_000)?;
    let cut = create("cut")?;
    cut.write_all_at(&random.noise(500_000), 0)?;
    cut.sync_all()?;
    cut.set_len(123_457)?;
    overwritten(folder, random)
}

/// Files whose extents are used in part, by several files, or without copy-on-write.
fn overwritten(folder: &Path, random: &mut Random) -> Result<()> {
    let original = File::create_new(folder.join("original"))?;
    original.write_all_at(&random.content(2 << 20), 0)?;
    original.sync_all()?;
    for number in 0..3 {
        let clone = OpenOptions::new().create_new(true).write(true).open(folder.join(format!("clone-{number}")))?;
        rustix::fs::ioctl_ficlone(&clone, File::open(folder.join("original"))?)?;
        for _ in 0..number * 5 {
            clone.write_all_at(&random.noise(9000), random.below(2 << 20))?;
        }
        clone.sync_all()?;
    }
    let in_place = File::create_new(folder.join("nodatacow"))?;
    if rustix::fs::ioctl_setflags(&in_place, IFlags::NOCOW).is_ok() {
        in_place.write_all_at(&random.noise(1 << 20), 0)?;
        in_place.sync_all()?;
        in_place.write_all_at(&random.noise(50_000), 300_000)?;
    }
    Ok(())
}

/// Attributes that fit into a 4 KiB node.
fn small_xattrs(_: &Mount, folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let file = folder.join("file");
    std::fs::write(&file, "x")?;
    for number in 0..20 {
        let len = random.index(60);
        set_xattr(&file, &format!("user.number-{number}"), &random.noise(len))?;
    }
    set_xattr(&file, "user.empty", b"")?;
    set_xattr(&file, "user.large", &random.noise(3000))?;
    set_xattr(&file, "trusted.secret", b"\0\x01\xff")?;
    set_xattr(&file, "security.capability", &common::CAPABILITY)?;
    let acl = common::access_list(&[1000]);
    set_xattr(&file, "system.posix_acl_access", &acl)?;
    set_xattr(folder, "system.posix_acl_default", &acl)?;
    // Both inherit the default.
    std::fs::write(folder.join("heir"), "y")?;
    Ok(std::fs::create_dir(folder.join("heir-folder"))?)
}

/// Attributes that need a 16 KiB node, and so many that they spread over leaves.
fn large_xattrs(_: &Mount, folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let file = folder.join("file");
    std::fs::write(&file, "x")?;
    set_xattr(&file, "user.huge", &random.noise(15_000))?;
    for number in 0..500 {
        set_xattr(&file, &format!("user.{number}"), &random.noise(100))?;
    }
    Ok(())
}

/// Names with equal hashes share one directory item, and attributes likewise.
fn collisions(_: &Mount, folder: &Path, _: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let mut pairs = 0;
    for number in 0u32..400_000 {
        let name = format!("user.{:x}", number.wrapping_mul(2_654_435_761));
        if name.len() != 13 {
            continue;
        }
        if let Some(other) = names.insert(crc32c(name.as_bytes()), name.clone()) {
            let file = folder.join(&name);
            std::fs::write(&file, &name)?;
            std::fs::write(folder.join(&other), &other)?;
            set_xattr(&file, &name, b"one")?;
            set_xattr(&file, &other, b"two")?;
            pairs += 1;
        }
    }
    if pairs == 0 {
        bail!("no two names with the same hash");
    }
    Ok(())
}

/// Bit by bit: a few thousand names need no table. Names of one length collide with any seed.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| {
        if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 }
    };
    bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Inode flags as `chattr` sets them.
fn flags(_: &Mount, folder: &Path, _: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let all = [
        ("append", IFlags::APPEND),
        ("immutable", IFlags::IMMUTABLE),
        ("nodump", IFlags::NODUMP),
        ("noatime", IFlags::NOATIME),
        ("sync", IFlags::SYNC),
        ("nocow", IFlags::NOCOW),
        ("compressed", IFlags::COMPRESSED),
        ("incompressible", IFlags::from_bits_retain(0x400)),
    ];
    for (name, flag) in all {
        let file = File::create_new(folder.join(name))?;
        rustix::fs::ioctl_setflags(&file, flag)?;
    }
    let inner = folder.join("dirsync");
    std::fs::create_dir(&inner)?;
    Ok(rustix::fs::ioctl_setflags(File::open(&inner)?, IFlags::DIRSYNC | IFlags::NOATIME)?)
}

/// So many names of one inode in one directory that they need the extended form.
fn links(_: &Mount, folder: &Path, _: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    std::fs::create_dir(folder.join("other"))?;
    let file = folder.join("file");
    std::fs::write(&file, "many names")?;
    for number in 0..3000 {
        std::fs::hard_link(&file, folder.join(format!("{number}-{}", "n".repeat(60))))?;
        if number % 5 == 0 {
            std::fs::hard_link(&file, folder.join(format!("other/{number}")))?;
        }
    }
    Ok(())
}

/// Free space in pieces of one block, so that the free-space tree turns to bitmaps.
fn fragments(mount: &Mount, folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    for number in 0..4000 {
        std::fs::write(folder.join(number.to_string()), random.noise(4096))?;
    }
    sync(mount)?;
    for number in (0..4000).step_by(2) {
        std::fs::remove_file(folder.join(number.to_string()))?;
    }
    sync(mount)
}

/// Larger files, for the mounts that compress: many extents, partly overwritten, shared, truncated.
fn compressed(mount: &Mount, folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    for number in 0..20 {
        let len = random.index(3 << 20);
        let content = if number % 4 == 0 { random.content(len) } else { random.text(len) };
        std::fs::write(folder.join(format!("file-{number}")), content)?;
    }
    std::fs::write(folder.join("zeros"), vec![0; 1 << 20])?;
    std::fs::write(folder.join("small"), random.text(1500))?;
    sync(mount)?;
    for number in 1..10 {
        let file = OpenOptions::new().write(true).open(folder.join(format!("file-{number}")))?;
        let clone = File::create_new(folder.join(format!("clone-{number}")))?;
        rustix::fs::ioctl_ficlone(&clone, File::open(folder.join(format!("file-{number}")))?)?;
        let len = file.metadata()?.len();
        file.write_all_at(&random.text(20_000), random.below(len))?;
        clone.set_len(random.below(len.max(1)))?;
    }
    Ok(())
}

/// Subvolumes, snapshots of snapshots, one deleted, one the default.
fn subvolumes(mount: &Mount, folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let btrfs = |arguments: &[&str]| run(&btrfs_program(), arguments);
    btrfs(&["subvolume", "create", &path("main")])?;
    super::populate::populate(&folder.join("main/tree"), 300, random)?;
    btrfs(&["subvolume", "create", &path("main/nested")])?;
    std::fs::write(folder.join("main/nested/file"), random.text(50_000))?;
    btrfs(&["subvolume", "snapshot", &path("main"), &path("writable")])?;
    btrfs(&["subvolume", "snapshot", "-r", &path("main"), &path("frozen")])?;
    super::populate::populate(&folder.join("writable/more"), 200, random)?;
    std::fs::remove_dir_all(folder.join("main/tree"))?;
    std::fs::write(folder.join("main/after"), random.text(100_000))?;
    btrfs(&["subvolume", "snapshot", &path("writable"), &path("grandchild")])?;
    std::fs::write(folder.join("grandchild/own"), random.noise(70_000))?;
    btrfs(&["subvolume", "create", &path("gone")])?;
    super::populate::populate(&folder.join("gone/tree"), 200, random)?;
    sync(mount)?;
    btrfs(&["subvolume", "delete", "--commit-after", &path("gone")])?;
    let listed = btrfs(&["inspect-internal", "rootid", &path("writable")])?;
    btrfs(&["subvolume", "set-default", listed.trim(), &mount.path().to_string_lossy()])?;
    Ok(())
}

/// Quota groups with members and limits, updated by the kernel while the rest is written.
fn quotas(mount: &Mount, folder: &Path, random: &mut Random) -> Result<()> {
    let top = mount.path().to_string_lossy().into_owned();
    let inner = folder.join("limited").to_string_lossy().into_owned();
    std::fs::create_dir(folder)?;
    let btrfs = |arguments: &[&str]| run(&btrfs_program(), arguments);
    btrfs(&["quota", "enable", &top])?;
    btrfs(&["qgroup", "create", "1/0", &top])?;
    btrfs(&["subvolume", "create", &inner])?;
    let id = btrfs(&["inspect-internal", "rootid", &inner])?;
    btrfs(&["qgroup", "assign", "--no-rescan", &format!("0/{}", id.trim()), "1/0", &top])?;
    btrfs(&["qgroup", "limit", "100M", &inner])?;
    std::fs::write(folder.join("limited/file"), random.noise(1 << 20))?;
    Ok(())
}

fn sync(mount: &Mount) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(mount.path())?)?)
}
