//! Hashes the content of a file, of any length. Called by the walks in `kernel` and `library`.

use super::record::LINEAR_BYTES_MAX;
use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};

const READ_BYTES: usize = 1 << 20;

/// A file that can be hashed: the kernel's or Spinney's.
pub(super) trait Readable {
    /// Fills `buffer` as far as the file goes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Ascending ranges; outside of them are only zeros.
    fn data_ranges(&self) -> Result<Vec<(u64, u64)>>;
}

/// SHA-256 of the content: of all bytes, or for long files of the blocks that are not zeros, with their positions.
pub(super) fn sha256(file: &impl Readable, size: u64) -> Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    if size <= LINEAR_BYTES_MAX {
        let mut position = 0;
        while position < size {
            let count = fill(file, &mut buffer, position, size)?;
            hash.update(buffer.get(..count).unwrap_or_default());
            position = position.saturating_add(u64::try_from(count)?);
        }
        return Ok(hash.finalize().into());
    }
    hash.update(size.to_le_bytes());
    let mut done = 0;
    for (start, end) in file.data_ranges()? {
        // The ranges of the two sides may differ in zeros: whole buffers make the blocks comparable.
        let aligned =
            start.checked_div(u64::try_from(READ_BYTES)?).unwrap_or(0).saturating_mul(u64::try_from(READ_BYTES)?);
        let mut position = aligned.max(done);
        while position < end.min(size) {
            let count = fill(file, &mut buffer, position, size)?;
            let bytes = buffer.get(..count).unwrap_or_default();
            if bytes.iter().any(|byte| *byte != 0) {
                hash.update(position.to_le_bytes());
                hash.update(bytes);
            }
            position = position.saturating_add(u64::try_from(count)?);
        }
        done = done.max(position);
    }
    Ok(hash.finalize().into())
}

/// Reads a whole buffer, or to the end of the file.
fn fill(file: &impl Readable, buffer: &mut [u8], position: u64, size: u64) -> Result<usize> {
    let wanted = usize::try_from(size.saturating_sub(position)).unwrap_or(usize::MAX).min(buffer.len());
    let mut count = 0;
    while count < wanted {
        let at = position.saturating_add(u64::try_from(count)?);
        let read = file.read_at(buffer.get_mut(count..wanted).unwrap_or_default(), at)?;
        ensure!(read > 0, "the file ends at {at}, its size is {size}");
        count = count.saturating_add(read);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        ranges: Vec<(u64, u64)>,
        one_at: u64,
    }

    impl Readable for Fake {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            buffer.fill(0);
            if let Some(index) = self.one_at.checked_sub(offset)
                && let Some(byte) = buffer.get_mut(usize::try_from(index)?)
            {
                *byte = 1;
            }
            Ok(buffer.len())
        }

        fn data_ranges(&self) -> Result<Vec<(u64, u64)>> {
            Ok(self.ranges.clone())
        }
    }

    #[test]
    fn long_files_are_compared_by_what_is_not_zero() {
        let size = 1 << 40;
        let hash = |ranges: &[(u64, u64)], one_at| sha256(&Fake { ranges: ranges.to_vec(), one_at }, size).unwrap();
        let narrow = hash(&[(5 << 30, (5 << 30) + 4096)], (5 << 30) + 7);
        let wide = hash(&[(0, 4096), ((5 << 30) - 4096, (5 << 30) + 9000)], (5 << 30) + 7);
        assert_eq!(narrow, wide);
        assert_ne!(narrow, hash(&[(5 << 30, (5 << 30) + 4096)], (5 << 30) + 8));
    }
}
