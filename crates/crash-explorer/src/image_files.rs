//! Saves images as files, for other programs. Called by `cargo trials crash-explore` and `power-cut`, and by `testkit`.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Result;
use blockdev::Device;

use crate::number::{to_u64, to_usize};

/// Bytes that are looked at together.
const PIECE_BYTES: usize = 64 << 10;

/// Writes the contents of any device to a file, zeros as holes.
///
/// # Errors
/// The device's and the file system's.
pub fn store_device(device: &dyn Device, path: &Path) -> Result<()> {
    let file = std::fs::File::create(path)?;
    file.set_len(device.size_bytes())?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < device.size_bytes() {
        let len = to_usize(device.size_bytes().saturating_sub(offset)).min(PIECE_BYTES);
        let piece = piece.get_mut(..len).unwrap_or_default();
        device.read_at(offset, piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, offset)?;
        }
        offset = offset.saturating_add(to_u64(PIECE_BYTES));
    }
    Ok(())
}
