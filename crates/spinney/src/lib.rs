//! btrfs and f2fs without root and without the kernel: make, read, change and check images.
//!
//! [`open`] recognises the format of an image and gives a [`Volume`], which is used by paths as `std::fs` uses the
//! host's files.
//!
//! ```
//! use spinney::{MakeOptions, VolumeOptions};
//!
//! # fn main() -> spinney::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let image = dir.path().join("disk.img");
//! let volume = spinney::make(&image, "btrfs", &MakeOptions::new().size(64 << 20))?;
//! volume.create_dir_all("home/ada/notes")?;
//! volume.write("home/ada/notes/1843", "The engine can do whatever we know how to order it to.")?;
//! volume.close()?;
//!
//! let volume = spinney::open(&image, &VolumeOptions::new().read_only(true))?;
//! assert_eq!(volume.info()?.format, "btrfs");
//! assert!(volume.read_to_string("home/ada/notes/1843")?.starts_with("The engine"));
//! # Ok(())
//! # }
//! ```
//!
//! # Operations that one format has
//!
//! [`Volume::btrfs`] returns the handle with the operations of btrfs. A snapshot or a fork takes one commit, whatever
//! the size of the subvolume; `diff` reads only the tree blocks that the two subvolumes do not share.
//!
//! ```
//! use std::sync::Arc;
//!
//! use spinney::btrfs::ChangeKind;
//! use spinney::{MakeOptions, MemoryDevice, SnapshotMode};
//!
//! # fn main() -> spinney::Result<()> {
//! let device = Arc::new(MemoryDevice::new(64 << 20));
//! let volume = spinney::make_devices(vec![device], "btrfs", &MakeOptions::new())?;
//! volume.create_subvolume("main")?;
//! volume.write("main/settings", "colour=blue")?;
//! volume.snapshot("main", "monday", SnapshotMode::ReadOnly)?;
//!
//! // A fork is a volume of its own: its paths begin at its root.
//! let own = volume.btrfs().expect("made as btrfs");
//! let fork = own.fork("main", "trial")?;
//! fork.write("settings", "colour=red")?;
//! for change in own.diff("monday", "trial")? {
//!     if let ChangeKind::Changed { path, data, .. } = change.what {
//!         println!("{}: {data:?}", path.display());
//!     }
//! }
//!
//! // An earlier commit stays readable until its freed blocks are reused.
//! let now = own.info()?.generation;
//! volume.delete_subvolume("trial")?;
//! volume.sync()?;
//! assert_eq!(own.open_at(now)?.read("trial/settings")?, b"colour=red");
//! # Ok(())
//! # }
//! ```
//!
//! # Copy a directory in and out, with progress
//!
//! Copies keep owners, permissions, times, links, holes and attributes. Every long operation takes a callback, which
//! can cancel it.
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//!
//! use spinney::{MakeOptions, MemoryDevice, Progress};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let (source, target) = (dir.path().join("in"), dir.path().join("out"));
//! # std::fs::create_dir(&source)?;
//! # std::fs::write(source.join("page"), "hello")?;
//! let volume = spinney::make_devices(vec![Arc::new(MemoryDevice::new(64 << 20))], "btrfs", &MakeOptions::new())?;
//! let mut watch = |progress: &Progress| {
//!     println!("{} of {} bytes", progress.bytes, progress.bytes_total);
//!     ControlFlow::Continue(())
//! };
//! volume.import(&source, "site", &mut watch)?;
//! volume.sync()?;
//! volume.export("site", &target, &mut watch)?;
//! assert_eq!(std::fs::read_to_string(target.join("page"))?, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Check an image, and stop early
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//!
//! use spinney::{CheckOptions, Errno, MakeOptions, MemoryDevice, Progress};
//!
//! # fn main() -> spinney::Result<()> {
//! let device = Arc::new(MemoryDevice::new(128 << 20));
//! spinney::make_devices(vec![device.clone()], "f2fs", &MakeOptions::new())?.close()?;
//! let report = spinney::check_devices(vec![device], &CheckOptions::default(), &mut |_: &Progress| {
//!     ControlFlow::Continue(()) // Break(()) ends the check with Errno::ECANCELED.
//! })?;
//! assert_eq!(report.errors(), 0);
//! # let _ = Errno::ECANCELED;
//! # Ok(())
//! # }
//! ```
//!
//! # Threads and untrusted images
//!
//! A [`Volume`] and its files may be used by many threads at once. Images need not be trusted: every block is verified
//! before it is used, and damage is an error that names the block. No image makes the library panic, hang or allocate
//! without bound; nothing is written outside the image and the directory that you name.
//!
//! # When changes are durable
//!
//! All handles see a change at once. It is durable after [`Volume::close`], `volume.sync()` or, for one file,
//! [`File::sync_all`]. A crash before that leaves the state of the last commit, with the files that were synced after
//! it. Only file data that is overwritten in place (btrfs with `nodatacow`, f2fs in some fsyncs) may then be partly
//! old and partly new.
//!
//! # Errors
//!
//! Every function fails with the same type, [`Error`]. It has a Linux errno ([`Error::errno`]), the party at fault
//! ([`Error::blame`]: caller, image, device, program, ...), and where known the operation, the path, the place on the
//! device, the missing space in bytes and the cause. It converts to [`std::io::Error`].
//!
//! # Where to look
//!
//! | To | use |
//! |---|---|
//! | open or make a volume | [`open`], [`make`], [`VolumeOptions`], [`MakeOptions`] |
//! | check one | [`check`], [`CheckOptions`], [`CheckReport`] |
//! | repair one | [`plan_repair`], [`RepairOptions`], [`Repair`] |
//! | use your own devices | [`open_devices`], [`make_devices`], [`check_devices`], [`Device`], [`MemoryDevice`] |
//! | know formats | [`formats()`], [`add_format`], [`Format`], [`recognise`] |
//! | use a volume by paths | [`Volume`], which derefs to [`Files`] |
//! | read and write files | [`File`], [`OpenOptions`], [`AllocateFlags`], [`Extent`], [`ExtentKind`] |
//! | read archives, container images and manifests | [`Contents`], [`ContentsOptions`], [`archive`], [`layers`] |
//! | copy trees from and to the host | [`Volume::import`], [`Volume::export`], [`transfer`] |
//! | walk directories | [`ReadDir`], [`DirEntry`], [`NodeKind`] |
//! | look at and change metadata | [`Metadata`], [`SetAttr`], [`SetTime`], [`Times`], [`NodeFlags`], [`XattrMode`] |
//! | do what only btrfs can | [`Volume::btrfs`], [`btrfs`] |
//! | scrub, balance, rescue | [`btrfs::scrub`], [`btrfs::balance`], [`btrfs::rescue()`] |
//! | send, receive, back up | [`btrfs::send`], [`btrfs::receive()`], [`btrfs::back_up`], [`btrfs::restore`] |
//! | do what only f2fs can | [`Volume::f2fs`], [`f2fs`] |
//! | make the same bytes each time | [`reproducible_env`], [`derived_uuid`] |
//! | follow an operation, or cancel it | [`Progress`], [`ProgressFn`] |
//! | show an error as the program does | [`message()`] |
//! | find the mount of an image | [`mounts`], [`blockdev::Identity::holders`] |
//! | give each test a tree to break | [`testing::Fixture`] |
//! | open an image on a web server or in S3 | [`open`], [`add_remote_devices`], feature `web` |
//! | serve a volume | [`Volume::serve`], [`FileSystem`], [`fuse`] |
//! | serve a disk by NBD, or a file of a volume as one | [`nbd`], [`VolumeFileDevice`] |
//! | let machines mount a volume by NFS | [`nfs`] |
//! | let a virtual machine mount a volume | `virtiofs` |
//! | open a disk that is elsewhere (`nbd://HOST/EXPORT`) | [`open`], [`add_remote_devices`] |
//!
//! # Parts
//!
//! The crates below this one are re-exported as modules, for programs that need more than [`Volume`]: [`access`],
//! [`blockdev`], [`checking`], [`codec`], [`fuse`], [`host`], [`remote`], [`transfer`], [`vfs`], and the crates of each
//! format in [`btrfs`] and [`f2fs`]. A program needs no other crate of this workspace as a dependency.

#![deny(missing_docs)]

pub mod btrfs;
pub mod contents;
mod copy;
mod device_errors;
pub mod f2fs;
mod file_device;
mod formats;
mod message;
#[cfg(unix)]
pub mod mounts;
mod open;
#[cfg(test)]
mod option_list;
mod progress;
mod remote_devices;
mod repair;
mod reproducible;
mod source_errors;
pub mod testing;
mod volume;

/// The kernel's permission rules over any [`FileSystem`].
pub mod access {
    pub use access::*;
}

/// Archives of tar and cpio.
pub mod archive {
    pub use archive::*;
}

/// Block devices: files, memory, overlays, and the trait that a device of your own implements.
pub mod blockdev {
    pub use blockdev::*;
}

/// Tables of passes and codes that the checks of all formats share.
pub mod checking {
    pub use checking::*;
}

/// Checksums and compression.
pub mod codec {
    pub use codec::*;
}

/// Disks around file systems: forms of images, partition tables, descriptions.
pub mod disk {
    pub use disk::*;
}

/// Server over `/dev/fuse`, for any [`FileSystem`].
#[cfg(target_os = "linux")]
pub mod fuse {
    pub use fuse::*;
}

/// Locks with ranks, the clock and random numbers.
pub mod host {
    pub use host::*;
}

/// Container images, manifests, and rules for owners, over trees of files.
pub mod layers {
    pub use layers::*;
}

/// Network block devices: a server; the client is a device that [`blockdev::open`] opens by its locator.
#[cfg(unix)]
pub mod nbd {
    pub use nbd::*;
}

/// A server of NFS version 3 over the files of a volume.
#[cfg(unix)]
pub mod nfs {
    pub use nfs::*;
}

/// A file system that another process serves through a socket.
#[cfg(unix)]
pub mod remote {
    pub use remote::*;
}

/// Copies of trees between the host and volumes.
pub mod transfer {
    pub use transfer::*;
}

/// Images on web servers, and a server of HTTP.
#[cfg(all(feature = "web", unix))]
pub mod web {
    pub use web::*;
}

/// A virtio-fs device for virtual machines over the files of a volume.
#[cfg(target_os = "linux")]
pub mod virtiofs {
    pub use virtiofs::*;
}

/// File systems of any format: the trait [`vfs::FileSystem`] and a volume by paths.
pub mod vfs {
    pub use vfs::*;
}

pub use ::blockdev::Device;
pub use ::btrfs::MemoryDevice;
pub use ::btrfs_pool::open_list;
pub use ::formats::magic::{self, Look, Magic};
pub use ::formats::{
    CheckOptions, CheckReport, Devices, Engine, Finding, Format, Info, MakeOptions, Meaning, OptionError, PassRow,
    RepairOptions, RepairPlan, VolumeOptions,
};
pub use ::formats::{options, size};
pub use ::host::Env;
pub use ::vfs::file_system::{
    AllocateFlags, Extent, ExtentKind, NodeFlags, NodeKind, RenameFlags, SetAttr, SetTime, Time, VolumeStatus,
    WholeNode, XattrMode,
};
pub use ::vfs::{
    AtimeMode, Blame, DevicePlace, DirEntry, Errno, Error, File, FileOptions as OpenOptions, FileSystem, Metadata,
    ReadDir, Result, Shortage, SnapshotMode, Times, Volume as Files,
};
pub use contents::{Contents, ContentsOptions};
pub use file_device::VolumeFileDevice;
pub use formats::{NotRecognised, add_format, format_named, format_names, formats, recognise, recognise_bytes};
pub use message::message;
pub use open::{check, check_devices, make, make_devices, open, open_as, open_devices};
pub use progress::{Progress, ProgressFn};
pub use remote_devices::add_remote_devices;
pub use repair::{Repair, plan_repair, plan_repair_as};
pub use reproducible::{derived_uuid, reproducible_env};
pub use volume::Volume;
