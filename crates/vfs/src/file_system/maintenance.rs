//! Operations on a volume as a whole, and on how its contents are laid out: those that some file systems have.
//!
//! A file system that has some implements [`Maintenance`], and returns itself from
//! [`super::FileSystem::maintenance`]; the methods that it does not implement fail with `EOPNOTSUPP`.
//! Callers: servers (`fstrim`, attributes that are orders), and [`crate::Volume`].

use super::{Answer, Errno, Layout, NodeId, Size, Trim};

/// Operations on a volume as a whole.
pub trait Maintenance {
    /// Lays out contents of a file anew: extents that lie apart become one, and plain ones compressed. What the file
    /// shares with others it has for itself then. Returns how many bytes were moved.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a format that cannot; `EINVAL` for a compression that there is not, and what is no file; as
    /// [`super::FileSystem::write`].
    fn defragment(&self, node: NodeId, wanted: &Layout<'_>) -> Answer<u64> {
        let _ = (node, wanted);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Tells the device what is free, so that an image gives room back to what holds it; `watch` hears how many bytes
    /// were looked at, of how many. Returns the bytes that were told.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a format that cannot; `EINVAL` for a range that begins beyond the end; `EROFS`, `EIO`.
    fn trim(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        let _ = (wanted, watch);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Makes the volume larger or smaller, and what it lies in where that is a file; durable when it returns. Returns
    /// the size in bytes.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a format that cannot; `ENOSPC`, and nothing is changed, for less than the least; `EROFS`,
    /// `EIO`.
    fn resize(&self, size: Size) -> Answer<u64> {
        let _ = size;
        Err(Errno::EOPNOTSUPP.into())
    }

    /// True for the name of an attribute that is stored nowhere, and whose setting is an order ([`Self::order`]).
    fn is_order(&self, _name: &[u8]) -> bool {
        false
    }

    /// Carries out an order. A server asks for its own user and for root alone.
    ///
    /// # Errors
    /// `EINVAL` for what is no order, `EBUSY`, `ENOENT`, `EROFS`, `ENOSPC`.
    fn order(&self, _name: &[u8], _value: &[u8]) -> Answer<()> {
        Err(Errno::EOPNOTSUPP.into())
    }
}
