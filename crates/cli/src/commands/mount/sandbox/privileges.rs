//! Gives up capabilities of the server, and the ways to regain them. Called by `sandbox`.

use anyhow::Result;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Drops all capabilities, in every set, and the ability to gain new ones by running a program.
pub(super) fn drop_all() -> Result<()> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Behind the last capability of this kernel.
            Err(Errno::INVAL) => break,
            // A process without capabilities cannot shrink the set, and need not.
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Kernels before 4.3 have no such set.
    let _ = rustix::thread::clear_ambient_capability_set();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}
