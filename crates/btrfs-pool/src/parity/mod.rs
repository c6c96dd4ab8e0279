//! Reads chunks with parity (RAID5, RAID6), and reconstructs lost stripes from the others.
//!
//! Such a chunk has one copy of its data. As the kernel does with mirror numbers, we number the ways to read it: way 0
//! reads the data columns; each further way treats one stripe (RAID5), or up to two (RAID6), as lost, and reconstructs
//! their columns from the other columns of the row.
//!
//! ```text
//! P = D0 + D1 + ...    Q = D0 + 2 D1 + 4 D2 + ...    (in GF(256), where adding is exclusive or)
//! ```
//!
//! This module cannot tell which way gives the right bytes: callers try the ways until the checksum matches. The
//! last row is complete in the stripes even if the chunk ends within it; its columns are then read beyond that end.
//!
//! Spinney does not write parity: a pool for writing refuses such chunks. The functions here fail with the errors of
//! the reader that the caller passes. Callers: the pool's reads, scrub, check and rescue.

mod galois;

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::items::STRIPE_LEN;

use crate::chunk::Chunk;
use crate::plan::{Part, Purpose, plan};
use crate::profile::Profile;

/// Most stripes of a chunk for which pairs of lost stripes are tried: the number of pairs grows with the square.
const PAIRED_STRIPES_MAX: u64 = 32;

/// The stripes that a way treats as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lost {
    first: u64,
    second: Option<u64>,
}

impl Lost {
    fn has(self, stripe_index: u64) -> bool {
        self.first == stripe_index || self.second == Some(stripe_index)
    }
}

/// Reads part of one device.
pub type ReadPart<'a, E> = dyn FnMut(&Part, &mut [u8]) -> Result<(), E> + 'a;

/// Fills `buf` with the bytes at `at`, reading them in one of the [`ways`].
///
/// # Errors
/// Those of the reader.
pub fn read<E>(chunk: &Chunk, at: Logical, buf: &mut [u8], way: u32, read: &mut ReadPart<'_, E>) -> Result<(), E> {
    let lost = chunk.is_parity().then(|| lost_of(chunk, way)).flatten();
    for part in plan(chunk, at, to_u64(buf.len()), Purpose::Read(way)) {
        let start = to_usize(part.range_offset);
        let bytes = buf.get_mut(start..start.saturating_add(to_usize(part.len))).unwrap_or_default();
        match lost {
            None => read(&part, bytes)?,
            Some(lost) => read_of_row(chunk, (at, lost), &part, bytes, read)?,
        }
    }
    Ok(())
}

/// The numbers of the ways to read a range. With parity, leaves out the ways whose lost stripes are not in the range:
/// they read the same bytes as way 0.
#[must_use]
pub fn ways(chunk: &Chunk, at: Logical, len: u64) -> Vec<u32> {
    let copies = chunk.profile().mirror_count();
    if !chunk.is_parity() {
        return (0..copies).collect();
    }
    let mut stripes: Vec<u64> = places(chunk, at, len).map(|(_, stripe_index)| stripe_index).collect();
    stripes.sort_unstable();
    stripes.dedup();
    let rebuilds = copies..=way_max(chunk);
    let differs = |way: &u32| lost_of(chunk, *way).is_some_and(|lost| stripes.iter().any(|index| lost.has(*index)));
    (0..copies).chain(rebuilds.filter(differs)).collect()
}

/// True if a way to read a range needs no missing device.
pub(crate) fn is_possible(chunk: &Chunk, at: Logical, len: u64, way: u32, is_there: &dyn Fn(&Part) -> bool) -> bool {
    struct Missing;
    let lost = chunk.is_parity().then(|| lost_of(chunk, way)).flatten();
    plan(chunk, at, len, Purpose::Read(way)).iter().all(|part| {
        let mut look = |part: &Part, _: &mut [u8]| if is_there(part) { Ok(()) } else { Err(Missing) };
        match lost {
            None => is_there(part),
            Some(lost) => read_of_row(chunk, (at, lost), part, &mut [], &mut look).is_ok(),
        }
    })
}

/// A parity column that does not match the data of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongParity {
    /// Its place on the device; `mirror` is 0 for P and 1 for Q.
    pub part: Part,
    /// Index of the first byte that differs.
    pub at: usize,
    /// The byte computed from the data.
    pub expected: u8,
    /// The byte read from the device.
    pub found: u8,
}

/// The rows that a range touches; none for a chunk without parity.
#[must_use]
pub fn rows(chunk: &Chunk, at: Logical, len: u64) -> std::ops::Range<u64> {
    if !chunk.is_parity() || len == 0 {
        return 0..0;
    }
    let start = at.0.saturating_sub(chunk.start().0);
    let row_bytes = chunk.row_bytes();
    start / row_bytes..start.saturating_add(len).div_ceil(row_bytes)
}

/// Compares the parity of a row with its data.
///
/// # Errors
/// Those of the reader.
pub fn check_row<E>(chunk: &Chunk, row: u64, read: &mut ReadPart<'_, E>) -> Result<Vec<WrongParity>, E> {
    let len = to_usize(STRIPE_LEN);
    let columns = columns(chunk);
    let (mut p, mut q, mut column_bytes) = (vec![0; len], vec![0; len], vec![0; len]);
    for column in (0..columns).rev() {
        read(&column_part(chunk, row, column, 0, STRIPE_LEN), &mut column_bytes)?;
        galois::add(&mut p, &column_bytes);
        galois::double_and_add(&mut q, &column_bytes);
    }
    let mut wrong = Vec::new();
    for ((column, computed), mirror) in (columns..).zip([p, q]).zip(0..chunk.profile().parity_count()) {
        let part = Part { mirror, ..column_part(chunk, row, column, 0, STRIPE_LEN) };
        read(&part, &mut column_bytes)?;
        let mut bytes = (0..).zip(computed.iter().zip(&column_bytes));
        if let Some((at, (expected, found))) = bytes.find(|(_, (computed, stored))| computed != stored) {
            wrong.push(WrongParity { part, at, expected: *expected, found: *found });
        }
    }
    Ok(wrong)
}

/// Fills `bytes` with a part of one column: reads it, or reconstructs it if its stripe is lost.
fn read_of_row<E>(
    chunk: &Chunk,
    (at, lost): (Logical, Lost),
    part: &Part,
    bytes: &mut [u8],
    read: &mut ReadPart<'_, E>,
) -> Result<(), E> {
    let (place, stripe_index) = place_of(chunk, at, part);
    if !lost.has(stripe_index) {
        return read(part, bytes);
    }
    let (row, in_column) = (place / STRIPE_LEN, place % STRIPE_LEN);
    let column_of = |index| Profile::column_of(chunk.shape(), row, index);
    let (own, columns) = (column_of(stripe_index), columns(chunk));
    let other = [Some(lost.first), lost.second].into_iter().flatten().find(|index| *index != stripe_index);
    let other = other.map(column_of);
    // P reconstructs one lost data column. Q is needed if P, or a second data column, is lost too.
    let is_p_lost = other == Some(columns);
    let second = other.filter(|column| *column < columns);
    let needs_q = is_p_lost || second.is_some();
    let (mut p, mut q) = (vec![0; bytes.len()], vec![0; bytes.len()]);
    let mut column_bytes = vec![0; bytes.len()];
    for column in (0..columns).rev() {
        column_bytes.fill(0);
        if column != own && Some(column) != second {
            read(&column_part(chunk, row, column, in_column, part.len), &mut column_bytes)?;
        }
        galois::add(&mut p, &column_bytes);
        galois::double_and_add(&mut q, &column_bytes);
    }
    if !is_p_lost {
        read(&column_part(chunk, row, columns, in_column, part.len), &mut column_bytes)?;
        galois::add(&mut p, &column_bytes);
    }
    if needs_q {
        read(&column_part(chunk, row, columns.saturating_add(1), in_column, part.len), &mut column_bytes)?;
        galois::add(&mut q, &column_bytes);
    }
    let own_power = galois::power_of_two(own);
    match second {
        // Here p = Dx + Dy and q = 2^x Dx + 2^y Dy, so Dx = (q + 2^y p) / (2^x + 2^y).
        Some(second) => {
            let second_power = galois::power_of_two(second);
            galois::scale(&mut p, second_power);
            galois::add(&mut q, &p);
            galois::scale(&mut q, galois::inverse(own_power ^ second_power));
            bytes.copy_from_slice(&q);
        }
        None if is_p_lost => {
            galois::scale(&mut q, galois::inverse(own_power));
            bytes.copy_from_slice(&q);
        }
        None => bytes.copy_from_slice(&p),
    }
    Ok(())
}

/// Number of data columns in a row.
fn columns(chunk: &Chunk) -> u64 {
    chunk.profile().data_columns(chunk.shape())
}

/// A part of one column. Columns are numbered within their row: data first, then P, then Q.
fn column_part(chunk: &Chunk, row: u64, column: u64, in_column: u64, len: u64) -> Part {
    let index = Profile::stripe_of(chunk.shape(), row, column);
    let stripe = chunk.stripes().get(to_usize(index)).expect("a row has a column in each stripe");
    let device_offset = stripe.offset.saturating_add(row.saturating_mul(STRIPE_LEN)).saturating_add(in_column);
    Part { mirror: 0, device: stripe.device, device_offset, range_offset: 0, len }
}

/// For each part of a range: its offset in its stripe, and the index of the stripe.
fn places(chunk: &Chunk, at: Logical, len: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    plan(chunk, at, len, Purpose::Read(0)).into_iter().map(move |part| place_of(chunk, at, &part))
}

fn place_of(chunk: &Chunk, at: Logical, part: &Part) -> (u64, u64) {
    let offset = at.0.saturating_sub(chunk.start().0).saturating_add(part.range_offset);
    let place = chunk.profile().locate(chunk.shape(), offset, 0);
    (place.offset, place.stripe_index)
}

/// The highest way number of a chunk with parity.
fn way_max(chunk: &Chunk) -> u32 {
    let count = chunk.shape().stripe_count;
    let has_pairs = chunk.profile().parity_count() > 1 && count <= PAIRED_STRIPES_MAX;
    let pairs = if has_pairs { count * (count - 1) / 2 } else { 0 };
    u32::try_from(count.saturating_add(pairs)).unwrap_or(u32::MAX)
}

/// The stripes that a way treats as lost. Ways are numbered: first each single stripe, then each pair.
fn lost_of(chunk: &Chunk, way: u32) -> Option<Lost> {
    let count = chunk.shape().stripe_count;
    let number = u64::from(way.checked_sub(1)?);
    if number < count {
        return Some(Lost { first: number, second: None });
    }
    let mut left = number.checked_sub(count)?;
    for first in 0..count {
        let behind = count - first - 1;
        if left < behind {
            return Some(Lost { first, second: Some(first + 1 + left) });
        }
        left -= behind;
    }
    None
}
