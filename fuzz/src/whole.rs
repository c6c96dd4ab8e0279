//! What the targets of whole images share: how a base image is packed, and how a patched one is looked at.

use std::path::{Path, PathBuf};

use vfs::{File, Volume};

/// Bytes of the pieces that images are packed by.
pub(crate) const SECTOR: usize = 4096;
/// Names that a walk looks at: crafted directories may loop.
const NAMES_MAX: usize = 300;
/// Bytes read of each end of a file.
const READ_MAX: usize = 256 << 10;

/// Sectors of the image, and those that are not zeros, by number.
pub(crate) fn unpacked(packed: &[u8]) -> (u32, Vec<(u32, [u8; SECTOR])>) {
    let unpacked = zstd::decode_all(packed).expect("packed by make_base");
    let (count, rest) = unpacked.split_first_chunk().expect("packed by make_base");
    let sectors = rest.chunks_exact(SECTOR + 4).map(|entry| {
        let (number, sector) = entry.split_first_chunk().expect("it has 4100 bytes");
        (u32::from_le_bytes(*number), sector.try_into().expect("it has 4096 bytes"))
    });
    (u32::from_le_bytes(*count), sectors.collect())
}

/// Bytes that replace some of a sector's.
pub(crate) struct Patch<'a> {
    /// Which sector, in the order of the target.
    pub(crate) index: usize,
    /// Where in it.
    pub(crate) at: usize,
    /// What, no more than there is room for.
    pub(crate) bytes: &'a [u8],
    /// Its checksum stays wrong.
    pub(crate) is_broken: bool,
}

/// The patches that an input has: most go to the first `deciding` sectors of `count`, which are what decides.
pub(crate) fn patches(mut input: &[u8], deciding: usize, count: usize) -> impl Iterator<Item = Patch<'_>> {
    std::iter::from_fn(move || {
        let ([which, high, low, len, how], rest) = input.split_first_chunk()?;
        let (bytes, rest) = rest.split_at(usize::from(*len % 32).min(rest.len()));
        input = rest;
        let range = if how & 0x80 == 0 { deciding } else { count };
        let index = (usize::from(*which) | usize::from(how & 3) << 8) % range.max(1);
        let at = (usize::from(*high) << 8 | usize::from(*low)) % SECTOR;
        let bytes = &bytes[..bytes.len().min(SECTOR - at)];
        Some(Patch { index, at, bytes, is_broken: how & 0x40 != 0 })
    })
}

/// Looks at everything, within limits.
pub(crate) fn walk(volume: &Volume) {
    let mut todo = vec![PathBuf::from("/")];
    let mut names = 0;
    while let Some(dir) = todo.pop() {
        let Ok(entries) = volume.read_dir(&dir) else {
            continue;
        };
        for entry in entries {
            names += 1;
            if names > NAMES_MAX {
                return;
            }
            let Ok(entry) = entry else {
                break;
            };
            let path = dir.join(entry.file_name());
            look(volume, &path);
            todo.push(path);
        }
    }
}

fn look(volume: &Volume, path: &Path) {
    let Ok(metadata) = volume.symlink_metadata(path) else {
        return;
    };
    for name in volume.list_xattrs(path).unwrap_or_default() {
        let _ = volume.get_xattr(path, name.as_encoded_bytes());
    }
    let _ = volume.read_link(path);
    let Ok(file) = File::open(volume, path) else {
        return;
    };
    let mut buffer = vec![0; READ_MAX];
    let _ = file.read_at(&mut buffer, 0);
    let _ = file.read_at(&mut buffer[..8192], metadata.size.saturating_sub(5000));
    let _ = (file.extents(), file.seek_data(0), file.seek_hole(0));
}
