//! Draws from a seed the changes that age a file system, the same for every system. `ageing` carries them out.
//!
//! Files of mixed sizes in several directories fill it to a number of bytes; a random half of them goes, and others
//! take its place, again and again. Some files come in pieces, while others grow beside them.

use std::collections::BTreeMap;

use host::Env;

/// Smallest and largest size of a file: sizes between are equally likely by their logarithms.
const SIZE_MIN: f64 = 4096.0;
const SIZE_MAX: f64 = 8_388_608.0;

const DIRECTORIES: u64 = 16;

/// Of 100 files, so many come in pieces.
const GROWING_OF_100: u64 = 25;
/// Files that grow at the same time.
const GROWING_MAX: usize = 6;
const PIECES_MAX: u64 = 16;

/// After so many bytes everything is made durable, as a commit does that comes by itself.
const SYNC_BYTES: u64 = 64 << 20;

/// Most bytes lost in a file's last sector.
const SECTOR: u64 = 4096;

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// Bytes are added to a file, which may not be there yet.
    Append {
        file: u64,
        bytes: u64,
    },
    Delete {
        file: u64,
    },
    Sync,
}

/// The directory that a file is in.
pub(super) fn directory_of(file: u64) -> u64 {
    file % DIRECTORIES
}

pub(super) fn directories() -> impl Iterator<Item = u64> {
    0..DIRECTORIES
}

/// The existing files, and the next changes.
#[derive(Debug)]
pub(super) struct Plan {
    random: Env,
    /// Bytes of each file that is there.
    files: BTreeMap<u64, u64>,
    next_file: u64,
    bytes: u64,
    unsynced: u64,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Env::seeded(seed, (0, 0)), files: BTreeMap::new(), next_file: 0, bytes: 0, unsynced: 0 }
    }

    /// Every file there is.
    pub(super) fn files(&self) -> impl Iterator<Item = u64> {
        self.files.keys().copied()
    }

    /// Operations after which there are so many bytes in files.
    pub(super) fn fill(&mut self, bytes: u64) -> Vec<Op> {
        let mut ops = Vec::new();
        // Files that grow: their numbers, and the pieces still to come.
        let mut growing: Vec<(u64, Vec<u64>)> = Vec::new();
        while self.bytes < bytes {
            let (file, size) = (self.next_file, self.size());
            // Not one directory after the other.
            self.next_file += 1 + self.below(3);
            self.files.insert(file, size);
            self.bytes += size.next_multiple_of(SECTOR);
            if growing.len() < GROWING_MAX && self.below(100) < GROWING_OF_100 {
                let pieces = self.pieces(size);
                growing.push((file, pieces));
            } else {
                self.append(&mut ops, file, size);
            }
            for index in 0..growing.len() {
                if let Some((file, Some(piece))) = growing.get_mut(index).map(|(file, pieces)| (*file, pieces.pop())) {
                    self.append(&mut ops, file, piece);
                }
            }
            growing.retain(|(_, pieces)| !pieces.is_empty());
        }
        for (file, pieces) in growing {
            pieces.into_iter().rev().for_each(|piece| self.append(&mut ops, file, piece));
        }
        ops.push(Op::Sync);
        ops
    }

    /// Operations that delete a random half of the files.
    pub(super) fn halve(&mut self) -> Vec<Op> {
        let mut names: Vec<u64> = self.files().collect();
        for index in (1..names.len()).rev() {
            let other = usize::try_from(self.below(u64::try_from(index).unwrap_or(0) + 1)).unwrap_or(0);
            names.swap(index, other);
        }
        names.truncate(names.len() / 2);
        for file in &names {
            let size = self.files.remove(file).unwrap_or(0);
            self.bytes -= size.next_multiple_of(SECTOR);
        }
        names.into_iter().map(|file| Op::Delete { file }).chain([Op::Sync]).collect()
    }

    fn append(&mut self, ops: &mut Vec<Op>, file: u64, bytes: u64) {
        ops.push(Op::Append { file, bytes });
        self.unsynced += bytes;
        if self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            ops.push(Op::Sync);
        }
    }

    /// Parts of a size, the last first.
    fn pieces(&self, size: u64) -> Vec<u64> {
        let count = 2 + self.below(PIECES_MAX - 1);
        let each = size.div_ceil(count).max(1);
        (0..count).map(|index| size.saturating_sub(index * each).min(each)).filter(|piece| *piece > 0).collect()
    }

    #[expect(clippy::as_conversions, reason = "between the two limits")]
    fn size(&self) -> u64 {
        let share = self.below(1 << 24) as f64 / f64::from(1 << 24);
        (SIZE_MIN * (SIZE_MAX / SIZE_MIN).powf(share)) as u64
    }

    fn below(&self, end: u64) -> u64 {
        self.random.random_u64() % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_to_the_files_that_are_known() {
        let (mut plan, mut same) = (Plan::new(7), Plan::new(7));
        let mut there: BTreeMap<u64, u64> = BTreeMap::new();
        for round in 0..4 {
            let ops = if round % 2 == 0 { plan.fill(200 << 20) } else { plan.halve() };
            assert_eq!(ops, if round % 2 == 0 { same.fill(200 << 20) } else { same.halve() });
            for op in ops {
                match op {
                    Op::Append { file, bytes } => *there.entry(file).or_default() += bytes,
                    Op::Delete { file } => assert!(there.remove(&file).is_some(), "{file}"),
                    Op::Sync => {}
                }
            }
            assert_eq!(there, plan.files);
            let sum: u64 = there.values().map(|size| size.next_multiple_of(SECTOR)).sum();
            assert_eq!(sum, plan.bytes);
        }
        assert!(plan.bytes < 150 << 20 && there.len() > 20);
    }
}
