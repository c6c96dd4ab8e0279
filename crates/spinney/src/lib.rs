//! btrfs without root and without the kernel's help: make, read and change images.
//!
//! [`Volume`] is an open image or device, and mirrors `std::fs`. It can be cloned and used from
//! many threads at once.
//!
//! ```
//! use spinney::{MakeOptions, SnapshotMode, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let image = dir.path().join("disk.img");
//!
//! let make = MakeOptions { size: Some(64 << 20), ..MakeOptions::default() };
//! let volume = Volume::make(&image, &make)?;
//! volume.create_subvolume("home")?;
//! volume.create_dir_all("home/ada/notes")?;
//! volume.write("home/ada/notes/1843", "The engine can do whatever we know how to order it to.")?;
//! volume.snapshot("home", "home-before", SnapshotMode::ReadOnly)?;
//! volume.remove_dir_all("home/ada")?;
//! volume.close()?;
//!
//! let volume = Volume::options().read_only(true).open(&image)?;
//! assert!(!volume.exists("home/ada")?);
//! assert!(volume.read("home-before/ada/notes/1843")?.starts_with(b"The engine"));
//! # Ok(())
//! # }
//! ```
//!
//! # Snapshots, forks and what differs
//!
//! A snapshot or a fork takes one commit, however much is in the subvolume; a difference is found by walking only what
//! two subvolumes do not share.
//!
//! ```
//! use std::sync::Arc;
//!
//! use spinney::{ChangeKind, MakeOptions, MemoryDevice, SnapshotMode, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Arc::new(MemoryDevice::new(64 << 20));
//! let volume = Volume::options().make_device(device, &MakeOptions::default())?;
//! volume.create_subvolume("main")?;
//! volume.write("main/settings", "colour=blue")?;
//! volume.snapshot("main", "monday", SnapshotMode::ReadOnly)?;
//!
//! // A fork is a volume of its own: its paths begin at its root.
//! let fork = volume.fork("main", "trial")?;
//! fork.write("settings", "colour=red")?;
//! for change in volume.diff("monday", "trial")? {
//!     if let ChangeKind::Changed { path, data, .. } = change.what {
//!         println!("{}: {data:?}", path.display());
//!     }
//! }
//!
//! // What was committed before is readable for a while.
//! let now = volume.info()?.generation;
//! volume.delete_subvolume("trial")?;
//! volume.sync()?;
//! assert_eq!(volume.open_at(now)?.read("trial/settings")?, b"colour=red");
//! # Ok(())
//! # }
//! ```
//!
//! # What is durable when
//!
//! Changes are seen by all handles at once, and are durable after [`vfs::Volume::sync`],
//! [`Volume::close`] or [`File::sync_all`]. A crash before that leaves the state of an earlier
//! commit, never a mixture.
//!
//! # Errors
//!
//! Making, opening and what only btrfs has fails with an [`Error`], of which each variant blames one party: the caller
//! ([`CallerError`] says for what), the device, the image, a feature that is missing here, or the size of the volume.
//! By paths it is a [`vfs::Error`], with the number that Linux has for it ([`vfs::Errno`]) and the same cause. Both
//! convert to [`std::io::Error`].
//!
//! # What is where
//!
//! | To | use |
//! |---|---|
//! | make or open an image | [`Volume`], [`VolumeOptions`], [`MakeOptions`], [`Env`] |
//! | have one in memory | [`MemoryDevice`], with [`VolumeOptions::make_device`] |
//! | compress what is written | [`Compression`], [`CompressionType`] |
//! | use it by paths, as a volume of any format | [`Volume`] derefs to [`vfs::Volume`] |
//! | read and write files | [`File`], [`FileOptions`], [`AllocateFlags`], [`Extent`], [`ExtentKind`] |
//! | walk directories | [`ReadDir`], [`DirEntry`], [`NodeKind`] |
//! | look at metadata | [`Metadata`], [`Time`], [`NodeFlags`] |
//! | change metadata | [`SetAttr`], [`SetTime`], [`Times`], [`NodeFlags`], [`XattrMode`] |
//! | import files, rename | [`WholeNode`], [`RenameFlags`] |
//! | fork a subvolume, or open one | [`Volume::fork`], [`Volume::open_subvolume`] |
//! | read an earlier state | [`Volume::generations`], [`Volume::open_at`] |
//! | have one read by another program | [`Volume::hold_committed`], [`HeldState`], [`BadSuperblock`] |
//! | subvolumes and snapshots | [`SnapshotMode`], [`SubvolumeInfo`], [`TreeId`], [`InodeNo`], [`Generation`] |
//! | receive subvolumes | [`Received`] |
//! | see how full it is | [`VolumeInfo`], [`DeviceInfo`], [`SpaceUsage`], [`SpaceReport`], [`VolumeStatus`] |
//! | quota groups | [`QuotaReport`], [`QgroupReport`], [`QuotaKind`], [`QuotaChange`], [`QgroupId`], [`QuotaPage`] |
//! | compare and send subvolumes | [`Change`], [`ChangeKind`], [`Named`], [`SendOptions`], [`SendError`] |
//! | see what is shared | [`FileSharing`], [`SharedExtent`] |
//! | serve it | [`Volume::serve`], [`FsOptions`], [`AtimeMode`] |
//!
//! The list is whole: what is not in it is nobody's to use.

#[cfg(feature = "ablation")]
pub use btrfs::ablation;
pub use btrfs::{
    BadSuperblock, BalanceEnd, BalanceProgress, BalanceSpec, BalanceStatus, CallerError, Change, ChangeKind, ChunkInfo,
    Compression, CompressionType, DeviceErrors, DeviceInfo, Env, Error, Fate, FileSharing, FsOptions, Generation,
    GroupUsage, HeldState, InodeFlags, InodeNo, LostRange, MakeOptions, MemoryDevice, Named, NotBalance, NotQuotas,
    NotStatus, QgroupId, QgroupReport, QuotaChange, QuotaError, QuotaKind, QuotaPage, QuotaReport, Received, Result,
    ScrubFault, ScrubOptions, ScrubProgress, ScrubReport, ScrubbedKind, SendError, SendOptions, SharedExtent,
    SpaceReport, SpaceUsage, SubvolumeInfo, TreeId, Volume, VolumeInfo, VolumeOptions,
};
pub use vfs::file_system::{
    AllocateFlags, Extent, ExtentKind, NodeFlags, NodeKind, RenameFlags, SetAttr, SetTime, Time, VolumeStatus,
    WholeNode, XattrMode,
};
pub use vfs::{AtimeMode, DirEntry, File, FileOptions, Metadata, ReadDir, SnapshotMode, Times};
