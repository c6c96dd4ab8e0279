//! The items of the trees, one file each.
//!
//! Every fixed part is a `#[repr(C)]` struct of little-endian fields that is read in place from
//! an item's bytes and written with [`OnDisk::bytes`]; items that hold several entries (names,
//! references, stripes) have an iterator and a builder beside them. Names and meanings are the
//! kernel's.
//!
//! Invariants: sizes are asserted at compile time; reserved bytes are kept when a struct is
//! rewritten and are zeros in a new one; unknown flag bits survive.
//!
//! Failure: parsing checks bounds and nothing else, and fails with [`Corrupt`] at
//! [`crate::error::At::Unknown`]. Whether the values make sense is the business of
//! [`crate::verify`], which has looked at every item before anyone else sees the block.
//!
//! Callers: `btrfs-store` and `btrfs` for everything they read and write.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Corrupt, Detail};

mod block_group;
mod chunk;
mod device;
mod inode;
mod root;

pub use block_group::BlockGroupItem;
pub use chunk::{Chunk, ChunkItem, STRIPE_LEN, Stripe, system_chunks};
pub use device::{DevExtent, DevItem};
pub use inode::{FileKind, InodeItem, Timespec, mode};
pub use root::RootItem;

/// A structure of fixed size, read in place and written as it is.
pub trait OnDisk:
    FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy + fmt::Display
{
    /// What an error calls it.
    const NAME: &'static str;

    /// The structure that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`Corrupt`] for any other number of bytes.
    fn parse(bytes: &[u8]) -> Result<&Self, Corrupt> {
        Self::ref_from_bytes(bytes).map_err(|_| wrong_size::<Self>(bytes))
    }

    /// The structure at the start of `bytes`, and what follows it.
    ///
    /// # Errors
    /// [`Corrupt`] where there are too few bytes.
    fn parse_prefix(bytes: &[u8]) -> Result<(&Self, &[u8]), Corrupt> {
        Self::ref_from_prefix(bytes).map_err(|_| wrong_size::<Self>(bytes))
    }

    /// The structure in bytes that are to be changed in place.
    ///
    /// # Errors
    /// [`Corrupt`] where there are too few bytes.
    fn parse_mut(bytes: &mut [u8]) -> Result<&mut Self, Corrupt> {
        let found = bytes.len();
        match Self::mut_from_prefix(bytes) {
            Ok((value, _)) => Ok(value),
            Err(_) => Err(Corrupt::new(
                Self::NAME,
                Detail::size(size_of::<Self>()),
                Detail::size(found),
            )),
        }
    }

    /// The bytes to write.
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cold]
fn wrong_size<T: OnDisk>(bytes: &[u8]) -> Corrupt {
    Corrupt::new(
        T::NAME,
        Detail::size(size_of::<T>()),
        Detail::size(bytes.len()),
    )
}
