//! The few system calls that no safe wrapper offers. The only place with `unsafe` in this crate.
//!
//! Every function here is safe to call with any arguments: what the kernel needs (valid pointers
//! and lengths, memory that stays) is seen to inside. They fail with the error of the system
//! call. Called by the connection (cloning), mounting (the anchor), the ring transport, and front
//! ends at their start (what they inherited, what was closed, what they see mounted) and before
//! they unmount (what was written), to share what is the same, and to serve clients besides the kernel.

#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

mod anchor;
mod clone;
mod control;
mod inherited;
mod memory;
mod namespace;
mod peer;
mod ring;
mod same;
mod slices;
mod startup;
mod written;

pub(crate) use anchor::make_anchor;
pub(crate) use clone::clone_device;
pub use control::control;
pub use inherited::withhold_inherited;
pub use namespace::leave_mounts;
pub(crate) use namespace::with_node_at;
pub(crate) use peer::SOCKET;
pub use peer::{node_of, peer_groups, socket_number};
pub(crate) use ring::RingQueue;
pub(crate) use same::{DATA, DataRuns, NODE, RUNS_MAX, SHARE_SAME, ShareSame};
pub use same::{data_runs, share_same};
pub use slices::ask_for_short_slices;
pub use startup::stdout_was_closed;
pub(crate) use written::LOST;
pub use written::check_written;
