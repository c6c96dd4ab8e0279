//! Defines why an image on a server cannot be opened or read. `client` makes these errors; callers see them as errors
//! of the device.

use std::io;
use std::sync::Arc;

use blockdev::Op;

/// The result of a request.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed request, without the name of the device.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is malformed.
    ///
    /// To do: correct the address: `https://HOST/PATH`, `s3://BUCKET/KEY`.
    #[error("the address: {why}")]
    Address {
        /// The fault.
        why: &'static str,
    },
    /// An option of the device is unknown or has a wrong value.
    ///
    /// To do: correct the option, or write one that belongs to the address before the `#`.
    #[error("option `{pair}`: expected offset=N, size=N, cache=DIR, cache_size=N (bytes) or timeout=N (seconds)")]
    Option {
        /// The option.
        pair: String,
    },
    /// The image is on a server that this program can only read from.
    ///
    /// To do: download the image, and change the copy.
    #[error("images on web servers and in S3 are read-only")]
    ReadOnly,
    /// The server has no ranges of bytes.
    ///
    /// To do: download the image, or put it on a server that answers requests for ranges.
    #[error("the server has no byte ranges (it answered {status} to a request for a part): download the image first")]
    NoRanges {
        /// The status of its answer.
        status: u16,
    },
    /// The file is another one than when it was opened.
    ///
    /// To do: open it again.
    #[error("changed on the server since it was opened: {what}: expected {expected}, found {found}; open it again")]
    Changed {
        /// Name of the property.
        what: &'static str,
        /// Its value at the open.
        expected: String,
        /// Its value now.
        found: String,
    },
    /// The server refused the request.
    ///
    /// To do: see the status and its words: the address or the credentials may be wrong.
    #[error("the server answered {status}{}", Reason(reason))]
    Status {
        /// The status.
        status: u16,
        /// Its words, and those of S3.
        reason: String,
    },
    /// Redirects have no end.
    ///
    /// To do: name the last address, or mend the server.
    #[error("more than {max} redirects")]
    Redirects {
        /// Most that are followed.
        max: usize,
    },
    /// A redirect that is not followed.
    ///
    /// To do: name the target itself if you trust it.
    #[error("redirect to `{to}`: {why}")]
    Redirect {
        /// Its target.
        to: String,
        /// The reason.
        why: &'static str,
    },
    /// The server sent other bytes than it was asked for.
    ///
    /// To do: mend the server, or the proxy before it.
    #[error("the server's answer: {what}: expected {expected}, found {found}")]
    Answer {
        /// Name of the property.
        what: &'static str,
        /// The right value.
        expected: String,
        /// The value in the answer.
        found: String,
    },
    /// The server did not answer in time.
    ///
    /// To do: try again, or allow more time by `timeout=`.
    #[error("no answer within {seconds} s ({during}); `timeout=` sets the limit")]
    Timeout {
        /// The limit.
        seconds: u64,
        /// The step that took so long.
        during: String,
    },
    /// The connection failed.
    ///
    /// To do: see the cause: is there a server at the address, and does its certificate fit?
    #[error("{0}")]
    Connection(Arc<io::Error>),
    /// Credentials for S3 cannot be used.
    ///
    /// To do: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or correct the file that is named.
    #[error("credentials: {0}")]
    Credentials(String),
    /// The directory for blocks cannot be used.
    ///
    /// To do: see the cause: name a directory that you may write to.
    #[error("cache {dir}: {error}")]
    Cache {
        /// The directory.
        dir: String,
        /// The host's reason.
        error: Arc<io::Error>,
    },
}

/// The words of a status, where there are some.
struct Reason<'a>(&'a str);

impl std::fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}

impl Error {
    /// True if the same request may succeed a moment later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Connection(error) => error.kind() != io::ErrorKind::InvalidData,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
            Self::Timeout { .. } => true,
            // A connection that broke in the middle of a body.
            Self::Answer { what, .. } => *what == SHORT,
            _ => false,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as K;
        match self {
            Self::Address { .. } | Self::Option { .. } => K::InvalidInput,
            Self::ReadOnly => K::ReadOnlyFilesystem,
            Self::NoRanges { .. } => K::Unsupported,
            Self::Changed { .. } => K::StaleNetworkFileHandle,
            Self::Status { status: 404 | 410, .. } => K::NotFound,
            Self::Status { status: 401 | 403, .. } | Self::Credentials(_) => K::PermissionDenied,
            Self::Timeout { .. } => K::TimedOut,
            Self::Connection(error) | Self::Cache { error, .. } => error.kind(),
            _ => K::InvalidData,
        }
    }

    /// The error of the device that has this name.
    pub(crate) fn of_device(self, name: &str, op: Op, offset: u64, len: u64) -> blockdev::Error {
        match self {
            Self::Changed { .. } => blockdev::Error::Gone { device: name.to_owned(), reason: self.to_string().into() },
            _ => blockdev::Error::io(op, name, offset, len, io::Error::new(self.kind(), self)),
        }
    }
}

/// The property of an [`Error::Answer`] for a body that ends early.
pub(crate) const SHORT: &str = "bytes of the body";
