//! Sends operations on the whole volume to the server: implements `vfs::Maintenance` for `Remote`, for commands on a
//! mount.
//!
//! The server decides whether its format has them, and whether the client may: an operation that fails there fails
//! here with the same number.

use vfs::Maintenance;
use vfs::file_system::{Answer, Layout, NodeId, Size, Trim};

use super::Remote;
use crate::wire::Request;

impl Maintenance for Remote {
    fn defragment(&self, node: NodeId, wanted: &Layout<'_>) -> Answer<u64> {
        let Layout { range, extent_bytes, compression } = wanted.clone();
        self.count(Request::Defragment { node, range, extent_bytes, compression })
    }

    fn trim(&self, wanted: &Trim, _watch: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        self.count(Request::Trim { range: wanted.range.clone(), bytes_min: wanted.bytes_min })
    }

    fn resize(&self, size: Size) -> Answer<u64> {
        self.count(Request::Resize { size })
    }

    fn is_order(&self, name: &[u8]) -> bool {
        self.is(Request::IsOrder { name }, &[]).unwrap_or(false)
    }

    fn order(&self, name: &[u8], value: &[u8]) -> Answer<()> {
        self.done(Request::Order { name, value })
    }
}
