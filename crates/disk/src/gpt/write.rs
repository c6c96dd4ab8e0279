//! Writes both copies of a table, and the protective MBR. Called by everyone who builds disks.

use std::io::{Seek, SeekFrom, Write};

use super::header::{ENTRY_BYTES, Header, crc32};
use super::{ENTRY_COUNT, Table, entry};
use crate::number::{at_most, bytes};
use crate::{Error, Result};

/// Where the MBR's own fields begin: code of a boot loader before them stays.
const MBR_AT: u64 = 440;

impl Table {
    /// Writes the table with 128 entries at the beginning and the end of a disk. The partitions' contents and the code
    /// of a boot loader in the first sector stay.
    ///
    /// # Errors
    /// A partition that breaks a rule of [`Table::check`]; writing fails.
    pub fn write(&self, disk: &mut (impl Write + Seek)) -> Result<()> {
        let size = self.sector_size.bytes();
        let own = Self::new(self.id, self.sector_size, self.sector_count.saturating_mul(size))?;
        let table = Self { partitions: self.partitions.clone(), ..own };
        table.check()?;
        let array = table.array();
        let last_sector = self.sector_count - 1;
        let first = Header {
            own_sector: 1,
            other_sector: last_sector,
            first_usable: table.first_usable,
            last_usable: table.last_usable,
            id: self.id,
            array_sector: 2,
            entry_count: ENTRY_COUNT,
            entry_bytes: ENTRY_BYTES,
            array_crc: crc32(&array),
        };
        let last = Header { own_sector: last_sector, other_sector: 1, array_sector: table.last_usable + 1, ..first };
        // The copy at the end first: if the machine stops meanwhile, one of both is whole.
        for header in [last, first] {
            write_at(disk, header.array_sector * size, &array)?;
            let mut sector = header.encode();
            sector.resize(at_most(size, usize::MAX), 0);
            write_at(disk, header.own_sector * size, &sector)?;
        }
        write_at(disk, MBR_AT, &protective_mbr(self.sector_count))
    }

    fn array(&self) -> Vec<u8> {
        let entry_bytes = at_most(u64::from(ENTRY_BYTES), usize::MAX);
        let mut array = vec![0; at_most(u64::from(ENTRY_COUNT) * u64::from(ENTRY_BYTES), usize::MAX)];
        let mut slots: Vec<&mut [u8]> = array.chunks_mut(entry_bytes).collect();
        for partition in &self.partitions {
            let index = at_most(u64::from(partition.number.saturating_sub(1)), usize::MAX);
            if let Some(slot) = slots.get_mut(index) {
                slot.copy_from_slice(&entry::encode(partition));
            }
        }
        array
    }
}

/// The MBR from its disk signature on: one partition over all of the disk, which tools that know no other tables leave
/// alone.
fn protective_mbr(sector_count: u64) -> Vec<u8> {
    let len = u32::try_from(sector_count - 1).unwrap_or(u32::MAX);
    let mut mbr = vec![0; 6];
    // Not bootable; cylinder, head and sector of sector 1; the type; the largest cylinder, head and sector.
    mbr.extend([0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff]);
    mbr.extend(1_u32.to_le_bytes());
    mbr.extend(len.to_le_bytes());
    mbr.resize(512 - 440 - 2, 0);
    mbr.extend([0x55, 0xaa]);
    debug_assert_eq!(bytes(mbr.len()) + MBR_AT, 512, "the mark ends the sector");
    mbr
}

fn write_at(disk: &mut (impl Write + Seek), at: u64, part: &[u8]) -> Result<()> {
    let written = disk.seek(SeekFrom::Start(at)).and_then(|_| disk.write_all(part));
    written.map_err(|source| Error::TableIo { at, source })
}
