//! Defines operations on a volume as a whole, and on how its contents are laid out: those that some file systems have.
//!
//! A file system that has some implements [`Maintenance`], and returns itself from
//! [`super::FileSystem::maintenance`]; the methods that it does not implement fail with `EOPNOTSUPP`.
//! Callers: servers (`fstrim`, attributes that are orders), and [`crate::Volume`].

use super::{Answer, Errno, Layout, NodeId, Size, Trim};

/// Operations on a volume as a whole.
pub trait Maintenance {
    /// Defragments contents of a file: scattered extents become one, and plain ones are compressed. Shared extents are
    /// unshared. Returns the number of bytes moved.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a format that cannot; `EINVAL` for an unknown compression, and for a node that is no file; as
    /// [`super::FileSystem::write`].
    fn defragment(&self, node: NodeId, wanted: &Layout<'_>) -> Answer<u64> {
        let _ = (node, wanted);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Discards free space, so that an image returns space to its host; `watch` gets the number of examined bytes, and
    /// of all. Returns the discarded bytes.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a format that cannot; `EINVAL` for a range that begins beyond the end; `EROFS`, `EIO`.
    fn trim(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        let _ = (wanted, watch);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Changes the size of the volume, and of the file that holds it; durable when it returns. Returns the size in
    /// bytes.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a format that cannot; `ENOSPC`, without a change, for a size below the least; `EROFS`, `EIO`.
    fn resize(&self, size: Size) -> Answer<u64> {
        let _ = size;
        Err(Errno::EOPNOTSUPP.into())
    }

    /// True for the name of a virtual attribute whose setting is an order ([`Self::order`]).
    fn is_order(&self, _name: &[u8]) -> bool {
        false
    }

    /// Executes an order. A server permits it to its own user and to root.
    ///
    /// # Errors
    /// `EINVAL` for an invalid order, `EBUSY`, `ENOENT`, `EROFS`, `ENOSPC`.
    fn order(&self, _name: &[u8], _value: &[u8]) -> Answer<()> {
        Err(Errno::EOPNOTSUPP.into())
    }
}
