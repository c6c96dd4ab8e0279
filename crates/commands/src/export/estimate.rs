//! How much there is to copy, for the progress bar.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use vfs::{Result, Volume};

/// Bytes of contents, holes left out, of everything at and below `paths`; `None` when `is_over`
/// was set before the end. It runs beside the copy, so it stops when nobody needs it any more.
///
/// # Errors
/// Those of the volume, which the copy will meet too.
pub(crate) fn measure(volume: &Volume, paths: &[PathBuf], is_over: &AtomicBool) -> Result<Option<u64>> {
    let mut todo = paths.to_vec();
    let mut total = 0_u64;
    while let Some(path) = todo.pop() {
        let metadata = volume.symlink_metadata(&path)?;
        if metadata.is_file() {
            let stored = metadata.blocks.saturating_mul(512);
            total = total.saturating_add(metadata.size.min(stored.max(4096)));
        } else if metadata.is_dir() {
            for entry in volume.read_dir(&path)? {
                let entry = entry?;
                let kind = entry.file_type();
                if kind.is_dir() || kind.is_file() {
                    todo.push(path.join(entry.file_name()));
                }
            }
        }
        if is_over.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
    Ok(Some(total))
}
