//! Generates random programs: file operations of all kinds beside copies, snapshots, several subvolumes, several
//! handles and syncs. Called by `plan`.
//!
//! Prerequisites of an operation are made first ([`super::sketch`]). The oracle computes each legal state: contents
//! byte by byte, all names, all attributes, and of a snapshot the state of its source when it was made.

use super::ace::form_of;
use super::sketch::Sketch;
use super::step::{CloneHow, Reserve, Step, WriteHow};
use super::workload::Workload;
use crate::Random;

/// Files: at the top, in directories, in two subvolumes, and in a possible snapshot.
const FILES: &[&str] = &[
    "foo", "bar", "A/foo", "A/bar", "A/C/foo", "S1/foo", "S1/bar", "S1/A/foo", "S2/foo", "S2/bar", "N1/foo", "N2/bar",
];
const FOLDERS: &[&str] = &["A", "A/C", "B", "S1", "S1/A", "S2", "N1", "N2"];
const SUBVOLUMES: &[&str] = &["S1", "S2", "S3", "N1", "N2", "N3"];
const SNAPSHOTS: &[&str] = &["N1", "N2", "N3", "A/N4"];
const FILE_BYTES_MAX: u64 = 80 << 10;
const BLOCK: u64 = 4096;
const COMPRESSIONS: &[Option<&str>] = &[None, None, Some("zlib"), Some("lzo"), Some("zstd")];

/// A program of some dozens of operations.
pub(super) fn program(seed: u64, number: u64) -> Workload {
    let mut random = Random::new(seed ^ 0x99 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut sketch = Sketch::default();
    let mut setup = Vec::new();
    for _ in 0..random.below(12) {
        let step = operation(&mut random);
        setup.extend(sketch.complete(&step));
    }
    // Handles do not outlive the volume that is opened for the setup.
    setup.retain(|step| !matches!(step, Step::Hold { .. } | Step::Release));
    let mut steps = Vec::new();
    for _ in 0..random.between(10, 36) {
        let step = operation(&mut random);
        steps.extend(sketch.complete(&step));
        if random.one_in(3) {
            let sync = sync(&mut random);
            steps.extend(sketch.complete(&sync));
        }
    }
    Workload { name: format!("program-{number}"), form: form_of(random.number()), setup, threads: vec![steps] }
}

fn one_of(random: &mut Random, list: &[&str]) -> String {
    random.pick(list).copied().unwrap_or("foo").to_owned()
}

fn file(random: &mut Random) -> String {
    one_of(random, FILES)
}

fn any(random: &mut Random) -> String {
    if random.one_in(4) { one_of(random, FOLDERS) } else { file(random) }
}

fn operation(random: &mut Random) -> Step {
    match random.below(16) {
        0..=3 => contents(random),
        4..=7 => names(random),
        8..=9 => attributes(random),
        10..=12 => clone(random),
        13 => match random.one_in(3) {
            true => Step::Release,
            false => Step::Hold { path: file(random) },
        },
        _ => subvolumes(random),
    }
}

fn contents(random: &mut Random) -> Step {
    let path = file(random);
    let (offset, len) = (random.skewed(FILE_BYTES_MAX), random.skewed(FILE_BYTES_MAX / 2).max(1));
    let (block, blocks) = (offset - offset % BLOCK, len.next_multiple_of(BLOCK));
    match random.below(11) {
        0 => Step::Truncate { path, len: offset },
        1 => Step::Allocate { reserve: Reserve::Grow, path, offset, len },
        2 => Step::Allocate { reserve: Reserve::KeepSize, path, offset, len },
        3 => Step::Allocate { reserve: Reserve::Punch, path, offset: block, len: blocks },
        4 => Step::Allocate { reserve: Reserve::Zero, path, offset, len },
        5 => Step::Write { how: WriteHow::Direct, path, offset: block, len: blocks },
        6 => Step::Defrag { path, compression: random.pick(COMPRESSIONS).copied().flatten() },
        _ => Step::Write { how: WriteHow::Buffered, path, offset, len },
    }
}

fn names(random: &mut Random) -> Step {
    let (path, other) = (file(random), file(random));
    match random.below(10) {
        0 => Step::Create { path },
        1 => Step::CreateDir { path: one_of(random, &["A", "A/C", "B", "S1/A", "S2/A"]) },
        2 => Step::Link { original: other, path },
        3 => Step::Symlink { target: "foo".to_owned(), path },
        4 => Step::Remove { path },
        5 => Step::RemoveDir { path: one_of(random, FOLDERS) },
        6 => Step::Exchange { from: any(random), to: any(random) },
        7 => Step::Unnamed { path, len: random.skewed(30_000) },
        8 => Step::Rename { from: one_of(random, FOLDERS), to: one_of(random, FOLDERS) },
        _ => Step::Rename { from: path, to: other },
    }
}

fn attributes(random: &mut Random) -> Step {
    const FLAGS: &[&str] = &["", "A", "d", "Ad", "S", "AdS"];
    let path = any(random);
    match random.below(6) {
        0 => Step::Chmod { path, mode: u32::try_from(random.below(0o10_000)).unwrap_or(0o644) },
        1 => {
            let mut id = || u32::try_from(random.below(70_000)).unwrap_or(0);
            Step::Chown { path, uid: id(), gid: id() }
        }
        2 => {
            let mut time = || i64::try_from(random.below(2_000_000_000)).unwrap_or(0);
            Step::Utimes { path, atime: time(), mtime: time() }
        }
        3 => Step::Chattr { path, flags: one_of(random, FLAGS) },
        4 => Step::RemoveXattr { path, name: super::sketch::XATTR.to_owned() },
        _ => {
            let value = format!("value{}", random.below(1000));
            Step::SetXattr { path, name: super::sketch::XATTR.to_owned(), value }
        }
    }
}

fn clone(random: &mut Random) -> Step {
    let (source, path) = (file(random), file(random));
    let mut offset = || random.below(FILE_BYTES_MAX / BLOCK) * BLOCK;
    let (source_offset, offset) = (offset() / 2 / BLOCK * BLOCK, offset());
    let len = random.between(1, 10) * BLOCK;
    match random.one_in(2) {
        true => Step::Clone { how: CloneHow::Reflink, source, source_offset, path, offset, len },
        // Not aligned, or aligned alike, or each in its own way.
        false => {
            let (skew, own) = (random.pick(&[0, 0, 100]).copied().unwrap_or(0), random.pick(&[0, 0, 77]).copied());
            let (source_offset, offset) = (source_offset + skew, offset + skew + own.unwrap_or(0));
            Step::Clone { how: CloneHow::Copy, source, source_offset, path, offset, len: len - skew }
        }
    }
}

fn subvolumes(random: &mut Random) -> Step {
    match random.below(7) {
        0 => Step::Subvolume { path: one_of(random, &["S1", "S2", "S3"]) },
        1 => Step::DeleteSubvolume { path: one_of(random, SUBVOLUMES) },
        2 => Step::Rename { from: one_of(random, SUBVOLUMES), to: one_of(random, SUBVOLUMES) },
        _ => Step::Snapshot { source: one_of(random, SUBVOLUMES), path: one_of(random, SNAPSHOTS) },
    }
}

fn sync(random: &mut Random) -> Step {
    match random.below(7) {
        0 => Step::Sync,
        1 => Step::Fdatasync { path: file(random) },
        2 => Step::Fsync { path: one_of(random, FOLDERS) },
        3 => Step::Trim,
        _ => Step::Fsync { path: file(random) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn programs_repeat_and_have_all_kinds_of_operations() {
        let mut names = BTreeSet::new();
        for number in 0..300 {
            let one = program(1, number);
            assert_eq!(one, program(1, number));
            let words = one.threads[0].iter().map(|step| step.to_string());
            names.extend(words.filter_map(|text| text.split(' ').next().map(str::to_owned)));
        }
        let rare: Vec<&str> =
            ["snapshot", "delsubvol", "reflink", "defrag", "trim", "copy", "hold", "release", "exchange", "tmpfile"]
                .into_iter()
                .filter(|name| !names.contains(*name))
                .collect();
        assert!(rare.is_empty() && names.len() >= 28, "{rare:?} of {names:?}");
    }
}
