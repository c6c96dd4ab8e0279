//! Defines the caller's side of a transfer while it runs: progress, failures, losses, cancellation. The commands
//! implement it; `walk` and the sinks call it.

use crate::error::{Cause, Error, Result};

/// Something that a copy does not have, although it is a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The host did not permit the owner or group of a file.
    Owner,
    /// The target does not accept an attribute or a flag, or this user may not set it.
    Attribute,
    /// The host did not permit a device node.
    Device,
    /// The rules left out a device node.
    WithheldDevice,
    /// The rules left out the set-user and set-group bits or the capability of a file.
    WithheldPower,
    /// A file became shorter while it was copied; its copy ends where it ended.
    Shortened,
    /// A file has another owner or group than its source, so it got no set-user and set-group bits or capability.
    DisownedPower,
    /// The target has no sockets: the file is left out.
    Socket,
    /// A file has names outside of what was copied; they are no names of its copy.
    OtherNames,
}

/// Called by all threads of a transfer. Every method has a default, so that `&()` watches nothing: the first failure
/// ends the transfer then.
pub trait Observer: Sync {
    /// A name is about to be copied.
    fn tried(&self) {}

    /// A name was copied, or the rules left it out.
    fn done(&self) {}

    /// Bytes of contents were copied.
    fn copied(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Bytes of contents are shared with the source.
    fn shared(&self, bytes: u64) {
        let _ = bytes;
    }

    /// A file was there already, whole: an earlier transfer made it.
    fn found(&self) {}

    /// A copy was made but lacks something, or a device node was left out. The file is not named.
    fn lost(&self, what: Loss) {
        let _ = what;
    }

    /// A file or directory could not be copied, or only a part of it. `Ok` continues with the others.
    ///
    /// # Errors
    /// `error` itself, to end the transfer.
    fn failed(&self, error: Error) -> Result<()> {
        Err(error)
    }

    /// True to end the transfer soon. An incomplete copy is removed.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Fails once the transfer is cancelled.
    ///
    /// # Errors
    /// [`Cause::Cancelled`].
    fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Cause::Cancelled.into()) } else { Ok(()) }
    }
}

impl Observer for () {}
