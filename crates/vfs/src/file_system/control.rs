//! Defines the trait for control operations: ioctls of a single format. An engine that has them
//! implements it, and the FUSE server calls it.

use super::{Answer, Caller, Errno, NodeId};

/// A control operation of a format's own (`ioctl(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control<'a> {
    /// The caller.
    pub caller: Caller,
    /// The caller is root or the user of the server, who may know the contents of the device.
    pub owns_device: bool,
    /// The node of the call.
    pub node: NodeId,
    /// The operation's number.
    pub command: u32,
    /// Input of the caller.
    pub input: &'a [u8],
    /// Longest answer that the caller takes, in bytes.
    pub output_bytes_max: usize,
}

/// The answer to a control operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlAnswer {
    /// Output for the caller.
    pub output: Vec<u8>,
    /// Error of the call in spite of output, for instance if there is more than fits.
    pub error: Option<Errno>,
}

impl From<Vec<u8>> for ControlAnswer {
    fn from(output: Vec<u8>) -> Self {
        Self { output, error: None }
    }
}

/// The control operations of a format. A file system that has some returns itself from
/// [`super::FileSystem::controls`].
pub trait Controls {
    /// Does a control operation of the format's own, and returns its answer.
    ///
    /// # Errors
    /// `ENOTTY` for one that does not exist.
    fn control(&self, control: &Control<'_>) -> Answer<ControlAnswer> {
        let _ = control;
        Err(Errno::ENOTTY.into())
    }

    /// The names, each with its directory, that a [`Controls::control`] operation is going to make or remove. A server
    /// whose client caches names asks before the operation.
    fn control_names(&self, control: &Control<'_>) -> Vec<(NodeId, Vec<u8>)> {
        let _ = control;
        Vec::new()
    }

    /// True if an operation that creates nothing depends on its caller. A server whose client sends the caller only
    /// with operations that create something (the kernel does so for idmapped mounts) has to request the caller always.
    fn needs_callers(&self) -> bool {
        false
    }

    /// True for a [`Controls::control`] operation that freezes or copies the contents of files, such as a snapshot. A
    /// server whose client caches writes has these flushed before the operation.
    fn control_takes_data(&self, control: &Control<'_>) -> bool {
        let _ = control;
        false
    }
}
