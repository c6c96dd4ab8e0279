//! Writes the signature of a swap area. Called by commands that build disks.
//!
//! The layout is `union swap_header` of the kernel's `include/linux/swap.h`, version 1, for pages of 4 KiB. Machines
//! with larger pages need an area of their own page size, and refuse this one.

use std::io::{Seek, SeekFrom, Write};

use uuid::Uuid;

use crate::{Error, Result};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Fewest bytes of an area: ten pages, as `mkswap` has it.
pub const SIZE_MIN_BYTES: u64 = 10 * PAGE_BYTES;
/// Most bytes of an area: pages are counted with 32 bits.
pub const SIZE_MAX_BYTES: u64 = (1 << 32) * PAGE_BYTES;
/// Bytes of a label: the field has 16, and `mkswap` keeps the last one zero.
pub const LABEL_BYTES_MAX: usize = 15;
/// Where the fields begin: room for a boot loader is before them.
const FIELDS_AT: usize = 1024;
/// Ends the first page.
const MARK: [u8; 10] = *b"SWAPSPACE2";

/// The first page of a swap area of so many bytes.
///
/// # Errors
/// A size or label that no area has.
pub fn first_page(size_bytes: u64, id: Uuid, label: &str) -> Result<Vec<u8>> {
    let refused = |what, expected: String, found: String| Error::Swap { what, expected, found };
    let last_page = match u32::try_from((size_bytes / PAGE_BYTES).saturating_sub(1)) {
        Ok(last) if size_bytes >= SIZE_MIN_BYTES => last,
        _ => {
            let expected = format!("{SIZE_MIN_BYTES} to {SIZE_MAX_BYTES} bytes");
            return Err(refused("size", expected, format!("{size_bytes} bytes")));
        }
    };
    if label.len() > LABEL_BYTES_MAX || label.contains('\0') {
        let expected = format!("at most {LABEL_BYTES_MAX} bytes without zeros");
        return Err(refused("label", expected, format!("{} bytes", label.len())));
    }
    let mut page = vec![0; FIELDS_AT];
    // Version 1, the last page, no bad pages.
    for word in [1, last_page, 0] {
        page.extend(word.to_le_bytes());
    }
    page.extend(id.as_bytes());
    page.extend(label.as_bytes());
    page.resize(4096 - MARK.len(), 0);
    page.extend(MARK);
    Ok(page)
}

/// Writes the first page of a swap area that begins at a byte of a disk.
///
/// # Errors
/// A size or label that no area has; writing fails.
pub fn write(disk: &mut (impl Write + Seek), at_bytes: u64, size_bytes: u64, id: Uuid, label: &str) -> Result<()> {
    let page = first_page(size_bytes, id, label)?;
    let written = disk.seek(SeekFrom::Start(at_bytes)).and_then(|_| disk.write_all(&page));
    written.map_err(|source| Error::Output { at: at_bytes, source })
}
