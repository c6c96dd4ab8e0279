//! Defines the errors of a receipt, each with the command's byte in the stream and its path. Every module of the crate
//! returns them.

use crate::path::BadPath;

/// The result of a receipt.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of a receipt.
///
/// To do: see the cause behind the colon; what was received before is kept with `--resume`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream cannot be read, or is damaged.
    #[error(transparent)]
    Stream(#[from] btrfs_stream::Error),
    /// There is no stream at all.
    ///
    /// To do: look at the command that should have written the stream.
    #[error("the input is empty; expected a send stream")]
    Empty,
    /// The stream has no end command.
    ///
    /// To do: send it again; with `--resume` only the rest.
    #[error("the stream ends at byte {at} without its end command; it was cut short")]
    NotWhole {
        /// The length of the stream in bytes.
        at: u64,
    },
    /// A command cannot be carried out.
    #[error("{name} {} (byte {at} of the stream): {cause}", shown(path))]
    Command {
        /// The byte of the stream where the command begins.
        at: u64,
        /// Which command.
        name: &'static str,
        /// The path in it.
        path: Vec<u8>,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// Commands failed, and the options allowed the receipt to continue.
    ///
    /// To do: see each failure above; the subvolume is not complete.
    #[error("{0} commands of the stream failed")]
    Failures(u64),
    /// The target directory cannot be used.
    ///
    /// To do: give an existing directory of the volume.
    #[error("{path}: {source}")]
    Directory {
        /// The directory.
        path: String,
        /// Why.
        source: vfs::Error,
    },
    /// The input is the rest of a stream.
    #[error("the input is the rest of a stream that was cut short; receive it with --resume, where its beginning is")]
    Rest,
    /// A receipt cannot resume where it was cut short.
    #[error("cannot go on with a receipt: {0}")]
    GoOn(#[source] Cause),
    /// The volume cannot be read or written.
    #[error("{0}")]
    Volume(#[from] btrfs::Error),
    /// The caller cancelled the receipt.
    #[error("the receipt was cancelled")]
    Cancelled,
    /// The incomplete subvolume could not be deleted.
    ///
    /// To do: delete it with `spinney subvolume delete`.
    #[error("cannot delete the incomplete subvolume: {0}")]
    Discard(#[source] vfs::Error),
}

/// The cause for which a command failed.
///
/// To do: make the stream again with a command that fits this volume, or receive its parent first.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// A stream must not use this path.
    #[error(transparent)]
    Path(#[from] BadPath),
    /// The stream touches the attribute in which the receiver keeps its resume note.
    #[error("the attribute user.spinney.unfinished belongs to the receiver")]
    OwnNote,
    /// No receipt was cut short at this point.
    #[error("the directory has no unfinished subvolume with the token {point}")]
    NoPoint {
        /// The point where the stream resumes.
        point: btrfs_stream::ResumePoint,
    },
    /// The unfinished subvolume was changed since.
    ///
    /// To do: delete the unfinished subvolume, and receive from the beginning.
    #[error(
        "{name} was changed since its receipt was cut short: expected no change after transaction {expected}, found \
         one in {found}; delete it to begin again"
    )]
    Changed {
        /// Its name.
        name: String,
        /// The transaction that made it.
        expected: u64,
        /// That of its last change.
        found: u64,
    },
    /// The stream names changed ranges without their data (`send --no-data`).
    #[error("the stream has no data: it was made with --no-data, to be shown with --dump")]
    NoData,
    /// No command has begun a subvolume yet.
    #[error("comes before the command that makes a subvolume")]
    NoSubvolume,
    /// The volume lacks a subvolume that the stream needs.
    #[error(
        "the volume has no subvolume with the (received) UUID {}, which the stream needs as its {role}",
        btrfs_disk::Uuid(*uuid)
    )]
    Unknown {
        /// The UUID.
        uuid: [u8; 16],
        /// Its role for the stream: the parent, or the source of a clone.
        role: &'static str,
    },
    /// A subvolume with the UUID exists, but was changed since it was received or sent.
    #[error(
        "{path}, which the stream needs as its {role}, was changed after it was {} (in transaction {changed}, expected \
         none after {expected}): the result would differ from what was sent; --force uses it anyway",
        if *is_received { "received" } else { "sent" }
    )]
    ChangedOrigin {
        /// Its path from the top level.
        path: Box<str>,
        /// Its role for the stream: the parent, or the source of a clone.
        role: &'static str,
        /// True if it was received here, false if it was sent from here.
        is_received: bool,
        /// The transaction that received or sent it; no later one should have changed it.
        expected: u64,
        /// The transaction of its last change.
        changed: u64,
    },
    /// A number of the command is out of range.
    #[error("{what} cannot be {found}")]
    Value {
        /// The name of the number.
        what: &'static str,
        /// The number.
        found: u64,
    },
    /// The length of the data differs from the command, or the range exceeds its source.
    #[error("{what}: expected {expected} bytes, found {found}")]
    Length {
        /// The data or range.
        what: &'static str,
        /// Expected bytes.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// Compressed data does not decode.
    #[error(transparent)]
    Data(#[from] codec::Error),
    /// The file system refused the operation.
    #[error("{0}")]
    Refused(#[from] vfs::Error),
    /// The volume cannot be read or written.
    #[error("{0}")]
    Volume(#[from] btrfs::Error),
}

/// Limit on path bytes in an error.
const SHOWN_BYTES_MAX: usize = 300;

/// Formats a path of a stream for an error: escapes bytes that are not text or could confuse a terminal, and shortens
/// the middle of long paths.
fn shown(path: &[u8]) -> String {
    let text = |part: &[u8]| String::from_utf8_lossy(part).escape_debug().to_string();
    match path.split_at_checked(SHOWN_BYTES_MAX / 2) {
        _ if path.is_empty() => "(the root)".to_owned(),
        Some((head, rest)) if path.len() > SHOWN_BYTES_MAX => {
            let tail = rest.get(rest.len() - SHOWN_BYTES_MAX / 2..).unwrap_or_default();
            format!("{}...{}", text(head), text(tail))
        }
        _ => text(path),
    }
}
