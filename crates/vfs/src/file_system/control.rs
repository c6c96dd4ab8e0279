//! Control operations: what a format has besides the operations of every file system.

use super::{Answer, Caller, Errno, NodeId};

/// A control operation of a format's own (`ioctl(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control<'a> {
    /// The caller.
    pub caller: Caller,
    /// The caller is root or who serves: what is on the device is no secret for them.
    pub owns_device: bool,
    /// What is asked about.
    pub node: NodeId,
    /// The operation's number.
    pub command: u32,
    /// What the caller gives.
    pub input: &'a [u8],
    /// Longest answer that the caller takes, in bytes.
    pub output_bytes_max: usize,
}

/// What a control operation answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlAnswer {
    /// What the caller is given.
    pub output: Vec<u8>,
    /// What the call fails with nevertheless: there is more than fits, say.
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

    /// The names, each with its directory, that a [`Controls::control`] operation is going to
    /// make or remove. A server whose client remembers names asks before it has it done.
    fn control_names(&self, control: &Control<'_>) -> Vec<(NodeId, Vec<u8>)> {
        let _ = control;
        Vec::new()
    }

    /// True when an operation that creates nothing depends on its caller. A server whose client names the caller only
    /// for operations that create something (the kernel does so for idmapped mounts) has to ask it for the caller
    /// always.
    fn needs_callers(&self) -> bool {
        false
    }

    /// True for a [`Controls::control`] operation that freezes or copies what is in files (a snapshot, say). A server
    /// whose client keeps back what programs wrote has that written before it asks for the operation.
    fn control_takes_data(&self, control: &Control<'_>) -> bool {
        let _ = control;
        false
    }
}
