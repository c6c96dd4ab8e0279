//! Gives the commands the calls that Linux alone has, for files and for mounts of this program.
//!
//! On other systems each of them fails as not supported, and few commands come as far: nothing is mounted there.
//! Failure: the errors of the host.
//!
//! Callers: commands on mounts, `mkfs --reflink`, `version`, and `unnamed`.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
