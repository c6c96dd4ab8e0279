//! Defines the reasons why a backup or a restore fails: [`Error`], which every module of the crate returns.

use std::io;
use std::path::{Path, PathBuf};

use crate::name::NotName;

/// The result of a backup or a restore.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a [`crate::Source`] or [`crate::Target`] that the caller implements.
pub type SideError = Box<dyn std::error::Error + Send + Sync>;

/// A failure of a backup or a restore.
///
/// To do: see the cause behind the colon; states that were complete before are kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: the subvolume has no name that backups can have; the caller has to give one.
    #[error(transparent)]
    Name(#[from] NotName),
    /// Caller: the time is not between the years 1970 and 9999.
    ///
    /// To do: set the clock of the machine.
    #[error("the time is not between the years 1970 and 9999")]
    Time,
    /// The newest state has the last time that a name can hold.
    ///
    /// To do: set the clock of the machine, or back up under another name.
    #[error("there is no time after the last state")]
    NoLaterTime,
    /// Caller: there is no subvolume at the path.
    ///
    /// To do: see `spinney subvolume list`.
    #[error("{}: no subvolume", .0.display())]
    NotASubvolume(PathBuf),
    /// Caller: there is something at the path already.
    ///
    /// To do: choose another path.
    #[error("{}: already exists", .0.display())]
    Exists(PathBuf),
    /// Caller: the states of that name are snapshots of another subvolume, whose states the rule would delete.
    ///
    /// To do: back up under another name (`--name`).
    #[error(
        "{} cannot be backed up as {name}: {} is a snapshot of another subvolume",
        subvolume.display(), state.display()
    )]
    OtherSubvolume {
        /// The subvolume to back up.
        subvolume: PathBuf,
        /// The name of the backup.
        name: String,
        /// The state of the other subvolume.
        state: PathBuf,
    },
    /// Caller: the destination has states of that name, and the source has none of them.
    ///
    /// To do: back up under another name (`--name`), or to the source's own destination.
    #[error(
        "{} cannot be backed up as {name}: the destination has states of that name that the source lacks",
        subvolume.display()
    )]
    UnknownStates {
        /// The subvolume to back up.
        subvolume: PathBuf,
        /// The name of the backup.
        name: String,
    },
    /// Caller: the origin has no such state.
    ///
    /// To do: see `spinney restore --list`.
    #[error("no state {0}")]
    NoState(String),
    /// The state was changed after it was received.
    ///
    /// To do: delete it; the next backup is sent whole.
    #[error("{0} was changed after it was received; it is no longer a state of the backup")]
    Changed(String),
    /// The origin has no states at all.
    ///
    /// To do: is it the destination of a backup?
    #[error("no states of a backup")]
    NoStates,
    /// Caller: the origin has states of several names, and none was chosen.
    ///
    /// To do: choose one with `--name`.
    #[error("states of {0} and of {1}")]
    SeveralNames(String, String),
    /// Another backup uses the directory.
    ///
    /// To do: wait for the other backup.
    #[error("{}: another backup uses the directory", .0.display())]
    Busy(PathBuf),
    /// Another backup writes to the repository.
    ///
    /// To do: wait for it. If it no longer runs, take the repository over (`--take-over`).
    #[error("{place}: another backup writes to it ({by}); if that no longer runs, take it over")]
    Claimed {
        /// The repository.
        place: String,
        /// The other writer.
        by: String,
    },
    /// Another backup took the repository over, or began at the same time.
    ///
    /// To do: run the backup again when the other one has ended; it continues.
    #[error("{place}: another backup changed its manifest meanwhile ({by}); this one ended, and can be run again")]
    Overtaken {
        /// The repository.
        place: String,
        /// The other writer.
        by: String,
    },
    /// The store writes objects without regard to conditions, or tells no tags of them.
    ///
    /// To do: use a server that has conditional writes: two backups at once could destroy each other.
    #[error("{0}: the server has no conditional writes (If-Match and If-None-Match), so two backups could collide")]
    NoConditions(String),
    /// Caller: the repository was opened to read.
    #[error("{0}: was opened to read")]
    ReadOnly(String),
    /// Caller: the states of the repository are encrypted, and new ones would not be.
    ///
    /// To do: name the recipient (`--encrypt`), or another place.
    #[error("{0}: its states are encrypted, and this one would not be")]
    PlainStates(String),
    /// Caller: the state is encrypted, and no identity was given.
    ///
    /// To do: name the file with the identity (`--identity`).
    #[error("{0} is encrypted: an identity is needed")]
    NeedsIdentity(String),
    /// A store refuses a request.
    #[error("{}: {error}", object.display())]
    Store {
        /// The object.
        object: PathBuf,
        /// The reason.
        #[source]
        error: SideError,
    },
    /// The path should be a regular file, and is something else.
    #[error("{}: no regular file", .0.display())]
    NotAFile(PathBuf),
    /// The manifest or a stream is damaged or missing.
    #[error("{}: {what}", path.display())]
    Corrupt {
        /// The file or directory.
        path: PathBuf,
        /// The damage: what was expected and what was found.
        what: String,
    },
    /// The copy differs from its source.
    ///
    /// To do: check the destination; the state is not kept.
    #[error("{}: the copy differs from its source: {}: {what}", copy.display(), path.display())]
    Differs {
        /// The copy.
        copy: PathBuf,
        /// The path in it.
        path: PathBuf,
        /// The difference.
        what: String,
    },
    /// The stream made no subvolume.
    ///
    /// To do: check the destination, and run the backup again.
    #[error("the stream made no subvolume")]
    NothingReceived,
    /// The host refuses access to a path.
    #[error("{}: {error}", path.display())]
    Host {
        /// The path on the host.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// The stream cannot be written.
    #[error("the stream: {0}")]
    Output(#[source] io::Error),
    /// A volume refuses an operation.
    #[error(transparent)]
    Volume(#[from] vfs::Error),
    /// A state cannot be sent.
    #[error("{}: {error}", path.display())]
    Send {
        /// The subvolume.
        path: PathBuf,
        /// The reason.
        #[source]
        error: btrfs::SendError,
    },
    /// A state cannot be received.
    #[error(transparent)]
    Receive(#[from] btrfs_receive::Error),
    /// The caller's own source or target failed.
    #[error("{0}")]
    Side(#[source] SideError),
    /// The caller cancelled the operation.
    #[error("the operation was cancelled")]
    Cancelled,
}

impl Error {
    pub(crate) fn host(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Host { path: path.to_owned(), error }
    }

    pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), what: what.into() }
    }

    /// True if the reader of the stream went away, so that the error of the reader says more.
    pub(crate) fn is_of_output(&self) -> bool {
        matches!(self, Self::Output(_) | Self::Send { error: btrfs::SendError::Output(_), .. })
    }

    /// True if the stream may have been incomplete, so that the error of its sender says more.
    pub(crate) fn may_be_cut(&self) -> bool {
        use btrfs_receive::Error as E;
        use btrfs_stream::Error::Truncated;
        matches!(self, Self::Side(_) | Self::Receive(E::NotWhole { .. } | E::Empty | E::Stream(Truncated { .. })))
    }
}
