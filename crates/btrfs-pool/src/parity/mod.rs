//! Reads chunks with parity (RAID5, RAID6): bytes of stripes that are lost are computed from the others.
//!
//! The bytes of such a chunk lie on its devices once. A way to read them is a number, as that of a copy is for the
//! other profiles: way 0 reads the bytes where they lie; each further way takes some stripes for lost, one (RAID5) or
//! up to two (RAID6), and computes what lies there from the rest of its row.
//!
//! ```text
//! P = D0 + D1 + ...    Q = D0 + 2 D1 + 4 D2 + ...    (in GF(256), where adding is exclusive or)
//! ```
//!
//! Which way gives the right bytes their checksum says; nothing here can. Rows are read where they lie in the stripes,
//! also beyond the end of a chunk whose length is not a multiple of a row.
//!
//! Nothing writes parity: a pool for writing refuses such chunks. Failures are those of the reader that is passed.
//! Callers: the pool's reads, scrubs, check and rescue.

mod galois;

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::items::STRIPE_LEN;

use crate::chunk::Chunk;
use crate::plan::{Part, Purpose, plan};
use crate::profile::Profile;

/// Pairs of lost stripes are tried in chunks of so many stripes at most, since there are as many as their square.
const PAIRED_STRIPES_MAX: u64 = 32;

/// The stripes that a way to read takes for lost.
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

/// Fills `buf` with the bytes at `at`, in one of the [`ways`] to read them.
///
/// # Errors
/// The reader's.
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

/// The numbers of the ways to read a range that differ from each other: of a chunk with parity, those that take a
/// stripe of the range for lost.
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

/// True when a way to read a range needs only devices that are there.
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

/// A column of parity that does not fit the data of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongParity {
    /// Where it lies; its mirror is 0 for P and 1 for Q.
    pub part: Part,
    /// First byte that differs.
    pub at: usize,
    /// The byte that fits the data.
    pub expected: u8,
    /// The byte that is there.
    pub found: u8,
}

/// The rows of a chunk with parity that a range touches.
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
/// The reader's.
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

/// Fills `bytes` with a part of one column: from where it lies, or computed where its stripe is lost.
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
    // P is used unless it is lost; Q where P alone does not suffice.
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
        // p = Dx + Dy, and q = 2^x Dx + 2^y Dy.
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

/// Columns of data in a row.
fn columns(chunk: &Chunk) -> u64 {
    chunk.profile().data_columns(chunk.shape())
}

/// A part of a column of a row: first the data, then P, then Q.
fn column_part(chunk: &Chunk, row: u64, column: u64, in_column: u64, len: u64) -> Part {
    let index = Profile::stripe_of(chunk.shape(), row, column);
    let stripe = chunk.stripes().get(to_usize(index)).expect("a row has a column in each stripe");
    let device_offset = stripe.offset.saturating_add(row.saturating_mul(STRIPE_LEN)).saturating_add(in_column);
    Part { mirror: 0, device: stripe.device, device_offset, range_offset: 0, len }
}

/// Offset in its stripe, and the stripe's index, of each part of a range.
fn places(chunk: &Chunk, at: Logical, len: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    plan(chunk, at, len, Purpose::Read(0)).into_iter().map(move |part| place_of(chunk, at, &part))
}

fn place_of(chunk: &Chunk, at: Logical, part: &Part) -> (u64, u64) {
    let offset = at.0.saturating_sub(chunk.start().0).saturating_add(part.range_offset);
    let place = chunk.profile().locate(chunk.shape(), offset, 0);
    (place.offset, place.stripe_index)
}

/// The number of the last way to read a chunk with parity.
fn way_max(chunk: &Chunk) -> u32 {
    let count = chunk.shape().stripe_count;
    let has_pairs = chunk.profile().parity_count() > 1 && count <= PAIRED_STRIPES_MAX;
    let pairs = if has_pairs { count * (count - 1) / 2 } else { 0 };
    u32::try_from(count.saturating_add(pairs)).unwrap_or(u32::MAX)
}

/// The stripes that a way takes for lost: first each alone, then each pair.
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
