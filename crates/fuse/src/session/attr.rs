//! Answers requests for attributes of nodes and of the volume: GETATTR, STATX, SETATTR, STATFS. Called by `service`.

use super::encode::{self, put};
use super::entry::PERMISSIONS;
use super::nearly_full::Room;
use super::state::{Agreed, Answer};
use crate::notify::Stale;
use crate::protocol::replies::StatxOut;
use crate::protocol::requests::{GetattrIn, SetattrIn, setattr};
use crate::protocol::{Request, opcode};
use vfs::FileSystem;
use vfs::file_system::{Errno, Handle, Result, SetAttr, SetTime, Time};

/// Requests about attributes.
pub(super) struct Attributes<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) agreed: Agreed,
    pub(super) room: &'a Room,
}

impl Attributes<'_> {
    pub(super) fn getattr(&self, request: &Request<'_>, out: &mut [u8]) -> Result<Answer> {
        let is_asked_by_write = self.room.is_short() && is_of_opening(request);
        if is_asked_by_write && let Some(error) = self.room.take_refused(request.node()) {
            return Err(error);
        }
        let attr = self.fs.attr(request.node())?;
        let len = put(out, &self.agreed.timeouts.attr(&attr))?;
        Ok(match is_asked_by_write {
            // The next write has to ask, too.
            true => Answer::DoneStale(len, Stale::attributes(request.node())),
            false => Answer::Done(len),
        })
    }

    /// True if a program is about to write, and the kernel has to write its dirty pages first.
    pub(super) fn waits_for_room(&self, request: &Request<'_>) -> bool {
        request.header.opcode == opcode::GETATTR
            && self.room.is_short()
            && is_of_opening(request)
            && self.room.has_to_wait(request.node())
    }

    pub(super) fn statx(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let attr = self.fs.attr(request.node())?;
        let reply = StatxOut {
            attr_valid: self.agreed.timeouts.attr.as_secs(),
            attr_valid_nsec: self.agreed.timeouts.attr.subsec_nanos(),
            stat: encode::statx(&attr),
            ..StatxOut::default()
        };
        put(out, &reply)
    }

    pub(super) fn setattr(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let args: SetattrIn = request.args()?;
        let changes = changes(&args, self.agreed.writeback)?;
        let attr = match self.fs.set_attr(&request.caller(), request.node(), &changes) {
            // The kernel flushes times of earlier, permitted writes. If the file has become immutable since, a failure
            // would be reported to whichever program syncs next; the file keeps the times that its data was written at.
            Err(error) if error.errno() == Errno::EPERM && self.agreed.writeback && args.valid == TIMES_FROM_CACHE => {
                self.fs.attr(request.node())?
            }
            done => done?,
        };
        put(out, &self.agreed.timeouts.attr(&attr))
    }

    pub(super) fn statfs(&self, out: &mut [u8]) -> Result<usize> {
        put(out, &encode::statfs(&self.fs.status()?))
    }
}

/// True if the kernel asks with a handle, not a name: it does before it takes a program's write, if its cached mode is
/// invalid (not for a size, which it keeps itself here).
fn is_of_opening(request: &Request<'_>) -> bool {
    const GETATTR_FH: u32 = 1;
    request.args().is_ok_and(|args: GetattrIn| args.getattr_flags & GETATTR_FH != 0)
}

/// All bits except the source of times, the lock owner, and the privileges.
const ANY_CHANGE: u32 =
    setattr::MODE | setattr::UID | setattr::GID | setattr::SIZE | setattr::ATIME | setattr::MTIME | setattr::CTIME;

/// Bits of the times that the kernel sends for writes that it has collected. A program's own change of times never has
/// a file handle.
const TIMES_FROM_CACHE: u32 = setattr::MTIME | setattr::CTIME | setattr::FH;

fn changes(args: &SetattrIn, writeback: bool) -> Result<SetAttr> {
    let has = |bits: u32| args.valid & bits != 0;
    // `ftruncate`, which comes with a handle, and `O_TRUNC` always change the time; `truncate` only if it changes the
    // size. A kernel that does not keep times itself does not tell them apart: truncation to zero counts as `O_TRUNC`.
    let is_touched = has(setattr::SIZE) && !writeback && (has(setattr::FH) || args.size == 0);
    let time = |sec: u64, nsec: u32| {
        let sec = sec.cast_signed();
        (nsec < 1_000_000_000).then_some(Time { sec, nsec }).ok_or(Errno::EINVAL)
    };
    let set_time = |bit: u32, now: u32, sec: u64, nsec: u32| match (has(bit), has(now)) {
        (false, _) => Ok(None),
        (true, true) => Ok(Some(SetTime::Now)),
        (true, false) => time(sec, nsec).map(|time| Some(SetTime::To(time))),
    };
    // A change of owner clears the bits for any user, and the kernel leaves that to the server (also if both numbers
    // stay the same, which comes as a change of nothing, or of the time that a kernel with `writeback` keeps itself).
    // For a new size the kernel asks for it.
    let others = if writeback { ANY_CHANGE & !setattr::CTIME } else { ANY_CHANGE };
    let chown = has(setattr::UID | setattr::GID) || !has(others);
    Ok(SetAttr {
        permissions: has(setattr::MODE).then_some(args.mode & PERMISSIONS),
        uid: has(setattr::UID).then_some(args.uid),
        gid: has(setattr::GID).then_some(args.gid),
        size: has(setattr::SIZE).then_some(args.size),
        atime: set_time(setattr::ATIME, setattr::ATIME_NOW, args.atime, args.atimensec)?,
        mtime: set_time(setattr::MTIME, setattr::MTIME_NOW, args.mtime, args.mtimensec)?
            .or(is_touched.then_some(SetTime::Now)),
        ctime: has(setattr::CTIME).then(|| time(args.ctime, args.ctimensec)).transpose()?,
        btime: None,
        clear_privileges: chown || has(setattr::KILL_SUIDGID),
        handle: has(setattr::FH).then_some(Handle(args.fh)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_valid_changes() {
        let args = SetattrIn {
            valid: setattr::MODE | setattr::ATIME | setattr::MTIME | setattr::ATIME_NOW,
            mode: 0o104_755,
            mtime: u64::MAX,
            mtimensec: 7,
            uid: 9,
            ..SetattrIn::default()
        };
        let changes = changes(&args, false).unwrap();
        assert_eq!(
            changes,
            SetAttr {
                permissions: Some(0o4755),
                atime: Some(SetTime::Now),
                mtime: Some(SetTime::To(Time { sec: -1, nsec: 7 })),
                ..SetAttr::default()
            }
        );
    }

    #[test]
    fn a_new_owner_or_an_unprivileged_size_clears_privileges() {
        let clears = |valid| {
            let args = SetattrIn { valid, ..SetattrIn::default() };
            changes(&args, false).unwrap().clear_privileges
        };
        assert!(clears(setattr::UID) && clears(setattr::GID) && clears(0));
        assert!(clears(setattr::SIZE | setattr::KILL_SUIDGID));
        assert!(!clears(setattr::SIZE) && !clears(setattr::MODE) && !clears(setattr::CTIME));
        // A kernel that collects writes sends its time with an empty change.
        let time = SetattrIn { valid: setattr::CTIME, ..SetattrIn::default() };
        assert!(changes(&time, true).unwrap().clear_privileges);
        let collected = SetattrIn { valid: TIMES_FROM_CACHE, ..SetattrIn::default() };
        assert!(!changes(&collected, true).unwrap().clear_privileges);
    }

    #[test]
    fn sizes_that_a_program_always_gets_the_time_of_are_told_from_others() {
        let touches = |valid, size, writeback| {
            let args = SetattrIn { valid, size, ..SetattrIn::default() };
            changes(&args, writeback).unwrap().mtime == Some(SetTime::Now)
        };
        assert!(touches(setattr::SIZE, 0, false), "O_TRUNC");
        assert!(touches(setattr::SIZE | setattr::FH, 7, false), "ftruncate");
        assert!(!touches(setattr::SIZE, 7, false), "truncate");
        assert!(!touches(setattr::SIZE, 0, true), "the kernel tells");
    }

    #[test]
    fn nanoseconds_stay_below_a_second() {
        let args = SetattrIn { valid: setattr::CTIME, ctimensec: 1_000_000_000, ..SetattrIn::default() };
        assert_eq!(changes(&args, false), Err(Errno::EINVAL));
    }
}
