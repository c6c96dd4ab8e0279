//! Changes a small tree at random; changes that are difficult for a sender are frequent. Called by `send_histories` and
//! `return_trip`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use testkit::Random;

use super::place::{Found, Op, Place};

/// Number of changes between two listings of the tree.
const OPS_PER_LOOK: usize = 4;
/// Sector size.
const SECTOR: u64 = 4096;
/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 300 << 10;

/// Makes `count` changes; returns the number of successful ones.
pub(super) fn change(place: &dyn Place, count: usize, random: &mut Random) -> Result<usize> {
    let mut done = 0usize;
    let mut found = Vec::new();
    for number in 0..count {
        if number.checked_rem(OPS_PER_LOOK) == Some(0) {
            found = place.list()?;
        }
        // Where no path fits, the drawn path is empty, which means the top directory: that must stay.
        let is_top = |op: &Op| matches!(op, Op::RemoveAll(path) if path.as_os_str().is_empty());
        for op in draw(&found, random).into_iter().filter(|op| !is_top(op)) {
            done = done.saturating_add(usize::from(place.apply(&op).is_ok()));
        }
    }
    Ok(done)
}

struct Choice<'a> {
    found: &'a [Found],
}

impl Choice<'_> {
    fn of(&self, random: &mut Random, is_wanted: impl Fn(&Found) -> bool) -> Option<PathBuf> {
        let wanted: Vec<&Found> = self.found.iter().filter(|found| is_wanted(found)).collect();
        random.pick(&wanted).map(|found| found.path.clone())
    }

    fn file(&self, random: &mut Random) -> PathBuf {
        self.of(random, |found| found.is_file).unwrap_or_else(|| PathBuf::from("none"))
    }

    fn dir(&self, random: &mut Random) -> PathBuf {
        match random.one_in(4) {
            true => PathBuf::new(),
            false => self.of(random, |found| found.is_dir).unwrap_or_default(),
        }
    }

    fn any(&self, random: &mut Random) -> PathBuf {
        self.of(random, |_| true).unwrap_or_else(|| PathBuf::from("none"))
    }

    /// A name in some directory; names are few, so that they are reused for other files.
    fn name(&self, random: &mut Random) -> PathBuf {
        self.dir(random).join(format!("n{}", random.below(12)))
    }
}

fn data(random: &mut Random) -> Vec<u8> {
    let len = usize::try_from(random.skewed(FILE_BYTES_MAX)).unwrap_or(0);
    if random.one_in(3) { random.noise(len) } else { random.text(len) }
}

/// An offset in a file, mostly at the beginning of a sector.
fn offset(random: &mut Random) -> u64 {
    let at = random.below(FILE_BYTES_MAX);
    if random.one_in(3) { at } else { at.next_multiple_of(SECTOR) }
}

fn draw(found: &[Found], random: &mut Random) -> Vec<Op> {
    let choice = Choice { found };
    let op = match random.below(34) {
        0..5 => Op::Make(choice.name(random), data(random)),
        5..8 => Op::MakeDir(choice.name(random)),
        8..11 => Op::Write(choice.file(random), offset(random), data(random)),
        11 => Op::Truncate(choice.file(random), random.skewed(FILE_BYTES_MAX)),
        12 => Op::Punch(choice.file(random), offset(random), random.between(1, 100_000)),
        13 => Op::Allocate(choice.file(random), offset(random), random.between(1, 100_000)),
        14..17 => {
            let (from, to) = (choice.file(random), choice.file(random));
            let whole = random.one_in(3);
            let at = |random: &mut Random| if whole { 0 } else { offset(random).next_multiple_of(SECTOR) };
            let (from_offset, to_offset) = (at(random), at(random));
            let len = if whole { FILE_BYTES_MAX } else { random.between(1, 30).saturating_mul(SECTOR) };
            Op::Reflink(from, from_offset, to, to_offset, len)
        }
        17..20 => Op::Rename(choice.any(random), choice.name(random)),
        20 => Op::Exchange(choice.any(random), choice.any(random)),
        21 => Op::Remove(choice.of(random, |found| !found.is_dir).unwrap_or_default()),
        22 => return replaced(&choice, random),
        23 => Op::Link(choice.file(random), choice.name(random)),
        24 => Op::Symlink(random.text(40).into_iter().map(|byte| byte.max(b'a')).collect(), choice.name(random)),
        25 => Op::Node(choice.name(random), u8::try_from(random.below(4)).unwrap_or(0)),
        26 | 27 => return vec![xattr(&choice, random)],
        28 => Op::Mode(choice.any(random), u32::try_from(random.below(0o10_000)).unwrap_or(0)),
        29 => Op::Owner(choice.any(random), small(random), small(random)),
        30 => Op::Times(choice.any(random), i64::try_from(random.below(2_000_000_000)).unwrap_or(0)),
        31 => Op::Sync,
        _ => return moved(&choice, random),
    };
    vec![op]
}

fn small(random: &mut Random) -> u32 {
    u32::try_from(random.below(3)).unwrap_or(0).saturating_mul(1000)
}

/// Removes a path, and makes a new directory or regular file there.
fn replaced(choice: &Choice<'_>, random: &mut Random) -> Vec<Op> {
    let path = choice.any(random);
    let new = if random.one_in(2) { Op::MakeDir(path.clone()) } else { Op::Make(path.clone(), data(random)) };
    vec![Op::Remove(path.clone()), Op::RemoveAll(path), new]
}

/// Moves directories: a child takes the place of its directory, three paths change places in a circle, or a child moves
/// out of a directory that is then removed.
fn moved(choice: &Choice<'_>, random: &mut Random) -> Vec<Op> {
    let aside = PathBuf::from(format!("aside-{}", random.below(3)));
    let dir = choice.dir(random);
    let child = choice.of(random, |found| found.path.parent() == Some(dir.as_path())).unwrap_or_default();
    match random.below(3) {
        // The child takes the place of its directory, which moves into it.
        0 => {
            let inside = dir.join(random.pick(&["inner", "n1"]).copied().unwrap_or("inner"));
            vec![
                Op::Rename(child, aside.clone()),
                Op::Rename(dir.clone(), aside.join("old")),
                Op::Rename(aside, dir),
                Op::Rename(inside, PathBuf::from("n3")),
            ]
        }
        1 => {
            let (one, other, third) = (choice.any(random), choice.any(random), choice.any(random));
            vec![
                Op::Rename(one.clone(), aside.clone()),
                Op::Rename(other.clone(), one),
                Op::Rename(third.clone(), other),
                Op::Rename(aside, third),
            ]
        }
        // A child moves out of the directory, which is then removed.
        _ => vec![Op::Rename(child, aside), Op::RemoveAll(dir)],
    }
}

fn xattr(choice: &Choice<'_>, random: &mut Random) -> Op {
    let path = choice.any(random);
    match random.below(10) {
        0..3 => {
            let len = random.index(200);
            Op::SetXattr(path, format!("user.x{}", random.below(3)), random.noise(len))
        }
        3 => Op::RemoveXattr(path, format!("user.x{}", random.below(3))),
        4 | 5 => Op::SetXattr(choice.file(random), "system.posix_acl_access".to_owned(), acl(random)),
        6 => Op::SetXattr(choice.dir(random), "system.posix_acl_default".to_owned(), acl(random)),
        7 => Op::RemoveXattr(path, "system.posix_acl_default".to_owned()),
        8 => Op::SetXattr(choice.file(random), "security.capability".to_owned(), capability()),
        _ => Op::SetXattr(path, "btrfs.compression".to_owned(), b"zstd".to_vec()),
    }
}

/// `cap_net_bind_service=ep`.
fn capability() -> Vec<u8> {
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An access list with an entry for a user.
fn acl(random: &mut Random) -> Vec<u8> {
    let mut permissions = || u16::try_from(random.below(8)).unwrap_or(0);
    let entries = [(1u16, u32::MAX), (2, 1000), (4, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions().to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}

/// Makes the first files of a history.
pub(super) fn begin(place: &dyn Place, random: &mut Random) -> Result<()> {
    for name in ["n0", "n1", "n1/n2", "n1/n2/n3"] {
        place.apply(&Op::MakeDir(Path::new(name).to_path_buf()))?;
    }
    for number in 0..6 {
        place.apply(&Op::Make(PathBuf::from(format!("n1/f{number}")), data(random)))?;
    }
    Ok(())
}
