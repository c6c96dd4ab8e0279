//! Defines the options of opening and making a volume: those of every format, and by name those that one format has.
//! Callers of the `spinney` library set them; each format reads its own.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use vfs::{AtimeMode, Blame, Errno, Error};

use crate::size;

/// Interval of the periodic commit of a served volume: that of most kernels.
const COMMIT_INTERVAL_DEFAULT: Duration = Duration::from_secs(30);

/// How a volume is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// When the access time of a file is updated.
    pub atime: AtimeMode,
    /// Longest time between two commits of a served volume.
    pub commit_interval: Duration,
    /// Most bytes of dirty file data in memory before a writer has to wait; `None`: the default
    /// of the format, which may ignore it.
    pub dirty_bytes: Option<usize>,
    /// Bytes of the metadata cache; `None`: the default of the format, which may ignore it.
    pub cache_bytes: Option<usize>,
    /// Count every inode that the kernel refers to as open, so that it stays in memory. For a FUSE server whose kernel
    /// opens files without a request (`zero_open`); a format that keeps all inodes ignores it.
    pub keep_known: bool,
    /// User and group of files and directories that are created through [`vfs::Volume`]; 0 and 0 by default.
    pub owner: (u32, u32),
    /// Options of one format, by name, in order: those of `mount -o`.
    pub own: Vec<(String, Option<OsString>)>,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            atime: AtimeMode::Relative,
            commit_interval: COMMIT_INTERVAL_DEFAULT,
            dirty_bytes: None,
            cache_bytes: None,
            keep_known: false,
            owner: (0, 0),
            own: Vec::new(),
        }
    }
}

impl VolumeOptions {
    /// To read and write, with the defaults of the format.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing is written.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// User and group of files and directories that are created by paths.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// An option of one format, as `mount -o` takes it: `("subvol", "/home")`.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.own.push((name.into(), Some(value.into())));
        self
    }

    /// An option of one format that has no value: `nologreplay`.
    #[must_use]
    pub fn flag(mut self, name: impl Into<String>) -> Self {
        self.own.push((name.into(), None));
        self
    }
}

/// How a volume is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MakeOptions {
    /// Bytes of the volume; those of the device if not given. A new file needs them.
    pub size: Option<u64>,
    /// Its name.
    pub label: String,
    /// Its UUID; a random one if not given.
    pub uuid: Option<[u8; 16]>,
    /// User and group of the root directory.
    pub owner: (u32, u32),
    /// Options of one format, by name. A format without any refuses each with `EINVAL`.
    pub own: Vec<(String, String)>,
}

impl MakeOptions {
    /// With the defaults of the format.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the volume.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Its name.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Its UUID.
    #[must_use]
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// User and group of the root directory.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// An option of one format, which documents it.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.own.push((name.into(), value.into()));
        self
    }
}

/// Why a format refuses an option. Converts to [`vfs::Error`] with `EINVAL` ([`OptionError::wrong`]) or `EOPNOTSUPP`
/// ([`OptionError::unsupported`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionError {
    text: String,
    is_known: bool,
}

impl OptionError {
    /// A value, or a combination, that makes no sense.
    #[must_use]
    pub fn wrong(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_known: true }
    }

    /// An option that exists in the kernel, and not here.
    #[must_use]
    pub fn unsupported(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_known: false }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for OptionError {}

impl From<OptionError> for Error {
    fn from(error: OptionError) -> Self {
        match error.is_known {
            true => Self::new(Errno::EINVAL, Blame::Caller, error),
            false => Self::new(Errno::EOPNOTSUPP, Blame::Program, error),
        }
    }
}

/// The refusal of an option that no format has.
#[must_use]
pub fn unknown(name: &str) -> Error {
    OptionError::wrong(format!("unknown option `{name}`; `spinney mount --help` lists them")).into()
}

/// The refusal of a value where there is none.
#[must_use]
pub fn takes_no_value(name: &str) -> Error {
    OptionError::wrong(format!("option `{name}` takes no value")).into()
}

/// The refusal of an option without its value, which `what` describes.
#[must_use]
pub fn needs_value(name: &str, what: &str) -> Error {
    OptionError::wrong(format!("option `{name}` needs a value: {name}={what}")).into()
}

/// The value of an option as text.
///
/// # Errors
/// `EINVAL` where it is not UTF-8.
pub fn text<'v>(name: &str, value: Option<&'v OsStr>) -> Result<Option<&'v str>, Error> {
    let Some(value) = value else { return Ok(None) };
    let wrong = || OptionError::wrong(format!("option `{name}={}`: not text in UTF-8", value.display()));
    Ok(Some(value.to_str().ok_or_else(wrong)?))
}

/// Parses the value of the option `name` as a size (`64K`, `1.5G`, `4096`) and returns it in bytes.
///
/// # Errors
/// `EINVAL` for text that is no size, and for a size outside `range`; the message names the range.
pub fn size(name: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64, Error> {
    let bytes = size::parse_bytes(value);
    let bytes = bytes.map_err(|text| OptionError::wrong(format!("option `{name}={value}`: {text}")))?;
    if !range.contains(&bytes) {
        let (min, max) = (size::bytes(*range.start()), size::bytes(*range.end()));
        let text = format!("option `{name}={value}`: give a size from {min} to {max}");
        return Err(OptionError::wrong(text).into());
    }
    Ok(bytes)
}
