//! Recognises formats by magic numbers: those of this program, and others that must not be overwritten. Called by the
//! list of formats in `spinney` at open and make.

use blockdev::{Access, Device, Locator};

/// Bytes at an offset that identify a format.
#[derive(Debug)]
pub struct Magic {
    offset: usize,
    bytes: &'static [u8],
}

impl Magic {
    /// True if `head`, the first bytes of a device, has it.
    pub fn is_in(&self, head: &[u8]) -> bool {
        let end = self.offset.saturating_add(self.bytes.len());
        head.get(self.offset..end) == Some(self.bytes)
    }
}

/// These bytes at byte `offset`, which is below [`HEAD_BYTES`].
pub const fn magic(offset: usize, bytes: &'static [u8]) -> Magic {
    Magic { offset, bytes }
}

/// Foreign file systems and partition tables. The first match counts: `partition table` is last because the boot
/// sector of ntfs, exfat or fat ends with the same bytes.
const FOREIGN: &[(&str, Magic)] = &[
    ("LUKS", magic(0, b"LUKS\xba\xbe")),
    ("xfs", magic(0, b"XFSB")),
    ("squashfs", magic(0, b"hsqs")),
    ("ntfs", magic(3, b"NTFS    ")),
    ("exfat", magic(3, b"EXFAT   ")),
    ("fat", magic(0x36, b"FAT")),
    ("fat", magic(0x52, b"FAT32")),
    ("ext2, ext3 or ext4", magic(0x438, b"\x53\xef")),
    ("erofs", magic(0x400, b"\xe2\xe1\xf5\xe0")),
    ("LVM physical volume", magic(0x218, b"LVM2 001")),
    ("bcachefs", magic(0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef")),
    ("swap", magic(0xff6, b"SWAPSPACE2")),
    ("iso9660", magic(0x8001, b"CD001")),
    ("jfs", magic(0x8000, b"JFS1")),
    ("reiserfs", magic(0x10034, b"ReIsEr")),
    ("GPT partition table", magic(0x200, b"EFI PART")),
    ("partition table", magic(0x1fe, b"\x55\xaa")),
];

/// File types that are mistaken for images.
const FILES: &[(&str, Magic)] = &[
    ("gzip data", magic(0, b"\x1f\x8b")),
    ("xz data", magic(0, b"\xfd7zXZ\0")),
    ("zstd data", magic(0, b"\x28\xb5\x2f\xfd")),
    ("bzip2 data", magic(0, b"BZh")),
    ("a zip archive", magic(0, b"PK\x03\x04")),
    ("a tar archive", magic(257, b"ustar")),
    ("a qcow2 image of a virtual machine", magic(0, b"QFI\xfb")),
    ("a VMDK image of a virtual machine", magic(0, b"KDMV")),
    ("an Android sparse image", magic(0, b"\x3a\xff\x26\xed")),
    ("a program", magic(0, b"\x7fELF")),
];

/// Appearance of a file without a known file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It has 0 bytes, or only zeros in its first [`HEAD_BYTES`].
    Empty,
    /// It has only this many bytes, too few for a superblock.
    Short(usize),
    /// A known file type, such as `gzip data` or `a zip archive`.
    Like(&'static str),
    /// None of these.
    Unknown,
}

/// Appearance of a device that begins with these bytes and has no known file system.
pub fn look(head: &[u8]) -> Look {
    let file = FILES.iter().find(|(_, magic)| magic.is_in(head));
    match (head.len(), file) {
        (_, Some((name, _))) => Look::Like(name),
        _ if head.iter().all(|byte| *byte == 0) => Look::Empty,
        (len, _) if u64::try_from(len).is_ok_and(|len| len < HEAD_BYTES) => Look::Short(len),
        _ => Look::Unknown,
    }
}

/// Bytes at the start of an image that hold every magic.
pub const HEAD_BYTES: u64 = 68 << 10;

/// The first [`HEAD_BYTES`] bytes of the device that a locator names (all of a smaller one). Takes no lock, so it works
/// while another program has the device open for writing.
///
/// # Errors
/// As [`blockdev::open`], and those of reading.
pub fn head(image: &Locator) -> blockdev::Result<Vec<u8>> {
    head_of(&*blockdev::open(image, Access { unlocked: true, ..Access::READ })?)
}

/// The first bytes of a device.
///
/// # Errors
/// The device's.
pub fn head_of(device: &dyn Device) -> blockdev::Result<Vec<u8>> {
    let len = device.size_bytes().min(HEAD_BYTES);
    let mut head = vec![0; usize::try_from(len).unwrap_or_default()];
    device.read_at(0, &mut head)?;
    Ok(head)
}

/// Name of the foreign format that begins with these bytes.
pub fn foreign(head: &[u8]) -> Option<&'static str> {
    FOREIGN.iter().find(|(_, magic)| magic.is_in(head)).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_recognised() {
        for (name, magic) in FOREIGN {
            let mut head = vec![0; usize::try_from(HEAD_BYTES).unwrap()];
            head[magic.offset..magic.offset + magic.bytes.len()].copy_from_slice(magic.bytes);
            assert_eq!(foreign(&head), Some(*name));
        }
        assert_eq!(foreign(&[]), None);
        assert_eq!(foreign(&[0; 4096]), None);
    }
}
