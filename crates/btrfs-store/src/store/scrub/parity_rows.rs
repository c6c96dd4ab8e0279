//! Compares the parity of rows with their data, after a scrub has read the data. Rows with bad data are left out: what
//! their parity should be is not known. So are rows that lie on a device that is missing or cannot be read.

use std::sync::Arc;

use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::{At, Corrupt, Detail, Logical};
use btrfs_pool::parity::{self, WrongParity};
use btrfs_pool::{Chunk, Pool, PoolDevice};

use super::{BadUnit, Fate, Piece, ScrubStep};
use crate::error::BadCopy;

/// A row of a chunk with parity.
pub(super) struct Row {
    chunk: Arc<Chunk>,
    number: u64,
}

impl Row {
    /// Start and end of its data.
    fn range(&self) -> (u64, u64) {
        let start = self.chunk.start().0.saturating_add(self.number.saturating_mul(self.chunk.row_bytes()));
        (start, start.saturating_add(self.chunk.row_bytes()).min(self.chunk.end().0))
    }
}

/// The rows that pieces touch, each once; `last` is the last one of the step before.
pub(super) fn of(pieces: &[Piece], last: &mut Option<(Logical, u64)>) -> Vec<Row> {
    let mut rows = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.chunk.is_parity()) {
        for number in parity::rows(&piece.chunk, piece.at, piece.len) {
            let row = Some((piece.chunk.start(), number));
            if *last != row {
                *last = row;
                rows.push(Row { chunk: Arc::clone(&piece.chunk), number });
            }
        }
    }
    rows
}

/// Adds the wrong parity of rows to the result of a step.
pub(super) fn check(pool: &Pool, rows: Vec<Row>, step: &mut ScrubStep) {
    let is_missing = |row: &Row| {
        let mut stripes = row.chunk.stripes().iter();
        stripes.any(|stripe| pool.devices().get(stripe.device).is_none_or(PoolDevice::is_missing))
    };
    let is_bad = |row: &Row| {
        let (start, end) = row.range();
        step.bad.iter().any(|bad| bad.at.0 < end && bad.at.0.saturating_add(bad.len) > start)
    };
    let sound = rows.into_iter().filter(|row| !is_missing(row) && !is_bad(row)).collect();
    let checked = pool.workers().map(sound, |row: Row| {
        let wrong = pool.check_parity(&row.chunk, row.number).unwrap_or_default();
        (row, wrong)
    });
    for (row, wrong) in checked {
        step.bad.extend(wrong.iter().map(|wrong| bad_unit(&row, wrong)));
    }
}

fn bad_unit(row: &Row, wrong: &WrongParity) -> BadUnit {
    let (start, end) = row.range();
    let byte = |value: u8| Detail::Number(value.into());
    let at = Logical(start);
    let what = if wrong.part.mirror == 0 { "parity P of a row" } else { "parity Q of a row" };
    let cause = Corrupt::new(what, byte(wrong.expected), byte(wrong.found)).at(At::Data(at)).into();
    let offset = wrong.part.device_offset.saturating_add(to_u64(wrong.at));
    let copy = BadCopy { mirror: wrong.part.mirror, device: wrong.part.device, offset, cause };
    let is_tree = !row.chunk.flags().contains(BlockGroupFlags::DATA);
    BadUnit { at, len: end.saturating_sub(start), is_tree, copy, fate: Fate::Left }
}
