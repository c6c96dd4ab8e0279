//! `spinney mkfs`

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Error, Result};
use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions, MemoryDevice};
use btrfs_disk::Uuid;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_store::MakeOptions;
use clap::{Args, ValueEnum};
use codec::ChecksumType;
use spinney::{Compression, Volume, VolumeInfo, VolumeOptions};

use super::blank;
use super::compression;
use super::features;
use super::info;
use super::label;
use super::late_super::LateSuper;
use super::sizing::{self, Shape};
use commands::failure::{Failure, Status};
use commands::format;
use commands::human::{self, parse_bytes};
use commands::image::ImagePath;
use commands::import::{ImportOptions, import_contents, measure};
use commands::output::Output;
use commands::progress::{Bar, Progress};
use commands::put::parse_owner;
use commands::trace::watch::watched;
use commands::work;

/// Make a file system, empty or with the contents of a directory
///
/// Without --size, a new image is as large as needed, and a file or device keeps its size. The
/// defaults are those of mkfs.btrfs 6.19.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney mkfs --size 2G disk.img\n",
    "  spinney mkfs --rootdir ./site -L site site.img\n",
    "  spinney mkfs --rootdir ./site --compress zstd:9 site.img\n",
    "  spinney mkfs --rootdir ./site --shrink site.img\n",
    "  spinney mkfs --csum xxhash64 -O ^block-group-tree --size 1G old.img\n",
    "  spinney mkfs -O list-all"
))]
pub(crate) struct Mkfs {
    /// File or unmounted block device; FILE?offset=N&size=M is a part of it
    #[arg(value_name = "FILE", required_unless_present = "features")]
    target: Option<PathBuf>,
    /// Copy the contents of DIR into it
    #[arg(short = 'r', long, value_name = "DIR")]
    rootdir: Option<PathBuf>,
    /// Compress contents: zlib[:1-9], lzo or zstd[:-15-15]; what does not become smaller is stored as it is
    #[arg(long, value_name = "ALGO[:LEVEL]", value_parser = compression::parse, requires = "rootdir")]
    compress: Option<Compression>,
    /// Name of the file system, up to 255 bytes
    #[arg(short = 'L', long, default_value = "")]
    label: String,
    /// UUID of the file system, instead of a random one
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// Bytes of a tree block: 4K to 64K
    #[arg(short, long, value_name = "SIZE", value_parser = parse_bytes)]
    nodesize: Option<u64>,
    /// Checksum of everything: crc32c, xxhash64, sha256 or blake2b
    #[arg(long, value_name = "TYPE", value_parser = parse_csum, default_value = "crc32c")]
    csum: ChecksumType,
    /// Copies of file contents
    #[arg(short, long, value_name = "PROFILE")]
    data: Option<Profile>,
    /// Copies of metadata
    #[arg(short, long, value_name = "PROFILE")]
    metadata: Option<Profile>,
    /// Keep contents and metadata in the same block groups, for very small images
    #[arg(short = 'M', long)]
    mixed: bool,
    /// Features, with ^ those to leave out; list-all shows them
    #[arg(short = 'O', long, value_name = "FEATURE,..", value_delimiter = ',')]
    features: Vec<String>,
    /// Bytes of the file system
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<u64>,
    /// Overwrite whatever FILE holds
    #[arg(short, long)]
    force: bool,
    /// Keep the blocks that a file has, instead of emptying it first: it stays allocated
    #[arg(short = 'K', long)]
    nodiscard: bool,
    /// Cut the image after what its contents take: `resize` makes room again
    #[arg(long, requires = "rootdir")]
    shrink: bool,
    /// Give everything this owner and group; without --rootdir, the directory at the top
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    owner: Option<(u32, u32)>,
    /// Threads that copy; with one, the same source always gives the same order
    #[arg(long, value_name = "COUNT", default_value_t = work::default_threads(), hide_default_value = true)]
    threads: usize,
    /// No summary and no progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON, as `info` does
    #[arg(long)]
    json: bool,
}

/// How many copies there are, on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Profile {
    Single,
    Dup,
}

/// What is known about the file or device before it is written.
struct Target {
    path: PathBuf,
    part: ImagePath,
    /// Bytes it has now; 0 where there is nothing.
    size: u64,
    is_new: bool,
    is_device: bool,
    /// Its blocks stay.
    keeps_blocks: bool,
}

/// A new file system, and the device it is on.
struct Made {
    volume: Volume,
    device: Arc<LateSuper<Arc<dyn Device>>>,
}

/// How often a size that was too small is increased before giving up.
const GROWTH_COUNT_MAX: u32 = 6;

impl Mkfs {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        if features::asks_for_list(&self.features) {
            return features::print_list(out);
        }
        let path = self.target.as_ref().ok_or_else(|| Failure::usage("FILE is missing"))?;
        let make = self.make_options()?;
        let target = Target::inspect(path, self.nodiscard)?;
        if !self.force {
            target.refuse_occupied()?;
        }
        if let Some(rootdir) = &self.rootdir {
            // Known before anything is overwritten.
            std::fs::read_dir(rootdir).with_context(|| rootdir.display().to_string())?;
        }
        let made = self.make(&target, &make).and_then(Made::finish);
        let cut = |info: &VolumeInfo| if self.shrink { target.cut(info.total_bytes) } else { Ok(()) };
        let info = match made.and_then(|info| cut(&info).map(|()| info)) {
            Ok(info) => info,
            Err(error) => {
                target.remove_new();
                return Err(error);
            }
        };
        if self.json {
            out.json(&info::report(&info))
        } else if self.quiet {
            Ok(())
        } else {
            info::print(out, &info)
        }
    }

    fn make_options(&self) -> Result<MakeOptions> {
        let mut make = MakeOptions {
            label: self.label.clone().into_bytes(),
            fsid: self.uuid,
            csum: self.csum,
            ..MakeOptions::default()
        };
        label::check("--label", &make.label)?;
        make.mixed = self.mixed;
        features::apply(&self.features, &mut make)?;
        if let Some(size) = self.nodesize {
            make.nodesize = u32::try_from(size)
                .ok()
                .filter(|size| size.is_power_of_two() && (4096..=65_536).contains(size))
                .ok_or_else(|| {
                    let text = format!("--nodesize: expected a power of two from 4096 to 65536, found {size}");
                    Failure::usage(text)
                })?;
        } else if make.mixed {
            make.nodesize = 4096;
        }
        let bits = |profile| match profile {
            Profile::Single => BlockGroupFlags::empty(),
            Profile::Dup => BlockGroupFlags::DUP,
        };
        if let Some(profile) = self.metadata.or(self.data.filter(|_| make.mixed)) {
            make.metadata_profile = bits(profile);
        } else if make.mixed {
            make.metadata_profile = BlockGroupFlags::empty();
        }
        make.data_profile = bits(self.data.unwrap_or(Profile::Single));
        if make.mixed {
            if self.data.zip(self.metadata).is_some_and(|(data, metadata)| data != metadata) {
                let text = "--mixed: the profiles of --data and --metadata must be the same";
                return Err(Failure::usage(text).into());
            }
            make.data_profile = make.metadata_profile;
        }
        Ok(make)
    }

    fn make(&self, target: &Target, make: &MakeOptions) -> Result<Made> {
        let Some(rootdir) = &self.rootdir else {
            let size = self
                .fixed_size(target)
                .ok_or_else(|| Failure::usage(format!("{}: --size is needed", target.path.display())))?;
            return target.make(make, size, self.volume_options());
        };
        let options = self.import_options(target);
        if let Some(size) = self.fixed_size(target).filter(|_| !self.may_grow(target)) {
            // The total needs a walk of the whole tree, so it is measured only where a progress bar shows it.
            let bytes_total = match Bar::would_show(!self.quiet) {
                true => measure(rootdir, &options)?.bytes,
                false => 0,
            };
            return self.fill(target, make, size, rootdir, &options, bytes_total);
        }
        let totals = measure(rootdir, &options)?;
        let mut size = sizing::image_bytes(&totals, shape(make)).max(target.size);
        let mut growths = 0;
        loop {
            match self.fill(target, make, size, rootdir, &options, totals.bytes) {
                Err(error) if growths < GROWTH_COUNT_MAX && is_image_full(&error) => {
                    growths += 1;
                    size = size.saturating_add(size / 2);
                }
                result => return result,
            }
        }
    }

    /// True where the file may become as large as its contents need.
    fn may_grow(&self, target: &Target) -> bool {
        self.size.is_none() && !target.is_device && target.part.size.is_none()
    }

    /// The size, if it is known before the contents are.
    fn fixed_size(&self, target: &Target) -> Option<u64> {
        self.size.or(target.part.size).or(Some(target.size).filter(|size| *size > 0))
    }

    fn volume_options(&self) -> VolumeOptions {
        let (uid, gid) = self.owner.unwrap_or_default();
        Volume::options().owner(uid, gid).compress(self.compress)
    }

    fn import_options(&self, target: &Target) -> ImportOptions {
        let image = rustix::fs::stat(&target.part.path).ok();
        ImportOptions {
            thread_count: self.threads,
            owner: self.owner,
            keeps_ctime: true,
            skip: image.map(|stat| (stat.st_dev, stat.st_ino)),
            ..ImportOptions::default()
        }
    }

    fn fill(
        &self,
        target: &Target,
        make: &MakeOptions,
        size: u64,
        rootdir: &Path,
        options: &ImportOptions,
        bytes_total: u64,
    ) -> Result<Made> {
        let made = target.make(make, size, self.volume_options())?;
        // The image may lie in the directory that is copied, and exists only now.
        let options = ImportOptions { skip: self.import_options(target).skip, ..options.clone() };
        let progress = Arc::new(Progress::default());
        progress.bytes_total.store(bytes_total, Ordering::Relaxed);
        let _bar = Bar::new(&progress, !self.quiet);
        import_contents(&made.volume.by_paths().clone(), rootdir, Path::new("/"), &options, &progress)?;
        made.volume.sync()?;
        if self.shrink {
            made.volume.by_paths().resize(vfs::Size::Least)?;
        }
        Ok(made)
    }
}

impl Made {
    /// Writes the last state and makes it durable.
    fn finish(self) -> Result<VolumeInfo> {
        let info = self.volume.info()?;
        self.volume.close()?;
        self.device.finish()?;
        Ok(info)
    }
}

impl Target {
    fn inspect(path: &Path, keeps_blocks: bool) -> Result<Self> {
        let part = ImagePath::parse(path);
        let found = match std::fs::metadata(&part.path) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let path = path.to_owned();
                return Ok(Self { path, part, size: 0, is_new: true, is_device: false, keeps_blocks });
            }
            Err(error) => return Err(error).context(path.display().to_string()),
        };
        let is_device = found.file_type().is_block_device();
        if !found.is_file() && !is_device {
            let text = format!("{}: neither a regular file nor a block device", path.display());
            return Err(Failure::refused(text).into());
        }
        let end = if is_device { device_bytes(&part.path)? } else { found.size() };
        let size = part.size.unwrap_or(end.saturating_sub(part.offset));
        Ok(Self { path: path.to_owned(), part, size, is_new: false, is_device, keeps_blocks })
    }

    fn refuse_occupied(&self) -> Result<()> {
        if self.is_new {
            return Ok(());
        }
        let shown = || self.path.display().to_string();
        let found = format::recognise(&self.part.path, self.part.offset).with_context(shown)?;
        let holds = match found {
            Some(name) => format!("holds {name}"),
            None => match blank::first_byte(&self.part.path, self.part.offset, self.size, self.is_device) {
                Ok(None) => return Ok(()),
                Ok(Some(offset)) => format!("is not empty: there is data at byte {offset}"),
                Err(error) => return Err(error).with_context(shown),
            },
        };
        Err(Failure::refused(format!("{}: {holds}; --force overwrites it", shown())).into())
    }

    /// Tries in memory whether a file system of `size` bytes can be made, before anything is overwritten.
    fn rehearse(&self, make: &MakeOptions, size: u64) -> Result<()> {
        let tried = |size| {
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::named(&self.path.display().to_string(), size));
            Volume::options().make_device(device, make).map(drop)
        };
        tried(size).map_err(|error| {
            let size = human::bytes(size);
            match (is_no_space(&error), smallest(|size| tried(size).is_ok())) {
                (true, Some(least)) => {
                    let least = human::bytes(least);
                    let text = format!("{}: {size} is too small: the least is {least}", self.path.display());
                    Failure::new(Status::NoSpace, text).into()
                }
                _ => Error::from(error).context(format!("{}: {size}", self.path.display())),
            }
        })
    }

    /// Makes the file system with `size` bytes.
    fn make(&self, make: &MakeOptions, size: u64, options: VolumeOptions) -> Result<Made> {
        if self.is_device && size > self.size {
            let text = format!("{}: size: expected at most {}, found {size}", self.path.display(), self.size);
            return Err(Failure::new(Status::NoSpace, text).into());
        }
        let make = MakeOptions { size: None, ..make.clone() };
        self.rehearse(&make, size)?;
        if !self.is_device {
            self.resize(size)?;
        }
        let make = MakeOptions { size: Some(size), ..make };
        let file_options = FileOptions { size: Some(size), ..FileOptions::default() };
        let device = FileDevice::open(&self.path, &file_options)?;
        let device = Arc::new(LateSuper::new(watched(Arc::new(device)))?);
        let shared: Arc<dyn Device> = device.clone();
        let volume = options.make_device(shared, &make);
        let volume = volume.with_context(|| format!("{}: {}", self.path.display(), human::bytes(size)))?;
        Ok(Made { volume, device })
    }

    /// Makes the file long enough. One that is ours alone is emptied first, so that no old
    /// block is in it, unless its blocks are to stay.
    fn resize(&self, size: u64) -> Result<()> {
        // It is locked, and known to be nobody else's, while its length changes.
        let options = FileOptions { create: true, ..FileOptions::default() };
        let _lock = FileDevice::open(&self.part.path, &options)?;
        let file = OpenOptions::new().write(true).open(&self.part.path)?;
        let end = self.part.offset.saturating_add(size);
        if i64::try_from(end).is_err() {
            let text = format!("{}: no file is {} long", self.path.display(), human::bytes(end));
            return Err(Failure::usage(text).into());
        }
        let is_whole = self.part.offset == 0 && self.part.size.is_none();
        if is_whole && !self.keeps_blocks {
            file.set_len(0)?;
        }
        if is_whole || file.metadata()?.len() < end {
            file.set_len(end)?;
        }
        Ok(())
    }

    /// Ends a file behind its file system, where it is nothing else.
    fn cut(&self, total_bytes: u64) -> Result<()> {
        if self.is_device || self.part.offset > 0 || self.part.size.is_some() {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(&self.part.path)?;
        if file.metadata()?.len() > total_bytes { Ok(file.set_len(total_bytes)?) } else { Ok(()) }
    }

    /// Takes away the file that a failed attempt has made.
    fn remove_new(&self) {
        if self.is_new {
            // The failure that led here is the one to report.
            let _ = std::fs::remove_file(&self.part.path);
        }
    }
}

/// Sizes of which the least is told are multiples of this.
const LEAST_STEP_BYTES: u64 = 1 << 20;
/// No file system needs more.
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

fn is_no_space(error: &spinney::Error) -> bool {
    matches!(error, spinney::Error::NoSpace)
}

/// True where a larger image would have helped, as a larger disk of the host would not.
fn is_image_full(error: &Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(spinney::Error::NoSpace))
            || matches!(cause.downcast_ref(), Some(btrfs_store::Error::NoSpace { .. }))
    })
}

fn device_bytes(path: &Path) -> Result<u64> {
    let mut device = File::open(path).with_context(|| path.display().to_string())?;
    let end = std::io::Seek::seek(&mut device, std::io::SeekFrom::End(0));
    end.with_context(|| path.display().to_string())
}

fn shape(make: &MakeOptions) -> Shape {
    let copies = |profile: BlockGroupFlags| {
        if profile.contains(BlockGroupFlags::DUP) { 2 } else { 1 }
    };
    Shape {
        csum_bytes: u64::try_from(make.csum.len()).unwrap_or(32),
        data_copies: copies(make.data_profile),
        metadata_copies: copies(make.metadata_profile),
    }
}

fn parse_csum(text: &str) -> Result<ChecksumType, String> {
    let text = if text == "xxhash" { "xxhash64" } else { text };
    let text = if text == "blake2" { "blake2b" } else { text };
    ChecksumType::from_name(text).ok_or_else(|| {
        let known: Vec<&str> = ChecksumType::ALL.iter().map(|kind| kind.name()).collect();
        format!("`{text}` is no checksum; there are {}", known.join(", "))
    })
}

fn parse_uuid(text: &str) -> Result<Uuid, String> {
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
    Ok(Uuid(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_and_checksums_are_read() {
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(parse_uuid(text).unwrap().to_string(), text);
        assert!(parse_uuid("0011").is_err());
        assert!(parse_uuid("zz112233-4455-6677-8899-aabbccddeeff").is_err());
        assert_eq!(parse_csum("xxhash"), Ok(ChecksumType::Xxhash64));
        assert!(parse_csum("md5").is_err());
    }
}
