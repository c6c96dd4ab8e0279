//! The formats that are known, one row each, and those that are recognised in order not to be
//! overwritten. A second format adds its row to [`FORMATS`].

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use vfs::FileSystem;

use crate::btrfs;
use crate::common::failure::{Failure, Status};
use crate::common::mount::Request;

/// A format this program reads and writes.
pub(crate) struct Format {
    /// Its name.
    pub(crate) name: &'static str,
    /// How an image shows that it has it.
    magic: Magic,
    /// Opens an image for a mount.
    mount: fn(Arc<dyn Device>, &Request) -> Result<Arc<dyn FileSystem>>,
    /// Refuses mount options of its own that it does not know, or whose value is wrong.
    check_options: fn(&Request) -> Result<()>,
    /// True for the name of a mount option of its own.
    is_option: fn(&str) -> bool,
}

/// Bytes at a place by which a format is known.
struct Magic {
    offset: usize,
    bytes: &'static [u8],
}

const fn magic(offset: usize, bytes: &'static [u8]) -> Magic {
    Magic { offset, bytes }
}

/// The formats of this program.
pub(crate) const FORMATS: &[Format] = &[Format {
    name: "btrfs",
    magic: magic(0x10040, b"_BHRfS_M"),
    mount: btrfs::mount::mount,
    check_options: btrfs::mount::check_options,
    is_option: btrfs::mount::is_option,
}];

/// The mount options that belong to a format, for the help text.
pub(crate) const MOUNT_OPTIONS_HELP: &str = btrfs::mount::OPTIONS_HELP;

/// What else people have on their disks. The order matters where two can be true.
const FOREIGN: &[(&str, Magic)] = &[
    ("LUKS", magic(0, b"LUKS\xba\xbe")),
    ("xfs", magic(0, b"XFSB")),
    ("squashfs", magic(0, b"hsqs")),
    ("ntfs", magic(3, b"NTFS    ")),
    ("exfat", magic(3, b"EXFAT   ")),
    ("fat", magic(0x36, b"FAT")),
    ("fat", magic(0x52, b"FAT32")),
    ("ext2, ext3 or ext4", magic(0x438, b"\x53\xef")),
    ("f2fs", magic(0x400, b"\x10\x20\xf5\xf2")),
    ("erofs", magic(0x400, b"\xe2\xe1\xf5\xe0")),
    ("LVM physical volume", magic(0x218, b"LVM2 001")),
    (
        "bcachefs",
        magic(
            0x1018,
            b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        ),
    ),
    ("swap", magic(0xff6, b"SWAPSPACE2")),
    ("iso9660", magic(0x8001, b"CD001")),
    ("jfs", magic(0x8000, b"JFS1")),
    ("reiserfs", magic(0x10034, b"ReIsEr")),
    ("GPT partition table", magic(0x200, b"EFI PART")),
    ("partition table", magic(0x1fe, b"\x55\xaa")),
];

/// Bytes at the start of an image that hold every magic.
const HEAD_BYTES: u64 = 68 << 10;

/// Name of what begins at byte `offset` of a file or device; `None` where nothing is recognised.
pub(crate) fn recognise(path: &Path, offset: u64) -> std::io::Result<Option<&'static str>> {
    let mut file = File::open(path)?;
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(offset))?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(recognise_bytes(&head))
}

/// The file system on a device.
///
/// # Errors
/// `Corrupt` for one that is not known; whatever its format says.
pub(crate) fn mount(device: Arc<dyn Device>, request: &Request) -> Result<Arc<dyn FileSystem>> {
    let len = device.size_bytes().min(HEAD_BYTES);
    let mut head = vec![0; usize::try_from(len)?];
    device.read_at(0, &mut head)?;
    let known = FORMATS.iter().find(|format| has(&head, &format.magic));
    match (known, recognise_bytes(&head), FORMATS.first()) {
        (Some(format), _, _) => (format.mount)(device, request),
        (None, Some(name), _) => {
            let known: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
            let text = format!("file system: expected {}, found {name}", known.join(" or "));
            Err(Failure::new(Status::Corrupt, text).into())
        }
        // It says best what is missing.
        (None, None, Some(first)) => (first.mount)(device, request),
        (None, None, None) => Err(Failure::new(Status::Corrupt, "no format is known").into()),
    }
}

/// Refuses mount options that no format takes.
///
/// # Errors
/// `Usage`, with the name of the option.
pub(crate) fn check_options(request: &Request) -> Result<()> {
    let mut refusal = None;
    for format in FORMATS {
        match (format.check_options)(request) {
            Ok(()) => return Ok(()),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// True for the name of a mount option that a format has.
pub(crate) fn is_known_option(name: &str) -> bool {
    FORMATS.iter().any(|format| (format.is_option)(name))
}

fn recognise_bytes(head: &[u8]) -> Option<&'static str> {
    let ours = FORMATS.iter().map(|format| (format.name, &format.magic));
    let foreign = FOREIGN.iter().map(|(name, magic)| (*name, magic));
    ours.chain(foreign)
        .find(|(_, magic)| has(head, magic))
        .map(|(name, _)| name)
}

fn has(head: &[u8], magic: &Magic) -> bool {
    let end = magic.offset.saturating_add(magic.bytes.len());
    head.get(magic.offset..end) == Some(magic.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_recognised() {
        let rows = FORMATS.iter().map(|format| (format.name, &format.magic));
        for (name, magic) in rows.chain(FOREIGN.iter().map(|(name, magic)| (*name, magic))) {
            let mut head = vec![0; usize::try_from(HEAD_BYTES).unwrap()];
            head[magic.offset..magic.offset + magic.bytes.len()].copy_from_slice(magic.bytes);
            assert_eq!(recognise_bytes(&head), Some(name));
        }
        assert_eq!(recognise_bytes(&[]), None);
        assert_eq!(recognise_bytes(&[0; 4096]), None);
    }
}
