//! Prepares the target of `mkfs`: the options that every format has, the file or device before, and its contents and
//! report after. `mkfs` of btrfs and of f2fs call it.

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error, Result};
use clap::Args;
use spinney::blockdev::{self, Access, Device, Locator};
use spinney::transfer::FileId;

use crate::commands::failure::{Failure, Status};
use crate::commands::format;
use crate::commands::human::{self, parse_bytes};
use crate::commands::image::maker;
use crate::commands::output::Output;
use crate::commands::trace::watch::watched;
use crate::contents::Sources;
use crate::existing_data;

/// The options of `mkfs` that every format has.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// File or unmounted block device; FILE?offset=N&size=M is a part of it; or nbd://HOST/EXPORT
    #[arg(value_name = "FILE", required_unless_present = "features")]
    target: Option<PathBuf>,
    /// Name of the file system, up to 255 bytes; of f2fs, up to 511 UTF-16 units
    #[arg(short = 'L', visible_short_alias = 'l', long, default_value = "", hide_default_value = true)]
    pub(crate) label: String,
    /// UUID of the file system, instead of a random one
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    pub(crate) uuid: Option<[u8; 16]>,
    /// Features, with ^ those to leave out; list-all shows them
    #[arg(short = 'O', long, value_name = "FEATURE,..", value_delimiter = ',')]
    pub(crate) features: Vec<String>,
    /// Bytes of the file system
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) size: Option<u64>,
    /// Overwrite the data that FILE holds
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Keep the allocated blocks of a file instead of emptying it first
    #[arg(short = 'K', long)]
    nodiscard: bool,
    #[command(flatten)]
    pub(crate) contents: Sources,
    /// Threads that copy
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,
    /// The same contents always give the same image: the UUIDs follow from -U, or else from the label, and the times
    /// from SOURCE_DATE_EPOCH, or else from the newest file. With SOURCE_DATE_EPOCH and -U this is so without it
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Where it is made, if it is delivered to the target afterwards
    #[arg(skip)]
    pub(crate) place: OnceCell<PathBuf>,
    /// No report after it
    #[arg(long, hide = true)]
    pub(crate) no_summary: bool,
    /// The name of the program that this one is called as
    #[arg(long, hide = true)]
    pub(crate) called_as: Option<String>,
    /// No summary and no progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Report as JSON, as `info` does
    #[arg(long)]
    pub(crate) json: bool,
}

impl Common {
    /// The file or device. Unless `--force` is given, it holds no data.
    ///
    /// # Errors
    /// `Usage` where none is named, `Refused` where it holds something, and the host's.
    pub(crate) fn target(&self) -> Result<Target> {
        let path = self.target.as_ref().ok_or_else(|| Failure::usage("FILE is missing"))?;
        self.target_at(path, self.place.get().unwrap_or(path))
    }

    /// As [`Common::target`], for a further device of the same file system.
    ///
    /// # Errors
    /// As [`Common::target`].
    pub(crate) fn further_target(&self, path: &Path) -> Result<Target> {
        self.target_at(path, path)
    }

    fn target_at(&self, path: &Path, place: &Path) -> Result<Target> {
        let mut target = Target::inspect(path, place, self.nodiscard)?;
        // systemd-repart locks the device that it has mkfs.btrfs work on.
        target.is_locked = self.called_as.is_some();
        if !self.force {
            target.refuse_occupied(self.called_as.is_some())?;
        }
        if target.is_new && self.called_as.is_some() && self.contents.sources.is_empty() && self.size.is_none() {
            return Err(Failure::usage(format!("{}: no such file or device", target.path.display())).into());
        }
        Ok(target)
    }

    /// The path of the target, if one is given.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.target.as_deref()
    }

    /// True if a report follows on the standard output.
    pub(crate) fn reports(&self) -> bool {
        !(self.quiet || self.no_summary || self.path().is_some_and(|path| path.as_os_str() == "-"))
    }

    /// Owner and group of the root directory. In an empty file system they are those of the user who makes it, who
    /// could not write into it otherwise; with contents, those of the source directory replace them.
    pub(crate) fn top_owner(&self) -> (u32, u32) {
        match (self.contents.owner(), self.contents.sources.is_empty()) {
            (Some(owner), _) => owner,
            (None, true) => maker(),
            (None, false) => (0, 0),
        }
    }

    /// Adds the owner of the root directory to the summary, unless it was copied from a directory.
    pub(crate) fn print_owner(&self, out: &mut Output) -> Result<()> {
        if !self.contents.sources.is_empty() {
            return Ok(());
        }
        let (uid, gid) = self.top_owner();
        Ok(writeln!(out, "Owner:       {uid}:{gid}, of the root directory")?)
    }

    /// The size, if it does not depend on the contents.
    pub(crate) fn fixed_size(&self, target: &Target) -> Option<u64> {
        self.size.or(target.part.size()).or(Some(target.size).filter(|size| *size > 0))
    }

    /// The size, which the user has to give.
    ///
    /// # Errors
    /// `Usage` where it is not.
    pub(crate) fn size(&self, target: &Target) -> Result<u64> {
        let missing = || Failure::usage(format!("{}: --size is needed", target.path.display()));
        Ok(self.fixed_size(target).ok_or_else(missing)?)
    }
}

/// The file or device, as it is before it is written.
pub(crate) struct Target {
    /// As it was given.
    pub(crate) path: PathBuf,
    /// Its path, and the part of it to use.
    pub(crate) part: Locator,
    /// Present size in bytes; 0 if the file does not exist.
    pub(crate) size: u64,
    is_new: bool,
    /// True for a block device.
    pub(crate) is_device: bool,
    /// True if allocated blocks are kept.
    keeps_blocks: bool,
    /// True if the caller may hold the lock of a block device.
    is_locked: bool,
}

impl Target {
    /// Looks at `place`, which messages call `path`.
    pub(crate) fn inspect(path: &Path, place: &Path, keeps_blocks: bool) -> Result<Self> {
        let part = Locator::parse(place)?;
        let unsupported = |text: &str| Failure::new(Status::Unsupported, format!("{}: {text}", path.display()));
        if Locator::parse_list(place)?.len() > 1 {
            return Err(unsupported("one argument names one device (`file:` names a file with a comma)").into());
        }
        let Some(file) = part.path() else {
            let size = blockdev::open(&part, Access::READ)?.size_bytes();
            let (path, is_device) = (path.to_owned(), true);
            return Ok(Self { path, part, size, is_new: false, is_device, keeps_blocks, is_locked: false });
        };
        let found = match std::fs::metadata(file) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let path = path.to_owned();
                return Ok(Self {
                    path,
                    part,
                    size: 0,
                    is_new: true,
                    is_device: false,
                    keeps_blocks,
                    is_locked: false,
                });
            }
            Err(error) => return Err(error).context(path.display().to_string()),
        };
        let is_device = found.file_type().is_block_device();
        if !found.is_file() && !is_device {
            let text = format!("{}: neither a regular file nor a block device", path.display());
            return Err(Failure::refused(text).into());
        }
        let end = if is_device { device_bytes(file)? } else { found.size() };
        let size = part.size().unwrap_or(end.saturating_sub(part.offset()));
        Ok(Self { path: path.to_owned(), part, size, is_new: false, is_device, keeps_blocks, is_locked: false })
    }

    /// The file or block device of the host; of a device elsewhere a part of its name, at which no file is.
    pub(crate) fn file(&self) -> &Path {
        self.part.target()
    }

    /// The first byte that is not zero.
    fn first_byte(&self) -> Result<Option<u64>> {
        match self.part.path() {
            Some(file) => Ok(existing_data::first_byte(file, self.part.offset(), self.size, self.is_device)?),
            None => Ok(existing_data::first_byte_of(&*blockdev::open(&self.part, Access::READ)?)?),
        }
    }

    /// Device and inode number of the file, if it is there: it may lie in the directory that is copied.
    pub(crate) fn id(&self) -> Option<FileId> {
        std::fs::metadata(self.part.path()?).ok().map(|found| (found.dev(), found.ino()))
    }

    /// Refuses to overwrite data. Programs that call this one by another name expect that only a file system or a table
    /// of partitions counts.
    pub(crate) fn refuse_occupied(&self, only_known: bool) -> Result<()> {
        if self.is_new {
            return Ok(());
        }
        let shown = || self.path.display().to_string();
        let found = format::recognise(&self.part).with_context(shown)?;
        let holds = match found {
            Some(name) if only_known => format!("appears to contain an existing filesystem ({name})"),
            Some(name) => format!("holds {name}"),
            None if only_known => return Ok(()),
            None => match self.first_byte() {
                Ok(None) => return Ok(()),
                Ok(Some(offset)) => format!("is not empty: there is data at byte {offset}"),
                Err(error) => return Err(error).with_context(shown),
            },
        };
        Err(Failure::refused(format!("{}: {holds}; --force overwrites it", shown())).into())
    }

    /// Refuses a size that the device does not have, or that no file has.
    pub(crate) fn check_size(&self, size: u64) -> Result<()> {
        let end = self.part.offset().saturating_add(size);
        if !self.is_device && i64::try_from(end).is_err() {
            let text = format!("{}: no file is {} long", self.path.display(), human::bytes(end));
            return Err(Failure::usage(text).into());
        }
        if self.is_device && size > self.size {
            let text = format!("{}: size: expected at most {}, found {size}", self.path.display(), self.size);
            return Err(Failure::new(Status::NoSpace, text).into());
        }
        Ok(())
    }

    /// The failure of a size that is too small, which names the least for which `fits` is true; `None` where there is
    /// no such size.
    pub(crate) fn too_small(&self, size: u64, fits: impl Fn(u64) -> bool) -> Option<Error> {
        let (size, least) = (human::bytes(size), human::bytes(smallest(fits)?));
        let text = format!("{}: {size} is too small: the least is {least}", self.path.display());
        Some(Failure::new(Status::NoSpace, text).into())
    }

    /// An error with the target and the size that was tried.
    pub(crate) fn with_size(&self, size: u64, error: impl Into<Error>) -> Error {
        error.into().context(format!("{}: {}", self.path.display(), human::bytes(size)))
    }

    /// Refuses a file or device that cannot be written, or is in use.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.is_new {
            return Ok(());
        }
        let access = Access { unlocked: self.is_locked, ..Access::WRITE };
        Ok(blockdev::open(&self.part, access).map(drop)?)
    }

    /// Opens it to be written, with `size` bytes: a file is made, or made long enough. Signatures of old file systems
    /// are overwritten but for the superblocks of btrfs.
    pub(crate) fn open(&self, size: u64) -> Result<Arc<dyn Device>> {
        self.open_erased(size, false)
    }

    /// As [`Target::open`], but the superblocks of btrfs are overwritten, too.
    pub(crate) fn open_bare(&self, size: u64) -> Result<Arc<dyn Device>> {
        self.open_erased(size, true)
    }

    fn open_erased(&self, size: u64, all: bool) -> Result<Arc<dyn Device>> {
        if !self.is_device {
            self.resize(size)?;
        }
        let access = Access { unlocked: self.is_locked, ..Access::WRITE };
        let device = watched(blockdev::open(&self.part.clone().with_size(Some(size)), access)?);
        existing_data::erase_signatures(&*device, all)?;
        Ok(device)
    }

    /// Makes the file long enough. One that is ours alone is emptied first, so that no old
    /// block is in it, unless its blocks are to stay.
    fn resize(&self, size: u64) -> Result<()> {
        // Locked, so that no other program has it open while its length changes.
        let _lock = blockdev::open(&Locator::file(self.file()), Access { create: true, ..Access::WRITE })?;
        let file = OpenOptions::new().write(true).open(self.file())?;
        let end = self.part.offset().saturating_add(size);
        let is_whole = self.part.offset() == 0 && self.part.size().is_none();
        if is_whole && !self.keeps_blocks {
            file.set_len(0)?;
        }
        if is_whole || file.metadata()?.len() < end {
            file.set_len(end)?;
        }
        Ok(())
    }

    /// Cuts a file at the end of its file system, unless only a part of it was given.
    pub(crate) fn cut(&self, total_bytes: u64) -> Result<()> {
        if self.is_device || self.part.offset() > 0 || self.part.size().is_some() {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(self.file())?;
        if file.metadata()?.len() > total_bytes { Ok(file.set_len(total_bytes)?) } else { Ok(()) }
    }

    /// Removes the file that a failed attempt has made.
    pub(crate) fn remove_new(&self) {
        if self.is_new {
            // The failure that led here is the one to report.
            let _ = std::fs::remove_file(self.file());
        }
    }
}

/// The reported least size is a multiple of this.
const LEAST_STEP_BYTES: u64 = 1 << 20;
/// Largest size that is tried.
const LEAST_MAX_BYTES: u64 = 4 << 30;

/// The least size for which `fits` is true, where it is true for all larger ones.
fn smallest(fits: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut below, mut steps) = (0, LEAST_MAX_BYTES / LEAST_STEP_BYTES);
    if !fits(steps * LEAST_STEP_BYTES) {
        return None;
    }
    while steps - below > 1 {
        let middle = below.midpoint(steps);
        if fits(middle * LEAST_STEP_BYTES) { steps = middle } else { below = middle }
    }
    Some(steps * LEAST_STEP_BYTES)
}

fn device_bytes(path: &Path) -> Result<u64> {
    let mut device = File::open(path).with_context(|| path.display().to_string())?;
    let end = std::io::Seek::seek(&mut device, std::io::SeekFrom::End(0));
    end.with_context(|| path.display().to_string())
}

pub(crate) fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let wrong = || format!("`{text}` is no UUID; write 8-4-4-4-12 hex digits");
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 32 {
        return Err(wrong());
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read() {
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(crate::commands::names::uuid(&parse_uuid(text).unwrap()), text);
        assert!(parse_uuid("0011").is_err());
        assert!(parse_uuid("zz112233-4455-6677-8899-aabbccddeeff").is_err());
    }
}
