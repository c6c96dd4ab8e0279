//! Objects below one address, in S3 or on a server that has PUT: read as a whole, and written on a condition.
//!
//! Invariants: a body is never longer than the caller allows, or takes longer than its bytes may; no redirect is
//! followed. A write that may have reached the server, though its answer was lost, is sent again: the caller compares
//! what it then finds ([`Put::Refused`]).
//!
//! Caller: `spinney`, for backups.

use std::io::Read as _;
use std::time::Duration;

use blockdev::Locator;
use sha2::{Digest as _, Sha256};
use ureq::http::{HeaderMap, Method, StatusCode, Uri, header};

use super::address;
use super::origin::{BYTES_PER_SECOND_MIN, refusal, retried, text_of, value, wrong};
use super::transport::{Answer, Transport};
use crate::error::{Error, Result, SHORT};
use crate::number::to_u64;
use crate::percent;
use crate::s3::{self, Signer};

/// The condition under which an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition<'a> {
    /// There is no object of this key.
    Absent,
    /// The object has this tag.
    Matches(&'a str),
}

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// The object is there, with this tag if the server told it.
    Done(Option<String>),
    /// The condition does not hold.
    Refused,
}

/// The objects below an address.
pub struct Objects {
    transport: Transport,
    signer: Option<Signer>,
    timeout: Duration,
    /// Ends with a slash.
    base: String,
    /// The locator, without its options.
    name: String,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Objects {
    /// The objects below `s3://BUCKET[/PREFIX]`, `https://HOST/PATH` or `http://HOST/PATH`. Nothing is sent yet.
    ///
    /// # Errors
    /// A malformed address, credentials that cannot be used.
    pub fn open(locator: &Locator) -> Result<Self> {
        let target = locator.target().to_str().ok_or(Error::Address { why: "not UTF-8" })?;
        let (rest, options) = address::split(target)?;
        let rest = rest.trim_end_matches('/');
        let scheme = locator.scheme().unwrap_or_default();
        let (first, signer) = match scheme {
            s3::SCHEME => s3::locate(&format!("{rest}/-"))?,
            _ => (format!("{scheme}://{rest}/-").parse().map_err(|_| Error::Address { why: "not a URL" })?, None),
        };
        match first.authority() {
            None => return Err(Error::Address { why: "a host is missing" }),
            Some(host) if host.as_str().contains('@') => {
                return Err(Error::Address { why: "a user and a password in a URL are not supported" });
            }
            Some(_) if first.query().is_some() => {
                return Err(Error::Address { why: "a place for objects has no query" });
            }
            Some(_) => {}
        }
        let base = first.to_string().trim_end_matches('-').to_owned();
        let transport = Transport::new(options.timeout)?;
        Ok(Self { transport, signer, timeout: options.timeout, base, name: format!("{scheme}://{rest}") })
    }

    /// The locator, as messages name it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An object and its tag; `None` if there is none.
    ///
    /// # Errors
    /// A refusal, a failed connection, an object of more than `bytes_max` bytes.
    pub fn get(&self, key: &str, bytes_max: u64) -> Result<Option<(Vec<u8>, Option<String>)>> {
        retried(self.timeout, || {
            let mut answer = self.send(Method::GET, key, HeaderMap::new(), &[], bytes_max)?;
            match answer.status() {
                StatusCode::OK => {
                    let tag = strong_tag(&answer);
                    Ok(Some((self.body(&mut answer, bytes_max)?, tag)))
                }
                StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
                _ => Err(refusal(self.signer.as_ref(), &mut answer)),
            }
        })
    }

    /// The bytes of an object; `None` if there is none.
    ///
    /// # Errors
    /// A refusal, a failed connection, an answer without a length.
    pub fn size(&self, key: &str) -> Result<Option<u64>> {
        retried(self.timeout, || {
            let mut answer = self.send(Method::HEAD, key, HeaderMap::new(), &[], 0)?;
            match answer.status() {
                StatusCode::OK => {
                    let len = text_of(answer.headers(), header::CONTENT_LENGTH);
                    let bytes = len.as_ref().and_then(|len| len.parse().ok());
                    bytes.map(Some).ok_or_else(|| wrong("Content-Length", "a number", len.unwrap_or_default()))
                }
                StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
                _ => Err(refusal(self.signer.as_ref(), &mut answer)),
            }
        })
    }

    /// Writes an object if the condition holds.
    ///
    /// # Errors
    /// A refusal for another reason, a failed connection.
    pub fn put(&self, key: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put> {
        retried(self.timeout, || {
            let mut headers = HeaderMap::new();
            match condition {
                Condition::Absent => headers.insert(header::IF_NONE_MATCH, value("*")?),
                Condition::Matches(tag) => headers.insert(header::IF_MATCH, value(tag)?),
            };
            let mut answer = self.send(Method::PUT, key, headers, bytes, to_u64(bytes.len()))?;
            match answer.status() {
                StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => Ok(Put::Done(strong_tag(&answer))),
                StatusCode::PRECONDITION_FAILED => Ok(Put::Refused),
                // S3, where another write of the object is under way.
                StatusCode::CONFLICT if self.signer.is_some() => Ok(Put::Refused),
                _ => Err(refusal(self.signer.as_ref(), &mut answer)),
            }
        })
    }

    /// Deletes an object, which may be missing.
    ///
    /// # Errors
    /// A refusal, a failed connection.
    pub fn delete(&self, key: &str) -> Result<()> {
        retried(self.timeout, || {
            let mut answer = self.send(Method::DELETE, key, HeaderMap::new(), &[], 0)?;
            match answer.status() {
                status if status.is_success() => Ok(()),
                StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
                _ => Err(refusal(self.signer.as_ref(), &mut answer)),
            }
        })
    }

    /// Sends a request; its body and that of the answer have `bytes_max` bytes at most.
    fn send(&self, method: Method, key: &str, mut headers: HeaderMap, body: &[u8], bytes_max: u64) -> Result<Answer> {
        let address: Uri = format!("{}{}", self.base, percent::encode_path(key.as_bytes()))
            .parse()
            .map_err(|_| Error::Address { why: "not a URL" })?;
        headers.insert(header::ACCEPT_ENCODING, value("identity")?);
        if let Some(signer) = &self.signer {
            let sum: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
            signer.sign(method.as_str(), &address, &mut headers, &sum)?;
        }
        tracing::debug!(%method, %address, bytes = body.len(), "request");
        let limit = self.timeout.saturating_add(Duration::from_secs(bytes_max / BYTES_PER_SECOND_MIN));
        self.transport.send(method, &address, headers, body, limit)
    }

    /// Reads a body of at most `bytes_max` bytes, and of the length that the answer names.
    fn body(&self, answer: &mut Answer, bytes_max: u64) -> Result<Vec<u8>> {
        let named = text_of(answer.headers(), header::CONTENT_LENGTH).and_then(|len| len.parse::<u64>().ok());
        let limit = format!("at most {bytes_max}");
        if let Some(len) = named.filter(|len| *len > bytes_max) {
            return Err(wrong("Content-Length", limit, len));
        }
        let mut bytes = Vec::new();
        let read = answer.reader().take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
        let found = to_u64(bytes.len());
        let expected = named.map_or_else(|| limit.clone(), |len| len.to_string());
        if let Err(error) = read {
            let error = self.transport.error_of(error);
            let is_cut =
                matches!(&error, Error::Connection(error) if error.kind() == std::io::ErrorKind::UnexpectedEof);
            return Err(if is_cut { wrong(SHORT, expected, found) } else { error });
        }
        if found > bytes_max || named.is_some_and(|len| len != found) {
            return Err(wrong(SHORT, expected, if found > bytes_max { "more".to_owned() } else { found.to_string() }));
        }
        Ok(bytes)
    }
}

/// The tag of an object, if it tells versions apart for certain.
fn strong_tag(answer: &Answer) -> Option<String> {
    text_of(answer.headers(), header::ETAG).filter(|tag| !tag.starts_with("W/"))
}
