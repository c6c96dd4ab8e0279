//! Decides where each partition of a description lies. Pure: nothing is read or written. Called by `spec`.
//!
//! Partitions lie in the order of the description. With a table each begins at a multiple of 1 MiB, from 1 MiB on;
//! sizes are rounded up to 4 KiB, shares of the disk and of the rest down to 1 MiB. A disk without a size of its own
//! ends 1 MiB behind the last partition, rounded up to 1 MiB, where the second table has its place.

use std::error::Error as StdError;

use super::layout::{Layout, Placed};
use super::value::Size;
use super::{Contents, Label, Partition, Spec};
use crate::gpt::ALIGNMENT_BYTES;
use crate::number::{down, up};
use crate::swap::{SIZE_MAX_BYTES, SIZE_MIN_BYTES};
use crate::{Error, Result};

/// Sizes of partitions are multiples of this.
pub const PLACE_BYTES: u64 = 4096;
/// Most bytes of a disk: what files can have.
const DISK_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// Plans the disk of a description. `minimum` says how many bytes a partition needs at least: it is asked for files
/// that are passed through, and for file systems whose size is `auto`, or `rest` of a disk that is `auto`.
///
/// # Errors
/// `minimum` fails; a partition that does not fit (with the numbers); a disk or swap area of a size that cannot be.
pub fn plan<E: Into<Box<dyn StdError + Send + Sync>>>(
    spec: &Spec,
    mut minimum: impl FnMut(&Partition) -> Result<u64, E>,
) -> Result<Layout> {
    let mut wishes = Vec::with_capacity(spec.partitions.len());
    for partition in &spec.partitions {
        let needs = if is_asked(partition, spec) {
            minimum(partition).map_err(|error| Error::Minimum {
                number: number(partition),
                name: partition.name.clone(),
                source: error.into(),
            })?
        } else {
            0
        };
        wishes.push(Wish { partition, needs_bytes: needs, size_bytes: wished(partition, needs, spec)? });
    }
    match spec.disk.label {
        Label::None => whole(spec, &wishes),
        Label::Gpt => divided(spec, &mut wishes),
    }
}

/// A partition on its way to a place.
struct Wish<'a> {
    partition: &'a Partition,
    /// Bytes of its contents, if they are known.
    needs_bytes: u64,
    /// Bytes that it gets; nothing for a share of the rest.
    size_bytes: Option<u64>,
}

fn is_asked(partition: &Partition, spec: &Spec) -> bool {
    match (&partition.contents, partition.size) {
        (Contents::File(_), _) => true,
        // A disk without a table has its only partition's size, if it has one itself.
        (Contents::FileSystem(_), _) if spec.disk.label == Label::None && spec.disk.size_bytes.is_some() => false,
        (Contents::FileSystem(_), Size::Auto) => true,
        (Contents::FileSystem(_), Size::Rest) => spec.disk.size_bytes.is_none(),
        _ => false,
    }
}

/// The size that a partition asks for, if it does not follow from the others'.
fn wished(partition: &Partition, needs_bytes: u64, spec: &Spec) -> Result<Option<u64>> {
    let asked_bytes = match (partition.size, spec.disk.size_bytes) {
        (Size::Rest, Some(_)) => return Ok(None),
        (Size::Auto, Some(_)) if spec.disk.label == Label::None => return Ok(None),
        (Size::Auto | Size::Rest, _) => needs_bytes.max(1),
        (Size::Percent(percent), disk_bytes) => {
            let hundredth = u128::from(disk_bytes.unwrap_or_default()) * u128::from(percent) / 100;
            let share = u64::try_from(hundredth).unwrap_or(DISK_BYTES_MAX);
            return match down(share, ALIGNMENT_BYTES) {
                0 => Err(does_not_fit(partition, ALIGNMENT_BYTES, share)),
                share => Ok(Some(share)),
            };
        }
        (Size::Bytes(bytes), _) => bytes,
    };
    let rounded = up(asked_bytes, PLACE_BYTES).filter(|bytes| *bytes <= DISK_BYTES_MAX);
    rounded.map(Some).ok_or_else(|| does_not_fit(partition, asked_bytes, DISK_BYTES_MAX))
}

/// A disk without a table.
fn whole(spec: &Spec, wishes: &[Wish<'_>]) -> Result<Layout> {
    let mut disk_bytes = spec.disk.size_bytes.unwrap_or_default();
    let mut placed = Vec::new();
    for wish in wishes {
        let size_bytes = wish.size_bytes.unwrap_or(disk_bytes);
        if spec.disk.size_bytes.is_none() {
            disk_bytes = size_bytes;
        }
        if size_bytes == 0 {
            return Err(Error::DiskSize { min_bytes: PLACE_BYTES, max_bytes: DISK_BYTES_MAX, found_bytes: 0 });
        }
        check_contents(wish, disk_bytes)?;
        placed.push(Placed::new(wish.partition, 0, disk_bytes));
    }
    Ok(Layout::new(spec, disk_bytes, placed))
}

fn divided(spec: &Spec, wishes: &mut [Wish<'_>]) -> Result<Layout> {
    let sector_size = spec.disk.sector_size;
    // Nothing may reach the table at the end.
    let end_max = match spec.disk.size_bytes {
        Some(disk_bytes) => disk_bytes.saturating_sub(sector_size.end_bytes()),
        None => DISK_BYTES_MAX - 2 * ALIGNMENT_BYTES,
    };
    if spec.disk.size_bytes.is_some_and(|bytes| bytes > DISK_BYTES_MAX) || end_max <= ALIGNMENT_BYTES {
        let found_bytes = spec.disk.size_bytes.unwrap_or_default();
        let min_bytes = ALIGNMENT_BYTES + PLACE_BYTES + sector_size.end_bytes();
        return Err(Error::DiskSize { min_bytes, max_bytes: DISK_BYTES_MAX, found_bytes });
    }
    share_rest(wishes, end_max)?;
    let mut free_at = ALIGNMENT_BYTES;
    let mut placed = Vec::with_capacity(wishes.len());
    for wish in wishes.iter() {
        let size_bytes = wish.size_bytes.unwrap_or_default();
        // A start that cannot be aligned is beyond the end.
        let start = up(free_at, ALIGNMENT_BYTES).unwrap_or(u64::MAX);
        let free_bytes = end_max.saturating_sub(start);
        if size_bytes > free_bytes {
            return Err(does_not_fit(wish.partition, size_bytes, free_bytes));
        }
        check_contents(wish, size_bytes)?;
        placed.push(Placed::new(wish.partition, start, size_bytes));
        free_at = start.saturating_add(size_bytes);
    }
    let ends_at = up(free_at, ALIGNMENT_BYTES).unwrap_or(DISK_BYTES_MAX).saturating_add(ALIGNMENT_BYTES);
    Ok(Layout::new(spec, spec.disk.size_bytes.unwrap_or(ends_at), placed))
}

/// Gives what the others leave to those that ask for the rest, in equal shares of whole MiB.
fn share_rest(wishes: &mut [Wish<'_>], end_max: u64) -> Result<()> {
    let mut free_bytes = down(end_max, ALIGNMENT_BYTES).saturating_sub(ALIGNMENT_BYTES);
    for wish in wishes.iter() {
        let taken = wish.size_bytes.map_or(Some(0), |size| up(size, ALIGNMENT_BYTES)).unwrap_or(u64::MAX);
        free_bytes = free_bytes.saturating_sub(taken);
    }
    let count = wishes.iter().filter(|wish| wish.size_bytes.is_none()).count();
    let share = free_bytes.checked_div(crate::number::bytes(count)).unwrap_or(0);
    let share = down(share, ALIGNMENT_BYTES);
    for wish in wishes.iter_mut().filter(|wish| wish.size_bytes.is_none()) {
        if share == 0 {
            let asked = wish.needs_bytes.max(ALIGNMENT_BYTES);
            return Err(does_not_fit(wish.partition, asked, 0));
        }
        wish.size_bytes = Some(share);
    }
    Ok(())
}

/// Refuses a place that is too small for what is known to go there.
fn check_contents(wish: &Wish<'_>, size_bytes: u64) -> Result<()> {
    if wish.needs_bytes > size_bytes {
        return Err(does_not_fit(wish.partition, wish.needs_bytes, size_bytes));
    }
    let is_swap = matches!(wish.partition.contents, Contents::Swap { .. });
    if is_swap && !(SIZE_MIN_BYTES..=SIZE_MAX_BYTES).contains(&size_bytes) {
        return Err(Error::Swap {
            what: "size",
            expected: format!("{SIZE_MIN_BYTES} to {SIZE_MAX_BYTES} bytes"),
            found: format!("{size_bytes} bytes in partition {}", wish.partition.number),
        });
    }
    Ok(())
}

fn does_not_fit(partition: &Partition, asked_bytes: u64, free_bytes: u64) -> Error {
    Error::DoesNotFit { number: number(partition), name: partition.name.clone(), asked_bytes, free_bytes }
}

fn number(partition: &Partition) -> usize {
    usize::try_from(partition.number).unwrap_or(usize::MAX)
}
