//! Implements the format f2fs for the library: opening, making, checking, and an open volume. `spinney::formats` lists
//! it.

use std::any::Any;
use std::ffi::OsString;
use std::sync::Arc;

use ::f2fs::{F2fs, MakeError, MakeOptions as Own};
use checking::Watch;
use f2fs_check::{Code, Options, Pass, PassTable as _};
use formats::magic::{Magic, magic};
use formats::{
    CheckOptions, CheckReport, Devices, Engine, Info, MakeOptions, Meaning, OptionError, PassRow, PlacePart,
    VolumeOptions, single,
};
use host::Env;
use vfs::{Blame, Errno, Error, FileSystem, Result};

use super::options;

/// The name of the format.
const NAME: &str = "f2fs";
/// The magic number of the superblock.
const MAGIC: Magic = magic(0x400, b"\x10\x20\xf5\xf2");
/// Those of its copy.
const COPIES: &[Magic] = &[magic(0x1400, b"\x10\x20\xf5\xf2")];
/// Bytes of a block.
const BLOCK_BYTES: u32 = 4096;

/// The format f2fs.
#[derive(Debug)]
pub(crate) struct Format;

/// An open volume.
#[derive(Debug)]
pub(crate) struct F2fsEngine {
    volume: Arc<F2fs>,
    owner: (u32, u32),
}

impl formats::Format for Format {
    fn name(&self) -> &'static str {
        NAME
    }

    fn magic(&self) -> &'static Magic {
        &MAGIC
    }

    fn copies(&self) -> &'static [Magic] {
        COPIES
    }

    fn open(&self, devices: Devices, options: &VolumeOptions) -> Result<Arc<dyn Engine>> {
        let volume = options::wanted(options)?.open(single(devices, "f2fs volumes")?)?;
        Ok(Arc::new(F2fsEngine { volume: Arc::new(volume), owner: options.owner }))
    }

    fn make(&self, devices: Devices, options: &MakeOptions) -> Result<Arc<dyn Engine>> {
        if let Some((name, _)) = options.own.first() {
            return Err(OptionError::wrong(format!("option `{name}` is unknown")).into());
        }
        let env = Env::system();
        let own = Own {
            label: options.label.clone(),
            uuid: options.uuid.unwrap_or_else(|| env.uuid()),
            owner: options.owner,
            time: u64::try_from(env.now().0).unwrap_or(0),
            made_by: concat!("spinney ", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Own::default()
        };
        let device = single(devices, "f2fs volumes")?;
        ::f2fs::make(&device, &own).map_err(of_make)?;
        let volume = ::f2fs::OpenOptions::new().writable(true).open(device)?;
        Ok(Arc::new(F2fsEngine { volume: Arc::new(volume), owner: options.owner }))
    }

    fn check(&self, devices: Devices, options: &CheckOptions, watch: &dyn Watch) -> Result<CheckReport> {
        let passes = options.passes.iter().filter_map(|id| Pass::from_id(id)).collect();
        let device = single(devices, "f2fs volumes")?;
        let report = f2fs_check::check(&*device, &Options { passes, data: options.data }, watch).map_err(of_check)?;
        Ok(CheckReport::of(NAME, report, "Note", |place| {
            let parts = vec![
                PlacePart::number("inode", "inode", place.inode.map(u64::from)),
                PlacePart::number("node", "node", place.node.map(u64::from)),
                PlacePart::number("file_block", "its block", place.file_block),
                PlacePart::number("segment", "segment", place.segment.map(u64::from)),
                PlacePart::number("block", "block", place.block.map(u64::from)),
                PlacePart::number("device_offset", "byte", place.device_offset),
            ];
            (place.path, parts)
        }))
    }

    fn passes(&self) -> Vec<PassRow> {
        formats::passes::<Pass>(NAME).collect()
    }

    fn codes(&self) -> Vec<Meaning> {
        formats::codes::<Code>(NAME).collect()
    }

    fn is_option(&self, name: &str) -> bool {
        options::is_option(name)
    }

    fn check_options(&self, options: &VolumeOptions) -> Result<()> {
        options::check_options(options)
    }

    fn options_help(&self) -> &'static str {
        options::OPTIONS_HELP
    }
}

impl Engine for F2fsEngine {
    fn volume(&self) -> vfs::Volume {
        let (uid, gid) = self.owner;
        vfs::Volume::new(Arc::<F2fs>::clone(&self.volume)).owner(uid, gid)
    }

    fn serve(&self) -> Result<Arc<dyn FileSystem>> {
        Ok(Arc::<F2fs>::clone(&self.volume))
    }

    fn info(&self) -> Result<Info> {
        let info = self.volume.info()?;
        Ok(Info {
            format: NAME,
            label: OsString::from(info.label),
            uuid: info.uuid,
            block_bytes: BLOCK_BYTES,
            total_bytes: info.total_bytes,
            free_bytes: info.user_bytes.saturating_sub(info.used_bytes),
        })
    }

    fn own(&self) -> &dyn Any {
        &self.volume
    }
}

/// Why no volume was made.
fn of_make(error: MakeError) -> Error {
    let (errno, blame) = match &error {
        MakeError::TooSmall { .. } => (Errno::ENOSPC, Blame::Space),
        MakeError::Option { .. } => (Errno::EINVAL, Blame::Caller),
        MakeError::Io(source) => (Errno(source.errno()), Blame::Device),
        _ => (Errno::EOPNOTSUPP, Blame::Program),
    };
    Error::new(errno, blame, error)
}

/// The error of a check that could not be done.
fn of_check(error: f2fs_check::Error) -> Error {
    let (errno, blame) = match &error {
        f2fs_check::Error::Unsupported(_) => (Errno::EOPNOTSUPP, Blame::Program),
        _ => (Errno::EIO, Blame::Image),
    };
    Error::new(errno, blame, error)
}
