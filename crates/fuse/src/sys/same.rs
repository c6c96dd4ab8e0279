//! Asking a server of this crate to let two open files share what they have in common: the kernel passes
//! `FIDEDUPERANGE` on to no FUSE server.

use rustix::fd::BorrowedFd;
use rustix::ioctl;
use std::io;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Answered with the number that the mount has for the file, which [`SHARE_SAME`] takes as the source.
pub(crate) const NODE: ioctl::Opcode = ioctl::opcode::read::<u64>(b'S', 0xb8);
/// Shares a range of the file named with the one that is asked, where both are the same.
pub(crate) const SHARE_SAME: ioctl::Opcode = ioctl::opcode::read_write::<ShareSame>(b'S', 0xb9);

/// Answered with stretches of data of the file that is asked, from an offset on.
pub(crate) const DATA: ioctl::Opcode = ioctl::opcode::read_write::<DataRuns>(b'S', 0xba);

/// Stretches that one answer has room for.
pub(crate) const RUNS_MAX: usize = 255;

/// What [`DATA`] asks for, and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DataRuns {
    /// Where to begin; in the answer, what was not looked at yet: `u64::MAX` where that is nothing.
    pub(crate) offset: u64,
    /// In the answer, how many of `runs` are meant.
    pub(crate) count: u64,
    /// First byte of each, and the one behind its last; nothing of one lies before `offset`.
    pub(crate) runs: [[u64; 2]; RUNS_MAX],
}
const _: () = assert!(size_of::<DataRuns>() == 4096);

/// Stretches of data on disk of an open file of a mount that a server of this crate serves, from `offset` on and in
/// file order, and from where to ask for more. What the kernel has not handed over counts as a hole: sync before.
///
/// # Errors
/// What the server says: as `vfs::FileSystem::extents`; `ENOTTY` where it does not know the operation.
pub fn data_runs(file: BorrowedFd<'_>, offset: u64) -> io::Result<(Vec<Range<u64>>, Option<u64>)> {
    let mut asked = DataRuns { offset, count: 0, runs: [[0; 2]; RUNS_MAX] };
    // SAFETY: the operation reads and writes one `DataRuns` through the pointer it is given, and `Updater` gives it a
    // pointer to one that outlives the call, and takes any value.
    unsafe { ioctl::ioctl(file, ioctl::Updater::<DATA, DataRuns>::new(&mut asked)) }?;
    let count = usize::try_from(asked.count).unwrap_or(usize::MAX);
    let runs = asked.runs.iter().take(count).map(|[start, end]| *start..*end).collect();
    Ok((runs, (asked.offset != u64::MAX).then_some(asked.offset)))
}

/// What is to be shared, and whether it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ShareSame {
    /// The answer to [`NODE`]; the source stays open meanwhile.
    pub(crate) source: u64,
    pub(crate) source_offset: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// In the answer: 1 where the range is shared now and was not before.
    pub(crate) is_shared: u64,
}
const _: () = assert!(size_of::<ShareSame>() == 40);

/// Shares `len` bytes of `source` with `target`, open files of one mount that a server of this crate serves, where both
/// have the same ones. False where they have not, and where the range is shared already.
///
/// # Errors
/// What the server says: as `vfs::FileSystem::dedupe`; `EPERM` for a caller who is neither root nor the owner of both
/// files; `ENOTTY` where the server does not know the operation.
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
