//! The image on its server: pinned when it is opened, then read in ranges.
//!
//! ```text
//!  open   GET, Range: first bytes --> redirects --> 206: size, ETag, Last-Modified
//!  fetch  GET, Range, If-Match    --> 206 with the same size and validators, exactly the bytes that were asked for
//! ```
//!
//! Invariants: bytes of another version of the file are never returned; of a body no more is read than was asked for;
//! at most [`REDIRECTS_MAX`] redirects are followed, and none from `https` to `http`.
//!
//! Failure: a request that may succeed later is tried again, until the time limit of the first try has passed. If the
//! target of a redirect refuses (its address may have expired), the redirects are followed anew, once. Caller: `reader`
//! and `device`.

use std::io::Read as _;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ureq::http::{HeaderMap, StatusCode, Uri, header};

use super::transport::{Answer, Transport};
use crate::error::{Error, Result, SHORT};
use crate::number::{to_u64, to_usize};
use crate::range::ContentRange;
use crate::s3::{self, Signer};

/// Redirects that are followed.
pub(crate) const REDIRECTS_MAX: usize = 10;
/// Slowest server that is waited for: a body has the time limit of the request, and the time that it takes at this
/// rate.
pub(crate) const BYTES_PER_SECOND_MIN: u64 = 32 << 10;
/// Tries of one request.
const TRIES_MAX: u32 = 4;
/// Pause before the second try; doubled before each further one.
const PAUSE: Duration = Duration::from_millis(150);
/// Bytes of an error's body that are read for its reason.
const REASON_BYTES_MAX: u64 = 4096;
/// The header in which S3 says where a bucket is.
const BUCKET_REGION: &str = "x-amz-bucket-region";
/// Bytes of a reason that are shown.
const SHOWN_BYTES_MAX: usize = 200;

/// The facts that tell versions of a file apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pins {
    pub(crate) size: u64,
    pub(crate) etag: Option<String>,
    pub(crate) modified: Option<String>,
}

/// A file on a server.
pub(crate) struct Origin {
    transport: Transport,
    signer: Option<Signer>,
    timeout: Duration,
    /// The address that the user gave.
    first: Uri,
    /// The address that redirects led to.
    current: Mutex<Uri>,
    pins: Pins,
}

impl Origin {
    /// Finds the file at `address`; returns its first bytes too, at most `head_bytes`.
    ///
    /// # Errors
    /// A server without ranges, a refusal, a failed connection.
    pub(crate) fn open(
        address: Uri,
        signer: Option<Signer>,
        timeout: Duration,
        head_bytes: u64,
    ) -> Result<(Self, Vec<u8>)> {
        let transport = Transport::new(timeout)?;
        let current = Mutex::new(address.clone());
        let mut origin = Self { transport, signer, timeout, first: address, current, pins: Pins::default() };
        let (pins, head) = retried(timeout, || origin.first_bytes(head_bytes.max(1)))?;
        origin.pins = pins;
        Ok((origin, head))
    }

    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Exactly the `len` bytes from `offset` on.
    ///
    /// # Errors
    /// A changed file, an answer that does not fit, a failed connection.
    pub(crate) fn fetch(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        tracing::debug!(offset, len, "GET");
        let found = retried(self.timeout, || self.range(offset, len));
        match found {
            Err(Error::Status { status: 400..=499, .. }) if self.is_redirected() => {
                *self.current.lock() = self.first.clone();
                retried(self.timeout, || self.range(offset, len))
            }
            found => found,
        }
    }

    fn is_redirected(&self) -> bool {
        *self.current.lock() != self.first
    }

    /// The facts of the file, and its first bytes.
    fn first_bytes(&self, len: u64) -> Result<(Pins, Vec<u8>)> {
        let mut answer = self.get(0, len, &[])?;
        let status = answer.status();
        let range = content_range(answer.headers())?;
        let pins = |size| Pins {
            size,
            etag: text_of(answer.headers(), header::ETAG),
            modified: text_of(answer.headers(), header::LAST_MODIFIED),
        };
        match (status, range) {
            (StatusCode::RANGE_NOT_SATISFIABLE, Some(ContentRange { bytes: None, total: Some(0) })) => {
                Ok((pins(0), Vec::new()))
            }
            (StatusCode::PARTIAL_CONTENT, Some(ContentRange { bytes: Some((0, last)), total: Some(total) })) => {
                let expected = len.min(total);
                if last.saturating_add(1) != expected {
                    return Err(wrong("Content-Range", format!("bytes 0-{}", expected.saturating_sub(1)), last));
                }
                let pins = pins(total);
                let bytes = self.body(&mut answer, to_usize(expected))?;
                Ok((pins, bytes))
            }
            (StatusCode::PARTIAL_CONTENT, Some(ContentRange { total: None, .. })) => {
                Err(wrong("Content-Range", "the size of the file", "*"))
            }
            (StatusCode::PARTIAL_CONTENT, Some(_)) => Err(wrong("Content-Range", "bytes from 0 on", "others")),
            (StatusCode::PARTIAL_CONTENT, None) => Err(wrong("Content-Range", "a range", "none")),
            (StatusCode::OK, _) => Err(Error::NoRanges { status: status.as_u16() }),
            _ => Err(refusal(self.signer.as_ref(), &mut answer)),
        }
    }

    /// The bytes of a range of the pinned file.
    fn range(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let last = offset.saturating_add(to_u64(len)).saturating_sub(1);
        let mut conditions = Vec::new();
        match (&self.pins.etag, &self.pins.modified) {
            (Some(etag), _) if !etag.starts_with("W/") => conditions.push((header::IF_MATCH, etag.as_str())),
            (None, Some(modified)) => conditions.push((header::IF_UNMODIFIED_SINCE, modified.as_str())),
            _ => {}
        }
        let mut answer = self.get(offset, to_u64(len), &conditions)?;
        let status = answer.status();
        if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            self.compare(answer.headers())?;
        }
        match status {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::OK => return Err(Error::NoRanges { status: status.as_u16() }),
            StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => {
                self.compare(answer.headers())?;
                let (expected, found) = (self.pins.etag.clone().unwrap_or_default(), status.to_string());
                return Err(Error::Changed { what: "the version", expected, found });
            }
            _ => return Err(refusal(self.signer.as_ref(), &mut answer)),
        }
        let Some(range) = content_range(answer.headers())? else {
            return Err(wrong("Content-Range", "a range", "none"));
        };
        if let Some(total) = range.total.filter(|total| *total != self.pins.size) {
            let (expected, found) = (self.pins.size.to_string(), total.to_string());
            return Err(Error::Changed { what: "bytes of the file", expected, found });
        }
        if range.bytes != Some((offset, last)) {
            let found = range.bytes.map_or_else(|| "none".to_owned(), |(first, last)| format!("bytes {first}-{last}"));
            return Err(wrong("Content-Range", format!("bytes {offset}-{last}"), found));
        }
        self.body(&mut answer, len)
    }

    /// Fails if an answer is about another version of the file than the pinned one.
    fn compare(&self, headers: &HeaderMap) -> Result<()> {
        let pairs =
            [("ETag", header::ETAG, &self.pins.etag), ("Last-Modified", header::LAST_MODIFIED, &self.pins.modified)];
        for (what, name, pinned) in pairs {
            // A server behind a balancer may leave a header out; another value is another file.
            let (Some(expected), Some(found)) = (pinned, text_of(headers, name)) else { continue };
            if *expected != found {
                return Err(Error::Changed { what, expected: shown(expected), found: shown(&found) });
            }
        }
        Ok(())
    }

    /// Sends a request for a range, and follows redirects.
    fn get(&self, offset: u64, len: u64, conditions: &[(header::HeaderName, &str)]) -> Result<Answer> {
        let mut address = self.current.lock().clone();
        let mut is_new = false;
        let last = offset.saturating_add(len).saturating_sub(1);
        let body_limit = self.timeout + Duration::from_secs(len / BYTES_PER_SECOND_MIN);
        for _ in 0..=REDIRECTS_MAX {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, value(&format!("bytes={offset}-{last}"))?);
            headers.insert(header::ACCEPT_ENCODING, value("identity")?);
            for (name, text) in conditions {
                headers.insert(name.clone(), value(text)?);
            }
            if let Some(signer) = &self.signer {
                signer.sign("GET", &address, &mut headers, s3::NO_BODY)?;
            }
            let answer = self.transport.get(&address, headers, body_limit)?;
            if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) || self.signer.is_some() {
                if is_new {
                    *self.current.lock() = address;
                }
                return Ok(answer);
            }
            address = redirect(&address, answer.headers())?;
            is_new = true;
        }
        Err(Error::Redirects { max: REDIRECTS_MAX })
    }

    /// Reads a body that has exactly `len` bytes.
    fn body(&self, answer: &mut Answer, len: usize) -> Result<Vec<u8>> {
        let expected = len.to_string();
        if let Some(found) = text_of(answer.headers(), header::CONTENT_LENGTH).filter(|found| *found != expected) {
            return Err(wrong("Content-Length", expected, shown(&found)));
        }
        let mut bytes = Vec::with_capacity(len);
        // One byte more: the end of the body has to be seen, and the connection can then be used again.
        let read = answer.reader().take(to_u64(len).saturating_add(1)).read_to_end(&mut bytes);
        if let Err(error) = read {
            let error = self.transport.error_of(error);
            let is_cut =
                matches!(&error, Error::Connection(error) if error.kind() == std::io::ErrorKind::UnexpectedEof);
            return Err(if is_cut { wrong(SHORT, expected, bytes.len()) } else { error });
        }
        if bytes.len() != len {
            let found = if bytes.len() > len { "more".to_owned() } else { bytes.len().to_string() };
            return Err(wrong(SHORT, expected, found));
        }
        Ok(bytes)
    }
}

/// Tries a request again while it may succeed, and the time limit of the first try has not passed.
pub(super) fn retried<T>(limit: Duration, request: impl Fn() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let mut pause = PAUSE;
    for _ in 1..TRIES_MAX {
        match request() {
            Err(error) if error.may_pass() && start.elapsed() + pause < limit => {
                tracing::debug!(%error, "trying again");
                thread::sleep(pause);
                pause *= 2;
            }
            done => return done,
        }
    }
    request()
}

/// The error of a server that refuses, with its words where they are short.
pub(super) fn refusal(signer: Option<&Signer>, answer: &mut Answer) -> Error {
    let status = answer.status();
    let mut body = Vec::new();
    // The status is known even if the rest cannot be read.
    let _ = answer.reader().take(REASON_BYTES_MAX).read_to_end(&mut body);
    let reason = s3::reason(&String::from_utf8_lossy(&body));
    let reason = reason.or_else(|| status.canonical_reason().map(str::to_owned)).unwrap_or_default();
    let mut reason = shown(&reason);
    let region = text_of(answer.headers(), header::HeaderName::from_static(BUCKET_REGION));
    match (signer, region) {
        (Some(_), Some(region)) if status.as_u16() < 400 || status == StatusCode::BAD_REQUEST => {
            reason.push_str(&format!("; the bucket is in AWS_REGION={}", shown(&region)));
        }
        (Some(signer), _) if signer.is_anonymous() && status == StatusCode::FORBIDDEN => {
            reason.push_str("; no credentials were found, so the request was not signed");
        }
        _ => {}
    }
    Error::Status { status: status.as_u16(), reason }
}

pub(super) fn wrong(what: &'static str, expected: impl ToString, found: impl ToString) -> Error {
    Error::Answer { what, expected: expected.to_string(), found: found.to_string() }
}

pub(super) fn value(text: &str) -> Result<header::HeaderValue> {
    header::HeaderValue::from_str(text)
        .map_err(|_| Error::Address { why: "a header of the server has control characters" })
}

/// A header as text; without it where it is no text.
pub(super) fn text_of(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn content_range(headers: &HeaderMap) -> Result<Option<ContentRange>> {
    let Some(text) = text_of(headers, header::CONTENT_RANGE) else { return Ok(None) };
    let parsed = ContentRange::parse(&text);
    parsed.map(Some).ok_or_else(|| wrong("Content-Range", "`bytes FIRST-LAST/SIZE`", format!("`{}`", shown(&text))))
}

/// The beginning of a text of the server, without control characters.
pub(crate) fn shown(text: &str) -> String {
    let plain = text.chars().map(|one| if one.is_control() { ' ' } else { one });
    plain.take(SHOWN_BYTES_MAX).collect::<String>().trim().to_owned()
}

/// The address that a redirect leads to.
fn redirect(from: &Uri, headers: &HeaderMap) -> Result<Uri> {
    let Some(to) = text_of(headers, header::LOCATION) else {
        return Err(wrong("Location", "the target of the redirect", "none"));
    };
    let refused = |why| Error::Redirect { to: shown(&to), why };
    let (scheme, authority) = (from.scheme_str().unwrap_or("http"), from.authority().map_or("", |host| host.as_str()));
    let target = to.split('#').next().unwrap_or_default();
    let whole = if target.starts_with("//") {
        format!("{scheme}:{target}")
    } else if target.starts_with('/') {
        format!("{scheme}://{authority}{target}")
    } else if target.split_once(':').is_some_and(|(word, _)| !word.contains(['/', '?'])) {
        target.to_owned()
    } else {
        let dir = from.path().rsplit_once('/').map_or("", |(dir, _)| dir);
        format!("{scheme}://{authority}{dir}/{target}")
    };
    let parsed: Uri = whole.parse().map_err(|_| refused("not an address"))?;
    match (parsed.scheme_str(), parsed.authority()) {
        (Some("http"), Some(_)) if scheme == "https" => Err(refused("from https to http is not followed")),
        (Some("http" | "https"), Some(host)) if !host.as_str().contains('@') => Ok(parsed),
        _ => Err(refused("neither http nor https")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &str) -> Result<String> {
        let headers = HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]);
        redirect(&from.parse().unwrap(), &headers).map(|found| found.to_string())
    }

    #[test]
    fn redirects_are_relative_or_whole() {
        let from = "https://host:8/dir/a.img?x=1";
        assert_eq!(to(from, "https://other/b").unwrap(), "https://other/b");
        assert_eq!(to(from, "//other/b?c").unwrap(), "https://other/b?c");
        assert_eq!(to(from, "/b").unwrap(), "https://host:8/b");
        assert_eq!(to(from, "b?c=d:e#f").unwrap(), "https://host:8/dir/b?c=d:e");
        assert_eq!(to("http://host/a", "https://host/a").unwrap(), "https://host/a");
    }

    #[test]
    fn redirects_to_weaker_or_other_protocols_are_refused() {
        for target in
            ["http://host/a", "file:///etc/passwd", "ftp://host/a", "https://me:pw@host/", "https://", "http:"]
        {
            assert!(matches!(to("https://host/a", target), Err(Error::Redirect { .. })), "{target}");
        }
    }
}
