//! Defines the errors of forks. Every module of the crate returns them.

use std::path::PathBuf;

/// The result of an operation on forks.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of an operation on forks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The volume refused or failed.
    ///
    /// To do: see the cause behind the colon.
    #[error("{0}")]
    Volume(#[from] vfs::Error),
    /// The path has `..` in it.
    ///
    /// To do: name the fork from the root of the volume.
    #[error("{}: has `..` in it", .0.display())]
    Dots(PathBuf),
    /// The fork would lie among the ancestors of forks, which are removed without asking.
    ///
    /// To do: name another path.
    #[error("{}: in .spinney, which is for the ancestors of forks; name another path", .0.display())]
    Reserved(PathBuf),
    /// The path is not that of a subvolume.
    ///
    /// To do: make the directory a subvolume: create one, and move the contents into it.
    #[error("{}: not a subvolume, so it cannot be forked or merged into", .0.display())]
    NotSubvolume(PathBuf),
    /// The subvolume was not made by a fork, or lost its ancestor.
    ///
    /// To do: see the list of forks.
    #[error("{}: not a fork", .0.display())]
    NotFork(PathBuf),
    /// The base of a fork does not exist any more, or is outside what the volume shows.
    ///
    /// To do: name the subvolume to merge into.
    #[error("{}: its base is gone; name the subvolume to merge into", .0.display())]
    NoBase(PathBuf),
    /// The target of a merge is the root of the volume, which cannot be exchanged with another subvolume.
    ///
    /// To do: keep the tree in a subvolume, and fork that.
    #[error("{}: the root of the volume; changes can only be merged into a subvolume below it", .0.display())]
    TargetIsRoot(PathBuf),
    /// The target of a merge contains subvolumes, which an exchange would leave behind.
    ///
    /// To do: move them out of it.
    #[error("{}: contains the subvolume {}; move it out of there before the merge", target.display(), inner.display())]
    TargetHasSubvolumes {
        /// The target.
        target: PathBuf,
        /// A subvolume in it.
        inner: PathBuf,
    },
    /// The target of a merge is read-only.
    ///
    /// To do: make it writable.
    #[error("{}: read-only; make it writable before the merge", .0.display())]
    TargetReadOnly(PathBuf),
    /// Source and target of a merge are the same.
    ///
    /// To do: name another subvolume.
    #[error("{}: cannot be merged into itself", .0.display())]
    Itself(PathBuf),
    /// The target changed during each attempt to merge into it.
    ///
    /// To do: stop the programs that write to it, and merge again.
    #[error("{}: kept changing during the merge; stop what writes to it", .0.display())]
    Unsteady(PathBuf),
    /// A limit was asked for, and quotas are off.
    ///
    /// To do: turn quotas on.
    #[error("a limit needs quotas, which are off; turn them on first")]
    NoQuotas,
    /// Another user than the owner of the volume may write to the directory of forks.
    ///
    /// To do: look into who made it, and give it to the owner with permissions 700.
    #[error("{}: owned by user {uid}, permissions {permissions:o}; expected the volume's owner and 700", at.display())]
    Untrusted {
        /// The directory.
        at: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permissions.
        permissions: u32,
    },
    /// The record of a fork has a field that this version does not understand, or is damaged.
    ///
    /// To do: copy what is needed out of the fork, and delete it with `spinney subvolume delete`.
    #[error("the record of the fork in {}: expected {expected}, found {found:?}", at.display())]
    Record {
        /// The directory that has it.
        at: PathBuf,
        /// The expected form.
        expected: &'static str,
        /// The text in its place.
        found: String,
    },
}
