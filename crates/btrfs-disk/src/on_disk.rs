//! [`OnDisk`]: parses and writes on-disk structures with a fixed size. Every item and header implements it; their
//! readers in all btrfs crates call it.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Corrupt, Detail};

/// A structure of fixed size, read in place and written as it is.
pub trait OnDisk: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy + fmt::Display {
    /// Name of the structure in errors.
    const NAME: &'static str;

    /// Parses `bytes`, which must have exactly this size.
    ///
    /// # Errors
    /// [`Corrupt`] for any other number of bytes.
    fn parse(bytes: &[u8]) -> Result<&Self, Corrupt> {
        Self::ref_from_bytes(bytes).map_err(|_| wrong_size::<Self>(bytes))
    }

    /// Parses the structure at the start of `bytes`. Returns it and the rest.
    ///
    /// # Errors
    /// [`Corrupt`] where there are too few bytes.
    fn parse_prefix(bytes: &[u8]) -> Result<(&Self, &[u8]), Corrupt> {
        Self::ref_from_prefix(bytes).map_err(|_| wrong_size::<Self>(bytes))
    }

    /// The structure at the start of `bytes`, for changes in place.
    ///
    /// # Errors
    /// [`Corrupt`] where there are too few bytes.
    fn parse_mut(bytes: &mut [u8]) -> Result<&mut Self, Corrupt> {
        let found = bytes.len();
        match Self::mut_from_prefix(bytes) {
            Ok((value, _)) => Ok(value),
            Err(_) => Err(Corrupt::new(Self::NAME, Detail::size(size_of::<Self>()), Detail::size(found))),
        }
    }

    /// A structure of zeros, to be filled in.
    #[must_use]
    fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// The bytes to write.
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cold]
fn wrong_size<T: OnDisk>(bytes: &[u8]) -> Corrupt {
    Corrupt::new(T::NAME, Detail::size(size_of::<T>()), Detail::size(bytes.len()))
}
