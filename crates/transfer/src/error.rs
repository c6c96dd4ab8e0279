//! Defines the failure of a transfer: the path that was being copied, and the cause. Sources, sinks and `walk` return
//! it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use vfs::Blame;

/// The result of a step of a transfer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file or directory was not copied. Displays the path, where one is known, and the cause.
///
/// To do: see the cause behind the colon; what was copied before is there.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    path: Option<PathBuf>,
    /// The file that should have been replaced is still there.
    is_kept: bool,
    #[source]
    cause: Cause,
}

/// The cause of a failure.
///
/// To do: see the cause behind the colon; what was copied before is there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The host refused a call, or it failed.
    #[error("{0}")]
    Host(#[source] io::Error),
    /// A volume refused a call, or it failed.
    #[error("{0}")]
    Volume(#[source] vfs::Error),
    /// [`crate::Observer::is_cancelled`] asked for the end.
    #[error("cancelled")]
    Cancelled,
    /// The source is damaged: a name that would lead out of its directory.
    ///
    /// To do: the source is damaged: check it.
    #[error("directory entry: expected a plain name, found `{0}`")]
    BadName(String),
    /// The source is damaged: a directory is below itself.
    ///
    /// To do: the source is damaged: check it.
    #[error("the directory contains itself")]
    Cycle,
    /// A source in memory has no place for a node, or has none at a path: an archive or manifest that contradicts
    /// itself.
    ///
    /// To do: see the path; check the archive, layer or manifest that names it.
    #[error("{0}")]
    Tree(String),
    /// The target has something else under the name.
    ///
    /// To do: overwrite with `-f`, or choose another name.
    #[error("exists already")]
    Exists,
    /// Source and target are one file.
    ///
    /// To do: choose another target.
    #[error("{} and {} are the same file", .0.display(), .1.display())]
    SameFile(PathBuf, PathBuf),
    /// This program was started under an emulator of system calls, which it would bypass.
    ///
    /// To do: use a build of the emulator for this program's C library, or run without it.
    #[error("started under {name}, but {library} is not loaded, so owners and device nodes would be the host's")]
    Emulator {
        /// Name of the emulator.
        name: &'static str,
        /// Part of the name of its library.
        library: &'static str,
    },
    /// This system lacks what copies from and to directories of the host rely on: handles that only name a file, and
    /// paths of open files.
    ///
    /// To do: copy on Linux; or read and write the files one by one.
    #[error("copies from and to directories of the host need Linux")]
    OtherSystem,
}

impl Error {
    /// The same failure with the path that was being copied, unless it has one.
    #[must_use]
    pub fn about(mut self, path: impl AsRef<Path>) -> Self {
        self.path.get_or_insert_with(|| path.as_ref().to_owned());
        self
    }

    /// The same failure; one of a volume names `path`, unless it names one already.
    #[must_use]
    pub(crate) fn in_volume(mut self, path: &Path) -> Self {
        if let Cause::Volume(error) = self.cause {
            self.cause = Cause::Volume(error.at(path));
        }
        self
    }

    /// The same failure of a file that should have replaced `path`, which still exists.
    #[must_use]
    pub(crate) fn instead_of(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), is_kept: true, ..self }
    }

    /// True for this error of a volume.
    #[must_use]
    pub(crate) fn is_from(&self, errno: vfs::Errno) -> bool {
        matches!(&self.cause, Cause::Volume(error) if error.errno() == errno)
    }

    /// True if a hard link would lead from one file system, or one subvolume, to another.
    #[must_use]
    pub(crate) fn is_crossing(&self) -> bool {
        match &self.cause {
            Cause::Volume(error) => error.errno() == vfs::Errno::EXDEV,
            Cause::Host(error) => error.kind() == io::ErrorKind::CrossesDevices,
            _ => false,
        }
    }

    /// The path that was being copied.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The cause.
    #[must_use]
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }

    /// True if the caller asked for the end.
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        matches!(self.cause, Cause::Cancelled)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        if self.is_kept {
            f.write_str("not replaced: ")?;
        }
        self.cause.fmt(f)
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self { path: None, is_kept: false, cause }
    }
}

impl From<vfs::Error> for Error {
    fn from(error: vfs::Error) -> Self {
        Cause::Volume(error).into()
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Cause::Host(error).into()
    }
}

#[cfg(unix)]
impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        io::Error::from(errno).into()
    }
}

impl From<Error> for vfs::Error {
    /// The failure with its path; the number is that of the cause.
    fn from(error: Error) -> Self {
        let (errno, blame) = match &error.cause {
            Cause::Volume(cause) => (cause.errno(), cause.blame()),
            Cause::Host(cause) => (vfs::Errno::of_host(cause), Blame::Device),
            Cause::Cancelled => (vfs::Errno::ECANCELED, Blame::Caller),
            Cause::BadName(_) | Cause::Cycle | Cause::Tree(_) => (vfs::Errno::EIO, Blame::Image),
            Cause::Exists => (vfs::Errno::EEXIST, Blame::Caller),
            Cause::SameFile(..) => (vfs::Errno::EINVAL, Blame::Caller),
            Cause::Emulator { .. } | Cause::OtherSystem => (vfs::Errno::EOPNOTSUPP, Blame::Program),
        };
        let path = error.path.clone();
        // The path is told once.
        let told = Self::new(errno, blame, error.cause);
        path.into_iter().fold(told, Self::at)
    }
}
