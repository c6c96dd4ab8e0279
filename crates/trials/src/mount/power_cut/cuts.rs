//! Draws the moments of power cuts of a disk, and makes the image of each. Called by `power_cut`.
//!
//! A change is durable if it was answered before a flush began that was answered before the cut. Of later changes, up
//! to the cut, any part may be on the disk: none, all, some requests, some sectors of them, in any order.
//!
//! One file holds the image. It advances from cut to cut, since durable data only grows; the other changes of a cut are
//! undone after it was checked, so that a cut costs the data written around it and not a copy of everything.

use super::record::{Change, Record};
use anyhow::{Context as _, Result};
use btrfs_disk::superblock::SUPERBLOCK_OFFSET;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use testkit::Random;

/// Units that a cut does not tear, in bytes: a sector, a page.
const ATOMS_BYTES: [usize; 2] = [512, 4096];

/// Which of the changes that are not durable are on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// None.
    Nothing,
    /// All.
    All,
    /// Some, each whole, in any order.
    Some,
    /// Some, and of some of these only some units of this many bytes, in any order.
    Torn(usize),
}

/// A power cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Its number, in the order of positions.
    pub(super) number: u64,
    /// Its position in the record.
    pub(super) place: u64,
    pub(super) keep: Keep,
    seed: u64,
}

impl Cut {
    /// Keeps none of the changes that are not durable: the worst case for a missing flush.
    pub(super) fn drop_the_rest(&mut self) {
        self.keep = Keep::Nothing;
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut {} at byte {} of the record, of unflushed changes ", self.number, self.place)?;
        match self.keep {
            Keep::Nothing => write!(f, "nothing"),
            Keep::All => write!(f, "all"),
            Keep::Some => write!(f, "some requests"),
            Keep::Torn(bytes) => write!(f, "some units of {bytes} bytes"),
        }
    }
}

/// Draws `count` cuts behind the position `from`, in order.
///
/// # Errors
/// The record cannot be read.
pub(super) fn draw(record: &Record, from: u64, count: u64, random: &mut Random) -> Result<Vec<Cut>> {
    let behind = |places: &mut dyn Iterator<Item = u64>| places.filter(|place| *place >= from).collect::<Vec<_>>();
    let anywhere = behind(&mut record.places.iter().copied());
    // Before flushes most data is not yet durable, and at superblocks the old one becomes the new one.
    let before_flushes = behind(&mut record.flushes.iter().map(|flush| flush.began));
    let (supers, commits) = superblocks(record)?;
    let (supers, commits) = (behind(&mut supers.into_iter()), behind(&mut commits.into_iter()));
    let mut cuts = Vec::new();
    for _ in 0..count {
        let places = match random.below(6) {
            0 => &before_flushes,
            1 => &supers,
            2 => &commits,
            _ => &anywhere,
        };
        // There may be no flush and no superblock behind the beginning.
        let place = random.pick(places).copied().or_else(|| random.pick(&anywhere).copied()).unwrap_or(from);
        let keep = match random.below(5) {
            0 => Keep::Nothing,
            1 => Keep::All,
            2 => Keep::Some,
            _ => Keep::Torn(random.pick(&ATOMS_BYTES).copied().unwrap_or(512)),
        };
        let seed = random.number();
        cuts.push(Cut { number: 0, place, keep, seed });
    }
    cuts.sort_by_key(|cut| cut.place);
    for (cut, number) in cuts.iter_mut().zip(0..) {
        cut.number = number;
    }
    Ok(cuts)
}

/// Positions behind the writes of the first superblock: of all, and of those by commits. A sync of the log changes only
/// the first sector, so that only a commit's superblock can be torn.
fn superblocks(record: &Record) -> Result<(Vec<u64>, Vec<u64>)> {
    let (mut all, mut commits, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for change in record.changes.iter().filter(|change| change.offset == SUPERBLOCK_OFFSET) {
        let bytes = record.bytes(change)?.split_off(ATOMS_BYTES[0].min(usize::try_from(change.len)?));
        all.push(change.done);
        if bytes != last {
            commits.push(change.done);
        }
        last = bytes;
    }
    Ok((all, commits))
}

/// The image of a disk whose power is cut again and again, each time later.
#[derive(Debug)]
pub(super) struct Platter<'a> {
    record: &'a Record,
    file: File,
    /// Of each change, whether it is durable and in the file.
    is_settled: Vec<bool>,
    /// All changes before this one are.
    first: usize,
    /// Old contents where a cut wrote, in the order of writing.
    undo: Vec<(u64, Vec<u8>)>,
}

impl<'a> Platter<'a> {
    /// A disk of zeros in a new file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(super) fn new(record: &'a Record, path: &Path, size_bytes: u64) -> Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(size_bytes)?;
        Ok(Self { record, file, is_settled: vec![false; record.changes.len()], first: 0, undo: Vec::new() })
    }

    /// Makes the image of a cut, which must come after all earlier ones.
    ///
    /// # Errors
    /// The file or the record cannot be used.
    pub(super) fn cut(&mut self, cut: &Cut) -> Result<()> {
        self.restore()?;
        let flushes = self.record.flushes.iter().filter(|flush| flush.answered <= cut.place);
        self.settle(flushes.map(|flush| flush.began).max().unwrap_or(0))?;
        let mut random = Random::new(cut.seed);
        let mut pending: Vec<&Change> = Vec::new();
        let (changes, is_settled) = (self.record.changes.get(self.first..), self.is_settled.get(self.first..));
        for (change, is_settled) in changes.unwrap_or_default().iter().zip(is_settled.unwrap_or_default()) {
            if !is_settled && change.done <= cut.place {
                pending.push(change);
            }
        }
        let keeps_order = matches!(cut.keep, Keep::Nothing | Keep::All) || random.one_in(2);
        if !keeps_order {
            for index in (1..pending.len()).rev() {
                pending.swap(index, random.index(index.saturating_add(1)));
            }
        }
        for change in pending {
            self.keep(change, cut.keep, &mut random)?;
        }
        Ok(())
    }

    /// Writes changes made durable by a flush that began at `covered`.
    fn settle(&mut self, covered: u64) -> Result<()> {
        let record = self.record;
        for (index, change) in record.changes.iter().enumerate().skip(self.first) {
            if change.done > covered {
                break;
            }
            let Some(is_settled) = self.is_settled.get_mut(index) else { break };
            if change.answered <= covered && !*is_settled {
                *is_settled = true;
                self.file.write_all_at(&record.bytes(change)?, change.offset)?;
            }
        }
        while self.is_settled.get(self.first) == Some(&true) {
            self.first = self.first.saturating_add(1);
        }
        Ok(())
    }

    fn keep(&mut self, change: &Change, keep: Keep, random: &mut Random) -> Result<()> {
        let torn_bytes = match keep {
            Keep::Nothing => return Ok(()),
            Keep::All => None,
            Keep::Some if random.one_in(2) => return Ok(()),
            Keep::Some => None,
            Keep::Torn(atom_bytes) => match random.below(4) {
                0 => return Ok(()),
                1 => None,
                _ => Some(atom_bytes),
            },
        };
        let bytes = self.record.bytes(change)?;
        let mut old = vec![0; bytes.len()];
        self.file.read_exact_at(&mut old, change.offset).context("a write behind the end of the disk")?;
        let mut new = bytes;
        if let Some(atom_bytes) = torn_bytes {
            for (new, old) in new.chunks_mut(atom_bytes).zip(old.chunks(atom_bytes)) {
                if random.one_in(2) {
                    new.copy_from_slice(old);
                }
            }
        }
        self.undo.push((change.offset, old));
        Ok(self.file.write_all_at(&new, change.offset)?)
    }

    fn restore(&mut self) -> Result<()> {
        while let Some((offset, old)) = self.undo.pop() {
            self.file.write_all_at(&old, offset)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Kind, Recorder};
    use super::*;

    fn cut(place: u64, keep: Keep) -> Cut {
        Cut { number: 0, place, keep, seed: 1 }
    }

    /// A write answered before a flush began is always there; one answered while the flush ran may be missing; and
    /// changes of one cut are gone in the next.
    #[test]
    fn only_what_a_flush_covers_is_durable() {
        let path = std::env::temp_dir().join(format!("spinney-cuts-{}", std::process::id()));
        let image = path.with_extension("img");
        let mut recorder = Recorder::create(&path).unwrap();
        let first = recorder.add(Kind::Write, 0, 2, b"aa").unwrap();
        recorder.answer(first).unwrap();
        let second = recorder.add(Kind::Write, 2, 2, b"bb").unwrap();
        let flush = recorder.add(Kind::Flush, 0, 0, &[]).unwrap();
        recorder.answer(second).unwrap();
        recorder.answer(flush).unwrap();
        let third = recorder.add(Kind::Write, 1, 2, b"cc").unwrap();
        recorder.answer(third).unwrap();
        let record = Record::open(&path).unwrap();
        let end = record.places.last().copied().unwrap();
        let flushed = record.flushes[0].answered;
        let mut platter = Platter::new(&record, &image, 8).unwrap();
        let mut state = |place, keep| {
            platter.cut(&cut(place, keep)).unwrap();
            std::fs::read(&image).unwrap()
        };
        assert_eq!(state(flushed - 1, Keep::Nothing), [0; 8]);
        assert_eq!(state(flushed - 1, Keep::All), *b"aabb\0\0\0\0");
        assert_eq!(state(flushed, Keep::Nothing), *b"aa\0\0\0\0\0\0");
        assert_eq!(state(end, Keep::All), *b"accb\0\0\0\0");
        assert_eq!(state(end, Keep::Nothing), *b"aa\0\0\0\0\0\0");
        for path in [path, image] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn cuts_come_in_order_and_not_before_the_beginning() {
        let path = std::env::temp_dir().join(format!("spinney-draw-{}", std::process::id()));
        let mut recorder = Recorder::create(&path).unwrap();
        for index in 0..50 {
            let number = recorder.add(Kind::Write, index * 512, 1, b"x").unwrap();
            recorder.answer(number).unwrap();
        }
        let record = Record::open(&path).unwrap();
        let from = record.places[20];
        let cuts = draw(&record, from, 100, &mut Random::new(3)).unwrap();
        assert_eq!(cuts.len(), 100);
        assert!(cuts.iter().all(|cut| cut.place >= from));
        assert!(cuts.is_sorted_by_key(|cut| cut.place));
        std::fs::remove_file(path).unwrap();
    }
}
