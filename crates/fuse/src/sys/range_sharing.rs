//! Calls a server of this crate to let two open files share equal ranges: the kernel passes `FIDEDUPERANGE` on to no
//! FUSE server. Called by `spinney dedupe` on a mount; `session/control` answers.

use rustix::fd::BorrowedFd;
use rustix::ioctl;
use std::io;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Returns the mount's number of the file, which [`SHARE_SAME`] takes as the source.
pub(crate) const NODE: ioctl::Opcode = ioctl::opcode::read::<u64>(b'S', 0xb8);
/// Shares a range of the source with the called file, if the bytes are equal.
pub(crate) const SHARE_SAME: ioctl::Opcode = ioctl::opcode::read_write::<ShareSame>(b'S', 0xb9);

/// Returns ranges of data of the called file, from an offset on.
pub(crate) const DATA: ioctl::Opcode = ioctl::opcode::read_write::<DataRuns>(b'S', 0xba);

/// Most ranges of one answer.
pub(crate) const RUNS_MAX: usize = 255;

/// Argument and answer of [`DATA`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DataRuns {
    /// First offset; in the answer the next one, `u64::MAX` at the end.
    pub(crate) offset: u64,
    /// In the answer, number of valid `runs`.
    pub(crate) count: u64,
    /// First byte of each, and the one behind its last; none before `offset`.
    pub(crate) runs: [[u64; 2]; RUNS_MAX],
}
const _: () = assert!(size_of::<DataRuns>() == 4096);

/// Ranges of data on disk of an open file on a mount of this crate, from `offset` on and in file order, and the next
/// offset to call with. Dirty pages of the kernel count as holes: sync first.
///
/// # Errors
/// The server's: as `vfs::FileSystem::extents`; `ENOTTY` if it does not know the operation.
pub fn data_runs(file: BorrowedFd<'_>, offset: u64) -> io::Result<(Vec<Range<u64>>, Option<u64>)> {
    let mut asked = DataRuns { offset, count: 0, runs: [[0; 2]; RUNS_MAX] };
    // SAFETY: the operation reads and writes one `DataRuns` through the pointer it is given, and `Updater` gives it a
    // pointer to one that outlives the call, and takes any value.
    unsafe { ioctl::ioctl(file, ioctl::Updater::<DATA, DataRuns>::new(&mut asked)) }?;
    let count = usize::try_from(asked.count).unwrap_or(usize::MAX);
    let runs = asked.runs.iter().take(count).map(|[start, end]| *start..*end).collect();
    Ok((runs, (asked.offset != u64::MAX).then_some(asked.offset)))
}

/// Argument and answer of [`SHARE_SAME`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ShareSame {
    /// The answer to [`NODE`]; the source must stay open.
    pub(crate) source: u64,
    pub(crate) source_offset: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// In the answer: 1 if the range was not shared before and is now.
    pub(crate) is_shared: u64,
}
const _: () = assert!(size_of::<ShareSame>() == 40);

/// Shares `len` bytes of `source` with `target`, open files on one mount of this crate, if the bytes are equal. False
/// if they differ, or are shared already.
///
/// # Errors
/// The server's: as `vfs::FileSystem::dedupe`; `EPERM` if the caller is neither root nor the owner of both files;
/// `ENOTTY` if the server does not know the operation.
pub fn share_same(
    (source, source_offset): (BorrowedFd<'_>, u64),
    (target, offset): (BorrowedFd<'_>, u64),
    len: u64,
) -> io::Result<bool> {
    // SAFETY: the operation writes one u64 through the pointer it is given, and `Getter` gives it a pointer to one that
    // lives as long as the call, and takes any value.
    let node = unsafe { ioctl::ioctl(source, ioctl::Getter::<NODE, u64>::new()) }?;
    let mut asked = ShareSame { source: node, source_offset, offset, len, is_shared: 0 };
    // SAFETY: the operation reads and writes one `ShareSame` through the pointer it is given, and `Updater` gives it a
    // pointer to one that outlives the call, and takes any value.
    unsafe { ioctl::ioctl(target, ioctl::Updater::<SHARE_SAME, ShareSame>::new(&mut asked)) }?;
    Ok(asked.is_shared != 0)
}
