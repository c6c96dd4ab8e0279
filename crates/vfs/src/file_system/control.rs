//! Control operations: what a format has besides the operations of every file system.

use super::{Caller, Errno, NodeId};

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
