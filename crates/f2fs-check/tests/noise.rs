//! Volumes with fields changed at random, and corrected checksums: each check ends, without a panic and soon, and finds
//! a fault wherever `fsck.f2fs` does, if that is installed (on files, never mounted). `SPINNEY_CHECK_IMAGES` sets the
//! number of images, `SPINNEY_SEED` the seed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::as_conversions,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests fail by panicking; this test uses only a part of the shared module"
)]

#[path = "damage/image.rs"]
mod image;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use blockdev::Device;
use f2fs_check::{Options, check};
use f2fs_disk::{BlockAddr, Nid};
use image::{Base, Editor, bases};

const IMAGES: u64 = 400;
const SEED: u64 = 23;
/// `fsck.f2fs` checks one of this many images, unless `SPINNEY_COMPARED_EVERY` is set.
const COMPARED_EVERY: u64 = 4;
const TIME_MAX: Duration = Duration::from_secs(20);
/// Bytes that are copied at a time; those of zeros are left out.
const PIECE: usize = 64 << 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Numbers with a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// A value likely to matter: small, near a limit, or any.
    fn value(&mut self) -> u32 {
        match self.below(6) {
            0 => u32::try_from(self.below(16)).unwrap(),
            1 => u32::MAX - u32::try_from(self.below(4)).unwrap(),
            2 => u32::try_from(self.below(30_000)).unwrap(),
            3 => 1 << self.below(32),
            _ => u32::try_from(self.below(1 << 32)).unwrap(),
        }
    }

    /// Changes one to four bytes of a range of a block.
    fn change(&mut self, bytes: &mut [u8]) {
        let at = usize::try_from(self.below(bytes.len() as u64 - 3)).unwrap();
        let count = usize::try_from(self.below(4)).unwrap() + 1;
        let value = self.value().to_le_bytes();
        bytes[at..at + count].copy_from_slice(&value[..count]);
    }
}

/// Nodes of a volume.
fn nids(editor: &Editor) -> Vec<Nid> {
    (3..1200).map(Nid).filter(|nid| editor.geometry().is_main(editor.nat(*nid).at())).collect()
}

fn mutate(editor: &Editor, random: &mut Random) {
    let nodes = nids(editor);
    let geometry = editor.geometry();
    for _ in 0..random.below(3) + 1 {
        let nid = nodes[usize::try_from(random.below(nodes.len() as u64)).unwrap()];
        match random.below(12) {
            0..=2 => editor.edit_node(nid, |block| random.change(&mut block[..400])),
            3..=4 => editor.edit_node(nid, |block| random.change(block)),
            5 => editor.edit_node(nid, |block| random.change(&mut block[4052..])),
            6 => {
                let at = geometry.main.plus(u32::try_from(random.below(4000)).unwrap());
                editor.edit(at, |block| random.change(block));
            }
            7 => {
                let (at, index) = geometry.nat_block(nid, editor.checkpoint.nat_bitmap());
                editor.edit(at, |block| random.change(&mut block[index * 9..index * 9 + 9]));
            }
            8 => {
                let segment = u32::try_from(random.below(u64::from(geometry.main_blocks / 512))).unwrap();
                editor.edit_sit(segment, |entry| random.change(zerocopy::IntoBytes::as_mut_bytes(entry)));
            }
            9 => {
                let at = geometry.summary_block(u32::try_from(random.below(20)).unwrap());
                editor.edit(at, |block| random.change(block));
            }
            10 => editor.checkpoint_bytes(|bytes| random.change(bytes)),
            _ => {
                let at = editor.checkpoint.at().plus(u32::try_from(random.below(8)).unwrap() + 1);
                editor.edit(at, |block: &mut [u8; 4096]| random.change(block));
            }
        }
    }
}

/// Faults found by `fsck.f2fs`; `None` if it is not installed or ended abnormally.
fn theirs(device: &dyn Device) -> Option<Vec<String>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(device.size_bytes()).unwrap();
    let mut piece = vec![0; PIECE];
    for at in (0..device.size_bytes()).step_by(PIECE) {
        device.read_at(at, &mut piece).unwrap();
        if piece.iter().any(|byte| *byte != 0) {
            file.as_file().write_all_at(&piece, at).unwrap();
        }
    }
    let output = Command::new("timeout").args(["20", "fsck.f2fs", "-f", "--dry-run"]).arg(file.path()).output().ok()?;
    // Killed by a signal or a time limit, or not found.
    output.status.code().filter(|code| *code < 124)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // It resets this number to zero in its own copy, and then finds the inode's checksum wrong.
    if text.contains("reset i_gc_failures") {
        return None;
    }
    let is_wrong = |line: &&str| line.contains("[Fail]") || line.contains("[ASSERT]");
    Some(text.lines().filter(is_wrong).map(str::to_owned).collect())
}

fn one(base: &Base, index: u64, seed: u64, compares: bool) -> (&'static str, Option<String>) {
    let mut random = Random(seed ^ index.wrapping_mul(0x9e37_79b9));
    let editor = Editor::new(base);
    mutate(&editor, &mut random);
    let device = editor.finish();
    let begin = Instant::now();
    let report = check(&device, &Options::default(), &());
    assert!(begin.elapsed() < TIME_MAX, "image {index} of seed {seed} took {:?}", begin.elapsed());
    let is_clean = report.as_ref().is_ok_and(|report| report.counts.is_empty());
    let Some(lines) = compares.then(|| theirs(&device)).flatten() else {
        return (if is_clean { "clean" } else { "with faults" }, None);
    };
    match (is_clean, lines.is_empty()) {
        (true, true) => ("both are content", None),
        (false, false) => ("both find fault", None),
        (false, true) => ("only this check finds fault", None),
        (true, false) => ("only fsck.f2fs finds fault", Some(format!("image {index} ({}): {lines:?}", base.name))),
    }
}

#[test]
fn a_check_of_any_image_ends_and_finds_what_fsck_finds() {
    let bases: Vec<Base> = bases().into_iter().filter(|base| base.name != "empty").collect();
    let (count, seed) = (number("SPINNEY_CHECK_IMAGES").unwrap_or(IMAGES), number("SPINNEY_SEED").unwrap_or(SEED));
    let compared_every = number("SPINNEY_COMPARED_EVERY").unwrap_or(COMPARED_EVERY);
    let has_fsck = Command::new("fsck.f2fs").arg("-V").output().is_ok();
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    let mut missed = Vec::new();
    for index in 0..count {
        let base = &bases[usize::try_from(index % bases.len() as u64).unwrap()];
        let (word, why) = one(base, index, seed, has_fsck && index % compared_every == 0);
        *outcomes.entry(word).or_default() += 1;
        missed.extend(why);
    }
    println!("{count} images of seed {seed}: {outcomes:?}");
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn blocks_of_noise_are_no_danger() {
    let base = bases().into_iter().find(|base| base.name == "all").unwrap();
    let mut random = Random(5);
    for _ in 0..30 {
        let editor = Editor::new(&base);
        let geometry = editor.geometry();
        for _ in 0..4 {
            let at = match random.below(3) {
                0 => geometry.main.plus(u32::try_from(random.below(4096)).unwrap()),
                1 => geometry.nat.plus(u32::try_from(random.below(8)).unwrap()),
                _ => BlockAddr(u32::try_from(random.below(u64::from(geometry.main.0) - 1024)).unwrap() + 1024),
            };
            editor.edit(at, |block| block.iter_mut().for_each(|byte| *byte = random.below(256) as u8));
        }
        let _ = check(&editor.finish(), &Options::default(), &());
    }
}
