//! Keeps contents of members in one temporary file without a name, because a stream can be read once only. Zeros take
//! no space there, but stay data of their member, as they are where contents are read from the archive itself. `bytes`
//! fills it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portable::FileExt as _;

use crate::error::{Error, Result};
use crate::stored::Run;

/// Blocks of so many bytes that have only zeros are not written.
const HOLE_BYTES: usize = 64 << 10;

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

    /// Appends `part` to contents.
    pub(crate) fn keep(&mut self, keeping: &mut Keeping, part: &[u8]) -> Result<()> {
        let len = u64::try_from(part.len()).unwrap_or(u64::MAX);
        if len == 0 {
            return Ok(());
        }
        let (at, position) = (keeping.size, self.end);
        match keeping.runs.last_mut() {
            Some(last) if last.end() == at && last.position.saturating_add(last.len) == position => {
                last.len = last.len.saturating_add(len);
            }
            _ => keeping.runs.push(Run { at, len, position }),
        }
        keeping.size = at.saturating_add(len);
        self.end = position.saturating_add(len);
        self.write(part, position)
    }

    /// Writes what is not zero; the rest stays a hole of the temporary file.
    fn write(&mut self, part: &[u8], position: u64) -> Result<()> {
        let file = self.open()?;
        let mut at = position;
        for block in part.chunks(HOLE_BYTES) {
            if block.iter().any(|byte| *byte != 0) {
                file.write_all_at(block, at).map_err(Error::Spool)?;
            }
            at = at.saturating_add(u64::try_from(block.len()).unwrap_or(u64::MAX));
        }
        let ends_in_hole = part.last().is_some_and(|byte| *byte == 0);
        if ends_in_hole { file.set_len(self.end).map_err(Error::Spool) } else { Ok(()) }
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
