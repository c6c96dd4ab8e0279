//! Opens, without reading, the target of `serve`: an image, a part of it, files in it, or files below a mount.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use spinney::blockdev::{Access, Device, Locator};
use spinney::{Devices, FileSystem, Files, Volume, VolumeOptions};

use crate::commands::failure::Failure;
use crate::commands::format;
use crate::commands::image;
use crate::commands::place::Place;
use crate::commands::trace::watch::watched;

/// Longest pause between two rounds of background work.
const STEP_MAX: Duration = Duration::from_secs(30);

/// An image or mount that a word names, and a path in it if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The image, or the mount point.
    pub(super) image: PathBuf,
    /// The path in it; `None` for the image itself.
    pub(super) path: Option<PathBuf>,
    is_mount: bool,
}

impl Target {
    /// True for a mount, and for an image that is mounted.
    pub(super) fn is_mount(&self) -> bool {
        self.is_mount
    }

    /// Parses a word. A path in an image that is mounted is served through its mount.
    pub(super) fn parse(word: &OsStr) -> Self {
        match Place::parse(word).through_mount() {
            Place::Host(image) => Self { image, path: None, is_mount: false },
            Place::Image { image, path } => Self { image, path: Some(path), is_mount: false },
            Place::Mount { dir, path } => Self { image: dir, path: Some(path), is_mount: true },
        }
    }
}

/// An image whose devices are open, or a mount.
#[derive(Debug)]
pub(super) enum Opened {
    Image { image: PathBuf, devices: Devices, locators: Vec<Locator>, read_only: bool },
    Mount(Files),
}

impl Opened {
    /// Opens the image or mount of a target; nothing is read from an image.
    ///
    /// # Errors
    /// Errors of the operating system, and of names that are not valid.
    pub(super) fn open(target: &Target, read_only: bool) -> Result<Self> {
        if target.is_mount {
            let (remote, _) = image::connect_mount(&target.image)?;
            if !read_only && remote.is_read_only() {
                let text = format!("{}: mounted for reading only; use --read-only", target.image.display());
                return Err(Failure::refused(text).into());
            }
            return Ok(Self::Mount(Files::new(Arc::new(remote))));
        }
        let access = Access { read_only, ..Access::default() };
        let opened = image::locators(&target.image, &[]).and_then(|locators| {
            let open = |locator: &Locator| Ok(watched(spinney::blockdev::open(locator, access)?));
            let devices = locators.iter().map(open).collect::<spinney::blockdev::Result<_>>()?;
            Ok(Self::Image { image: target.image.clone(), devices, locators, read_only })
        });
        opened.map_err(|error| image::explain(&target.image, error.into()))
    }

    /// The devices to which the server may have to connect again.
    pub(super) fn remote_devices(&self) -> Vec<OsString> {
        match self {
            Self::Image { locators, .. } => {
                locators.iter().filter(|locator| locator.path().is_none()).map(Locator::words).collect()
            }
            Self::Mount(_) => Vec::new(),
        }
    }

    /// True if this process reads an image. The server of a mount reads it in its own sandbox.
    pub(super) fn is_restricted(&self) -> bool {
        matches!(self, Self::Image { .. })
    }

    pub(super) fn uses_rings(&self) -> bool {
        match self {
            Self::Image { devices, .. } => devices.iter().any(|device| device.uses_rings()),
            Self::Mount(_) => false,
        }
    }

    /// The single device of an image.
    ///
    /// # Errors
    /// `Usage` for several, and for a mount.
    pub(super) fn into_device(self) -> Result<Arc<dyn Device>> {
        let wrong = || Failure::usage("expected an image on one device, IMAGE:/PATH, or the path of a file in a mount");
        match self {
            Self::Image { devices, .. } => {
                let [device] = <[_; 1]>::try_from(devices).map_err(|_| wrong())?;
                Ok(device)
            }
            Self::Mount(_) => Err(wrong().into()),
        }
    }

    /// The volume of an image, or the one that is mounted. Its periodic work is done as long as it is used.
    ///
    /// # Errors
    /// Those of opening it.
    pub(super) fn into_files(self) -> Result<Files> {
        match self {
            Self::Mount(files) => Ok(files),
            image @ Self::Image { .. } => image.into_volume().map(|(files, _)| files),
        }
    }

    /// The volume of an image, with its UUID. Its periodic work is done as long as it is used.
    ///
    /// # Errors
    /// `Usage` for a mount; those of opening it.
    pub(super) fn into_volume(self) -> Result<(Files, [u8; 16])> {
        let image = ImageOnly::of(self)?;
        let opened = image.open(None)?;
        let uuid = opened.info().map_err(|error| image::explain(&image.path, error.into()))?.uuid;
        let file_system = opened.serve().map_err(|error| image::explain(&image.path, error.into()))?;
        if !image.read_only {
            work_in_background(Arc::downgrade(&file_system))?;
        }
        Ok((Files::new(file_system), uuid))
    }
}

/// Opens the volume of an image again for each use, one after another.
pub(super) type Opener = dyn Fn() -> Result<Arc<dyn FileSystem>> + Send + Sync;

impl Opened {
    /// Opens the volume of an image, with the subvolume at `path` as its root, and again for each later use.
    ///
    /// # Errors
    /// `Usage` for a mount; those of opening it.
    pub(super) fn into_opener(self, path: Option<&Path>) -> Result<Arc<Opener>> {
        let (image, path) = (ImageOnly::of(self)?, path.map(Path::to_owned));
        let open = move || {
            let volume = image.open(path.as_deref())?;
            volume.serve().map_err(|error| image::explain(&image.path, error.into()))
        };
        let first = Mutex::new(Some(open()?));
        Ok(Arc::new(move || first.lock().take().map_or_else(&open, Ok)))
    }
}

/// The devices of an image, and how its volume is opened.
struct ImageOnly {
    path: PathBuf,
    devices: Devices,
    read_only: bool,
}

impl ImageOnly {
    /// # Errors
    /// `Usage` for a mount.
    fn of(opened: Opened) -> Result<Self> {
        match opened {
            Opened::Mount(_) => Err(Failure::usage("expected an image, not a mount").into()),
            Opened::Image { image, devices, read_only, .. } => Ok(Self { path: image, devices, read_only }),
        }
    }

    /// Opens the volume, with the subvolume at `root` as its root.
    fn open(&self, root: Option<&Path>) -> Result<Volume> {
        let (uid, gid) = image::maker();
        let mut options = VolumeOptions::new().owner(uid, gid).read_only(self.read_only);
        if let Some(root) = root.filter(|root| *root != Path::new("/")) {
            options = options.option("subvol", root);
        }
        let opened = format::of_all(&self.devices)
            .and_then(|format| Ok(spinney::open_as(format, self.devices.clone(), &options)?));
        opened.map_err(|error| image::explain(&self.path, error))
    }
}

/// Does the periodic work of a file system, the commit for example, until it is closed.
fn work_in_background(file_system: Weak<dyn FileSystem>) -> Result<()> {
    let work = move || {
        while let Some(file_system) = file_system.upgrade() {
            let pause = file_system.step();
            drop(file_system);
            thread::sleep(pause.min(STEP_MAX));
        }
    };
    thread::Builder::new().name("background".to_owned()).spawn(work).context("the background thread")?;
    Ok(())
}

/// The name of a path, for clients that choose among several.
pub(super) fn name_of(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}
