//! The traits for Windows, with the names and the meaning that they have on Unix.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::windows::ffi::OsStringExt as _;
use std::os::windows::fs::FileExt as _;
use std::sync::LazyLock;

/// The unpaired surrogate that stands for a byte from 0x80 on is this plus the byte.
const SURROGATES: u16 = 0xdc00;

/// Bytes of a name.
pub trait OsStrExt {
    /// The name with these bytes. All that are no UTF-8 become one name, which no file has.
    fn from_bytes(bytes: &[u8]) -> &Self;
    /// Its bytes, as UTF-8.
    fn as_bytes(&self) -> &[u8];
}

impl OsStrExt for OsStr {
    fn from_bytes(bytes: &[u8]) -> &Self {
        static NO_TEXT: LazyLock<OsString> = LazyLock::new(|| OsString::from_wide(&[SURROGATES | 0x80]));
        std::str::from_utf8(bytes).map_or_else(|_| NO_TEXT.as_os_str(), Self::new)
    }

    fn as_bytes(&self) -> &[u8] {
        self.as_encoded_bytes()
    }
}

/// Bytes of a name that is owned.
pub trait OsStringExt {
    /// The name with these bytes; bytes that are no UTF-8 become unpaired surrogates.
    fn from_vec(bytes: Vec<u8>) -> Self;
    /// Its bytes, as UTF-8.
    fn into_vec(self) -> Vec<u8>;
}

impl OsStringExt for OsString {
    fn from_vec(bytes: Vec<u8>) -> Self {
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => return text.into(),
            Err(error) => error.into_bytes(),
        };
        let mut units = Vec::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            units.extend(chunk.valid().encode_utf16());
            units.extend(chunk.invalid().iter().map(|byte| SURROGATES | u16::from(*byte)));
        }
        Self::from_wide(&units)
    }

    fn into_vec(self) -> Vec<u8> {
        self.into_encoded_bytes()
    }
}

/// Reads and writes at a position. They move the file's own position, which nothing may rely on.
pub trait FileExt {
    /// Reads some bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// Those of the host.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some bytes.
    ///
    /// # Errors
    /// Those of the host.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Fills `buffer`.
    ///
    /// # Errors
    /// Those of the host; `UnexpectedEof` where the file ends earlier.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = buffer.get_mut(count..).unwrap_or_default();
                    offset = offset.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Those of the host; `WriteZero` where it takes no more.
    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = bytes.get(count..).unwrap_or_default();
                    offset = offset.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.seek_read(buffer, offset) {
            // A read at the end fails there, instead of reading nothing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.seek_write(bytes, offset)
    }
}
