//! Locates a file's fs-verity data: behind its contents, from the next multiple of 64 KiB on, first the Merkle tree and
//! then the descriptor, whose position is in an attribute. Called by `f2fs` and `f2fs-check` (`verity`).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::OnDisk;
use crate::convert::to_u64;
use crate::error::{Corrupt, Detail, equal, within};
use crate::xattr::{Namespace, Xattr, entries};

/// The kind of the attribute's name (`F2FS_XATTR_INDEX_VERITY`), and the rest of it.
const NAMESPACE: Namespace = Namespace::Internal(11);
const NAME: &[u8] = b"v";
const VERSION: u32 = 1;
/// The tree begins at a multiple of this.
const ALIGN: u64 = 65_536;

/// Where the descriptor is, as it lies on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DescriptorLocation {
    /// 1.
    pub version: U32,
    /// Bytes of the descriptor, its signature too.
    pub size: U32,
    /// First byte within the file.
    pub pos: U64,
}

const _: () = assert!(size_of::<DescriptorLocation>() == 16);

impl OnDisk for DescriptorLocation {
    const NAME: &'static str = "verity attribute size";
}

/// First byte of the tree of a file with so many bytes.
#[must_use]
pub fn tree_offset(size: u64) -> u64 {
    size.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)
}

/// Position of the descriptor of a file of `size` bytes, from its attributes.
///
/// # Errors
/// [`Corrupt`] if the attribute is missing or invalid.
pub fn descriptor(xattrs: &[u8], size: u64) -> Result<DescriptorLocation, Corrupt> {
    for xattr in entries(xattrs) {
        let Xattr { namespace, name, value } = xattr?;
        if (namespace, name) != (NAMESPACE, NAME) {
            continue;
        }
        equal(DescriptorLocation::NAME, to_u64(size_of::<DescriptorLocation>()), to_u64(value.len()))?;
        let location = *DescriptorLocation::parse(value)?;
        equal("verity attribute version", VERSION.into(), location.version.get().into())?;
        let (low, high) = (codec::verity::DESCRIPTOR_SIZE, codec::verity::DESCRIPTOR_SIZE_MAX);
        within("verity descriptor size", location.size.get().into(), to_u64(low), to_u64(high))?;
        let last = u64::MAX.saturating_sub(u64::from(location.size.get()));
        within("verity descriptor pos", location.pos.get(), tree_offset(size), last)?;
        return Ok(location);
    }
    Err(Corrupt::new("verity attribute", Detail::Text("one that says where the descriptor is"), Detail::Text("none")))
}
