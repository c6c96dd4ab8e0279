//! TEMPORARY_ITEM of a balance: what it was asked to do. Key: (BALANCE, TEMPORARY_ITEM, 0), in the root tree.
//!
//! It stands there from the start of a balance to its end, so that a crash, or another program, does not forget it. How
//! far it came is not in it.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::flags::{BalanceFilters, BalanceFlags};

/// Which block groups of one use are balanced, and what they become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BalanceArgs {
    /// Profiles; `single` has a bit of its own here ([`BalanceArgs::SINGLE`]).
    pub profiles: U64,
    /// With `USAGE` these are one number: percent of a group that is in use, which it must be below. With
    /// `USAGE_RANGE` the first and the second.
    pub usage: [U32; 2],
    /// Number of a device.
    pub devid: U64,
    /// Range of the device, in bytes, that the group must overlap.
    pub drange: [U64; 2],
    /// Range of logical addresses, in bytes, that the group must overlap.
    pub vrange: [U64; 2],
    /// With `CONVERT`, the profile that groups become; see `profiles`.
    pub target: U64,
    /// Which of the fields count: [`BalanceFilters`].
    pub flags: U64,
    /// With `LIMIT` these are one number: most groups. With `LIMIT_RANGE` the fewest and the most.
    pub limit: [U32; 2],
    /// Fewest and most stripes of a group.
    pub stripes: [U32; 2],
    /// Zeros.
    pub unused: [U64; 6],
}
const _: () = assert!(size_of::<BalanceArgs>() == 136);

impl BalanceArgs {
    /// The profile "single" where profiles are listed: in block groups it is the want of any other.
    pub const SINGLE: u64 = 1 << 48;

    /// Every block group.
    #[must_use]
    pub fn all() -> Self {
        Self::new_zeroed()
    }

    /// Which of the fields count.
    #[must_use]
    pub fn filters(&self) -> BalanceFilters {
        BalanceFilters::from_bits_retain(self.flags.get())
    }

    /// A number that takes the place of two halves.
    #[must_use]
    pub fn whole(halves: [U32; 2]) -> u64 {
        u64::from(halves[0].get()) | u64::from(halves[1].get()) << 32
    }
}

/// A balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BalanceItem {
    /// Which uses are balanced: [`BalanceFlags`].
    pub flags: U64,
    /// Of data.
    pub data: BalanceArgs,
    /// Of metadata.
    pub metadata: BalanceArgs,
    /// Of the chunk tree.
    pub system: BalanceArgs,
    /// Zeros.
    pub unused: [U64; 4],
}
const _: () = assert!(size_of::<BalanceItem>() == 448);

impl BalanceItem {
    /// Which uses are balanced.
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
