//! Reads a table from a disk, from either of its copies. Called by everyone who lists partitions.

use std::io::{Read, Seek, SeekFrom};

use super::header::{Copy, Header, SIGNATURE, crc32};
use super::{SectorSize, Table, entry};
use crate::number::at_most;
use crate::{Error, Result};

/// The table of a disk, and its damage.
#[derive(Debug)]
pub struct Found {
    /// The table.
    pub table: Table,
    /// Damage of the protective MBR, or of the copy of the table that was not used; identifiers that exist twice.
    pub damage: Vec<Error>,
}

impl Table {
    /// Reads the table of a disk of so many bytes. The size of its sectors follows from the place of the table.
    ///
    /// # Errors
    /// No table; two damaged copies (the failure is that of the first); reading fails.
    pub fn read(disk: &mut (impl Read + Seek), disk_bytes: u64) -> Result<Found> {
        let mut damage = Vec::new();
        if let Err(error) = check_mbr(disk, disk_bytes) {
            damage.push(error);
        }
        let size = sector_size(disk, disk_bytes)?;
        let sector_count = disk_bytes / size.bytes();
        let first = read_copy(disk, Copy::First, size, 1, sector_count);
        let last = read_copy(disk, Copy::Last, size, sector_count.saturating_sub(1), sector_count);
        let table = match (first, last) {
            (Ok(table), Ok(other)) => {
                if table != other {
                    damage.push(Error::Table {
                        what: "copy of the table",
                        at: sector_count.saturating_sub(1).saturating_mul(size.bytes()),
                        expected: "the same as the first".to_owned(),
                        found: "another table".to_owned(),
                    });
                }
                table
            }
            (Ok(table), Err(error)) | (Err(error), Ok(table)) => {
                damage.push(error);
                table
            }
            (Err(error), Err(_)) => return Err(error),
        };
        damage.extend(table.check().err());
        Ok(Found { table, damage })
    }
}

/// The size of sectors for which a header is where it should be; 512 bytes if there is none.
fn sector_size(disk: &mut (impl Read + Seek), disk_bytes: u64) -> Result<SectorSize> {
    for is_first in [true, false] {
        for size in SectorSize::ALL {
            let sector = if is_first { 1 } else { (disk_bytes / size.bytes()).saturating_sub(1) };
            let at = sector.saturating_mul(size.bytes());
            if at.saturating_add(size.bytes()) > disk_bytes {
                continue;
            }
            if read_at(disk, at, SIGNATURE.len())? == SIGNATURE {
                return Ok(size);
            }
        }
    }
    Ok(SectorSize::Bytes512)
}

fn read_copy(
    disk: &mut (impl Read + Seek),
    copy: Copy,
    size: SectorSize,
    own_sector: u64,
    sector_count: u64,
) -> Result<Table> {
    if own_sector >= sector_count || own_sector == 0 {
        let disk_bytes = sector_count.saturating_mul(size.bytes());
        let found = format!("{disk_bytes} bytes");
        return Err(Error::Table { what: "size of the disk", at: 0, expected: "room for a table".to_owned(), found });
    }
    let at = own_sector.saturating_mul(size.bytes());
    let sector = read_at(disk, at, at_most(size.bytes(), usize::MAX))?;
    let header = Header::decode(&sector, copy, size, own_sector, sector_count)?;
    let array_at = header.array_sector.saturating_mul(size.bytes());
    let array = read_at(disk, array_at, at_most(header.array_bytes(), usize::MAX))?;
    let found = crc32(&array);
    if found != header.array_crc {
        let expected = format!("{:#010x}", header.array_crc);
        let found = format!("{found:#010x}");
        return Err(Error::Table { what: "checksum of the entries", at: array_at, expected, found });
    }
    let entries = array.chunks_exact(at_most(u64::from(header.entry_bytes), usize::MAX));
    let table = Table {
        id: header.id,
        sector_size: size,
        sector_count,
        first_usable: header.first_usable,
        last_usable: header.last_usable,
        entry_count: header.entry_count,
        partitions: (1..).zip(entries).filter_map(|(number, bytes)| entry::decode(number, bytes)).collect(),
    };
    table.check_places()?;
    Ok(table)
}

/// The protective MBR: its mark, and a partition of the type that stands for tables of this kind.
fn check_mbr(disk: &mut (impl Read + Seek), disk_bytes: u64) -> Result<()> {
    let wrong = |what, expected: &str, found| Err(Error::Table { what, at: 0, expected: expected.to_owned(), found });
    if disk_bytes < 512 {
        return wrong("size of the disk", "room for a table", format!("{disk_bytes} bytes"));
    }
    let sector = read_at(disk, 0, 512)?;
    let mark = sector.last_chunk::<2>().copied().unwrap_or_default();
    if mark != [0x55, 0xaa] {
        return wrong("mark of the protective MBR", "55 aa", format!("{:02x} {:02x}", mark[0], mark[1]));
    }
    let kinds: Vec<u8> = sector.iter().skip(446 + 4).step_by(16).take(4).copied().collect();
    if kinds.contains(&0xee) {
        return Ok(());
    }
    wrong("types in the protective MBR", "one 0xee", format!("{kinds:#04x?}").replace('\n', ""))
}

fn read_at(disk: &mut (impl Read + Seek), at: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = disk.seek(SeekFrom::Start(at)).and_then(|_| disk.read_exact(&mut bytes));
    read.map(|()| bytes).map_err(|source| Error::TableIo { at, source })
}
