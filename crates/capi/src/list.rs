//! A list that is read one row after the other. The lists of subvolumes, differences and findings are such.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use spinney::Result;

use crate::failure::Misuse;

/// Rows that never change, so that the caller may keep pointers into them until the list is closed.
#[derive(Debug)]
pub(crate) struct List<T> {
    rows: Vec<T>,
    next: AtomicUsize,
}

impl<T> List<T> {
    pub(crate) fn new(rows: Vec<T>) -> Self {
        Self { rows, next: AtomicUsize::new(0) }
    }

    /// The next row; `None` at the end.
    pub(crate) fn next(&self) -> Option<&T> {
        // Stops at the end instead of counting on, so that it never wraps.
        let step = |index: usize| (index < self.rows.len()).then_some(index.saturating_add(1));
        let index = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).ok()?;
        self.rows.get(index)
    }
}

/// A text for C.
///
/// # Errors
/// `EILSEQ` for a NUL in it.
pub(crate) fn c_text(text: impl AsRef<OsStr>, what: &'static str) -> Result<CString> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| Misuse::Nul(what).error())
}
