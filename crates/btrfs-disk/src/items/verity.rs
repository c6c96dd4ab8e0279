//! Defines VERITY_DESC_ITEM, and names VERITY_MERKLE_ITEM: fs-verity's own bytes, passed through. `verify::small` and
//! the dump of items read the first.
//!
//! (inode, VERITY_DESC_ITEM, 0) is a [`VerityDescriptorItem`]; the descriptor itself follows in
//! items from offset 1 on, the Merkle tree in VERITY_MERKLE_ITEMs from offset 0 on.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;

/// Size of an inode's verity descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VerityDescriptorItem {
    /// Bytes of the descriptor.
    pub size: U64,
    /// Zeros.
    pub reserved: [U64; 2],
    /// 0: there is no other yet.
    pub encryption: u8,
}
const _: () = assert!(size_of::<VerityDescriptorItem>() == 25);

impl OnDisk for VerityDescriptorItem {
    const NAME: &'static str = "verity descriptor item size";
}

impl fmt::Display for VerityDescriptorItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verity descriptor size {} encryption {}", self.size, self.encryption)
    }
}
