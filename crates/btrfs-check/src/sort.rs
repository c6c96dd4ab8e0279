//! Sorts records externally: sorted runs in an unnamed temporary file, merged when they are read. Filled by `collect`,
//! read by `sweep`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use btrfs_disk::convert::to_u64;
use portable::FileExt as _;

/// Records that are read from a run at a time.
const READ_RECORDS: usize = 1024;

/// A record of `N` numbers, compared from the first to the last.
pub(crate) type Record<const N: usize> = [u64; N];

/// Takes records in any order, from any thread.
pub(crate) struct Sorter<const N: usize> {
    inner: Mutex<Inner<N>>,
    /// Records that are kept in memory.
    records_max: usize,
    folder: PathBuf,
}

#[derive(Default)]
struct Inner<const N: usize> {
    buffer: Vec<Record<N>>,
    file: Option<File>,
    /// Position in the file and number of records.
    runs: Vec<(u64, u64)>,
    failure: Option<io::Error>,
}

impl<const N: usize> Sorter<N> {
    /// Keeps at most `bytes` in memory; further records go to a file in `folder`.
    pub(crate) fn new(bytes: usize, folder: &Path) -> Self {
        let records_max = (bytes / size_of::<Record<N>>()).max(READ_RECORDS);
        Self { inner: Mutex::default(), records_max, folder: folder.to_owned() }
    }

    /// Takes all records of `from`, which keeps its allocation.
    pub(crate) fn take(&self, from: &mut Vec<Record<N>>) {
        if from.is_empty() {
            return;
        }
        let mut inner = lock(&self.inner);
        if inner.buffer.len().saturating_add(from.len()) > self.records_max {
            inner.spill(&self.folder);
        }
        inner.buffer.append(from);
    }

    /// Takes one record.
    pub(crate) fn add(&self, record: Record<N>) {
        self.take(&mut vec![record]);
    }

    /// All records, sorted.
    ///
    /// # Errors
    /// The host's, for the file.
    pub(crate) fn finish(self) -> io::Result<Sorted<N>> {
        let mut inner = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !inner.runs.is_empty() {
            inner.spill(&self.folder);
        }
        inner.buffer.sort_unstable();
        match inner.failure {
            Some(failure) => Err(failure),
            None => Ok(Sorted { buffer: inner.buffer, file: inner.file, runs: inner.runs }),
        }
    }
}

impl<const N: usize> Inner<N> {
    fn spill(&mut self, folder: &Path) {
        if let Err(failure) = self.write_run(folder) {
            self.failure.get_or_insert(failure);
        }
        self.buffer.clear();
    }

    fn write_run(&mut self, folder: &Path) -> io::Result<()> {
        if self.buffer.is_empty() || self.failure.is_some() {
            return Ok(());
        }
        self.buffer.sort_unstable();
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(folder)?,
        };
        let record_bytes = to_u64(size_of::<Record<N>>());
        let start = self.runs.last().map_or(0, |(at, count)| at.saturating_add(count.saturating_mul(record_bytes)));
        let mut out = io::BufWriter::with_capacity(1 << 20, &file);
        for value in self.buffer.iter().flatten() {
            out.write_all(&value.to_le_bytes())?;
        }
        out.flush()?;
        drop(out);
        self.file = Some(file);
        self.runs.push((start, to_u64(self.buffer.len())));
        Ok(())
    }
}

/// Sorted records, which can be read several times.
#[derive(Default)]
pub(crate) struct Sorted<const N: usize> {
    buffer: Vec<Record<N>>,
    file: Option<File>,
    runs: Vec<(u64, u64)>,
}

impl<const N: usize> Sorted<N> {
    /// True when there are no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.runs.is_empty()
    }

    /// The records from the first on.
    pub(crate) fn iter(&self) -> Iter<'_, N> {
        let mut runs: Vec<Run<'_, N>> = match &self.file {
            Some(file) => self.runs.iter().map(|(at, left)| Run::new(file, *at, *left)).collect(),
            None => Vec::new(),
        };
        let firsts = runs.iter_mut().enumerate().filter_map(|(index, run)| run.next().map(|first| (first, index)));
        let heap = firsts.map(Reverse).collect();
        Iter { buffer: self.buffer.iter(), runs, heap }
    }
}

/// See [`Sorted::iter`]. If the file, which is the process's own, cannot be read back, the iterator ends early, which
/// the callers see as missing records.
pub(crate) struct Iter<'a, const N: usize> {
    buffer: std::slice::Iter<'a, Record<N>>,
    runs: Vec<Run<'a, N>>,
    heap: BinaryHeap<Reverse<(Record<N>, usize)>>,
}

impl<const N: usize> Iterator for Iter<'_, N> {
    type Item = Record<N>;

    fn next(&mut self) -> Option<Record<N>> {
        if self.runs.is_empty() {
            return self.buffer.next().copied();
        }
        let Reverse((record, index)) = self.heap.pop()?;
        if let Some(next) = self.runs.get_mut(index).and_then(Run::next) {
            self.heap.push(Reverse((next, index)));
        }
        Some(record)
    }
}

struct Run<'a, const N: usize> {
    file: &'a File,
    at: u64,
    left: u64,
    buffer: std::vec::IntoIter<Record<N>>,
}

impl<'a, const N: usize> Run<'a, N> {
    fn new(file: &'a File, at: u64, left: u64) -> Self {
        Self { file, at, left, buffer: Vec::new().into_iter() }
    }

    fn next(&mut self) -> Option<Record<N>> {
        if let Some(record) = self.buffer.next() {
            return Some(record);
        }
        let count = self.left.min(to_u64(READ_RECORDS));
        if count == 0 {
            return None;
        }
        let mut bytes = vec![0; size_of::<Record<N>>().saturating_mul(btrfs_disk::convert::to_usize(count))];
        self.file.read_exact_at(&mut bytes, self.at).ok()?;
        self.at = self.at.saturating_add(to_u64(bytes.len()));
        self.left = self.left.saturating_sub(count);
        let records = bytes.chunks_exact(size_of::<Record<N>>()).map(|record| {
            let mut values = [0; N];
            for (value, bytes) in values.iter_mut().zip(record.chunks_exact(8)) {
                *value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            }
            values
        });
        self.buffer = records.collect::<Vec<_>>().into_iter();
        self.buffer.next()
    }
}

/// Locks in spite of a panic elsewhere: the data is only ever added to.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(bytes: usize) -> Vec<Record<2>> {
        let sorter = Sorter::<2>::new(bytes, &std::env::temp_dir());
        for number in 0..5000u64 {
            sorter.add([number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40, number]);
        }
        let sorted = sorter.finish().unwrap();
        assert_eq!(sorted.iter().count(), 5000, "it can be read again");
        sorted.iter().collect()
    }

    #[test]
    fn runs_in_a_file_are_merged_to_what_memory_gives() {
        let in_memory = sorted(1 << 20);
        assert!(in_memory.is_sorted());
        assert_eq!(sorted(16 << 10), in_memory);
    }
}
