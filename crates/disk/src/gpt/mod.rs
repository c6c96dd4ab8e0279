//! GUID partition tables: read from a disk with suspicion, and written the same way for the same partitions.
//!
//! ```text
//!  sector 0        1        2 ..          first usable .. last usable      .. end
//!  protective MBR  header   entries (128)  partitions                       entries (128)  header
//! ```
//!
//! Our own, and not the crate `gptman` (3.1.1), though it reads and writes all of this: it takes the number of entries
//! and their size from the disk without a limit, tells an overlap only when it writes, and brings a serialisation
//! framework with two generations of macros (16 packages) for a header of 92 bytes.
//!
//! Invariants
//! * A [`Table`] that was read or that [`Table::check`] accepts has partitions inside its usable sectors that do not
//!   overlap. One that is written has identifiers that exist once; one that is read may have others, as copied disks
//!   do.
//! * Both copies say the same; the one at the end of the disk is used where the first is damaged.
//!
//! Failure: [`Error::Table`] names the field, its place, what was expected and found. Callers:
//! `spec`, and the commands that build and list disks.

mod attributes;
mod entry;
mod header;
mod kinds;
mod read;
mod write;

use serde::Serialize;
use uuid::Uuid;

use crate::number::up;
use crate::{Error, Result};
pub use attributes::Attributes;
pub use kinds::{KINDS, kind_name, kind_named};
pub use read::Found;

/// Where partitions begin: a multiple of this many bytes.
pub const ALIGNMENT_BYTES: u64 = 1024 * 1024;
/// Code units of UTF-16 that a name has at most.
pub const NAME_UNITS_MAX: usize = 36;
/// Entries of a table that is made here: what all tools make.
pub const ENTRY_COUNT: u32 = 128;

/// Bytes of a sector of a disk, in which tables count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "u64")]
pub enum SectorSize {
    /// 512 bytes: almost every disk.
    #[default]
    Bytes512,
    /// 4096 bytes.
    Bytes4096,
}

impl SectorSize {
    /// Both sizes.
    pub const ALL: [Self; 2] = [Self::Bytes512, Self::Bytes4096];

    /// Bytes of a sector.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bytes512 => 512,
            Self::Bytes4096 => 4096,
        }
    }

    /// Sectors of the entries of a table that is made here.
    const fn array_sectors(self) -> u64 {
        match self {
            Self::Bytes512 => 32,
            Self::Bytes4096 => 4,
        }
    }

    /// The first byte behind the table at the beginning of a disk.
    #[must_use]
    pub const fn first_usable_bytes(self) -> u64 {
        (2 + self.array_sectors()) * self.bytes()
    }

    /// Bytes of the table at the end of a disk.
    #[must_use]
    pub const fn end_bytes(self) -> u64 {
        (1 + self.array_sectors()) * self.bytes()
    }
}

impl From<SectorSize> for u64 {
    fn from(size: SectorSize) -> Self {
        size.bytes()
    }
}

/// A partition of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1: the place of its entry.
    pub number: u32,
    /// Its type; see [`kind_name`].
    pub kind: Uuid,
    /// Its own identifier.
    pub id: Uuid,
    /// Its first sector.
    pub first_sector: u64,
    /// Its last sector.
    pub last_sector: u64,
    /// Attributes for firmware and systems.
    pub attributes: Attributes,
    /// Its name: at most [`NAME_UNITS_MAX`] units of UTF-16.
    pub name: String,
}

/// A GUID partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The identifier of the disk.
    pub id: Uuid,
    /// Bytes of a sector.
    pub sector_size: SectorSize,
    /// Sectors of the disk.
    pub sector_count: u64,
    /// The first sector that partitions may have.
    pub first_usable: u64,
    /// The last sector that partitions may have.
    pub last_usable: u64,
    /// Entries, used ones and others.
    pub entry_count: u32,
    /// The partitions, by their number.
    pub partitions: Vec<Partition>,
}

impl Table {
    /// A table without partitions for a disk. A part of a sector at its end is not used.
    ///
    /// # Errors
    /// A disk with no room for a table and one sector.
    pub fn new(id: Uuid, sector_size: SectorSize, disk_bytes: u64) -> Result<Self> {
        let sector_count = disk_bytes / sector_size.bytes();
        let first_usable = sector_size.first_usable_bytes() / sector_size.bytes();
        let min_count = first_usable + 1 + sector_size.end_bytes() / sector_size.bytes();
        let (min_bytes, max_bytes) = (min_count * sector_size.bytes(), i64::MAX.unsigned_abs());
        if sector_count < min_count || disk_bytes > max_bytes {
            return Err(Error::DiskSize { min_bytes, max_bytes, found_bytes: disk_bytes });
        }
        let last_usable = sector_count - 2 - sector_size.array_sectors();
        let (entry_count, partitions) = (ENTRY_COUNT, Vec::new());
        Ok(Self { id, sector_size, sector_count, first_usable, last_usable, entry_count, partitions })
    }

    /// The first byte behind the last partition so far where a new one would begin.
    #[must_use]
    pub fn next_at_bytes(&self) -> Option<u64> {
        let last = self.partitions.iter().map(|partition| partition.last_sector.saturating_add(1)).max();
        let free = last.unwrap_or(self.first_usable).checked_mul(self.sector_size.bytes())?;
        up(free, ALIGNMENT_BYTES)
    }

    /// Checks what a table has to keep: numbers that exist once, identifiers that differ, names that fit, partitions in
    /// the usable sectors that do not overlap.
    ///
    /// # Errors
    /// The first partition that breaks a rule.
    pub fn check(&self) -> Result<()> {
        self.check_places()?;
        self.check_unique()
    }

    /// The rules without which nothing on the disk can be believed.
    fn check_places(&self) -> Result<()> {
        let mut by_place: Vec<&Partition> = self.partitions.iter().collect();
        by_place.sort_by_key(|partition| partition.first_sector);
        let mut free_from = self.first_usable;
        for partition in &by_place {
            self.check_one(partition, free_from)?;
            free_from = partition.last_sector.saturating_add(1);
        }
        Ok(())
    }

    fn check_unique(&self) -> Result<()> {
        let mut numbers: Vec<_> = self.partitions.iter().map(|partition| (partition.number, partition)).collect();
        numbers.sort_by_key(|(number, _)| *number);
        let mut ids: Vec<_> = self.partitions.iter().map(|partition| (partition.id, partition)).collect();
        ids.sort_by_key(|(id, _)| *id);
        for [(one, _), (other, partition)] in numbers.array_windows::<2>() {
            if one == other {
                return Err(refused(partition, "a number of its own", &format!("{one} twice")));
            }
        }
        for [(one, _), (other, partition)] in ids.array_windows::<2>() {
            if one == other {
                return Err(refused(partition, "an identifier of its own", &format!("{one} twice")));
            }
        }
        Ok(())
    }

    fn check_one(&self, partition: &Partition, free_from: u64) -> Result<()> {
        let Partition { number, kind, first_sector, last_sector, name, .. } = partition;
        let units = name.encode_utf16().count();
        if !(1..=self.entry_count).contains(number) {
            let expected = format!("a number of 1 to {}", self.entry_count);
            return Err(refused(partition, &expected, &number.to_string()));
        }
        if kind.is_nil() {
            return Err(refused(partition, "a type", "none"));
        }
        if units > NAME_UNITS_MAX || name.contains('\0') {
            let expected = format!("a name of at most {NAME_UNITS_MAX} units of UTF-16 without zeros");
            return Err(refused(partition, &expected, &format!("{units} units")));
        }
        if first_sector > last_sector || *first_sector < free_from || *last_sector > self.last_usable {
            let expected = format!("free sectors of {free_from} to {}", self.last_usable);
            return Err(refused(partition, &expected, &format!("{first_sector} to {last_sector}")));
        }
        Ok(())
    }
}

fn refused(partition: &Partition, expected: &str, found: &str) -> Error {
    Error::Partition {
        number: usize::try_from(partition.number).unwrap_or(usize::MAX),
        name: partition.name.clone(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}
