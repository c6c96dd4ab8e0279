//! Holds the contents of a file as runs of data in another file: the archive itself, or the temporary file that
//! `spool` writes. Holes are what no run covers. `bytes` and `tar` make them; trees read them.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use portable::FileExt;
use transfer::{Contents, Result, Stored};

/// Bytes of a file that lie together in another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Offset in the file, in bytes.
    pub(crate) at: u64,
    /// Length in bytes; not 0.
    pub(crate) len: u64,
    /// Offset of the bytes where they are kept.
    pub(crate) position: u64,
}

impl Run {
    /// Where it ends in the file, in bytes.
    pub(crate) const fn end(&self) -> u64 {
        self.at.saturating_add(self.len)
    }
}

/// Where the contents of one member are.
#[derive(Clone)]
pub(crate) struct StoredRuns {
    /// `None` for a file without data.
    pub(crate) file: Option<Arc<File>>,
    /// Bytes that the file has.
    pub(crate) size: u64,
    /// In ascending order, not overlapping, all below `size`.
    pub(crate) runs: Arc<[Run]>,
}

impl fmt::Debug for StoredRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRuns").field("size", &self.size).field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

impl StoredRuns {
    /// The contents as a node has them.
    pub(crate) fn shared(self) -> Arc<dyn Stored> {
        Arc::new(self)
    }

    /// The first run that ends behind `at`.
    fn run_at(&self, at: u64) -> Option<&Run> {
        self.runs.get(self.runs.partition_point(|run| run.end() <= at))
    }
}

impl Stored for StoredRuns {
    fn open(&self) -> Result<Box<dyn Contents + Send + Sync>> {
        Ok(Box::new(self.clone()))
    }
}

impl Contents for StoredRuns {
    fn next_data(&self, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
        let size = size.min(self.size);
        let Some(run) = self.run_at(at) else { return Ok(None) };
        let start = run.at.max(at);
        Ok((start < size).then(|| (start, run.end().min(size))))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        let left = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        let Some(run) = self.run_at(at).filter(|run| run.at <= at) else {
            let end = self.run_at(at).map_or(self.size, |run| run.at);
            let hole = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(count);
            let part = buffer.get_mut(..hole).unwrap_or_default();
            part.fill(0);
            return Ok(part.len());
        };
        let Some(file) = &self.file else { return Ok(0) };
        let count = count.min(usize::try_from(run.end().saturating_sub(at)).unwrap_or(usize::MAX));
        let part = buffer.get_mut(..count).unwrap_or_default();
        let from = run.position.saturating_add(at.saturating_sub(run.at));
        loop {
            match FileExt::read_at(&**file, part, from) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                count => return Ok(count?),
            }
        }
    }

    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_told_and_read_as_zeros() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"abcdef", 0).unwrap();
        let runs = [Run { at: 2, len: 3, position: 0 }, Run { at: 8, len: 3, position: 3 }];
        let stored = StoredRuns { file: Some(Arc::new(file)), size: 12, runs: runs.into() };
        assert_eq!(stored.next_data(0, 12).unwrap(), Some((2, 5)));
        assert_eq!(stored.next_data(3, 12).unwrap(), Some((3, 5)));
        assert_eq!(stored.next_data(5, 12).unwrap(), Some((8, 11)));
        assert_eq!(stored.next_data(5, 8).unwrap(), None);
        assert_eq!(stored.next_data(11, 12).unwrap(), None);
        let mut all = Vec::new();
        while all.len() < 12 {
            let mut buffer = [9; 20];
            let count = stored.read_at(&mut buffer, u64::try_from(all.len()).unwrap()).unwrap();
            all.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(all, b"\0\0abc\0\0\0def\0");
        assert_eq!(stored.read_at(&mut [0; 4], 12).unwrap(), 0);
    }
}
