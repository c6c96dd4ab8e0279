//! The description of a disk (`SPEC.toml`): read, checked, and planned to the byte before anything is written.
//!
//! ```text
//!  text --document (serde)--> keys --rules--> Spec --plan(minimal sizes)--> Layout --> Display, JSON, gpt::Table
//! ```
//!
//! ```toml
//! [disk]
//! size = "8G"                     # or "auto", which is the default: as large as the partitions need
//! sector-size = 512               # or 4096
//! uuid = "6f1c5d0e-4d52-4a39-9b4f-8a3e0c0f6a11"
//! label = "gpt"                   # or "none": the only partition is the whole image
//!
//! [[partition]]
//! name = "esp"
//! type = "esp"                    # a name of `gpt::KINDS`, or a GUID
//! size = "256M"                   # bytes or K, M, G, T (powers of 1024); "20%"; "rest"; "auto"
//! content = "esp.img"             # a file that is passed through
//! attributes = ["read-only"]      # required, no-block-io, legacy-boot, growfs, read-only, no-auto
//! partition-uuid = "..."          # of the partition's entry; `uuid` is that of a file system or swap area
//!
//! [[partition]]
//! type = "root-x86-64"
//! size = "rest"
//! format = "NAME"                 # of a file system; or "swap"
//! label = "root"
//! sources = ["rootfs.tar.zst", "overlay/"]
//! subvolumes = [{ path = "@home", mode = "rw" }, { path = "@", default = true }]
//! options = { compress = "zstd:9", nodesize = "16K" }
//!
//! [output]
//! file = "disk.qcow2"
//! form = "qcow2"                  # follows from the name of the file
//! compress = "zstd:9"
//! ```
//!
//! Invariants
//! * Unknown keys, and keys that mean nothing beside others, are refused by name: a typing error is no silent default.
//! * Relative paths begin at the directory of the description.
//! * Identifiers that nobody gave follow from the disk's ([`derived_id`]), and the disk's from the text of the
//!   description: the same description gives the same disk.
//!
//! Failure: [`Error::Spec`] with the line; a plan that does not fit says by how much. Callers: the
//! command that builds disks.

mod document;
mod identity;
mod layout;
mod plan;
mod rules;
mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use uuid::Uuid;

use crate::containers::{Compression, Form};
use crate::gpt::{Attributes, SectorSize};
use crate::{Error, Result};
pub use identity::{Role, derived_id};
pub use layout::{Layout, Placed};
pub use plan::{PLACE_BYTES, plan};
pub use value::{Mode, OptionValue, Owner, Size};

/// Most bytes of a description.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A description of a disk that keeps all rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The path of the description.
    pub path: PathBuf,
    /// The disk itself.
    pub disk: Disk,
    /// Its partitions, at least one.
    pub partitions: Vec<Partition>,
    /// Where the finished image goes, if the description says so.
    pub output: Option<OutputFile>,
}

/// The disk itself, as a description has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Bytes; nothing for as few as the partitions need.
    pub size_bytes: Option<u64>,
    /// Bytes of a sector.
    pub sector_size: SectorSize,
    /// Its identifier, given or derived.
    pub id: Uuid,
    /// How it is divided.
    pub label: Label,
}

/// How a disk is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// By a GUID partition table.
    #[default]
    Gpt,
    /// Not at all: the only partition is the whole image.
    None,
}

/// A partition, as a description has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1.
    pub number: u32,
    /// Its name in the table.
    pub name: String,
    /// Its type.
    pub kind: Uuid,
    /// Its own identifier, given or derived.
    pub id: Uuid,
    /// Attributes for firmware and systems.
    pub attributes: Attributes,
    /// How large it should be.
    pub size: Size,
    /// Its contents.
    pub contents: Contents,
}

/// The contents of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contents {
    /// Zeros.
    Empty,
    /// The bytes of a file, then zeros.
    File(PathBuf),
    /// A swap area.
    Swap {
        /// Its label; may be empty.
        label: String,
        /// Its identifier.
        id: Uuid,
    },
    /// A file system, which the caller makes.
    FileSystem(FileSystem),
}

/// A file system, as a description has it. The crate hands on names and values whose meaning it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FileSystem {
    /// Name of the format.
    pub format: String,
    /// Its label.
    pub label: Option<String>,
    /// Its identifier, given or derived.
    pub id: Uuid,
    /// The sources of its files, in order, as written; see [`Spec::path_of`].
    pub sources: Vec<String>,
    /// Subvolumes to make.
    pub subvolumes: Vec<Subvolume>,
    /// Options of making it, by name.
    pub options: BTreeMap<String, OptionValue>,
    /// It is made as small as its contents before it is put into the partition.
    pub shrink: bool,
    /// Owner of every file.
    pub owner: Option<Owner>,
    /// Every file belongs to user and group 0.
    pub all_root: bool,
    /// Patterns of files that get a Merkle tree.
    pub verity: Vec<String>,
}

/// A subvolume to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subvolume {
    /// Its path in the file system.
    pub path: String,
    /// Whether it may be written to.
    #[serde(default)]
    pub mode: Mode,
    /// It is mounted where no other is named.
    #[serde(default)]
    pub default: bool,
}

/// Where a finished image goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutputFile {
    /// Its path.
    pub file: PathBuf,
    /// Its form, named or that of the path's end.
    pub form: Form,
    /// How it is compressed.
    #[serde(serialize_with = "as_text")]
    pub compression: Compression,
}

fn as_text<S: serde::Serializer>(value: &Compression, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Spec {
    /// Reads a description.
    ///
    /// # Errors
    /// It cannot be read, has more than 1 MiB, or is not as it should be (the failure names the line).
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |source| Error::SpecIo { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut text = String::new();
        // One byte more tells a long description from one that just fits.
        let mut start = std::io::Read::take(file, TEXT_BYTES_MAX + 1);
        std::io::Read::read_to_string(&mut start, &mut text).map_err(failed)?;
        Self::parse(&text, path)
    }

    /// Reads the text of a description that belongs to a path: messages name it, and relative paths begin beside it.
    ///
    /// # Errors
    /// It is not as it should be; the failure names the line.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        if crate::number::bytes(text.len()) > TEXT_BYTES_MAX {
            let message = format!("expected a description of at most {TEXT_BYTES_MAX} bytes");
            return Err(Error::Spec { path: path.to_owned(), line: 1, message });
        }
        rules::spec(document::read(text, path)?, text, path)
    }

    /// A path of the description: relative ones begin at its directory.
    #[must_use]
    pub fn path_of(&self, path: &str) -> PathBuf {
        rules::beside(&self.path, path)
    }
}

impl Partition {
    /// Bytes of the file that is passed through, if there is one: what `plan` wants to know of it.
    ///
    /// # Errors
    /// The host does not find it.
    pub fn file_bytes(&self) -> std::io::Result<Option<u64>> {
        match &self.contents {
            Contents::File(path) => std::fs::metadata(path).map(|found| Some(found.len())),
            _ => Ok(None),
        }
    }
}
