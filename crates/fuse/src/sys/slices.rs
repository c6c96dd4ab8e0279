//! Scheduling of a server's threads: short slices, and a policy for time that no other program wants.
//!
//! The server asks for the first at its start, and the near thread of `/dev/fuse` for the second.

use rustix::thread::gettid;
use std::io;

/// Requested slice in nanoseconds: how long a thread runs before waiting ones get their turn. Linux accepts 0.1 to 100
/// ms; the default is 2.8 ms.
const SLICE_NANOSECONDS: u64 = 200_000;

/// Requests short slices with low latency for this thread and those that it will start, as suits a server whose
/// requests take microseconds while busy programs fill the processors. Its share of the time does not change. Without
/// effect before Linux 6.12, or with another scheduling policy than the usual one.
///
/// # Errors
/// The system's, for reading or changing this thread's attributes.
pub fn ask_for_short_slices() -> io::Result<()> {
    let bytes = u32::try_from(size_of::<libc::sched_attr>()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let thread = gettid().as_raw_nonzero().get();
    // SAFETY: a structure of integers, for which zeros are values.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes at most `bytes` to the structure, which lives as long as the call.
    done(unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attr, bytes, 0) })?;
    if i64::from(attr.sched_policy) != i64::from(libc::SCHED_OTHER) {
        return Ok(());
    }
    attr.size = bytes;
    attr.sched_runtime = SLICE_NANOSECONDS;
    // SAFETY: the call reads the structure, whose size it contains; the rest was filled by the system.
    done(unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw mut attr, 0) })
}

/// Lets this thread run only when no other program wants the processor (`SCHED_IDLE`). A thread without privileges
/// cannot take that back.
///
/// # Errors
/// The system's.
pub(crate) fn only_when_idle() -> io::Result<()> {
    // SAFETY: a structure of integers, for which zeros are values.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the call reads the structure, which lives as long as the call; 0 is the calling thread. It is made
    // directly, as C libraries may refuse it.
    done(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const param) })
}

fn done(returned: libc::c_long) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_started_later_have_short_slices() {
        std::thread::spawn(|| {
            ask_for_short_slices().unwrap();
            let slice = || {
                // SAFETY: as above.
                let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
                let bytes = u32::try_from(size_of::<libc::sched_attr>()).unwrap();
                // SAFETY: as above; 0 is the calling thread.
                done(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, bytes, 0) }).unwrap();
                attr.sched_runtime
            };
            let (own, child) = (slice(), std::thread::spawn(slice).join().unwrap());
            assert_eq!(own, child, "inherited");
            // Older kernels do not report it.
            assert!(own == SLICE_NANOSECONDS || own == 0, "{own}");
        })
        .join()
        .unwrap();
    }
}
