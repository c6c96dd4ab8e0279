//! The payload of a sealed object: a nonce, and chunks of 64 KiB (STREAM with ChaCha20-Poly1305). Called by `seal`.

use ring::aead::{Aad, LessSafeKey, Nonce};

use super::head::FileKey;
use super::{cipher, derive, random};

const CHUNK_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 16;
const NONCE_BYTES: usize = 16;

fn key_of(key: &FileKey, nonce: &[u8]) -> Result<LessSafeKey, String> {
    cipher(&derive(key, nonce, b"payload"))
}

/// The number of a chunk, and whether it is the last one.
fn nonce_of(number: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    let number = number.to_be_bytes();
    bytes.iter_mut().skip(3).zip(number).for_each(|(to, from)| *to = from);
    if let Some(last) = bytes.last_mut() {
        *last = u8::from(is_last);
    }
    Nonce::assume_unique_for_key(bytes)
}

/// Seals `plain` behind a head.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn seal(head: Vec<u8>, key: &FileKey, plain: &[u8]) -> Result<Vec<u8>, String> {
    let nonce: [u8; NONCE_BYTES] = random()?;
    let key = key_of(key, &nonce)?;
    let chunks = plain.len().div_ceil(CHUNK_BYTES).max(1);
    let mut sealed = head;
    sealed.reserve(NONCE_BYTES.saturating_add(plain.len()).saturating_add(chunks.saturating_mul(TAG_BYTES)));
    sealed.extend_from_slice(&nonce);
    let mut pieces: Vec<&[u8]> = plain.chunks(CHUNK_BYTES).collect();
    if pieces.is_empty() {
        pieces.push(&[]);
    }
    for (number, piece) in (0u64..).zip(&pieces) {
        let start = sealed.len();
        sealed.extend_from_slice(piece);
        let is_last = number.saturating_add(1) == u64::try_from(chunks).unwrap_or(u64::MAX);
        let body = sealed.get_mut(start..).unwrap_or_default();
        let tag = key.seal_in_place_separate_tag(nonce_of(number, is_last), Aad::empty(), body);
        sealed.extend_from_slice(tag.map_err(|error| error.to_string())?.as_ref());
    }
    Ok(sealed)
}

/// Opens a payload.
///
/// # Errors
/// It was changed, or cut.
pub(super) fn open(key: &FileKey, payload: &[u8]) -> Result<Vec<u8>, String> {
    let (nonce, sealed) = payload.split_at_checked(NONCE_BYTES).ok_or("it is cut short")?;
    let key = key_of(key, nonce)?;
    let mut plain = Vec::with_capacity(sealed.len());
    let chunks = sealed.chunks(CHUNK_BYTES + TAG_BYTES);
    let count = u64::try_from(chunks.len()).unwrap_or(u64::MAX);
    if count == 0 {
        return Err("it is cut short".to_owned());
    }
    for (number, chunk) in (0u64..).zip(chunks) {
        let (mut body, is_last) = (chunk.to_vec(), number.saturating_add(1) == count);
        let opened = key.open_in_place(nonce_of(number, is_last), Aad::empty(), &mut body);
        let opened = opened.map_err(|_| format!("chunk {number} was changed, or the rest was cut off"))?;
        if opened.is_empty() && number > 0 {
            return Err("its last chunk is empty".to_owned());
        }
        plain.extend_from_slice(opened);
    }
    Ok(plain)
}
