//! Turns a piece of a stream into the bytes of an object, and back: a frame of Zstandard, in a file of age if it is
//! encrypted. Pure but for the random numbers of the encryption.

use std::io::Read as _;

use crate::error::{Error, Result};
use crate::repository::seal::{Identities, Recipients};

/// Level of compression.
const LEVEL: i32 = 3;

/// The object of a piece.
pub(super) fn encode(piece: &[u8], recipients: Option<&Recipients>) -> Result<Vec<u8>> {
    let packed = zstd::bulk::compress(piece, LEVEL).map_err(Error::Output)?;
    match recipients {
        Some(recipients) => recipients.seal(&packed),
        None => Ok(packed),
    }
}

/// The piece of `len` bytes that an object has.
///
/// # Errors
/// The fault of the object.
pub(super) fn decode(object: &[u8], len: usize, identities: Option<&Identities>) -> Result<Vec<u8>, String> {
    let opened = identities.map(|identities| identities.open(object)).transpose()?;
    let packed = opened.as_deref().unwrap_or(object);
    let wrong = |error: std::io::Error| format!("its compressed data: {error}");
    let mut decoder = zstd::Decoder::with_buffer(packed).map_err(wrong)?;
    // The buffer has this size whatever the frame says.
    let mut piece = vec![0; len];
    decoder.read_exact(&mut piece).map_err(wrong)?;
    match decoder.read(&mut [0]).map_err(wrong)? {
        0 => Ok(piece),
        _ => Err(format!("its compressed data: expected {len} bytes, found more")),
    }
}
