//! Decides the exit status of the program, and formats an error as one line. `run` in `lib` ends with it; commands and
//! `jobs` attach a status to their errors.

use std::fmt;
use std::io;
use std::sync::OnceLock;

use anyhow::Chain;
use spinney::transfer::Cause;
use spinney::{Blame, Errno, Error as VolumeError, OptionError};

/// Exit status. The numbers are documented in `--help` and in the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Success.
    Done = 0,
    /// The file system refuses: not found, exists, not a directory, not permitted.
    Refused = 1,
    /// The arguments are invalid.
    Usage = 2,
    /// The image is damaged, or the file is not an image.
    Corrupt = 3,
    /// The image or the request needs a feature that this program lacks.
    Unsupported = 4,
    /// No space in the image or on the host.
    NoSpace = 5,
    /// Reading or writing failed.
    Io = 6,
    /// Another program uses the image.
    Busy = 7,
}

/// The table of exit statuses, for the help texts.
pub(crate) const STATUS_HELP: &str = "\
Exit status:
  0  done
  1  the file system says no: not found, exists, not a directory, not permitted
  2  the arguments make no sense
  3  the image is damaged, or holds no known file system
  4  the image or the request needs a feature that is not supported
  5  no space in the image, or on the host
  6  reading or writing failed
  7  the image is in use: locked by another program, mounted, or a loop device";

impl Status {
    /// The number for the operating system.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Refused => 1,
            Self::Usage => 2,
            Self::Corrupt => 3,
            Self::Unsupported => 4,
            Self::NoSpace => 5,
            Self::Io => 6,
            Self::Busy => 7,
        }
    }

    /// The status with this number, as another process of the program reported it.
    pub(crate) fn from_code(code: u8) -> Self {
        let all = [Self::Done, Self::Refused, Self::Usage, Self::Corrupt, Self::Unsupported, Self::NoSpace, Self::Busy];
        all.into_iter().find(|status| status.code() == code).unwrap_or(Self::Io)
    }
}

/// Gives the status of errors that only formats know.
type Classifier = fn(&(dyn std::error::Error + 'static)) -> Option<Status>;

static CLASSIFIER: OnceLock<Classifier> = OnceLock::new();

/// Sets the classifier of the formats' errors; called once, first.
pub(crate) fn classify_by(classifier: Classifier) {
    let _ = CLASSIFIER.set(classifier);
}

/// A failure of the program itself, with its status.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    text: String,
}

impl Failure {
    /// A failure with the message `text` and the exit status `status`.
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// A combination of arguments that is invalid.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Status::Usage, text)
    }

    /// A refusal by the file system or the host.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::new(Status::Refused, text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// A command that this program ran ended with a status, which becomes the program's; it said why itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommandEnded(pub(crate) u8);

impl fmt::Display for CommandEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the command ended with status {}", self.0)
    }
}

impl std::error::Error for CommandEnded {}

/// The status of the first error in the chain that has one.
pub(crate) fn status_of(error: &anyhow::Error) -> Status {
    status_of_cause(&**error)
}

/// As [`status_of`].
pub(crate) fn status_of_cause(error: &(dyn std::error::Error + 'static)) -> Status {
    Chain::new(error).find_map(status_of_one).unwrap_or(Status::Io)
}

/// True if the host file system that holds an image is full; the file system in the image may have room.
pub(crate) fn is_host_full(error: &anyhow::Error) -> bool {
    let of_device = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<spinney::blockdev::Error>().map(spinney::blockdev::Error::kind)
    };
    error.chain().filter_map(of_device).any(|kind| kind == io::ErrorKind::StorageFull)
}

/// True if the reader of the output closed it, which is no failure.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe))
}

/// The error and its causes on one line, without repetitions.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    spinney::message(&**error)
}

fn status_of_one(cause: &(dyn std::error::Error + 'static)) -> Option<Status> {
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some(failure.status);
    }
    if let Some(cause) = cause.downcast_ref::<Cause>() {
        return of_transfer(cause);
    }
    if let Some(error) = cause.downcast_ref::<VolumeError>() {
        return of_volume(error);
    }
    if let Some(status) = CLASSIFIER.get().and_then(|classify| classify(cause)) {
        return Some(status);
    }
    match cause.downcast_ref() {
        Some(spinney::disk::Error::Spec { .. }) => return Some(Status::Usage),
        Some(spinney::disk::Error::DoesNotFit { .. } | spinney::disk::Error::DiskSize { .. }) => {
            return Some(Status::NoSpace);
        }
        _ => {}
    }
    if let Some(error) = cause.downcast_ref::<spinney::blockdev::Error>() {
        return Some(of_device(error));
    }
    if let Some(errno) = cause.downcast_ref::<rustix::io::Errno>() {
        return Some(of_kind(errno.kind()));
    }
    cause.downcast_ref::<io::Error>().map(|error| of_kind(error.kind()))
}

/// The status of an error that only copies have; `None` if its cause decides.
fn of_transfer(cause: &Cause) -> Option<Status> {
    match cause {
        Cause::BadName(_) | Cause::Cycle => Some(Status::Corrupt),
        Cause::Exists | Cause::SameFile(..) => Some(Status::Refused),
        Cause::Emulator { .. } => Some(Status::Unsupported),
        _ => None,
    }
}

/// The status of an error of a volume, or of its cause if a device is to blame.
fn of_volume(error: &VolumeError) -> Option<Status> {
    Some(match error.blame() {
        Blame::Caller if error.errno() == Errno::EINVAL && error.cause::<OptionError>().is_some() => Status::Usage,
        Blame::Caller => Status::Refused,
        Blame::Image => Status::Corrupt,
        Blame::Program => Status::Unsupported,
        Blame::Space => Status::NoSpace,
        Blame::Device | Blame::EarlierFailure if std::error::Error::source(error).is_some() => return None,
        _ => Status::Io,
    })
}

/// The status for a failure of a device.
pub(crate) fn of_device(error: &spinney::blockdev::Error) -> Status {
    match error {
        spinney::blockdev::Error::Locked { .. } | spinney::blockdev::Error::Busy { .. } => Status::Busy,
        spinney::blockdev::Error::NotALocator { .. } => Status::Usage,
        // The image ends before its file system does.
        spinney::blockdev::Error::UnexpectedEnd { .. } => Status::Corrupt,
        _ => of_kind(error.kind()),
    }
}

fn of_kind(kind: io::ErrorKind) -> Status {
    use io::ErrorKind as K;
    match kind {
        K::NotFound
        | K::AlreadyExists
        | K::PermissionDenied
        | K::NotADirectory
        | K::IsADirectory
        | K::DirectoryNotEmpty
        | K::ReadOnlyFilesystem
        | K::CrossesDevices
        | K::TooManyLinks
        | K::InvalidFilename
        | K::InvalidInput => Status::Refused,
        K::StorageFull | K::QuotaExceeded | K::FileTooLarge => Status::NoSpace,
        K::ResourceBusy => Status::Busy,
        K::Unsupported => Status::Unsupported,
        K::InvalidData | K::UnexpectedEof => Status::Corrupt,
        _ => Status::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spinney::vfs::Errno;

    #[test]
    fn the_first_known_cause_decides() {
        let error = anyhow::Error::from(VolumeError::from(Errno::ENOENT).at("a")).context("while looking");
        assert_eq!(status_of(&error), Status::Refused);
        assert_eq!(one_line(&error), "while looking: a: no such file or directory");
        assert_eq!(status_of(&VolumeError::from(Errno::ENOSPC).into()), Status::NoSpace);
        assert_eq!(status_of(&VolumeError::from(Errno::EOPNOTSUPP).into()), Status::Unsupported);
    }
}
