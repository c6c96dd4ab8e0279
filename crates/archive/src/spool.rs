//! Keeps contents of members in one temporary file without a name, because a stream can be read once only. Blocks of
//! zeros are not written: they become holes. `bytes` fills it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::stored::Run;

/// Blocks of this size, in bytes, that have only zeros become holes.
const HOLE_BYTES: usize = 4096;

/// The temporary file.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: PathBuf,
    file: Option<Arc<File>>,
    /// Bytes that are in it.
    end: u64,
}

/// Contents that are being kept: their runs so far.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    pub(crate) runs: Vec<Run>,
    /// Bytes of the file so far, holes included.
    pub(crate) size: u64,
}

impl Spool {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), file: None, end: 0 }
    }

    pub(crate) fn file(&self) -> Option<Arc<File>> {
        self.file.clone()
    }

    /// Appends `part` to contents. Parts whose lengths are multiples of 4096, but for the last one, get all holes.
    pub(crate) fn keep(&mut self, keeping: &mut Keeping, part: &[u8]) -> Result<()> {
        let mut data = Vec::new();
        for block in part.chunks(HOLE_BYTES) {
            let len = u64::try_from(block.len()).unwrap_or(u64::MAX);
            let at = keeping.size;
            keeping.size = at.saturating_add(len);
            if block.len() == HOLE_BYTES && block.iter().all(|byte| *byte == 0) {
                continue;
            }
            let position = self.end.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
            data.extend_from_slice(block);
            match keeping.runs.last_mut() {
                Some(last) if last.end() == at && last.position.saturating_add(last.len) == position => {
                    last.len = last.len.saturating_add(len);
                }
                _ => keeping.runs.push(Run { at, len, position }),
            }
        }
        if !data.is_empty() {
            self.open()?.write_all_at(&data, self.end).map_err(Error::Spool)?;
            self.end = self.end.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// The file, made when it is needed first.
    fn open(&mut self) -> Result<Arc<File>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(tempfile::tempfile_in(&self.dir).map_err(Error::Spool)?);
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }
}
