//! Lists deliberate bugs: each is one line where it would be made by mistake. The mutation tests of `testkit` turn them
//! on to prove that a check finds them; `log`, `txn` and the crate `btrfs` ask whether one is on.

/// A mistake that a programmer could make in the log, or with what `stat` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// The leaves of the log are written after the superblock.
    LeavesAfterSuperblock = 1,
    /// The root item of a subvolume's log is not brought up to date.
    StaleLogRoot,
    /// Blocks of the log that the superblock leads to are edited in place.
    LogBlocksEditedInPlace,
    /// A commit gives the blocks of the log away before its superblock is durable.
    LogBlocksFreedEarly,
    /// Data that was freed is used again before the commit, though commit and log lead to it.
    FreedDataReused,
    /// Discards of the space that a commit frees reach the devices before its superblock is durable.
    DiscardedEarly,
    /// Before a commit, the mirrors do not get the superblock that leads to the log.
    MirrorsWithoutLog,
    /// A flush that an fsync without news owes to data overwritten in place is left out.
    NoFlushWithoutNews,
    /// The ranges that say which names of a directory are gone are left out.
    NoDirRanges,
    /// No commit where the log cannot record an operation: the rename of a directory.
    FallbackLeftOut,
    /// No commit after a chunk was added, which the superblock on the device does not know.
    NoCommitAfterChunk,
    /// A name that an inode lost stays in the commit's directory.
    LostNamesKept,
    /// The inode that had a name before is not logged with its new one.
    FormerOwnerForgotten,
    /// An inode that is gone stays in the log.
    GoneInodesKept,
    /// New directories above a new file are not logged.
    NoAncestors,
    /// The inodes that new entries of a directory lead to are not logged.
    NoTargets,
    /// A logged directory logs new directories below it as empty.
    NoEntriesBelow,
    /// A name that came after the inode was logged is not logged.
    NoNewName,
    /// Checksums of new data are left out.
    NoCsums,
    /// Holes are left out.
    NoHoles,
    /// The size that a truncation left is not news for a sync of the data.
    SizeForgotten,
    /// Extents are not news for a sync of the data.
    ExtentsForgotten,
    /// A sync that finds another one running does not wait for it.
    GroupNotAwaited,
    /// A change of the mode does nothing.
    ModeIgnored,
    /// A change of owner and group does nothing.
    OwnerIgnored,
    /// A change of the times does nothing.
    TimesIgnored,
    /// A change of attributes is not news for a sync.
    AttributesForgotten,
    /// A replay leaves the attributes of an inode as the commit has them.
    AttributesNotReplayed,
}

impl Mutation {
    /// All there are.
    pub const ALL: [Self; 28] = [
        Self::LeavesAfterSuperblock,
        Self::StaleLogRoot,
        Self::LogBlocksEditedInPlace,
        Self::LogBlocksFreedEarly,
        Self::FreedDataReused,
        Self::DiscardedEarly,
        Self::MirrorsWithoutLog,
        Self::NoFlushWithoutNews,
        Self::NoDirRanges,
        Self::FallbackLeftOut,
        Self::NoCommitAfterChunk,
        Self::LostNamesKept,
        Self::FormerOwnerForgotten,
        Self::GoneInodesKept,
        Self::NoAncestors,
        Self::NoTargets,
        Self::NoEntriesBelow,
        Self::NoNewName,
        Self::NoCsums,
        Self::NoHoles,
        Self::SizeForgotten,
        Self::ExtentsForgotten,
        Self::GroupNotAwaited,
        Self::ModeIgnored,
        Self::OwnerIgnored,
        Self::TimesIgnored,
        Self::AttributesForgotten,
        Self::AttributesNotReplayed,
    ];
}

#[cfg(feature = "ablation")]
mod state {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Mutation;

    static MUTATION: AtomicU8 = AtomicU8::new(0);

    /// Makes one mistake from now on, or none.
    #[expect(clippy::as_conversions, reason = "the number of a variant")]
    pub fn mutate(what: Option<Mutation>) {
        MUTATION.store(what.map_or(0, |what| what as u8), Ordering::SeqCst);
    }

    /// True when this mistake is to be made.
    #[inline]
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the number of a variant")]
    pub fn mutated(what: Mutation) -> bool {
        MUTATION.load(Ordering::Relaxed) == what as u8
    }
}

#[cfg(not(feature = "ablation"))]
mod state {
    use super::Mutation;

    /// Nothing to switch.
    pub const fn mutate(_what: Option<Mutation>) {}

    /// Never.
    #[inline]
    #[must_use]
    pub const fn mutated(_what: Mutation) -> bool {
        false
    }
}

pub use state::{mutate, mutated};
