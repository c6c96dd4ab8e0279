//! Reads files line by line, with the numbers of the lines and a limit of their length, and says what is wrong in one.
//! The parsers of manifests and of the saved state of fakeroot call it.

use std::io::{BufRead, Read as _};

use crate::error::{Error, Result, shown};
use crate::number::to_u64;

/// Most bytes of one line, with its continuations.
pub(crate) const LINE_BYTES_MAX: u64 = 1 << 20;

/// A wrong part of a line: the field, what is expected there, and what was found.
#[derive(Debug)]
pub(crate) struct Problem {
    what: String,
    expected: String,
    found: String,
}

impl Problem {
    /// A field that contains other bytes than expected.
    pub(crate) fn new(what: impl Into<String>, expected: impl Into<String>, found: &[u8]) -> Self {
        Self { what: what.into(), expected: expected.into(), found: shown(found) }
    }

    /// A field whose value cannot be used; `found` says why in words.
    pub(crate) fn told(what: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { what: what.into(), expected: expected.into(), found: found.into() }
    }

    /// The failure of a line of a file.
    pub(crate) fn at(self, file: &str, line: u64) -> Error {
        let Self { what, expected, found } = self;
        Error::Line { file: file.to_owned(), line, what, expected, found }
    }
}

impl From<transfer::Error> for Problem {
    fn from(error: transfer::Error) -> Self {
        Self::told("path", "a place in the tree", error.to_string())
    }
}

/// The lines of a file.
pub(crate) struct Lines<'a, R> {
    input: R,
    /// The file's name, for messages.
    file: &'a str,
    line: u64,
}

impl<'a, R: BufRead> Lines<'a, R> {
    pub(crate) fn new(input: R, file: &'a str) -> Self {
        Self { input, file, line: 0 }
    }

    /// The next line without its end, and its number. `None` at the end of the file.
    ///
    /// # Errors
    /// Those of reading; a line that is too long.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        let mut bytes = Vec::new();
        let limited = &mut self.input.by_ref().take(LINE_BYTES_MAX.saturating_add(1));
        limited.read_until(b'\n', &mut bytes).map_err(Error::host(self.file))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        self.line = self.line.saturating_add(1);
        let had_end = bytes.last() == Some(&b'\n');
        if had_end {
            bytes.pop();
        }
        self.check_length(&bytes, self.line)?;
        Ok(Some((self.line, bytes)))
    }

    /// Refuses a line that is too long.
    ///
    /// # Errors
    /// [`Error::Line`].
    pub(crate) fn check_length(&self, bytes: &[u8], line: u64) -> Result<()> {
        if to_u64(bytes.len()) <= LINE_BYTES_MAX {
            return Ok(());
        }
        let expected = format!("at most {LINE_BYTES_MAX} bytes");
        Err(Problem::told("length", expected, "more").at(self.file, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_numbers_and_a_limit() {
        let mut lines = Lines::new(&b"one\n\nlast"[..], "file");
        assert_eq!(lines.next().unwrap(), Some((1, b"one".to_vec())));
        assert_eq!(lines.next().unwrap(), Some((2, Vec::new())));
        assert_eq!(lines.next().unwrap(), Some((3, b"last".to_vec())));
        assert_eq!(lines.next().unwrap(), None);
        let long = vec![b'x'; (1 << 20) + 1];
        let error = Lines::new(&long[..], "file").next().unwrap_err();
        assert_eq!(error.to_string(), "file, line 1: length: expected at most 1048576 bytes, found more");
        let mut exact = vec![b'x'; 1 << 20];
        exact.push(b'\n');
        assert!(Lines::new(&exact[..], "file").next().unwrap().is_some());
    }
}
