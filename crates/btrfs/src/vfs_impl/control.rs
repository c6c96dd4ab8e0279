//! Control operations (`ioctl`) of the format's own.

use vfs::NodeId;
use vfs::file_system::Caller;
use vfs::file_system::{Errno, Result};

use super::BtrfsFs;

impl BtrfsFs {
    pub(super) fn control_node(
        &self,
        _caller: &Caller,
        _node: NodeId,
        _command: u32,
        _input: &[u8],
        _output_bytes_max: usize,
    ) -> Result<Vec<u8>> {
        Err(Errno::ENOTTY)
    }
}
