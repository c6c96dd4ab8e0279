//! The device over an image on a server. The functions here are the openers of the schemes.

use std::fmt;
use std::sync::Arc;

use blockdev::{Access, Device, Error as DeviceError, Locator, Op};
use ureq::http::Uri;

use super::address::{self, Options};
use super::disk::DiskCache;
use super::origin::Origin;
use super::reader::Reader;
use crate::error::{Error, Result};
use crate::number::to_u64;
use crate::s3::{self, Signer};

/// Bytes that the first request asks for: the superblocks of all known formats lie in them.
const HEAD_BYTES: u64 = 68 << 10;

/// A part of an image on a server, which can be read.
pub struct WebDevice {
    name: String,
    reader: Reader,
    /// First byte in the image.
    start: u64,
    size_bytes: u64,
}

impl fmt::Debug for WebDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebDevice").field("name", &self.name).field("size_bytes", &self.size_bytes).finish()
    }
}

/// Opens the device of an `http`, `https` or `s3` locator.
///
/// # Errors
/// [`DeviceError::Io`]: a locator that is opened for writing, a malformed one, a server that refuses or has no ranges.
pub fn open(locator: &Locator, access: Access) -> blockdev::Result<Arc<dyn Device>> {
    let name = locator.to_string();
    let failed = |error: Error| error.of_device(&name, Op::Open, 0, 0);
    if !access.read_only {
        return Err(failed(Error::ReadOnly));
    }
    let device = Place::parse(locator).and_then(Place::open).map_err(failed)?;
    let (options, reader, total) = device;
    let start = options.offset.saturating_add(locator.offset());
    let size = locator.size().or(options.size);
    let outside = || DeviceError::OutOfRange {
        op: Op::Open,
        device: name.clone(),
        offset: start,
        len: size.unwrap_or(0),
        size: total,
    };
    let rest = total.checked_sub(start).ok_or_else(outside)?;
    let size_bytes = size.unwrap_or(rest);
    if size_bytes > rest {
        return Err(outside());
    }
    Ok(Arc::new(WebDevice { name, reader, start, size_bytes }))
}

/// The place of an image.
struct Place {
    address: Uri,
    signer: Option<Signer>,
    options: Options,
}

impl Place {
    fn parse(locator: &Locator) -> Result<Self> {
        let target = locator.target().to_str().ok_or(Error::Address { why: "not UTF-8" })?;
        let (rest, options) = address::split(target)?;
        let scheme = locator.scheme().unwrap_or_default();
        if scheme == s3::SCHEME {
            let (address, signer) = s3::locate(rest)?;
            return Ok(Self { address, signer, options });
        }
        let address: Uri =
            format!("{scheme}://{rest}").parse().map_err(|_| Error::Address { why: "not a URL (RFC 3986)" })?;
        match address.authority() {
            None => Err(Error::Address { why: "a host is missing" }),
            Some(host) if host.as_str().contains('@') => {
                Err(Error::Address { why: "a user and a password in a URL are not supported" })
            }
            Some(_) => Ok(Self { address, signer: None, options }),
        }
    }

    /// The reader of the image, and its size.
    fn open(self) -> Result<(Options, Reader, u64)> {
        let Self { address, signer, options } = self;
        let shown = address.to_string();
        let (origin, head) = Origin::open(address, signer, options.timeout, HEAD_BYTES)?;
        let pins = origin.pins();
        let size = pins.size;
        let is_pinned = pins.etag.is_some() || pins.modified.is_some();
        if !is_pinned {
            tracing::warn!(
                "{shown}: neither ETag nor Last-Modified: a changed image is not noticed, nothing is cached"
            );
        }
        let disk = options.cache.as_ref().filter(|_| is_pinned).map(|dir| {
            // Without its query, which may be a signature that changes.
            let place = shown.split('?').next().unwrap_or_default();
            let identity = format!("{place}\n{size}\n{:?}\n{:?}", pins.etag, pins.modified);
            DiskCache::open(dir, &identity, size, options.cache_bytes)
                .map_err(|error| Error::Cache { dir: dir.display().to_string(), error: Arc::new(error) })
        });
        let reader = Reader::new(origin, disk.transpose()?, size, &head);
        Ok((options, reader, size))
    }
}

impl WebDevice {
    /// Fails for a range outside of the device.
    fn check(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.size_bytes) {
            return Ok(());
        }
        Err(DeviceError::UnexpectedEnd { device: self.name.clone(), offset, len, size: self.size_bytes })
    }

    fn refuse(&self, op: Op) -> blockdev::Result<()> {
        Err(DeviceError::ReadOnly { op, device: self.name.clone() })
    }
}

impl Device for WebDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        let len = to_u64(buf.len());
        self.check(offset, len)?;
        let read = self.reader.read(self.start.saturating_add(offset), buf);
        read.map_err(|error| error.of_device(&self.name, Op::Read, offset, len))
    }

    fn will_read(&self, offset: u64, len: u64) {
        if self.check(offset, len).is_ok() && len > 0 {
            self.reader.announce(self.start.saturating_add(offset), len);
        }
    }

    fn write_at(&self, _: u64, _: &[&[u8]]) -> blockdev::Result<()> {
        self.refuse(Op::Write)
    }

    fn flush(&self) -> blockdev::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> blockdev::Result<()> {
        self.refuse(Op::Discard)
    }

    fn grow(&self, _: u64) -> blockdev::Result<()> {
        self.refuse(Op::Grow)
    }

    fn shrink(&self, _: u64) -> blockdev::Result<()> {
        self.refuse(Op::Shrink)
    }
}
