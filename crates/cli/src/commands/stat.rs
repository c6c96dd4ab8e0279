//! `spinney stat` shows all metadata of files in an image or a mount. Called by `args`.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::vfs::file_system::{Extent as Stored, ExtentKind};
use spinney::vfs::{FileOptions, Metadata, Volume};

use super::attributes::{JsonMetadata, device};
use super::human;
use super::image::ReadArgs;
use super::names::{self, JsonName, JsonPath, JsonTarget};
use super::output::Output;

/// Show all metadata of files
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney stat site.img:/etc/passwd\n",
    "  spinney stat site.img /etc/passwd\n",
    "  spinney stat --extents --json site.img /var/log/syslog"
))]
pub(crate) struct Stat {
    #[command(flatten)]
    image: ReadArgs,
    /// Files in the image; of a symbolic link the link itself
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Follow a symbolic link
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Show the extents of the contents
    #[arg(short, long)]
    extents: bool,
    /// Report as JSON: {files: [{path, kind, mode, size, ..., xattrs, extents}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    files: Vec<FileReport>,
}

#[derive(Serialize)]
struct FileReport {
    #[serde(flatten)]
    path: JsonPath,
    #[serde(flatten)]
    metadata: JsonMetadata,
    /// Names of inode flags in the on-disk format.
    flags: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    target: Option<JsonTarget>,
    xattrs: Vec<Xattr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extents: Option<Vec<Extent>>,
}

#[derive(Serialize)]
struct Xattr {
    #[serde(flatten)]
    name: JsonName,
    /// The value's bytes.
    value_hex: String,
}

#[derive(Serialize)]
struct Extent {
    /// Byte in the file.
    offset: u64,
    /// Bytes.
    len: u64,
    /// `inline`, `data` or `preallocated`.
    kind: &'static str,
    /// Logical address; null for inline data.
    logical: Option<u64>,
    /// Length in bytes of the whole extent on disk.
    disk_len: u64,
    /// `none`, `zlib`, `lzo` or `zstd`.
    compression: &'static str,
}

/// Text of a format for a file without flags.
const NO_FLAGS: &str = "none";

/// Facts about one file.
struct Facts {
    metadata: Metadata,
    /// In the notation of the format.
    flags: String,
    target: Option<PathBuf>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    extents: Option<Vec<Stored>>,
}

impl Stat {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_read_only()?;
        let mut files = Vec::new();
        for (index, path) in self.paths.iter().enumerate() {
            let facts = self.facts(&volume, path)?;
            if self.json {
                files.push(report(path, facts));
                continue;
            }
            if index > 0 {
                out.write_all(b"\n")?;
            }
            print(out, path, &facts)?;
        }
        if self.json { out.json(&Report { files }) } else { Ok(()) }
    }

    fn facts(&self, volume: &Volume, path: &Path) -> Result<Facts> {
        let metadata = if self.dereference { volume.metadata(path)? } else { volume.symlink_metadata(path)? };
        let target = if metadata.is_symlink() { Some(volume.read_link(path)?) } else { None };
        let mut xattrs = Vec::new();
        for name in volume.list_xattrs(path)? {
            let value = volume.get_xattr(path, name.as_bytes())?.unwrap_or_default();
            xattrs.push((name.as_bytes().to_vec(), value));
        }
        xattrs.sort_unstable();
        let extents = if self.extents && metadata.is_file() {
            let file = FileOptions::new().read(true).open(volume, path)?;
            Some(file.extents()?)
        } else {
            None
        };
        let flags = volume.flag_names(path)?;
        Ok(Facts { metadata, flags, target, xattrs, extents })
    }
}

fn report(path: &Path, facts: Facts) -> FileReport {
    let xattr = |(name, value): (Vec<u8>, Vec<u8>)| Xattr { name: JsonName(name), value_hex: names::hex(&value) };
    let extent = |extent: Stored| Extent {
        offset: extent.offset,
        len: extent.len,
        kind: kind_name(extent.kind),
        logical: extent.logical,
        disk_len: extent.disk_len,
        compression: extent.compression.unwrap_or("none"),
    };
    FileReport {
        path: JsonPath(path.as_os_str().as_bytes().to_vec()),
        metadata: (&facts.metadata).into(),
        flags: facts.flags,
        target: facts.target.map(|target| JsonTarget(target.as_os_str().as_bytes().to_vec())),
        xattrs: facts.xattrs.into_iter().map(xattr).collect(),
        extents: facts.extents.map(|extents| extents.into_iter().map(extent).collect()),
    }
}

fn print(out: &mut Output, path: &Path, facts: &Facts) -> Result<()> {
    let Metadata { size, blocks, nlink, uid, gid, home, .. } = facts.metadata;
    let metadata = &facts.metadata;
    out.write_all(b"  File: ")?;
    out.put_name(path.as_os_str().as_bytes())?;
    if let Some(target) = &facts.target {
        out.write_all(b" -> ")?;
        out.put_name(target.as_os_str().as_bytes())?;
    }
    writeln!(out, "\n  Kind: {}", human::kind_name(metadata.kind))?;
    writeln!(out, "  Size: {size} ({}), allocated {}", human::bytes(size), blocks * 512)?;
    writeln!(out, " Inode: {} in tree {}, links {nlink}", home.ino, home.subvolume)?;
    if let Some((major, minor)) = device(metadata) {
        writeln!(out, "Device: {major}, {minor}")?;
    }
    let mode = human::mode_string(metadata.kind, metadata.mode());
    writeln!(out, "  Mode: {:04o} {mode}, owner {uid}, group {gid}", metadata.permissions)?;
    writeln!(out, "Access: {}", human::time_full(metadata.atime))?;
    writeln!(out, "Modify: {}", human::time_full(metadata.mtime))?;
    writeln!(out, "Change: {}", human::time_full(metadata.ctime))?;
    writeln!(out, " Birth: {}", human::time_full(metadata.btime))?;
    if facts.flags != NO_FLAGS {
        writeln!(out, " Flags: {}", facts.flags)?;
    }
    for (name, value) in &facts.xattrs {
        let (name, value) = (names::escaped(name), names::escaped(value));
        writeln!(out, " Xattr: {name} = {value}")?;
    }
    for extent in facts.extents.iter().flatten() {
        writeln!(out, "Extent: {:>12} {:>10}  {}", extent.offset, extent.len, extent_text(extent))?;
    }
    Ok(())
}

fn extent_text(extent: &Stored) -> String {
    let mut text = kind_name(extent.kind).to_owned();
    if let Some(at) = extent.logical {
        text.push_str(&format!(" at {at}, {} on disk", extent.disk_len));
    }
    if let Some(name) = extent.compression {
        text.push_str(", ");
        text.push_str(name);
    }
    text
}

fn kind_name(kind: ExtentKind) -> &'static str {
    match kind {
        ExtentKind::Inline => "inline",
        ExtentKind::Data => "data",
        ExtentKind::Preallocated => "preallocated",
    }
}
