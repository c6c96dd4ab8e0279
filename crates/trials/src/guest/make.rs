//! Makes f2fs images with the program, for a kernel to check. Called by `guest`.

use crate::images::populate;
use crate::system::{self, is_root};
use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use testkit::Random;

/// Size and number of the trees.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    /// Names in the random part of a tree.
    files: u32,
    /// Names of its large folder.
    many: usize,
    /// Number of feature sets.
    turns: usize,
}

impl Scale {
    pub(super) const WHOLE: Self = Self { files: 400, many: 2000, turns: FEATURES.len() };
    /// Walked by a slow guest in seconds: one feature set, which the seed chooses.
    pub(super) const SMALL: Self = Self { files: 60, many: 300, turns: 1 };
}
/// Feature sets of the images.
const FEATURES: &[&str] = &[
    "",
    "extra_attr,inode_checksum,inode_crtime,flexible_inline_xattr,sb_checksum",
    "extra_attr,project_quota,inode_crtime",
];

/// All of them, in `dir`.
pub(super) fn all(program: &Path, dir: &Path, seed: u64, scale: Scale) -> Result<Vec<PathBuf>> {
    let program = program.canonicalize().with_context(|| format!("{}: build it first", program.display()))?;
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir)?;
    let spinney = |words: &[&str]| system::run(&program.to_string_lossy(), words);
    let mut images = Vec::new();
    let first = usize::try_from(seed % u64::try_from(FEATURES.len())?)?;
    for (index, features) in (0_u64..).zip(FEATURES.iter().cycle().skip(first).take(scale.turns)) {
        let tree = dir.join(format!("tree-{index}"));
        grow(&tree, &mut Random::new(seed.wrapping_add(index)), scale)?;
        let from = tree.to_string_lossy().into_owned();
        let made = ["empty", "mkfs", "put"].map(|kind| dir.join(format!("{kind}-{index}.img")));
        let [empty, mkfs, put] = made.each_ref().map(|path| path.to_string_lossy().into_owned());
        spinney(&["mkfs", "-q", "-t", "f2fs", "-O", features, "--size", "100M", &empty])?;
        spinney(&["mkfs", "-q", "-t", "f2fs", "-O", features, "--rootdir", &from, &mkfs])?;
        spinney(&["mkfs", "-q", "-t", "f2fs", "-O", features, "--size", "300M", "-s", "2", &put])?;
        spinney(&["put", "-q", &put, &format!("{from}/."), "/"])?;
        images.extend(made);
        std::fs::remove_dir_all(tree)?;
    }
    Ok(images)
}

/// A tree with every kind of node, holes, a directory of many names and a file whose addresses reach the second level.
fn grow(tree: &Path, random: &mut Random, scale: Scale) -> Result<()> {
    std::fs::create_dir(tree)?;
    populate::populate(&tree.join("random"), scale.files, random)?;
    let many = tree.join("many");
    std::fs::create_dir(&many)?;
    for number in 0..scale.many {
        std::fs::write(many.join(format!("name-{number}-{}", "x".repeat(number % 60))), [])?;
    }
    let sparse = std::fs::File::create(tree.join("sparse"))?;
    for (number, offset) in (0_u8..).zip([0, 5 << 20, 3 << 30, 9 << 30]) {
        sparse.write_all_at(&[number; 5000], offset)?;
    }
    sparse.set_len(10 << 30)?;
    rustix::fs::lsetxattr(tree, "user.large", &random.noise(2000), XattrFlags::empty())?;
    rustix::fs::lsetxattr(&many, "trusted.small", b"value", XattrFlags::empty())
        .or_else(|error| if is_root() { Err(error) } else { Ok(()) })?;
    let special = |name: &str, kind: FileType, device: u64| {
        rustix::fs::mknodat(CWD, tree.join(name), kind, Mode::from_raw_mode(0o640), device)
    };
    special("fifo", FileType::Fifo, 0)?;
    special("socket", FileType::Socket, 0)?;
    if is_root() {
        special("character", FileType::CharacterDevice, rustix::fs::makedev(5, 1))?;
        special("block", FileType::BlockDevice, rustix::fs::makedev(700, 70_000))?;
    }
    Ok(())
}
