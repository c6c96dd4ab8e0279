//! Copies ranges within a volume: shared where the ranges allow it, byte by byte where not. Called by `vfs_impl/data`.

use std::sync::Arc;

use btrfs_disk::convert::{to_u64, to_usize};

use super::read::read_at;
use super::reflink::{CloneRange, reflink_parts};
use super::truncate::sector;
use super::write::write_at;
use crate::error::{CallerError, Result};
use crate::extents::FILE_BYTES_MAX;
use crate::inode::{Change, Core, Inode, InodeFlags};

/// Fewer bytes are copied: sharing has to flush both files first.
const SHARED_BYTES_MIN: u64 = 16 << 10;
/// Bytes that one call shares at most.
const SHARED_BYTES_MAX: u64 = 4 << 30;
/// Bytes that one call copies at most, and how many at a time.
const COPIED_BYTES_MAX: u64 = 32 << 20;
const BUFFER_BYTES: u64 = 1 << 20;

/// Copies a range of `source` to `target`, both of one volume; they may be one file when the ranges
/// don't overlap. Returns how many bytes were copied: fewer than asked for where the source ends,
/// and where the work would take long.
///
/// # Errors
/// `InvalidArgument` for ranges that overlap, and as `write_at` and `read_at`, if nothing was copied.
pub(crate) fn copy_range(core: &Core, source: &Arc<Inode>, target: &Arc<Inode>, range: CloneRange) -> Result<u64> {
    target.check_writable()?;
    target.check_permits(Change::WriteAt(range.destination))?;
    let left = source.state().size.saturating_sub(range.source);
    let len = range.len.min(left);
    let fits = range.destination.checked_add(len);
    fits.filter(|end| *end <= FILE_BYTES_MAX).ok_or(CallerError::TooLarge)?;
    let distance = range.source.abs_diff(range.destination);
    if Arc::ptr_eq(source, target) && distance < range.len {
        return Err(CallerError::InvalidArgument.into());
    }
    let mut done = 0;
    let mut copied = 0;
    while done < len {
        let rest = CloneRange { source: range.source + done, destination: range.destination + done, len: len - done };
        let result = match step(core, source, target, rest) {
            Step::Share(part) => match share(core, source, target, part) {
                // The files have changed since `step` looked at them.
                Err(error) if error.caller_error() == Some(CallerError::InvalidArgument) => {
                    copy(core, source, target, part)
                }
                result => result,
            },
            Step::Copy(part) => copy(core, source, target, part),
        };
        match result {
            Ok((bytes, was_copied)) => {
                done += bytes;
                copied += if was_copied { bytes } else { 0 };
                if bytes == 0 || copied >= COPIED_BYTES_MAX || done >= SHARED_BYTES_MAX {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

enum Step {
    Share(CloneRange),
    Copy(CloneRange),
}

/// Decides whether to share or copy the first part of `rest`.
fn step(core: &Core, source: &Inode, target: &Inode, rest: CloneRange) -> Step {
    let unit = u64::from(sector(core));
    let first = |len: u64| CloneRange { len: len.min(BUFFER_BYTES), ..rest };
    let (size, flags) = {
        let state = source.state();
        (state.size, state.flags)
    };
    let (target_size, target_flags) = {
        let state = target.state();
        (state.size, state.flags)
    };
    let skew = rest.source % unit;
    let may_share = skew == rest.destination % unit
        && !(flags ^ target_flags).contains(InodeFlags::NODATASUM)
        && rest.len >= SHARED_BYTES_MIN
        && !target_flags.contains(InodeFlags::APPEND);
    if !may_share {
        return Step::Copy(first(rest.len));
    }
    if skew != 0 {
        return Step::Copy(first(unit - skew));
    }
    // The source's last sector is shared as a whole where the target ends there, too.
    let is_end = rest.source + rest.len >= size && rest.destination + rest.len >= target_size;
    let len = match is_end && rest.len <= SHARED_BYTES_MAX {
        true => rest.len,
        false => {
            let len = rest.len.min(SHARED_BYTES_MAX);
            len - len % unit
        }
    };
    Step::Share(CloneRange { len, ..rest })
}

/// The bytes done, and whether they were copied.
fn share(core: &Core, source: &Arc<Inode>, target: &Arc<Inode>, part: CloneRange) -> Result<(u64, bool)> {
    match reflink_parts(core, source, target, part) {
        (0, Err(error)) => Err(error),
        (done, Err(_)) => Ok((done, false)),
        (_, Ok(())) => Ok((part.len, false)),
    }
}

fn copy(core: &Core, source: &Inode, target: &Arc<Inode>, part: CloneRange) -> Result<(u64, bool)> {
    let mut buf = vec![0; to_usize(part.len.min(BUFFER_BYTES))];
    let len = read_at(core, source, part.source, &mut buf)?;
    let bytes = buf.get(..len).unwrap_or_default();
    if !bytes.is_empty() {
        write_at(core, target, part.destination, bytes)?;
    }
    Ok((to_u64(len), true))
}
