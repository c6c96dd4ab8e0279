//! `spinney resize` makes an image, or a mounted file system, larger or smaller. Called by `args`. For a mount it
//! orders the server of the mount to do the work, through `server_report`.

use std::error::Error as StdError;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Error, Result};
use clap::Args;
use rustix::io::Errno;
use serde::Serialize;
use spinney::btrfs::SpaceUsage;

use super::format;
use super::server_report::{self, read_reply};
use crate::commands::failure::{Failure, Status, one_line};
use crate::commands::human;
use crate::commands::image::ImageArgs;
use crate::commands::names;
use crate::commands::output::Output;

/// Make an image larger or smaller
///
/// An image file becomes as long as its file system; on a disk only the file system changes. Data beyond the new end is
/// moved before it, if there is space.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "To change the size of a mounted image, name the directory of the mount.\n\n",
    "Examples:\n",
    "  spinney resize 4G site.img\n",
    "  spinney resize +512M site.img               512 MiB larger; -512M: 512 MiB smaller\n",
    "  spinney resize min site.img                 as small as possible: data is moved to the front\n",
    "  spinney resize max /dev/vdb1                as large as the disk, or the file, is\n",
    "  spinney resize +1G ./mnt                    a mounted file system, while it is in use\n",
    "  spinney resize 2:max a.img,b.img            device 2 of a volume on several devices\n",
    "  spinney resize --json min site.img | jq .total_bytes"
))]
pub(crate) struct Resize {
    /// The new size; a change with + or -; `min` or `max`; DEVID:SIZE for the device with this number
    #[arg(value_name = "SIZE", value_parser = parse, allow_hyphen_values = true)]
    size: Asked,
    #[command(flatten)]
    image: ImageArgs,
    /// No summary
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {before_bytes, total_bytes}
    #[arg(long)]
    json: bool,
}

/// The requested size, of the volume or of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    device: Option<u64>,
    size: Size,
}

/// The requested size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Bytes(u64),
    More(u64),
    Less(u64),
    Min,
    Max,
}

#[derive(Serialize)]
struct Report {
    before_bytes: u64,
    total_bytes: u64,
}

fn parse(text: &str) -> Result<Asked, String> {
    let (device, size) = match text.split_once(':') {
        Some((id, size)) => (Some(id.parse().map_err(|_| format!("`{id}` is no number of a device"))?), size),
        None => (None, text),
    };
    Ok(Asked { device, size: parse_size(size)? })
}

fn parse_size(text: &str) -> Result<Size, String> {
    match (text, text.split_at_checked(1)) {
        ("min", _) => Ok(Size::Min),
        ("max", _) => Ok(Size::Max),
        (_, Some(("+", more))) => human::parse_bytes(more).map(Size::More),
        (_, Some(("-", less))) => human::parse_bytes(less).map(Size::Less),
        _ => human::parse_bytes(text).map(Size::Bytes),
    }
}

impl Resize {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let (before, total) = match self.image.mounted_dir()? {
            Some(dir) => self.resize_mount(&dir)?,
            None => self.resize_image()?,
        };
        if self.json {
            return out.json(&Report { before_bytes: before, total_bytes: total });
        }
        if !self.quiet {
            writeln!(out, "{} before, now {} ({total} bytes)", human::bytes(before), human::bytes(total))?;
        }
        Ok(())
    }

    fn resize_image(&self) -> Result<(u64, u64)> {
        let volume = format::open_to_resize(&self.image)?;
        let (before, max) = match self.size.device {
            Some(id) => {
                let devices = volume.devices();
                let device = devices.iter().find(|device| device.id.0 == id).ok_or_else(|| self.no_device(id))?;
                (device.total_bytes, device.device_bytes)
            }
            None => (volume.info()?.total_bytes, volume.device_bytes()),
        };
        let size = match self.size.size {
            Size::Max => self.check(before, Some(max))?,
            _ => self.wanted(before)?,
        };
        let resized = match self.size.device {
            Some(id) => volume.resize_device(id, size),
            None => volume.by_paths().resize(size),
        };
        let total = resized.map_err(|error| self.explain(error, size))?;
        volume.close()?;
        Ok((before, total))
    }

    /// Asks the server of a mount to resize.
    fn resize_mount(&self, dir: &Path) -> Result<(u64, u64)> {
        let size = || -> Result<u64> {
            let usage = read_reply::<SpaceUsage>(dir, SpaceUsage::XATTR, "tell its size")?;
            let Some(id) = self.size.device else { return Ok(usage.device_bytes) };
            let device = usage.devices.iter().find(|device| device.id == id);
            Ok(device.ok_or_else(|| self.no_device(id))?.total_bytes)
        };
        let before = size()?;
        let (word, bytes) = match self.size.size {
            Size::Max => ("max".to_owned(), None),
            _ => match self.wanted(before)? {
                spinney::vfs::Size::Least => ("min".to_owned(), None),
                spinney::vfs::Size::Bytes(bytes) => (bytes.to_string(), Some(bytes)),
            },
        };
        let word = match self.size.device {
            Some(id) => format!("{id}:{word}"),
            None => word,
        };
        server_report::order(dir, SpaceUsage::RESIZE_XATTR, &word, "change its size", |error| match error {
            Errno::BUSY => Some(server_report::refusal(dir, "a balance, or another change of its size, is under way")),
            Errno::NOSPC => Some(no_room(&dir.display().to_string(), bytes)),
            _ => None,
        })?;
        Ok((before, size()?))
    }

    fn wanted(&self, before: u64) -> Result<spinney::vfs::Size> {
        match self.size.size {
            Size::Min | Size::Max => Ok(spinney::vfs::Size::Least),
            Size::Bytes(bytes) => self.check(before, Some(bytes)),
            Size::More(bytes) => self.check(before, before.checked_add(bytes)),
            Size::Less(bytes) => self.check(before, before.checked_sub(bytes)),
        }
    }

    fn no_device(&self, id: u64) -> Error {
        let name = names::escaped(self.image.image.as_os_str().as_bytes());
        Failure::refused(format!("{name}: the volume has no device {id}")).into()
    }

    /// Explains why the size could not be changed; for lack of space, with the requested size.
    fn explain(&self, error: spinney::vfs::Error, wanted: spinney::vfs::Size) -> Error {
        let is_full = error.blame() == spinney::vfs::Blame::Space;
        let error = Error::from(error);
        let cannot_grow = |cause: &(dyn StdError + 'static)| {
            matches!(
                cause.downcast_ref::<spinney::blockdev::Error>(),
                Some(spinney::blockdev::Error::CannotGrow { .. })
            )
        };
        if error.chain().any(cannot_grow) {
            return Failure::new(Status::NoSpace, one_line(&error)).into();
        }
        match wanted {
            spinney::vfs::Size::Bytes(bytes) if is_full => {
                no_room(&names::escaped(self.image.image.as_os_str().as_bytes()), Some(bytes))
            }
            spinney::vfs::Size::Bytes(_) | spinney::vfs::Size::Least => error,
        }
    }

    /// Refuses a size that is invalid, or impossible for this image.
    fn check(&self, before: u64, wanted: Option<u64>) -> Result<spinney::vfs::Size> {
        let name = names::escaped(self.image.image.as_os_str().as_bytes());
        let Some(wanted) = wanted else {
            let has = human::bytes(before);
            let text = format!("{name}: its size of {has} ({before} bytes) cannot change by so much");
            return Err(Failure::usage(text).into());
        };
        if i64::try_from(wanted).is_err() {
            return Err(Failure::usage(format!("{name}: no file is {} long", human::bytes(wanted))).into());
        }
        Ok(spinney::vfs::Size::Bytes(wanted))
    }
}

/// The failure of a change to this many bytes, or to the least or the largest size.
fn no_room(name: &str, bytes: Option<u64>) -> Error {
    let text = match bytes {
        Some(bytes) => {
            format!("{name}: cannot have {bytes} bytes: not enough free space below that size for the data beyond it")
        }
        None => format!("{name}: its size cannot change: not enough free space to move data"),
    };
    Failure::new(Status::NoSpace, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_or_changes_or_words() {
        let of_volume = |size| Ok(Asked { device: None, size });
        assert_eq!(parse("4G"), of_volume(Size::Bytes(4 << 30)));
        assert_eq!(parse("+1M"), of_volume(Size::More(1 << 20)));
        assert_eq!(parse("-4096"), of_volume(Size::Less(4096)));
        assert_eq!((parse("min"), parse("max")), (of_volume(Size::Min), of_volume(Size::Max)));
        assert_eq!(parse("2:max"), Ok(Asked { device: Some(2), size: Size::Max }));
        assert_eq!(parse("2:-1G"), Ok(Asked { device: Some(2), size: Size::Less(1 << 30) }));
        for wrong in ["", "+", "-", "large", "--1", "1:", ":max", "x:max", "1:2:max"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
