//! Defines the trait of on-disk structures of fixed size. The other modules of this crate implement it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Corrupt, Detail};

/// A structure of fixed size, read in place.
pub trait OnDisk: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy {
    /// Its name in errors.
    const NAME: &'static str;

    /// The structure at the start of `bytes`.
    ///
    /// # Errors
    /// [`Corrupt`] where there are too few bytes.
    fn parse(bytes: &[u8]) -> Result<&Self, Corrupt> {
        match Self::ref_from_prefix(bytes) {
            Ok((value, _)) => Ok(value),
            Err(_) => Err(Corrupt::new(Self::NAME, Detail::size(size_of::<Self>()), Detail::size(bytes.len()))),
        }
    }
}
