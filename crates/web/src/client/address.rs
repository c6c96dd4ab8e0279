//! Takes a locator apart: the address of the image, and the options of the device. Pure.
//!
//! ```text
//! https://HOST/PATH?QUERY#cache=DIR&timeout=10    options behind the number sign: all before it is the URL
//! https://HOST/PATH?cache=DIR                     behind the last question mark, if it is made of options alone
//! s3://BUCKET/KEY#cache=DIR                       likewise; the key is written as it is
//! ```
//!
//! A number sign is never sent to a server, so the first form is always clear. With the second one a query is the
//! server's as soon as it has a name that is no option: `?token=x`, `?token=x&size=1`. A query of the server made of
//! such names alone is written with a number sign behind it: `?size=1#`.
//!
//! Options: `offset=`, `size=`, `cache_size=` in bytes without a unit, `timeout=` in seconds, `cache=` a directory;
//! `%XX` in it stands for a byte.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::percent;

/// Time in which a server has to answer a request; `origin` says how long a body may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A day: longer is no limit.
const TIMEOUT_SECONDS_MAX: u64 = 86_400;
/// Bytes that are kept on disk.
const CACHE_BYTES: u64 = 1 << 30;
/// Longest address.
const ADDRESS_BYTES_MAX: usize = 8192;

/// Options of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// First byte of the device in the file.
    pub(crate) offset: u64,
    /// Bytes of the device; up to the end of the file without it.
    pub(crate) size: Option<u64>,
    /// The directory for blocks on disk.
    pub(crate) cache: Option<PathBuf>,
    /// Most bytes in it.
    pub(crate) cache_bytes: u64,
    /// Limit for the answer to a request.
    pub(crate) timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { offset: 0, size: None, cache: None, cache_bytes: CACHE_BYTES, timeout: TIMEOUT }
    }
}

/// Separates the address from the options.
///
/// # Errors
/// [`Error::Option`] for an option behind `#` that is none.
pub(crate) fn split(text: &str) -> Result<(&str, Options)> {
    if text.len() > ADDRESS_BYTES_MAX {
        return Err(Error::Address { why: "longer than 8192 bytes" });
    }
    if let Some((address, options)) = text.rsplit_once('#') {
        return Ok((address, Options::parse(options)?));
    }
    let Some((address, query)) = text.rsplit_once('?') else { return Ok((text, Options::default())) };
    let is_option = |pair: &str| pair.split_once('=').is_some_and(|(name, _)| NAMES.contains(&name));
    if query.split('&').all(is_option) {
        return Ok((address, Options::parse(query)?));
    }
    Ok((text, Options::default()))
}

/// The names of options.
const NAMES: [&str; 5] = ["offset", "size", "cache", "cache_size", "timeout"];

impl Options {
    fn parse(text: &str) -> Result<Self> {
        let mut options = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let wrong = || Error::Option { pair: pair.to_owned() };
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            let number = || value.parse::<u64>().map_err(|_| wrong());
            match name {
                "offset" => options.offset = number()?,
                "size" => options.size = Some(number()?),
                "cache_size" => options.cache_bytes = number()?,
                "timeout" => {
                    let seconds = number()?;
                    if !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds) {
                        return Err(wrong());
                    }
                    options.timeout = Duration::from_secs(seconds);
                }
                "cache" if !value.is_empty() => options.cache = Some(percent::decode(value).ok_or_else(wrong)?.into()),
                _ => return Err(wrong()),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(dir: &str) -> Options {
        Options { cache: Some(dir.into()), ..Options::default() }
    }

    #[test]
    fn options_are_told_from_the_query_of_the_server() {
        let plain = Options::default();
        for (text, address, options) in [
            ("host/a.img", "host/a.img", plain.clone()),
            ("host/a.img?token=x", "host/a.img?token=x", plain.clone()),
            ("host/a.img?token=x&size=1", "host/a.img?token=x&size=1", plain.clone()),
            ("host/a.img?size=1#", "host/a.img?size=1", plain.clone()),
            ("host/a.img?cache=/var/c", "host/a.img", cached("/var/c")),
            ("host/a.img?token=x?cache=/var/c", "host/a.img?token=x", cached("/var/c")),
            ("host/a.img?token=x#cache=/a%20b", "host/a.img?token=x", cached("/a b")),
            ("host/a#b#offset=5&size=7", "host/a#b", Options { offset: 5, size: Some(7), ..plain.clone() }),
            ("host/a?timeout=9", "host/a", Options { timeout: Duration::from_secs(9), ..plain.clone() }),
            ("host/a?", "host/a?", plain.clone()),
        ] {
            assert_eq!(split(text).unwrap(), (address, options), "{text}");
        }
    }

    #[test]
    fn what_is_no_option_is_refused() {
        for text in ["a#b", "a#size=x", "a#timeout=0", "a?timeout=90000000", "a#cache=", "a#cache=%zz", "a#size=1&y=2"]
        {
            assert!(matches!(split(text), Err(Error::Option { .. })), "{text}");
        }
        assert!(matches!(split(&"a".repeat(9000)), Err(Error::Address { .. })));
    }
}
