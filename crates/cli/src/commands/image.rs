//! Opens the image that a command names or, if the argument is a directory of a mount, connects to the server of the
//! mount. Nearly all commands have its `ImageArgs` or `ReadArgs` as their first argument; `explain` words the failures.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error, Result};
use clap::Args;
use spinney::blockdev::{Access, Device, Locator};
use spinney::mounts;
use spinney::remote::Remote;
use spinney::{Devices, FileSystem as _, Files, Volume, VolumeOptions};

use crate::commands::failure::{Failure, Status, one_line, status_of};
use crate::commands::format;
use crate::commands::magic::Look;
use crate::commands::socket::connect;
use crate::commands::trace::watch::watched;

pub(crate) use super::kernel::control;

/// The image, the first argument of nearly every command.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ImageArgs {
    /// Image file or unmounted block device, IMAGE?offset=N for the part from byte N on, A,B for a volume on several
    /// devices, nbd://HOST/EXPORT for a disk elsewhere; or a directory of a mount. It may be left out before paths of
    /// the form IMAGE:/PATH and paths below a mount
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,

    /// Take the subvolume at PATH for the root, instead of the default subvolume
    #[arg(long, value_name = "PATH", conflicts_with = "subvolume_id")]
    pub(crate) subvolume: Option<PathBuf>,

    /// Take the subvolume with this number for the root; 5 is the top level
    #[arg(long, value_name = "ID")]
    pub(crate) subvolume_id: Option<u64>,

    /// Take this copy of the superblock: 0 at 64 KiB, 1 at 64 MiB, 2 at 256 GiB
    #[arg(long = "super", value_name = "COPY")]
    pub(crate) superblock: Option<usize>,

    /// A further device of a volume on several devices; may be given several times
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Vec<PathBuf>,

    /// Devices of the volume may be missing
    #[arg(long)]
    pub(crate) degraded: bool,
}

/// The image, for a command that only reads it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReadArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,

    /// Show the last commit, without the log that a crash left
    #[arg(long, visible_alias = "norecovery")]
    nologreplay: bool,

    /// Show the state of an earlier commit, as far as it was not overwritten; `spinney generations` lists them
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
}

impl ReadArgs {
    /// An image without options.
    pub(crate) fn of(image: ImageArgs) -> Self {
        Self { image, nologreplay: false, generation: None }
    }

    /// Opens the image for reading; nothing in it changes.
    pub(crate) fn open_read_only(&self) -> Result<Files> {
        Ok(self.open()?.volume)
    }

    /// As [`ImageArgs::mounted_dir`].
    ///
    /// # Errors
    /// As [`ImageArgs::mounted_dir`], and for options that choose a state of an image.
    pub(crate) fn mounted_dir(&self) -> Result<Option<PathBuf>> {
        let dir = self.image.mounted_dir()?;
        if dir.is_some() && (self.nologreplay || self.generation.is_some()) {
            let text = "--nologreplay and --generation choose a state of an image; a mount shows only its own state";
            return Err(Failure::usage(text).into());
        }
        Ok(dir)
    }

    /// As [`ReadArgs::open_read_only`]; the result also has the volume with the functions of its format.
    pub(crate) fn open(&self) -> Result<Opened> {
        self.image.open_as(&self.request())
    }

    /// Options for opening it read-only.
    pub(crate) fn request(&self) -> VolumeOptions {
        let mut options = self.image.request().read_only(true);
        if self.nologreplay {
            options = options.flag("nologreplay");
        }
        match self.generation {
            Some(number) => options.option("generation", number.to_string()),
            None => options,
        }
    }

    /// As [`ReadArgs::open_read_only`]. The flag is true if only the caller, root, or the user of `sudo` could have
    /// written the image.
    pub(crate) fn open_with_trust(&self) -> Result<(Files, bool)> {
        let path = &self.image.image;
        if let Some(dir) = self.image.mounted_dir()? {
            let is_own = mounts::of(&std::fs::metadata(&dir)?)?.is_some_and(|row| {
                // The mounting user chose the name of the image.
                if !row.user.is_some_and(is_trusted) {
                    return false;
                }
                let images = Locator::parse_list(row.image()).unwrap_or_default();
                let is_own = |image: &Locator| Some(is_own(&std::fs::metadata(image.path()?).ok()?));
                !images.is_empty() && images.iter().all(|image| is_own(image) == Some(true))
            });
            return Ok((open_mounted(&dir, &self.request())?.volume, is_own));
        }
        let request = self.request();
        let opened = open_devices(&self.image, &request).and_then(|devices| {
            let found = devices.iter().map(|device| device.host_metadata()).collect::<Result<Vec<_>, _>>()?;
            let is_own = found.iter().all(|found| found.as_ref().is_some_and(is_own));
            Ok((open_on(devices, &request)?.volume, is_own))
        });
        opened.map_err(|error| explain(path, error))
    }
}

/// Owner and group of new files and directories in an image: those of the caller.
#[must_use]
pub(crate) fn maker() -> (u32, u32) {
    let uid = rustix::process::geteuid();
    if uid.is_root() { (0, 0) } else { (uid.as_raw(), rustix::process::getegid().as_raw()) }
}

/// True for a file of the caller, of root, or of the user of `sudo`, that others may not write. Groups are ignored:
/// many systems give each user a group of his own with write permission.
pub(crate) fn is_own(found: &std::fs::Metadata) -> bool {
    is_trusted(found.uid()) && found.mode() & 0o002 == 0
}

/// True for the caller, root, and the user who ran `sudo`.
fn is_trusted(uid: u32) -> bool {
    let asked_by = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse::<u32>().ok());
    uid == rustix::process::geteuid().as_raw() || uid == 0 || asked_by == Some(uid)
}

impl ImageArgs {
    /// True if the command has options that apply only to images: subvolume, superblock, devices.
    pub(crate) fn has_options(&self) -> bool {
        self.subvolume.is_some()
            || self.subvolume_id.is_some()
            || self.superblock.is_some()
            || !self.device.is_empty()
            || self.degraded
    }

    /// The directory of a mount, if it is named in place of an image; `None` for a file.
    ///
    /// # Errors
    /// For a directory outside a mount, and for options that apply only to an image.
    pub(crate) fn mounted_dir(&self) -> Result<Option<PathBuf>> {
        let dir = &self.image;
        let Ok(found) = std::fs::metadata(dir) else { return Ok(None) };
        if !found.is_dir() {
            return Ok(None);
        }
        if mounts::of(&found)?.is_none() {
            return Err(Failure::refused(format!("{}: a directory, but in no mount of spinney", dir.display())).into());
        }
        if self.has_options() {
            let text = "--subvolume, --subvolume-id, --super, --device and --degraded apply to images, not to a mount";
            return Err(Failure::usage(text).into());
        }
        Ok(Some(dir.clone()))
    }

    /// Opens the image for reading and writing, and locks it.
    pub(crate) fn open_writable(&self) -> Result<Files> {
        self.open_to_compress(None)
    }

    /// As [`Self::open_writable`]; new contents are compressed as given, in the format's notation.
    pub(crate) fn open_to_compress(&self, compression: Option<String>) -> Result<Files> {
        let options = match compression {
            Some(text) => self.request().option("compress", text),
            None => self.request(),
        };
        Ok(self.open_as(&options)?.volume)
    }

    /// Options for opening it to read and write.
    pub(crate) fn request(&self) -> VolumeOptions {
        let (uid, gid) = maker();
        let mut options = VolumeOptions::new().owner(uid, gid);
        if let Some(path) = &self.subvolume {
            options = options.option("subvol", path);
        }
        if let Some(id) = self.subvolume_id {
            options = options.option("subvolid", id.to_string());
        }
        if self.degraded {
            options = options.flag("degraded");
        }
        match self.superblock {
            Some(copy) => options.option("super", copy.to_string()),
            None => options,
        }
    }

    fn open_as(&self, request: &VolumeOptions) -> Result<Opened> {
        if let Some(dir) = self.mounted_dir()? {
            return open_mounted(&dir, request);
        }
        let opened = open_devices(self, request).and_then(|devices| open_on(devices, request));
        opened.map_err(|error| explain(&self.image, error))
    }
}

/// The server of the mount that contains the directory `dir`, and the path of `dir` in the volume.
///
/// # Errors
/// If the server takes no commands; errors of the operating system.
pub(crate) fn connect_mount(dir: &Path) -> Result<(Remote, PathBuf)> {
    let remote = connect_to(dir)?;
    let real = dir.canonicalize()?;
    let rows = mounts::of(&std::fs::metadata(&real)?)?.map(|row| mounts::alike(&row)).transpose()?.unwrap_or_default();
    let row = rows.into_iter().filter(|row| real.starts_with(&row.dir)).max_by_key(|row| row.dir.as_os_str().len());
    let base = row.and_then(|row| Some(row.root.join(real.strip_prefix(&row.dir).ok()?)));
    let base = base.with_context(|| format!("{}: not in the list of mounts", dir.display()))?;
    Ok((remote, base))
}

/// The image of the mount that contains the directory `dir`.
///
/// # Errors
/// If the directory is in no mount of this program; errors of the operating system.
pub(crate) fn served_image(dir: &Path) -> Result<PathBuf> {
    let row = mounts::of(&std::fs::metadata(dir)?)?;
    Ok(row.with_context(|| format!("{}: a directory, but in no mount of spinney", dir.display()))?.image())
}

/// The kernel's mount of a file-system type that contains the directory `path`, or that may write to the image at
/// `path`.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn kernel_mount(path: &Path, kind: &str) -> Result<Option<PathBuf>> {
    for locator in Locator::parse_list(path)? {
        let Some(path) = locator.path() else { continue };
        let path = path.canonicalize()?;
        let row = match path.is_dir() {
            true => mounts::with(&path)?.filter(|row| row.kind == kind),
            false => mounts::find_kernel(&path, kind)?,
        };
        if let Some(row) = row {
            return Ok(Some(row.dir));
        }
    }
    Ok(None)
}

fn connect_to(dir: &Path) -> Result<Remote> {
    let shown = dir.display();
    let remote = connect(dir).with_context(|| shown.to_string())?;
    remote.ok_or_else(|| {
        let text = "in a mount that takes no commands: it was mounted with `idmap`, or by an older version";
        Failure::refused(format!("{shown}: a directory {text}")).into()
    })
}

/// Opens the volume of a mount, through the mount's server.
fn open_mounted(dir: &Path, request: &VolumeOptions) -> Result<Opened> {
    let shown = dir.display();
    if request.own.iter().any(|(name, _)| ["compress", "nologreplay"].contains(&name.as_str())) {
        let text = "options for compression and log replay apply when an image is opened, not to a mount";
        return Err(Failure::usage(format!("{shown}: a directory of a mount; {text}")).into());
    }
    let remote = connect_to(dir)?;
    if !request.read_only && remote.is_read_only() {
        return Err(Failure::refused(format!("{shown}: mounted for reading only")).into());
    }
    Ok(Opened { volume: Files::new(Arc::new(remote)), own: None })
}

/// Opens the devices that a command names.
///
/// # Errors
/// Errors of the operating system, and of names that are not valid.
pub(crate) fn open_devices(image: &ImageArgs, request: &VolumeOptions) -> Result<Devices> {
    let access = Access { read_only: request.read_only, ..Access::default() };
    let opened = spinney::open_list(&locators(&image.image, &image.device)?, access)?;
    Ok(opened.into_iter().map(watched).collect())
}

/// The devices of a list (`A,B`), and further ones.
///
/// # Errors
/// `NotALocator`.
pub(crate) fn locators(list: &Path, further: &[PathBuf]) -> spinney::blockdev::Result<Vec<Locator>> {
    let mut found = Locator::parse_list(list)?;
    for path in further {
        found.push(Locator::parse(path)?);
    }
    Ok(found)
}

fn open_on(devices: Devices, request: &VolumeOptions) -> Result<Opened> {
    let format = format::of_all(&devices)?;
    let volume = spinney::open_as(format, devices, request)?;
    (format::face(format).warn)(&volume)?;
    Ok(Opened { volume: Files::clone(&volume), own: Some(volume) })
}

/// An opened image, or a mount in its place.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The volume, whose files are used by their paths.
    pub(crate) volume: Files,
    /// The volume with the functions of its format; `None` for a mount.
    pub(crate) own: Option<Volume>,
}

/// Adds the name of the image to the failure of opening it and, if it is not an image of a known format, the kind of
/// the file.
pub(crate) fn explain(path: &Path, error: Error) -> Error {
    let error = if error.to_string().contains(&*path.to_string_lossy()) {
        error
    } else {
        error.context(path.display().to_string())
    };
    let Ok(list) = Locator::parse_list(path) else { return error };
    if status_of(&error) == Status::Busy {
        return busy(path, &list, error);
    }
    if let Some(advice) = format::advice(&error) {
        return Failure::new(status_of(&error), format!("{}; {advice}", one_line(&error))).into();
    }
    if status_of(&error) != Status::Corrupt {
        return error;
    }
    let Some(part) = list.first() else { return error };
    match format::recognise(part) {
        Ok(Some(name)) if spinney::format_named(name).is_none() => {
            let path = path.display();
            let known = format::format_names();
            let text = format!("{path}: file system: expected {known}, found {name}");
            Failure::new(Status::Corrupt, text).into()
        }
        Ok(None) => with_remedies(part, no_image(path, part, error)),
        _ => with_remedies(part, error),
    }
}

/// Says where an image in use is mounted, or which process has it open.
fn busy(path: &Path, devices: &[Locator], error: Error) -> Error {
    let path = path.display();
    if let Ok(Some(mounts::Mount { dir, .. })) = mounts::serving_any(devices) {
        let dir = dir.display();
        let text = format!("{path}: mounted at {dir}; unmount it first, or use the paths below {dir}");
        return Failure::new(Status::Busy, text).into();
    }
    let holders = devices.iter().filter_map(|device| device.identity().ok().flatten()?.holders().ok()).flatten();
    let others = holders.filter(|holder| holder.process != std::process::id());
    let holders: Vec<String> = others.map(|holder| format!("{} (process {})", holder.name, holder.process)).collect();
    if holders.is_empty() {
        return error;
    }
    Failure::new(Status::Busy, format!("{}: {}", one_line(&error), holders.join(", "))).into()
}

/// Reports that a file is not an image, and which kind of file it looks like.
fn no_image(path: &Path, part: &Locator, error: Error) -> Error {
    let (path, known) = (path.display(), format::format_names());
    let looks = match format::look(part) {
        Ok(Look::Empty) => "it is empty".to_owned(),
        Ok(Look::Short(bytes)) => format!("it has {bytes} bytes, too few for a superblock"),
        Ok(Look::Like(what)) => format!("it looks like {what}"),
        Ok(Look::Unknown) => "it holds no file system that is known here".to_owned(),
        Err(_) => return error,
    };
    Failure::new(Status::Corrupt, format!("{path}: no {known} image: {looks}")).into()
}

/// Adds the remedies that the formats suggest to the failure of opening an image.
fn with_remedies(image: &Locator, error: Error) -> Error {
    let Ok(device) = spinney::blockdev::open(image, Access::READ) else { return error };
    let devices: [Arc<dyn Device>; 1] = [device];
    let formats = spinney::formats();
    let remedies: Vec<String> = formats.iter().flat_map(|format| format.remedies(&devices)).collect();
    if remedies.is_empty() {
        return error;
    }
    let text = format!("{}; {}", one_line(&error), remedies.join(" or "));
    Failure::new(Status::Corrupt, text).into()
}
