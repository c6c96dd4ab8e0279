//! Parses the head of a request. Pure; the bytes are a stranger's.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use crate::percent;

/// Bytes of the head of a request.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// The reason why a request is not answered with what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is no HTTP, or its path is malformed.
    Malformed,
    /// A version of HTTP other than 1.0 and 1.1.
    Version,
    /// A method other than GET and HEAD.
    Method,
    /// It has a body.
    Body,
    /// The head is too long.
    LongHead,
    /// The head did not come in time.
    SlowHead,
    /// It is for another host.
    WrongHost,
    /// No such file.
    NotFound,
    /// The serving user may not read it.
    Forbidden,
    /// A device, pipe or socket: no contents.
    NoContents,
    /// The file cannot be read.
    Failed,
    /// As many archives as are allowed are on their way.
    Busy,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// HEAD: the answer has no body.
    pub is_head: bool,
    /// The version is 1.1: an answer may come in chunks.
    pub takes_chunks: bool,
    /// The client may send another request.
    pub keeps_connection: bool,
    /// The path that it asks for.
    pub target: Target,
    /// `Host`.
    pub host: Option<String>,
    /// `Range`.
    pub range: Option<String>,
    /// `If-Range`.
    pub if_range: Option<String>,
    /// `If-None-Match`.
    pub if_none_match: Option<String>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<String>,
}

/// The path and query of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The path from the root, without `.`, `..` and empty names.
    pub path: PathBuf,
    /// It ends with a slash.
    pub is_dir: bool,
    /// The text behind `?`.
    pub query: String,
}

impl Head {
    /// Parses the first request in `bytes`, and tells how many bytes it has; `None` if it is not whole.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Refusal> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let looked_at = bytes.get(..HEAD_BYTES_MAX).unwrap_or(bytes);
        let len = match request.parse(looked_at) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if looked_at.len() < bytes.len() => return Err(Refusal::LongHead),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::LongHead),
            Err(httparse::Error::Version) => return Err(Refusal::Version),
            Err(_) => return Err(Refusal::Malformed),
        };
        let is_head = match request.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Err(Refusal::Method),
        };
        let is_new = request.version == Some(1);
        let mut head = Self {
            is_head,
            takes_chunks: is_new,
            keeps_connection: is_new,
            target: Target::parse(request.path.unwrap_or_default()).ok_or(Refusal::Malformed)?,
            host: None,
            range: None,
            if_range: None,
            if_none_match: None,
            if_modified_since: None,
        };
        for header in request.headers.iter() {
            head.note(header.name, header.value)?;
        }
        if is_new && head.host.is_none() {
            return Err(Refusal::Malformed);
        }
        Ok(Some((head, len)))
    }

    fn note(&mut self, name: &str, value: &[u8]) -> Result<(), Refusal> {
        let text = || String::from_utf8_lossy(value).trim().to_owned();
        let slot = match name.to_ascii_lowercase().as_str() {
            "host" if self.host.is_some() => return Err(Refusal::Malformed),
            "host" => &mut self.host,
            "range" => &mut self.range,
            "if-range" => &mut self.if_range,
            "if-none-match" => &mut self.if_none_match,
            "if-modified-since" => &mut self.if_modified_since,
            // The end of a body decides where the next request begins: such requests are not guessed at.
            "transfer-encoding" => return Err(Refusal::Body),
            "content-length" if text() != "0" => return Err(Refusal::Body),
            "connection" => {
                let words = text().to_ascii_lowercase();
                let has = |word: &str| words.split(',').any(|found| found.trim() == word);
                self.keeps_connection = (self.keeps_connection || has("keep-alive")) && !has("close");
                return Ok(());
            }
            _ => return Ok(()),
        };
        *slot = Some(text());
        Ok(())
    }
}

impl Target {
    /// Parses the target of a request: a path, or an address with one. `None` if it is malformed or has `..`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let plain = match text.split_once("://") {
            Some(("http" | "https", rest)) => rest.find('/').map_or("/", |at| rest.get(at..).unwrap_or("/")),
            _ => text,
        };
        let plain = plain.split('#').next().unwrap_or_default();
        let (path, query) = plain.split_once('?').unwrap_or((plain, ""));
        if !path.starts_with('/') {
            return None;
        }
        let mut found = PathBuf::from("/");
        for name in path.split('/') {
            // Decoded after the path was split: an encoded slash is part of no name.
            let name: OsString = percent::decode(name)?;
            match name.as_bytes() {
                b"" | b"." => {}
                b".." => return None,
                bytes if bytes.contains(&b'/') || bytes.contains(&0) => return None,
                bytes => found.push(OsString::from_vec(bytes.to_vec())),
            }
        }
        Some(Self { path: found, is_dir: path.ends_with('/'), query: query.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<(Head, usize)>, Refusal> {
        Head::parse(text.as_bytes())
    }

    #[test]
    fn requests_are_understood() {
        let text = "GET /a%20b/?sort=size HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\nConnection: TE, close\r\n\r\nGET";
        let (head, len) = parse(text).unwrap().unwrap();
        assert_eq!(len, text.len() - 3);
        assert_eq!((head.target.path.to_str(), head.target.is_dir), (Some("/a b"), true));
        assert_eq!((head.target.query.as_str(), head.range.as_deref()), ("sort=size", Some("bytes=0-1")));
        assert!(!head.keeps_connection && head.takes_chunks && !head.is_head);
        let (old, _) = parse("HEAD http://host HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").unwrap().unwrap();
        assert_eq!(old.target.path.to_str(), Some("/"));
        assert!(old.keeps_connection && !old.takes_chunks && old.is_head);
        assert_eq!(parse("GET / HTTP/1.1\r\nHost:").unwrap(), None);
    }

    #[test]
    fn requests_that_mean_something_else_are_refused() {
        for (text, refusal) in [
            ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::Method),
            ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", Refusal::Body),
            ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::Body),
            ("GET / HTTP/1.1\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", Refusal::Malformed),
            ("GET /../etc HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::Malformed),
            ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", Refusal::Version),
            ("\x16\x03\x01\x02\x00", Refusal::Malformed),
        ] {
            assert_eq!(parse(text), Err(refusal), "{text}");
        }
        let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(9000));
        assert_eq!(parse(&long), Err(Refusal::LongHead));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(70));
        assert_eq!(parse(&many), Err(Refusal::LongHead));
    }

    #[test]
    fn no_path_leads_up_or_has_hidden_separators() {
        for text in ["/..", "/a/../b", "/%2e%2e/", "/%2E%2e", "/a%2Fb", "/a%00", "a", "", "*", "/%", "ftp://x/"] {
            assert_eq!(Target::parse(text), None, "{text}");
        }
        assert_eq!(Target::parse("//a///./b").unwrap().path, PathBuf::from("/a/b"));
        assert_eq!(Target::parse("/%FFa").unwrap().path.as_os_str().as_bytes(), b"/\xffa");
        assert_eq!(Target::parse("/...").unwrap().path, PathBuf::from("/..."));
    }
}
