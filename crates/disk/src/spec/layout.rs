//! A disk as it was planned: for people as a tree, for programs as JSON, for the disk as a table. Called by `plan`, and
//! by those who build or show disks.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use uuid::Uuid;

use super::{Contents, Label, OutputFile, Partition, Spec};
use crate::Result;
use crate::gpt::{self, Attributes, SectorSize, kind_name};
use crate::number::human;

/// A planned disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Layout {
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Bytes of a sector.
    pub sector_size: SectorSize,
    /// How it is divided.
    pub label: Label,
    /// Its identifier.
    pub id: Uuid,
    /// Its partitions, in their order on the disk.
    pub partitions: Vec<Placed>,
    /// Where the finished image goes, if the description says so.
    pub output: Option<OutputFile>,
}

/// A partition at its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Placed {
    /// Its number, from 1.
    pub number: u32,
    /// Its name in the table.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Uuid,
    /// The name of that, if it has one.
    #[serde(rename = "type-name")]
    pub kind_name: Option<&'static str>,
    /// Its own identifier.
    pub id: Uuid,
    /// Attributes for firmware and systems, as bits.
    pub attributes: Attributes,
    /// Its first byte.
    pub start_bytes: u64,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Its contents.
    pub contents: Contents,
}

impl Placed {
    pub(super) fn new(partition: &Partition, start_bytes: u64, size_bytes: u64) -> Self {
        Self {
            number: partition.number,
            name: partition.name.clone(),
            kind: partition.kind,
            kind_name: kind_name(partition.kind),
            id: partition.id,
            attributes: partition.attributes,
            start_bytes,
            size_bytes,
            contents: partition.contents.clone(),
        }
    }

    /// The first byte behind it.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.start_bytes.saturating_add(self.size_bytes)
    }
}

impl Layout {
    pub(super) fn new(spec: &Spec, disk_bytes: u64, partitions: Vec<Placed>) -> Self {
        Self {
            disk_bytes,
            sector_size: spec.disk.sector_size,
            label: spec.disk.label,
            id: spec.disk.id,
            partitions,
            output: spec.output.clone(),
        }
    }

    /// The table of the disk, or nothing for one without.
    ///
    /// # Errors
    /// Identifiers that are given twice.
    pub fn table(&self) -> Result<Option<gpt::Table>> {
        if self.label == Label::None {
            return Ok(None);
        }
        let mut table = gpt::Table::new(self.id, self.sector_size, self.disk_bytes)?;
        let sector_bytes = self.sector_size.bytes();
        table.partitions = self
            .partitions
            .iter()
            .map(|placed| gpt::Partition {
                number: placed.number,
                kind: placed.kind,
                id: placed.id,
                first_sector: placed.start_bytes / sector_bytes,
                last_sector: (placed.end_bytes() / sector_bytes).saturating_sub(1),
                attributes: placed.attributes,
                name: placed.name.clone(),
            })
            .collect();
        table.check()?;
        Ok(Some(table))
    }

    /// Bytes at the end that no partition has, the second table included.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.disk_bytes.saturating_sub(self.partitions.last().map_or(0, Placed::end_bytes))
    }
}

impl fmt::Display for Layout {
    /// A tree: the disk, and a line for each partition with its first byte, length, type and contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.output.as_ref().map(|output| (output.file.as_path(), output.form));
        match name {
            Some((file, form)) => write!(f, "{} ({form})", file.display())?,
            None => f.write_str("disk")?,
        }
        write!(f, ": {} ({} bytes)", human(self.disk_bytes), self.disk_bytes)?;
        match self.label {
            Label::Gpt => writeln!(f, ", gpt {}, sectors of {} bytes", self.id, self.sector_size.bytes())?,
            Label::None => writeln!(f, ", no partition table")?,
        }
        let width = self.partitions.iter().map(|placed| placed.name.chars().count()).max().unwrap_or(0);
        let free_bytes = self.free_bytes();
        for (index, placed) in self.partitions.iter().enumerate() {
            let is_last = index.saturating_add(1) == self.partitions.len() && free_bytes == 0;
            let branch = if is_last { "└──" } else { "├──" };
            write!(f, "{branch} {:>3} {:width$}  ", placed.number, placed.name)?;
            placed.fmt(f)?;
            writeln!(f)?;
        }
        if free_bytes > 0 {
            let at = self.disk_bytes.saturating_sub(free_bytes);
            writeln!(f, "└──     {:width$}  at {at:>15}  {:>10}  not used", "", human(free_bytes))?;
        }
        Ok(())
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:>15}  {:>10}  ", self.start_bytes, human(self.size_bytes))?;
        match self.kind_name {
            Some(name) => write!(f, "{name}")?,
            None => write!(f, "{}", self.kind)?,
        }
        if self.attributes != Attributes::default() {
            write!(f, " [{}]", self.attributes)?;
        }
        write!(f, ": {}", self.contents)
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty"),
            Self::File(path) => write!(f, "file {}", Path::display(path)),
            Self::Swap { label, id } if label.is_empty() => write!(f, "swap {id}"),
            Self::Swap { label, id } => write!(f, "swap `{label}` {id}"),
            Self::FileSystem(made) => {
                write!(f, "{}", made.format)?;
                if let Some(label) = &made.label {
                    write!(f, " `{label}`")?;
                }
                write!(f, " {}", made.id)?;
                if !made.sources.is_empty() {
                    write!(f, " from {}", made.sources.join(", "))?;
                }
                Ok(())
            }
        }
    }
}
