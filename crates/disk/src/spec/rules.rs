//! Makes a description of its keys, and refuses keys that contradict each other. Called by `spec`.

use std::path::{Path, PathBuf};

use toml::Spanned;
use uuid::Uuid;

use super::document::{Document, OutputKeys, PartitionKeys, line_of};
use super::identity::{Role, derived_id, disk_id};
use super::value::{Size, Text};
use super::{Contents, Disk, FileSystem, Label, OutputFile, Partition, Spec};
use crate::gpt::{Attributes, ENTRY_COUNT, NAME_UNITS_MAX, SectorSize, kind_named};
use crate::swap::LABEL_BYTES_MAX;
use crate::{Error, Result};

/// The format of swap areas, which this crate makes itself.
const SWAP: &str = "swap";
/// The type of a partition that names none.
const KIND: &str = "linux-generic";

/// The description of a document.
pub(super) fn spec(document: Document, text: &str, path: &Path) -> Result<Spec> {
    let refuse = |at: usize, message: String| Error::Spec { path: path.to_owned(), line: line_of(text, at), message };
    let disk_at = document.disk.as_ref().map_or(0, |keys| keys.span().start);
    let disk = disk(&document, text).map_err(|message| refuse(disk_at, message))?;
    let count_max = if disk.label == Label::None { 1 } else { usize::try_from(ENTRY_COUNT).unwrap_or(usize::MAX) };
    if document.partitions.is_empty() || document.partitions.len() > count_max {
        let at = document.partitions.get(count_max).map_or(0, |keys| keys.span().start);
        let found = document.partitions.len();
        return Err(refuse(at, format!("[[partition]]: expected 1 to {count_max} of them, found {found}")));
    }
    let mut partitions = Vec::with_capacity(document.partitions.len());
    for (number, keys) in (1..).zip(document.partitions) {
        let at = keys.span().start;
        let made = partition(keys.into_inner(), number, &disk, path);
        partitions.push(made.map_err(|message| refuse(at, format!("partition {number}: {message}")))?);
    }
    let output = document.output.map(|keys| output(keys, path));
    Ok(Spec { path: path.to_owned(), disk, partitions, output })
}

/// A path of a description: relative ones begin at its directory.
pub(super) fn beside(spec: &Path, path: impl AsRef<Path>) -> PathBuf {
    spec.parent().unwrap_or(Path::new("")).join(path)
}

fn disk(document: &Document, text: &str) -> Result<Disk, String> {
    let none = super::document::DiskKeys::default();
    let keys = document.disk.as_ref().map_or(&none, Spanned::get_ref);
    let sector_size = match keys.sector_size {
        None | Some(512) => SectorSize::Bytes512,
        Some(4096) => SectorSize::Bytes4096,
        Some(other) => return Err(format!("sector-size: expected 512 or 4096, found {other}")),
    };
    let size_bytes = match keys.size {
        Size::Auto => None,
        Size::Bytes(bytes) if bytes.is_multiple_of(sector_size.bytes()) => Some(bytes),
        Size::Bytes(bytes) => {
            return Err(format!("size: expected whole sectors of {} bytes, found {bytes}", sector_size.bytes()));
        }
        Size::Rest | Size::Percent(_) => return Err("size: expected a number or \"auto\"".to_owned()),
    };
    let id = keys.uuid.unwrap_or_else(|| disk_id(text));
    Ok(Disk { size_bytes, sector_size, id, label: keys.label })
}

fn partition(keys: PartitionKeys, number: u32, disk: &Disk, spec: &Path) -> Result<Partition, String> {
    let index = number.saturating_sub(1);
    let name = keys.name.clone().unwrap_or_default();
    let units = name.encode_utf16().count();
    if units > NAME_UNITS_MAX || name.contains('\0') {
        return Err(format!("name: expected at most {NAME_UNITS_MAX} units of UTF-16 without zeros, found {units}"));
    }
    if disk.label == Label::None {
        refuse_keys(&keys.of_tables(), "label = \"none\"")?;
    }
    check_size(&keys, disk)?;
    let kind = keys.kind.as_ref().map(|kind| kind.0.0).or_else(|| kind_named(KIND)).unwrap_or_default();
    let id = keys.partition_uuid.unwrap_or_else(|| derived_id(disk.id, Role::Partition, index));
    let attributes = keys.attributes.iter().flatten().fold(Attributes::default(), |all, Text(one)| all.with(*one));
    let size = keys.size;
    let own_id = derived_id(disk.id, Role::FileSystem, index);
    Ok(Partition { number, name, kind, id, attributes, size, contents: contents(keys, own_id, spec)? })
}

fn check_size(keys: &PartitionKeys, disk: &Disk) -> Result<(), String> {
    let has_minimum = keys.content.is_some() || keys.format.as_deref().is_some_and(|format| format != SWAP);
    match keys.size {
        // Without a table the partition is as large as the disk.
        Size::Auto | Size::Rest if disk.label == Label::None && disk.size_bytes.is_some() => Ok(()),
        _ if disk.label == Label::None && disk.size_bytes.is_some() => {
            Err("size: expected none, since the disk has a size and label = \"none\"".to_owned())
        }
        Size::Auto if !has_minimum => Err("size: expected a number, since it has no contents to follow".to_owned()),
        Size::Rest if disk.size_bytes.is_none() && !has_minimum => {
            Err("size: expected a number, since the disk's is \"auto\" and nothing is left".to_owned())
        }
        Size::Percent(_) if disk.size_bytes.is_none() => {
            Err("size: expected no share of the disk, since the disk's is \"auto\"".to_owned())
        }
        Size::Bytes(0) => Err("size: expected more than 0 bytes".to_owned()),
        _ => Ok(()),
    }
}

fn contents(keys: PartitionKeys, own_id: Uuid, spec: &Path) -> Result<Contents, String> {
    let id = keys.uuid.unwrap_or(own_id);
    match (&keys.content, &keys.format) {
        (Some(_), Some(_)) => Err("content, format: expected one of both".to_owned()),
        (Some(content), None) => {
            refuse_keys(&keys.of_areas(), "content")?;
            refuse_keys(&keys.of_file_systems(), "content")?;
            Ok(Contents::File(beside(spec, content)))
        }
        (None, None) => {
            refuse_keys(&keys.of_areas(), "no format")?;
            refuse_keys(&keys.of_file_systems(), "no format")?;
            Ok(Contents::Empty)
        }
        (None, Some(format)) if format == SWAP => {
            refuse_keys(&keys.of_file_systems(), "format = \"swap\"")?;
            let label = keys.label.unwrap_or_default();
            if label.len() > LABEL_BYTES_MAX || label.contains('\0') {
                let found = label.len();
                return Err(format!("label: expected at most {LABEL_BYTES_MAX} bytes without zeros, found {found}"));
            }
            Ok(Contents::Swap { label, id })
        }
        (None, Some(format)) if format.is_empty() => Err("format: expected a name".to_owned()),
        (None, Some(format)) => Ok(Contents::FileSystem(FileSystem {
            format: format.clone(),
            label: keys.label,
            id,
            sources: keys.sources.unwrap_or_default(),
            subvolumes: one_default(keys.subvolumes.unwrap_or_default())?,
            options: keys.options.unwrap_or_default(),
            shrink: keys.shrink.unwrap_or_default(),
            owner: keys.owner.map(|Text(owner)| owner),
            all_root: keys.all_root.unwrap_or_default(),
            verity: keys.verity.unwrap_or_default(),
        })),
    }
}

fn one_default(subvolumes: Vec<super::Subvolume>) -> Result<Vec<super::Subvolume>, String> {
    let mut paths: Vec<&str> = subvolumes.iter().map(|subvolume| subvolume.path.trim_matches('/')).collect();
    paths.sort_unstable();
    let twice = paths.array_windows::<2>().find(|[one, other]| one == other).map(|[path, _]| (*path).to_owned());
    match subvolumes.iter().filter(|subvolume| subvolume.default).count() {
        _ if paths.contains(&"") => Err("subvolumes: expected a path, found none".to_owned()),
        0 | 1 if twice.is_none() => Ok(subvolumes),
        0 | 1 => Err(format!("subvolumes: `{}`: expected once, found twice", twice.unwrap_or_default())),
        count => Err(format!("subvolumes: expected one with `default`, found {count}")),
    }
}

/// Refuses keys that are there and mean nothing beside another.
fn refuse_keys(keys: &[(&str, bool)], beside: &str) -> Result<(), String> {
    match keys.iter().find(|(_, is_given)| *is_given) {
        Some((key, _)) => Err(format!("{key}: means nothing with {beside}")),
        None => Ok(()),
    }
}

impl PartitionKeys {
    /// Keys of a table's entry, and whether they are given.
    fn of_tables(&self) -> [(&'static str, bool); 3] {
        [
            ("type", self.kind.is_some()),
            ("partition-uuid", self.partition_uuid.is_some()),
            ("attributes", self.attributes.is_some()),
        ]
    }

    /// Keys of file systems and swap areas.
    fn of_areas(&self) -> [(&'static str, bool); 2] {
        [("label", self.label.is_some()), ("uuid", self.uuid.is_some())]
    }

    /// Keys of file systems alone.
    fn of_file_systems(&self) -> [(&'static str, bool); 7] {
        [
            ("sources", self.sources.is_some()),
            ("subvolumes", self.subvolumes.is_some()),
            ("options", self.options.is_some()),
            ("shrink", self.shrink.is_some()),
            ("owner", self.owner.is_some()),
            ("all-root", self.all_root.is_some()),
            ("verity", self.verity.is_some()),
        ]
    }
}

fn output(keys: OutputKeys, spec: &Path) -> OutputFile {
    let file = beside(spec, &keys.file);
    let form = keys.form.unwrap_or_else(|| crate::containers::Form::of_name(&file));
    OutputFile { file, form, compression: keys.compress.map(|Text(compression)| compression).unwrap_or_default() }
}
