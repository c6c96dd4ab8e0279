//! `spinney mkfs -t btrfs` makes a btrfs file system, empty or with the contents of a directory. Called by
//! `crate::mkfs`, as an implementation of `make::Make`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Error, Result};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use spinney::blockdev::Device;
use spinney::blockdev::backends::MemoryDevice;
use spinney::btrfs::disk::Uuid;
use spinney::btrfs::disk::flags::BlockGroupFlags;
use spinney::btrfs::disk::superblock::{SUPERBLOCK_SIZE, mirror_offsets};
use spinney::btrfs::import_layers;
use spinney::btrfs::pool::Profile;
use spinney::btrfs::store::MakeOptions;
use spinney::btrfs::{
    Compression, Volume, VolumeInfo, VolumeOptions, checksum, compression, default_metadata_profile, profile,
};
use spinney::codec::ChecksumType;
use spinney::vfs::SnapshotMode;
use spinney::{Blame, Contents};

use super::features;
use super::info;
use super::label;
use super::path_options::{Flagged, PathOptions, Subvolume, parse_flagged, parse_subvolume};
use super::progs_report;
use super::reflink::Sharing;
use super::sizing::{self, Shape};
use super::verity::Verity;
use crate::commands::failure::{Failure, Status, status_of};
use crate::commands::human::{self, parse_bytes};
use crate::commands::output::{Output, warn};
use crate::contents::with_source;
use crate::job::Job;
use crate::late_super::LateSuper;
use crate::make::Make;
use crate::target::{Common, Target, parse_uuid};
use spinney::transfer::Totals;

/// The only size of a data block that is written, bytes.
const SECTOR_BYTES: u64 = 4096;

/// The options that other formats do not have.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Own {
    /// Compress contents: zlib[:1-9], lzo or zstd[:-15-15]; incompressible data is stored as it is
    #[arg(long, value_name = "ALGO[:LEVEL]", value_parser = compression, requires = "rootdir")]
    compress: Option<Compression>,
    /// Bytes of a tree block: 4K to 64K
    #[arg(short, long, value_name = "SIZE", value_parser = parse_bytes)]
    nodesize: Option<u64>,
    /// Checksum algorithm: crc32c by default, xxhash64, sha256 or blake2b
    #[arg(long, value_name = "TYPE", value_parser = checksum)]
    csum: Option<ChecksumType>,
    /// Further files or devices, for a file system on several
    #[arg(value_name = "FILE")]
    further: Vec<PathBuf>,
    /// How file contents lie on the devices: single, dup, raid0, raid1, raid1c3, raid1c4 or raid10
    #[arg(short, long, value_name = "PROFILE", value_parser = profile)]
    data: Option<BlockGroupFlags>,
    /// The same for metadata; by default dup, and raid1 on several devices
    #[arg(short, long, value_name = "PROFILE", value_parser = profile)]
    metadata: Option<BlockGroupFlags>,
    /// Keep contents and metadata in the same block groups, for very small images
    #[arg(short = 'M', long)]
    mixed: bool,
    /// Make the directory PATH of the contents a subvolume: read-only with `ro:`, mounted by default with `default:` or
    /// `default-ro:`; `./` before PATH keeps a colon in it. May be given several times
    #[arg(short = 'u', long, value_name = "[KIND:]PATH", value_parser = subvolume_parser(), requires = "rootdir")]
    subvol: Vec<Subvolume>,
    /// Store the file PATH of the contents, or what is in the directory PATH, without copy on write (nodatacow) or
    /// without checksums (nodatasum). May be given several times
    #[arg(long, value_name = "FLAG,..:PATH", value_parser = flags_parser(), requires = "rootdir")]
    inode_flags: Vec<Flagged>,
    /// Store the data of files with equal contents once
    #[arg(long, requires = "rootdir")]
    dedupe: bool,
    /// Share the data of the image with the files of the source directory, if their host file system can: both take the
    /// room of one then
    #[arg(long, requires = "rootdir", conflicts_with_all = ["compress", "further"])]
    reflink: bool,
    #[command(flatten)]
    verity: Verity,
    /// Layers of a container image: `flat` applies them all; `subvol` makes each a read-only snapshot of the one below
    /// it, /layers/1 and so on, and of the last one the writable snapshot /root, which is mounted by default
    #[arg(
        long,
        value_name = "HOW",
        default_value = "flat",
        hide_default_value = true,
        conflicts_with_all = [
            "subvol",
            "inode_flags",
            "verity",
            "dedupe",
            "reflink",
            "manifest",
            "map_users",
            "map_groups"
        ]
    )]
    layers: Layers,
    /// UUID of the device, instead of a random one
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    device_uuid: Option<[u8; 16]>,
    /// Bytes of a data block: 4096 is the only size that is written
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    sectorsize: Option<u64>,
    /// Begin with the contents of a seed (`spinney device seed`), to which the new volume refers: whoever opens it
    /// names both, FILE,SEED. Nothing is copied. --size or a device tells how much can be added
    #[arg(
        long,
        value_name = "SEED",
        conflicts_with_all = [
            "rootdir", "further", "nodesize", "csum", "data", "metadata", "mixed", "device_uuid", "sectorsize",
            "label", "uuid", "features", "deterministic"
        ]
    )]
    seed: Option<PathBuf>,
    /// Shrink the image to its contents; `spinney resize` grows it again
    #[arg(long, requires = "rootdir")]
    shrink: bool,
}

/// Whether the layers of a container image stay apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layers {
    Flat,
    Subvol,
}

/// A new file system, and the devices it is on.
struct Made {
    volume: Volume,
    devices: Vec<Arc<LateSuper>>,
}

/// One run, and the options of btrfs.
struct Making<'a> {
    job: Job<'a>,
    further: Vec<Target>,
    own: &'a Own,
}

impl Make for Own {
    fn given(&self) -> Option<&'static str> {
        let all = [
            (!self.further.is_empty(), "a second FILE"),
            (self.compress.is_some(), "--compress"),
            (self.nodesize.is_some(), "--nodesize"),
            (self.csum.is_some(), "--csum"),
            (self.data.is_some(), "--data"),
            (self.metadata.is_some(), "--metadata"),
            (self.mixed, "--mixed"),
            (self.shrink, "--shrink"),
            (self.seed.is_some(), "--seed"),
            (!self.subvol.is_empty(), "--subvol"),
            (!self.inode_flags.is_empty(), "--inode-flags"),
            (self.dedupe, "--dedupe"),
            (self.reflink, "--reflink"),
            (self.verity.is_given(), "--verity"),
            (self.layers == Layers::Subvol, "--layers"),
            (self.device_uuid.is_some(), "--device-uuid"),
            (self.sectorsize.is_some(), "--sectorsize"),
        ];
        all.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    fn run(&self, common: &Common, out: &mut Output) -> Result<()> {
        if features::asks_for_list(&common.features) {
            return features::print_list(out);
        }
        if let Some(seed) = &self.seed {
            return sprout(seed, common, out);
        }
        let further = self.further.iter().map(|path| common.further_target(path)).collect::<Result<Vec<Target>>>()?;
        let mut making = Making { job: Job::new(common)?, further, own: self };
        making.job.shares_equal = self.dedupe;
        making.check_devices()?;
        making.run(out)
    }
}

/// Makes a sprout of a seed on the target.
fn sprout(seed: &Path, common: &Common, out: &mut Output) -> Result<()> {
    let target = common.target()?;
    let size = common.size.unwrap_or(target.size);
    if size == 0 {
        return Err(Failure::usage("--size is missing: how much the new volume can add to the seed").into());
    }
    let seeds = super::seed::open(seed)?;
    // Made in memory first: whatever fails must not cost what the target has. While the seed is open, it is no target.
    super::seed::sprout(seed, &seeds, Arc::new(MemoryDevice::new(size)))?;
    let made = target.open_bare(size).and_then(|new| super::seed::sprout(seed, &seeds, new));
    let info = made.inspect_err(|_| target.remove_new())?;
    match (common.json, common.reports()) {
        (true, _) => out.json(&info::report(&info)),
        (false, true) => info::print(out, &info),
        (false, false) => Ok(()),
    }
}

impl Making<'_> {
    fn run(&self, out: &mut Output) -> Result<()> {
        let make = self.make_options()?;
        let (common, target) = (self.job.common, &self.job.target);
        let made = self.make(&make).and_then(Made::finish);
        let cut = |info: &VolumeInfo| if self.own.shrink { target.cut(info.total_bytes) } else { Ok(()) };
        let info = match made.and_then(|info| cut(&info).map(|()| info)) {
            Ok(info) => self.named(info),
            Err(error) => {
                self.targets().for_each(Target::remove_new);
                return Err(error);
            }
        };
        if common.json {
            out.json(&info::report(&info))
        } else if !common.reports() {
            Ok(())
        } else {
            match common.called_as {
                Some(_) => progs_report::print(out, &info),
                None => info::print(out, &info).and_then(|()| common.print_owner(out)),
            }?;
            match self.own.dedupe || self.own.reflink {
                true => Ok(writeln!(out, "Shared:      {}", human::bytes(self.job.saved_bytes()))?),
                false => Ok(()),
            }
        }
    }

    fn make_options(&self) -> Result<MakeOptions> {
        let mut make = MakeOptions {
            label: self.job.common.label.clone().into_bytes(),
            fsid: self.job.uuid().map(Uuid),
            ..MakeOptions::default()
        };
        make.device_uuid = self.own.device_uuid.map(Uuid);
        if let Some(size) = self.own.sectorsize.filter(|size| *size != SECTOR_BYTES) {
            let text = format!("--sectorsize: expected {SECTOR_BYTES}, found {size}");
            return Err(Failure::new(Status::Unsupported, text).into());
        }
        make.csum = self.own.csum.unwrap_or(make.csum);
        label::check("--label", &make.label)?;
        make.mixed = self.own.mixed;
        features::apply(&self.job.common.features, &mut make)?;
        if let Some(size) = self.own.nodesize {
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
        let device_count = self.targets().count();
        make.metadata_profile = match self.own.metadata.or(self.own.data.filter(|_| make.mixed)) {
            Some(profile) => profile,
            None if make.mixed => BlockGroupFlags::empty(),
            None => default_metadata_profile(device_count),
        };
        make.data_profile = self.own.data.unwrap_or_default();
        for (option, flags) in [("--data", make.data_profile), ("--metadata", make.metadata_profile)] {
            let profile = Profile::from_flags(flags)?;
            if profile.devices_min() > device_count {
                let needed = profile.devices_min();
                let text = format!("{option}: {profile} needs {needed} devices, and {device_count} are given");
                return Err(Failure::usage(text).into());
            }
        }
        if make.mixed {
            if self.own.data.zip(self.own.metadata).is_some_and(|(data, metadata)| data != metadata) {
                let text = "--mixed: the profiles of --data and --metadata must be the same";
                return Err(Failure::usage(text).into());
            }
            make.data_profile = make.metadata_profile;
        }
        Ok(make)
    }

    fn make(&self, make: &MakeOptions) -> Result<Made> {
        let target = &self.job.target;
        let Some(contents) = &self.job.contents else {
            return self.make_empty(make, self.job.common.size(target)?);
        };
        let size_of = |totals: &Totals| sizing::image_bytes(totals, shape(make));
        let options = PathOptions::new(&self.own.subvol, &self.own.inode_flags)?;
        with_source!(contents, source => options.check(source))?;
        let sharing = if self.own.reflink { self.sharing()? } else { None };
        let made = self.job.make_filled(contents, size_of, is_image_full, |size, bytes_total| {
            self.fill(make, size, (contents, &options), bytes_total)
        })?;
        if let Some(sharing) = sharing {
            let bytes = sharing.share(&made.volume)?;
            self.job.add_saved(bytes);
        }
        Ok(made)
    }

    /// The image file and the only source, which share data. Where they cannot, the data is copied, and that is said.
    fn sharing(&self) -> Result<Option<Sharing<'_>>> {
        let target = &self.job.target;
        let [source] = self.job.common.contents.sources.as_slice() else {
            return Err(Failure::usage("--reflink: expected one source").into());
        };
        let source = Path::new(source);
        if !source.is_dir() || target.is_device {
            return Err(
                Failure::usage("--reflink: expected a directory as the source, and a file as the target").into()
            );
        }
        match Sharing::new((target.file(), target.part.offset()), source) {
            Err(error) if status_of(&error) == Status::Unsupported => {
                warn(&format!("{error}; it is copied"));
                Ok(None)
            }
            sharing => sharing,
        }
    }

    fn volume_options(&self) -> VolumeOptions {
        let (uid, gid) = self.job.common.top_owner();
        let options = Volume::options().owner(uid, gid).compress(self.own.compress);
        options.env(self.job.env()).reproducible(self.job.reproducible.is_some()).inherits_data_flags(true)
    }

    fn fill(
        &self,
        make: &MakeOptions,
        size: u64,
        (contents, options): (&Contents, &PathOptions),
        bytes_total: u64,
    ) -> Result<Made> {
        let chunk_bytes_max = self.own.shrink.then(|| sizing::chunk_bytes(size));
        let made = self.make_empty(&MakeOptions { chunk_bytes_max, ..make.clone() }, size)?;
        if self.own.layers == Layers::Subvol {
            self.fill_layers(&made.volume)?;
        } else {
            with_source!(contents, source => options.begin(&made.volume, source))?;
            self.job.copy_in(made.volume.by_paths(), bytes_total)?;
            with_source!(contents, source => options.write_flagged(&made.volume, source))?;
            self.own.verity.apply(&made.volume)?;
            options.finish(&made.volume)?;
        }
        made.volume.sync()?;
        if self.own.shrink {
            made.volume.by_paths().resize(spinney::vfs::Size::Least)?;
        }
        Ok(made)
    }
}

/// The devices.
impl Making<'_> {
    fn targets(&self) -> impl Iterator<Item = &Target> {
        std::iter::once(&self.job.target).chain(&self.further)
    }

    /// Refuses a device that is given twice, and options that are for one device.
    fn check_devices(&self) -> Result<()> {
        if self.further.is_empty() {
            return Ok(());
        }
        let single = [
            (self.own.shrink, "--shrink"),
            (self.own.device_uuid.is_some(), "--device-uuid"),
            (self.job.common.place.get().is_some(), "an image in another form, or on the standard output,"),
        ];
        if let Some((_, what)) = single.iter().find(|(is_given, _)| *is_given) {
            return Err(Failure::usage(format!("{what} is for a file system on one device")).into());
        }
        let mut seen = Vec::new();
        for target in self.targets() {
            // A size is needed: contents are divided among devices that are there.
            self.job.common.size(target)?;
            let real = target.file().canonicalize().unwrap_or_else(|_| target.file().to_owned());
            let place = (target.id().ok_or(real), target.part.offset());
            if seen.contains(&place) {
                return Err(Failure::usage(format!("{}: this device is given twice", target.path.display())).into());
            }
            seen.push(place);
        }
        Ok(())
    }

    /// Tries in memory whether a file system of these sizes can be made, before anything is overwritten.
    fn rehearse(&self, make: &MakeOptions, sizes: &[u64]) -> Result<()> {
        let target = &self.job.target;
        let tried = |sizes: &[u64]| {
            let named = |(target, size): (&Target, &u64)| -> Arc<dyn Device> {
                Arc::new(MemoryDevice::named(&target.path.display().to_string(), *size))
            };
            Volume::options().make_devices(self.targets().zip(sizes).map(named).collect(), make).map(drop)
        };
        let Err(error) = tried(sizes) else { return Ok(()) };
        let least = match sizes {
            [size] if is_no_space(&error) => target.too_small(*size, |size| tried(&[size]).is_ok()),
            _ => None,
        };
        Err(least.unwrap_or_else(|| target.with_size(sum(sizes), error)))
    }

    /// Makes the file system, the first device of which has `size` bytes.
    fn make_empty(&self, make: &MakeOptions, size: u64) -> Result<Made> {
        let mut sizes = vec![size];
        for target in &self.further {
            sizes.push(self.job.common.size(target)?);
        }
        for (target, size) in self.targets().zip(&sizes) {
            target.check_size(*size)?;
        }
        self.rehearse(make, &sizes)?;
        if !self.further.is_empty() {
            // All of them are there and in no use before the first one is overwritten.
            self.targets().try_for_each(Target::check_usable)?;
        }
        let open = |(target, size): (&Target, &u64)| {
            let device = target.open(*size)?;
            let superblocks: Vec<u64> = mirror_offsets(device.size_bytes()).collect();
            Ok(Arc::new(LateSuper::new(device, &superblocks, SUPERBLOCK_SIZE)?))
        };
        let devices = self.targets().zip(&sizes).map(open).collect::<Result<Vec<_>>>()?;
        let shared = |device: &Arc<LateSuper>| -> Arc<dyn Device> { device.clone() };
        let shared = devices.iter().map(shared).collect();
        let volume = self.volume_options().make_devices(shared, make);
        let volume = volume.map_err(|error| self.job.target.with_size(sum(&sizes), error))?;
        Ok(Made { volume, devices })
    }

    /// The report with the names of the targets; the first may have been made under another one.
    fn named(&self, mut info: VolumeInfo) -> VolumeInfo {
        for (device, target) in info.devices.iter_mut().zip(self.targets()) {
            device.name = target.path.display().to_string();
        }
        info
    }
}

impl Making<'_> {
    /// Makes a subvolume of each layer, and one that a container can write to.
    fn fill_layers(&self, volume: &Volume) -> Result<()> {
        let sources = &self.job.common.contents;
        let image = Contents::open_layers(&sources.sources, &sources.options()?, &())?;
        let rules = self.job.transfer_options().rules;
        let last = import_layers(volume, Path::new("/layers"), &image, &rules, &())?;
        volume.by_paths().snapshot(last, "/root", SnapshotMode::ReadWrite)?;
        Ok(volume.set_default_subvolume("/root")?)
    }
}

impl Made {
    /// Writes the last state and makes it durable.
    fn finish(self) -> Result<VolumeInfo> {
        let info = self.volume.info()?;
        self.volume.close()?;
        for device in &self.devices {
            device.finish()?;
        }
        Ok(info)
    }
}

/// Bytes of all devices.
fn sum(sizes: &[u64]) -> u64 {
    sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size))
}

fn subvolume_parser() -> impl TypedValueParser<Value = Subvolume> {
    OsStringValueParser::new().try_map(|text| parse_subvolume(&text))
}

fn flags_parser() -> impl TypedValueParser<Value = Flagged> {
    OsStringValueParser::new().try_map(|text| parse_flagged(&text))
}

fn is_no_space(error: &spinney::Error) -> bool {
    error.blame() == Blame::Space
}

/// True if a larger image would help; false if the host's disk is full.
fn is_image_full(error: &Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(spinney::btrfs::Error::NoSpace(_)))
            || matches!(cause.downcast_ref(), Some(spinney::btrfs::store::Error::NoSpace { .. }))
    })
}

fn shape(make: &MakeOptions) -> Shape {
    let copies = |flags| Profile::from_flags(flags).map_or(1, |profile| u64::from(profile.mirror_count()));
    Shape {
        csum_bytes: u64::try_from(make.csum.len()).unwrap_or(32),
        data_copies: copies(make.data_profile),
        metadata_copies: copies(make.metadata_profile),
    }
}
