//! Wraps system calls without a safe wrapper. The only module with `unsafe` in this crate.
//!
//! Every function here is safe to call with any arguments: it ensures valid pointers and lengths, and memory that
//! stays. They fail with the error of the system call. Callers: the connection (cloning), mounting (the anchor), the
//! ring transport, and front ends: at their start (inherited and closed descriptors, visible mounts), before they
//! unmount (lost data), to share equal ranges, and to serve clients besides the kernel.

#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

mod anchor;
mod clone;
mod control;
mod inherited_fds;
mod lost_data;
mod memory;
mod namespace;
mod peer;
mod range_sharing;
mod ring;
mod slices;
mod startup;

pub(crate) use anchor::make_anchor;
pub(crate) use clone::clone_device;
pub use control::control;
pub use inherited_fds::{passed_listeners, withhold_inherited};
pub use lost_data::check_written;
pub(crate) use namespace::with_node_at;
pub use namespace::{enter_namespaces, leave_mounts};
pub use peer::{ServedFile, node_of, peer_groups, served_file, socket_number};
pub(crate) use range_sharing::{DataRuns, RUNS_MAX, ShareSame};
pub use range_sharing::{data_runs, share_same};
pub(crate) use ring::RingQueue;
pub use slices::ask_for_short_slices;
pub(crate) use slices::only_when_idle;
pub use startup::stdout_was_closed;

/// The numbers of the operations that servers of this crate answer, as the FUSE protocol has them.
pub(crate) mod numbers {
    use super::{lost_data, peer, range_sharing};
    use rustix::ioctl::Opcode;

    pub(crate) const DATA: u32 = of(range_sharing::DATA);
    pub(crate) const LOST: u32 = of(lost_data::LOST);
    pub(crate) const NODE: u32 = of(range_sharing::NODE);
    pub(crate) const SERVED: u32 = of(peer::SERVED);
    pub(crate) const SHARE_SAME: u32 = of(range_sharing::SHARE_SAME);
    pub(crate) const SOCKET: u32 = of(peer::SOCKET);

    /// The 32 bits of a request number that the kernel uses; C libraries pass them as different types.
    const fn of(operation: Opcode) -> u32 {
        let [a, b, c, d, ..] = operation.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}
