//! Defines the errors of the pool; each variant has one cause: the file system, a device, or the caller. Every module
//! of the crate returns them, and the store passes them on.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use btrfs_disk::{Corrupt, DevId, Generation, Logical, Uuid};

/// Result of an operation of the pool.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of a pool operation.
///
/// To do: run `spinney check IMAGE`; the page on rescue says how to go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file system contradicts itself.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),

    /// A device failed.
    #[error(transparent)]
    Device(#[from] blockdev::Error),

    /// The file system is valid but needs an unsupported feature.
    ///
    /// To do: use the kernel or a newer version for this image; nothing was changed.
    #[error("unsupported: {what}")]
    Unsupported {
        /// Names of the features.
        what: Cow<'static, str>,
    },

    /// The devices cannot be used together.
    #[error(transparent)]
    Members(Box<MemberError>),

    /// The pool, or one of its devices, was opened read-only.
    ///
    /// To do: open it for writing.
    #[error("the devices are open read-only")]
    ReadOnly,

    /// Every copy of a range is damaged or unreadable.
    #[error("no good copy of the {len} bytes at {at}:{}", Causes(causes))]
    NoGoodCopy {
        /// Where the range starts.
        at: Logical,
        /// Its length in bytes.
        len: u64,
        /// The fault of each copy, in the order they were tried.
        causes: Arc<[BadCopy]>,
    },
}

impl Error {
    /// The file system needs the unsupported feature `what`.
    #[must_use]
    pub fn unsupported(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Unsupported { what: what.into() }
    }
}

/// A reason for which devices cannot be used together.
///
/// To do: run `spinney check IMAGE`; the page on rescue says how to go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// No device was given.
    ///
    /// To do: give all devices of the one file system, once each.
    #[error("no device is given")]
    None,
    /// No superblock copy is usable.
    ///
    /// To do: is it a device of this file system? `spinney rescue` works without superblocks.
    #[error("{device}: no superblock: {why}")]
    Unreadable {
        /// Name of the device.
        device: String,
        /// The error of its first copy.
        why: String,
    },
    /// Two devices belong to different file systems.
    ///
    /// To do: give all devices of the one file system, once each.
    #[error(
        "{device} is of the file system {found}, but {other} is of {expected}: give the devices of one file system"
    )]
    Foreign {
        /// Name of the device.
        device: String,
        /// Its file system.
        found: Uuid,
        /// Name of the device with the newest superblock.
        other: String,
        /// The file system of that device.
        expected: Uuid,
    },
    /// Two devices have the same id.
    ///
    /// To do: give all devices of the one file system, once each.
    #[error(
        "{device} and {other} are both device {id} of one file system: one is a copy of the other; give one of them"
    )]
    Repeated {
        /// The id.
        id: DevId,
        /// Name of a device.
        device: String,
        /// Name of another.
        other: String,
    },
    /// Two devices describe different file systems.
    ///
    /// To do: leave this device out; `spinney info` of each shows its superblock.
    #[error("{device} has {what} {found}, but {other} has {expected}: they do not describe the same file system")]
    Unlike {
        /// Name of the device.
        device: String,
        /// The property that differs.
        what: &'static str,
        /// Its value there.
        found: String,
        /// Name of the device with the newest superblock.
        other: String,
        /// Its value on that device.
        expected: String,
    },
    /// A device missed the last commits.
    ///
    /// To do: leave this device out; `spinney info` of each says its generation.
    #[error(
        "{device} (device {id}) is at generation {found}, {other} at {newest}: it missed commits, its data may be old"
    )]
    Stale {
        /// Name of the device.
        device: String,
        /// Its id.
        id: DevId,
        /// Its last commit.
        found: Generation,
        /// Name of the device with the newest superblock.
        other: String,
        /// The last commit of that device.
        newest: Generation,
    },
    /// A device that was to be brought up to date missed no commit.
    ///
    /// To do: give the device together with the others.
    #[error("{device} (device {id}) missed no commit")]
    Current {
        /// Name of the device.
        device: String,
        /// Its id.
        id: DevId,
    },
    /// Two devices were each written without the other.
    ///
    /// To do: choose the side to keep, and give its devices alone (`-o degraded`); overwrite the other ones before they
    /// are added again.
    #[error(
        "{device} (device {id}) and {other} were written apart: each has a state of its own of generation \
         {generation}; keep one side: give its devices alone"
    )]
    Split {
        /// Name of the device.
        device: String,
        /// Its id.
        id: DevId,
        /// Name of a device of the other side.
        other: String,
        /// The last commit of the device.
        generation: Generation,
    },
    /// A device has fewer bytes than the file system uses of it: its file was truncated.
    ///
    /// To do: leave this device out, and open the others with `--degraded`, or `-o degraded` of a mount; then replace
    /// it.
    #[error(
        "{device} (device {id}) has {found} bytes, and the file system uses {expected} of it: it was cut short; leave \
         it out (`--degraded`, or `-o degraded` of a mount, works without it)"
    )]
    CutShort {
        /// Name of the device.
        device: String,
        /// Its id.
        id: DevId,
        /// Bytes that it has.
        found: u64,
        /// Bytes of it that the file system uses.
        expected: u64,
    },
    /// A new device has fewer bytes than it needs.
    ///
    /// To do: take a larger device; a file grows with `--size`.
    #[error("{device} is too small: it has {found} bytes, and at least {least} are needed")]
    TooSmall {
        /// Name of the device.
        device: String,
        /// Bytes that it has.
        found: u64,
        /// Bytes that it needs.
        least: u64,
    },
    /// Devices are missing that a chunk cannot do without.
    ///
    /// To do: name the missing devices too; `-o ro,degraded` reads what the others have.
    #[error("the chunk at {at} ({profile}) cannot be written{}", Named(missing))]
    Lost {
        /// Logical address of the chunk.
        at: Logical,
        /// Name of its profile.
        profile: String,
        /// The missing devices that it lies on.
        missing: Vec<DevId>,
    },
    /// The file system no longer has this device.
    ///
    /// To do: leave this device out.
    #[error("{device} says that it is device {id}, which the file system does not have: it was removed or replaced")]
    Removed {
        /// Name of the device.
        device: String,
        /// The id in its superblock.
        id: DevId,
    },
    /// Devices are missing.
    ///
    /// To do: name the other devices too; `--degraded`, or `-o degraded` of a mount, does without them.
    #[error("{present} of {count} devices are given{}", Named(missing))]
    Missing {
        /// Devices that were given.
        present: usize,
        /// Devices of the file system.
        count: u64,
        /// Known ids of missing devices.
        missing: Vec<DevId>,
    },
}

/// Formats ids of missing devices for a sentence.
struct Named<'a>(&'a [DevId]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, id) in self.0.iter().enumerate() {
            write!(f, "{} {id}", if index == 0 { ", missing: device" } else { "," })?;
        }
        Ok(())
    }
}

impl From<MemberError> for Error {
    fn from(error: MemberError) -> Self {
        Self::Members(Box::new(error))
    }
}

/// A copy of a block that is unusable.
#[derive(Clone, Debug)]
pub struct BadCopy {
    /// Number of the mirror, from 0.
    pub mirror: u32,
    /// Device with the copy.
    pub device: DevId,
    /// Byte offset on that device.
    pub offset: u64,
    /// Its error.
    pub cause: Cause,
}

impl fmt::Display for BadCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mirror, device, offset, cause } = self;
        write!(f, "copy {mirror} (device {device}, offset {offset}): {cause}")
    }
}

/// The error of one copy.
///
/// To do: run `spinney check IMAGE`; the page on rescue says how to go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Cause {
    /// Its checksum, header or key does not match.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// It could not be read.
    #[error(transparent)]
    Device(#[from] blockdev::Error),
}

/// Formats all of them in one line.
#[derive(Debug)]
pub struct Causes<'a>(pub &'a [BadCopy]);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cause) in self.0.iter().enumerate() {
            write!(f, "{} {cause}", if index > 0 { ";" } else { "" })?;
        }
        Ok(())
    }
}
