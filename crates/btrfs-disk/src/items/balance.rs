//! Defines TEMPORARY_ITEM of a balance, which has its arguments. Key: (BALANCE, TEMPORARY_ITEM, 0), in the root tree.
//!
//! It exists while a balance runs, so that the balance can resume after a crash or in another program. It does not
//! record progress. Read and written by `balance::run` of `btrfs`.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::flags::{BalanceFilters, BalanceFlags};

/// Filters for the block groups of one type, and their target profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BalanceArgs {
    /// Profiles; `single` has a bit of its own here ([`BalanceArgs::SINGLE`]).
    pub profiles: U64,
    /// With `USAGE`, one number: the percentage in use that a group must be below. With `USAGE_RANGE`, the lower and
    /// the upper bound.
    pub usage: [U32; 2],
    /// Number of a device.
    pub devid: U64,
    /// Range of the device, in bytes, that the group must overlap.
    pub drange: [U64; 2],
    /// Range of logical addresses, in bytes, that the group must overlap.
    pub vrange: [U64; 2],
    /// With `CONVERT`, the profile that groups become; see `profiles`.
    pub target: U64,
    /// The fields that apply: [`BalanceFilters`].
    pub flags: U64,
    /// With `LIMIT`, one number: the maximum number of groups. With `LIMIT_RANGE`, the minimum and maximum.
    pub limit: [U32; 2],
    /// Minimum and maximum number of stripes.
    pub stripes: [U32; 2],
    /// Zeros.
    pub unused: [U64; 6],
}
const _: () = assert!(size_of::<BalanceArgs>() == 136);

impl BalanceArgs {
    /// The profile "single" in lists of profiles. In block groups it is the absence of any other.
    pub const SINGLE: u64 = 1 << 48;

    /// Arguments for every block group.
    #[must_use]
    pub fn all() -> Self {
        Self::new_zeroed()
    }

    /// The fields that apply.
    #[must_use]
    pub fn filters(&self) -> BalanceFilters {
        BalanceFilters::from_bits_retain(self.flags.get())
    }

    /// Joins the halves of a 64-bit number.
    #[must_use]
    pub fn whole(halves: [U32; 2]) -> u64 {
        u64::from(halves[0].get()) | u64::from(halves[1].get()) << 32
    }
}

/// A balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BalanceItem {
    /// The types balanced: [`BalanceFlags`].
    pub flags: U64,
    /// Arguments for data.
    pub data: BalanceArgs,
    /// Arguments for metadata.
    pub metadata: BalanceArgs,
    /// Arguments for the chunk tree.
    pub system: BalanceArgs,
    /// Zeros.
    pub unused: [U64; 4],
}
const _: () = assert!(size_of::<BalanceItem>() == 448);

impl BalanceItem {
    /// The types balanced.
    #[must_use]
    pub fn balance_flags(&self) -> BalanceFlags {
        BalanceFlags::from_bits_retain(self.flags.get())
    }
}

impl OnDisk for BalanceItem {
    const NAME: &'static str = "balance item size";
}

impl fmt::Display for BalanceItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "balance of {}", self.balance_flags())?;
        let uses = [
            (BalanceFlags::DATA, "data", &self.data),
            (BalanceFlags::METADATA, "metadata", &self.metadata),
            (BalanceFlags::SYSTEM, "system", &self.system),
        ];
        for (flag, name, args) in uses {
            if self.balance_flags().contains(flag) {
                write!(f, " {name} filters {}", args.filters())?;
            }
        }
        Ok(())
    }
}
