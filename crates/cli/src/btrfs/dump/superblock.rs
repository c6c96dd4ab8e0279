//! `spinney dump super` shows the superblock, or all its copies, damaged or not. Called by `dump`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::blockdev::Device;
use spinney::btrfs::disk::superblock::{DiskSuperblock, SUPERBLOCK_SIZE, UncheckedSuperblock, mirror_offsets};

use crate::commands::failure::{Failure, Status};
use crate::commands::names;
use crate::commands::output::Output;

/// Show the superblock, or all its copies
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney dump super site.img\n",
    "  spinney dump super --all --json site.img"
))]
pub(crate) struct Super {
    /// Image file or unmounted block device
    image: PathBuf,
    /// All copies, not only the first
    #[arg(short, long)]
    all: bool,
    /// Report as JSON: {copies: [{offset, problem, fsid, generation, root, ...}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    copies: Vec<Copy>,
}

#[derive(Serialize)]
struct Copy {
    /// Byte of the device.
    offset: u64,
    /// Its fault; null for a good copy.
    problem: Option<String>,
    fsid: String,
    metadata_uuid: String,
    label: String,
    generation: u64,
    root: u64,
    root_level: u8,
    chunk_root: u64,
    chunk_root_generation: u64,
    chunk_root_level: u8,
    log_root: u64,
    log_root_level: u8,
    total_bytes: u64,
    bytes_used: u64,
    num_devices: u64,
    sectorsize: u32,
    nodesize: u32,
    csum_type: u16,
    flags: String,
    compat_flags: u64,
    compat_ro_flags: String,
    incompat_flags: String,
    cache_generation: u64,
    uuid_tree_generation: u64,
    dev_id: u64,
    dev_uuid: String,
    dev_total_bytes: u64,
    dev_bytes_used: u64,
    /// The four backup roots, and the system chunks, as text.
    backups: Vec<String>,
    system_chunks: Vec<String>,
}

impl Super {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let devices = super::open_devices(&self.image)?;
        let mut copies = Vec::new();
        let mut problem = None;
        for device in &devices {
            if devices.len() > 1 && !self.json {
                writeln!(out, "{}:", device.name())?;
            }
            let wrong = self.show(&**device, &mut copies, out)?;
            problem = problem.or(wrong);
        }
        if self.json {
            out.json(&Report { copies })?;
        }
        out.finish()?;
        match problem {
            None => Ok(()),
            Some(text) => {
                let text = format!("{}: {text}", self.image.display());
                Err(Failure::new(Status::Corrupt, text).into())
            }
        }
    }

    /// Shows the copies of a device; returns the fault of the first.
    fn show(&self, device: &dyn Device, copies: &mut Vec<Copy>, out: &mut Output) -> Result<Option<String>> {
        let count = if self.all { usize::MAX } else { 1 };
        let size = device.size_bytes();
        let mut first_problem = None;
        for (index, offset) in mirror_offsets(size).take(count).enumerate() {
            let mut bytes = vec![0; SUPERBLOCK_SIZE];
            device.read_at(offset, &mut bytes)?;
            let unchecked = UncheckedSuperblock::new(&bytes)?;
            let problem = unchecked.clone().verify(offset).err().map(|error| error.to_string());
            if index == 0 {
                first_problem.clone_from(&problem);
            }
            if self.json {
                copies.push(copy(offset, problem, unchecked.fields()));
            } else {
                print(out, offset, problem, unchecked.fields())?;
            }
        }
        let is_too_small = mirror_offsets(size).next().is_none();
        let too_small = || format!("image size: expected at least 69632 bytes, found {size}");
        Ok(if is_too_small { Some(too_small()) } else { first_problem })
    }
}

fn system_chunks(fields: &DiskSuperblock) -> Vec<String> {
    spinney::btrfs::disk::items::system_chunks(fields.system_chunk_bytes())
        .map(|found| match found {
            Ok((key, chunk)) => format!("{key} {chunk}"),
            Err(error) => error.to_string(),
        })
        .collect()
}

fn print(out: &mut Output, offset: u64, problem: Option<String>, fields: &DiskSuperblock) -> Result<()> {
    writeln!(out, "superblock at byte {offset}: {}", problem.as_deref().unwrap_or("good"))?;
    let copy = copy(offset, None, fields);
    let value = serde_json::to_value(&copy)?;
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::String(text) => writeln!(out, "  {name:<22} {text}")?,
            serde_json::Value::Number(number) => writeln!(out, "  {name:<22} {number}")?,
            _ => {}
        }
    }
    for backup in &copy.backups {
        writeln!(out, "  {backup}")?;
    }
    for chunk in &copy.system_chunks {
        writeln!(out, "  system chunk {chunk}")?;
    }
    Ok(())
}

fn copy(offset: u64, problem: Option<String>, fields: &DiskSuperblock) -> Copy {
    Copy {
        offset,
        problem,
        fsid: fields.fsid.to_string(),
        metadata_uuid: fields.metadata_uuid.to_string(),
        label: names::escaped(fields.label_bytes()).into_owned(),
        generation: fields.generation.get(),
        root: fields.root.get(),
        root_level: fields.root_level,
        chunk_root: fields.chunk_root.get(),
        chunk_root_generation: fields.chunk_root_generation.get(),
        chunk_root_level: fields.chunk_root_level,
        log_root: fields.log_root.get(),
        log_root_level: fields.log_root_level,
        total_bytes: fields.total_bytes.get(),
        bytes_used: fields.bytes_used.get(),
        num_devices: fields.num_devices.get(),
        sectorsize: fields.sectorsize.get(),
        nodesize: fields.nodesize.get(),
        csum_type: fields.csum_type.get(),
        flags: fields.super_flags().to_string(),
        compat_flags: fields.compat_flags.get(),
        compat_ro_flags: fields.compat_ro().to_string(),
        incompat_flags: fields.incompat().to_string(),
        cache_generation: fields.cache_generation.get(),
        uuid_tree_generation: fields.uuid_tree_generation.get(),
        dev_id: fields.dev_item.devid.get(),
        dev_uuid: fields.dev_item.uuid.to_string(),
        dev_total_bytes: fields.dev_item.total_bytes.get(),
        dev_bytes_used: fields.dev_item.bytes_used.get(),
        backups: fields.super_roots.iter().map(ToString::to_string).collect(),
        system_chunks: system_chunks(fields),
    }
}
