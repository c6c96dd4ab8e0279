//! Reads an image as runs of data and runs of zeros. Called by the writers of all forms.
//!
//! Holes are found by `SEEK_DATA` and not read; what is read is compared with zeros. Where the host knows no holes,
//! everything is read.

use std::fs::File;

use portable::FileExt;

use super::watch::Watch;
use super::zeros::is_zero;
use crate::number::{at_most, bytes, down};
use crate::{Error, Result};

/// Bytes that are read at once. A multiple of the units of all forms.
pub(super) const READ_BYTES: usize = 2 * 1024 * 1024;

/// A finished raw image.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    pub(super) file: &'a File,
    pub(super) size_bytes: u64,
}

/// A run of an image. All runs but the last have whole units.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Run<'a> {
    /// As many bytes of zeros.
    Zeros(u64),
    /// Units none of which is all zeros; at most [`READ_BYTES`].
    Data(&'a [u8]),
}

/// A walk over an image from its beginning to its end.
pub(super) struct Scan<'a> {
    image: Image<'a>,
    watch: &'a Watch<'a>,
    unit_bytes: usize,
    /// Where the next run begins.
    at: u64,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not yet given out.
    waiting: std::ops::Range<usize>,
    /// The host knows no holes.
    has_no_holes: bool,
}

impl<'a> Scan<'a> {
    /// A walk in units, of which [`READ_BYTES`] is a multiple.
    pub(super) fn new(image: Image<'a>, unit_bytes: usize, watch: &'a Watch<'a>) -> Self {
        assert!(READ_BYTES.is_multiple_of(unit_bytes), "the buffer ends with a unit");
        let buffer = Vec::new();
        Self { image, watch, unit_bytes, at: 0, buffer, waiting: 0..0, has_no_holes: false }
    }

    /// The next run, or nothing at the end.
    ///
    /// # Errors
    /// The image cannot be read; cancellation.
    pub(super) fn next(&mut self) -> Result<Option<Run<'_>>> {
        if self.waiting.is_empty() {
            self.watch.read(self.at, self.image.size_bytes)?;
            if self.at >= self.image.size_bytes {
                return Ok(None);
            }
            let data_at = self.data_at()?;
            if data_at > self.at {
                let skipped = data_at - self.at;
                self.at = data_at;
                return Ok(Some(Run::Zeros(skipped)));
            }
            self.fill()?;
        }
        let waiting = self.buffer.get(self.waiting.clone()).unwrap_or_default();
        let mut units = waiting.chunks(self.unit_bytes);
        let zeros = units.next().is_some_and(is_zero);
        let more: usize = units.take_while(|unit| is_zero(unit) == zeros).map(<[u8]>::len).sum();
        let len = self.unit_bytes.saturating_add(more).min(waiting.len());
        self.waiting.start += len;
        self.at += bytes(len);
        let run = waiting.get(..len).unwrap_or_default();
        Ok(Some(if zeros { Run::Zeros(bytes(len)) } else { Run::Data(run) }))
    }

    /// The unit in which the next data lies, or the end of the image.
    fn data_at(&mut self) -> Result<u64> {
        if self.has_no_holes {
            return Ok(self.at);
        }
        match next_data(self.image.file, self.at) {
            Some(Some(found)) if found < self.image.size_bytes => Ok(down(found, bytes(self.unit_bytes)).max(self.at)),
            Some(_) => Ok(self.image.size_bytes),
            None => {
                self.has_no_holes = true;
                Ok(self.at)
            }
        }
    }

    fn fill(&mut self) -> Result<()> {
        let len = at_most(self.image.size_bytes - self.at, READ_BYTES);
        self.buffer.resize(len, 0);
        let failed = |source| Error::Image { at: self.at, source };
        self.image.file.read_exact_at(&mut self.buffer, self.at).map_err(failed)?;
        self.waiting = 0..len;
        Ok(())
    }
}

/// Where the next data of a file lies, if any follows; nothing where the host knows no holes.
#[cfg(unix)]
fn next_data(file: &File, at: u64) -> Option<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(found) => Some(Some(found)),
        Err(rustix::io::Errno::NXIO) => Some(None),
        Err(_) => None,
    }
}

#[cfg(not(unix))]
fn next_data(_file: &File, _at: u64) -> Option<Option<u64>> {
    None
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use super::*;

    fn runs(file: &File, size_bytes: u64, unit_bytes: usize) -> Vec<(u64, bool)> {
        let options = Options::default();
        let watch = Watch::new(&options);
        let mut scan = Scan::new(Image { file, size_bytes }, unit_bytes, &watch);
        let mut runs: Vec<(u64, bool)> = Vec::new();
        while let Some(run) = scan.next().unwrap() {
            let (len, is_data) = match run {
                Run::Zeros(len) => (len, false),
                Run::Data(data) => (bytes(data.len()), true),
            };
            match runs.last_mut() {
                Some(last) if last.1 == is_data => last.0 += len,
                _ => runs.push((len, is_data)),
            }
        }
        runs
    }

    #[test]
    fn holes_and_written_zeros_are_one_thing() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"x", 3 * 4096 + 5).unwrap();
        file.write_all_at(&[0; 10_000], 9 * 4096).unwrap();
        file.write_all_at(b"y", 5_000_000).unwrap();
        let end = 5_000_001 % 4096;
        let expected = [(3 * 4096, false), (4096, true), (5_000_001 - end - 4 * 4096, false), (end, true)];
        assert_eq!(runs(&file, 5_000_001, 4096), expected);
        assert_eq!(runs(&file, 2 * 4096 + 1, 4096), [(2 * 4096 + 1, false)]);
        assert_eq!(runs(&file, 0, 4096), []);
    }
}
