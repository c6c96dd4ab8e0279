//! Parses a recording of requests to a device. Called by `trace`; `plot` and `summary` work on the parsed requests.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use spinney::blockdev::Kind;
use spinney::blockdev::recording::HEADER;

use crate::commands::failure::{Failure, Status};

/// Most requests that are drawn, which bounds memory.
const REQUESTS_MAX: usize = 4 << 20;
/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 200;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    Read,
    Write,
    Flush,
    Discard,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Microseconds after the recording began.
    pub(super) begin: u64,
    /// Microseconds that it took.
    pub(super) took: u64,
    pub(super) asked: Asked,
    /// First byte on the device.
    pub(super) offset: u64,
    /// Length in bytes.
    pub(super) len: u64,
    pub(super) kind: Kind,
    /// Index of the copy, from 0.
    pub(super) mirror: u32,
    /// The thread that made the request.
    pub(super) thread: u32,
}

impl Request {
    /// True for reads and writes.
    pub(super) fn is_transfer(&self) -> bool {
        matches!(self.asked, Asked::Read | Asked::Write)
    }
}

/// The requests of a recording, in the order in which they began.
///
/// # Errors
/// I/O, and malformed recordings, with the line.
pub(super) fn read(path: &Path) -> Result<Vec<Request>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut input = BufReader::new(file);
    let mut requests = Vec::new();
    let mut line = String::new();
    let mut number = 0_u64;
    let wrong = |number: u64, what: &str| {
        let text = format!("{}: line {number}: {what}", path.display());
        anyhow::Error::from(Failure::new(Status::Corrupt, text))
    };
    loop {
        line.clear();
        number = number.saturating_add(1);
        let read = input.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        let read = match read {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(wrong(number, "no recording of `spinney trace record`"));
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        if read == 0 {
            break;
        }
        if number == 1 {
            if line.trim_end() != HEADER {
                return Err(wrong(number, "no recording of `spinney trace record`"));
            }
            continue;
        }
        // The last line of a killed program may be incomplete.
        if !line.ends_with('\n') && u64::try_from(read).is_ok_and(|read| read < LINE_BYTES_MAX) {
            break;
        }
        match parse(line.trim_end()) {
            Some(Some(request)) if requests.len() < REQUESTS_MAX => requests.push(request),
            Some(Some(_)) => return Err(wrong(number, &format!("more than {REQUESTS_MAX} requests cannot be drawn"))),
            Some(None) => {}
            None => return Err(wrong(number, "expected begin_us took_us op offset bytes kind mirror thread")),
        }
    }
    if number == 1 {
        return Err(wrong(number, "no recording of `spinney trace record`"));
    }
    requests.sort_by_key(|request| request.begin);
    Ok(requests)
}

/// `None` for a malformed line; `Some(None)` for a request that is not drawn.
fn parse(line: &str) -> Option<Option<Request>> {
    let mut words = line.split(' ');
    let number = |words: &mut std::str::Split<'_, char>| words.next()?.parse::<u64>().ok();
    let (begin, took) = (number(&mut words)?, number(&mut words)?);
    let asked = match words.next()? {
        "read" => Some(Asked::Read),
        "write" => Some(Asked::Write),
        "flush" => Some(Asked::Flush),
        "discard" => Some(Asked::Discard),
        "grow" | "open" => None,
        _ => return None,
    };
    let (offset, len) = (number(&mut words)?, number(&mut words)?);
    offset.checked_add(len)?;
    let kind = Kind::from_name(words.next()?)?;
    let [mirror, thread] = [number(&mut words)?, number(&mut words)?].map(u32::try_from);
    let (mirror, thread) = (mirror.ok()?, thread.ok()?);
    if words.next().is_some() {
        return None;
    }
    Some(asked.map(|asked| Request { begin, took, asked, offset, len, kind, mirror, thread }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &[u8]) -> Result<Vec<Request>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    #[test]
    fn lines_are_read_and_sorted() {
        let text = format!(
            "{HEADER}\n20 1 write 4096 8192 metadata 1 3\n5 2 flush 0 0 other 0 0\n9 1 grow 0 7 other 0 0\n30 1 wr"
        );
        let requests = read_text(text.as_bytes()).unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!((requests[0].begin, requests[0].asked), (5, Asked::Flush));
        let expected = Request {
            begin: 20,
            took: 1,
            asked: Asked::Write,
            offset: 4096,
            len: 8192,
            kind: Kind::Metadata,
            mirror: 1,
            thread: 3,
        };
        assert_eq!(requests[1], expected);
    }

    #[test]
    fn what_is_no_recording_is_refused_by_line() {
        let long = format!("{HEADER}\n{}\n", "9".repeat(10_000));
        let binary = b"\xff\xfe\x00".to_vec();
        let refused: [(Vec<u8>, &str); 7] = [
            (Vec::new(), "line 1"),
            (b"hello\n".to_vec(), "line 1"),
            (binary, "line 1"),
            (format!("{HEADER}\n1 2 write 4 5 data 0\n").into_bytes(), "line 2"),
            (format!("{HEADER}\n1 2 write {} 5 data 0 0\n", u64::MAX).into_bytes(), "line 2"),
            (format!("{HEADER}\n1 2 eat 4 5 data 0 0\n").into_bytes(), "line 2"),
            (long.into_bytes(), "line 2"),
        ];
        for (text, place) in refused {
            let error = read_text(&text).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
        }
    }
}
