//! The head of a sealed object: the key of the file, sealed to each recipient, and a MAC over all of it. Called by
//! `seal`.

use ring::aead::{Aad, Nonce};
use x25519_dalek::{PublicKey, StaticSecret};

use super::{base64, cipher, derive, mac, random};

const VERSION: &str = "age-encryption.org/v1\n";
const WRAP: &[u8] = b"age-encryption.org/v1/X25519";
const KIND: &str = "X25519";
/// Bytes of the key of a file.
const KEY_BYTES: usize = 16;
/// Digits of a line of a stanza; a shorter line is the last one.
const LINE_DIGITS: usize = 64;
/// Longest head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The key of a file.
pub(super) type FileKey = [u8; KEY_BYTES];

/// The key that seals the key of a file for one recipient.
fn wrapping_key(shared: &[u8; 32], share: &PublicKey, recipient: &PublicKey) -> [u8; 32] {
    derive(shared, &[share.as_bytes().as_slice(), recipient.as_bytes()].concat(), WRAP)
}

fn head_mac(key: &FileKey, head: &[u8]) -> ring::hmac::Tag {
    mac(&derive(key, &[], b"header"), &[head])
}

/// A key of its own is used once, so that the number of the message may be zero.
fn zero() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// Makes a key for a file, and the head that has it for these recipients.
///
/// # Errors
/// The system has no random numbers; a recipient is a point that gives no secret.
pub(super) fn write(recipients: &[PublicKey]) -> Result<(Vec<u8>, FileKey), String> {
    let key: FileKey = random()?;
    let mut head = VERSION.to_owned();
    for recipient in recipients {
        let own = StaticSecret::from(random::<32>()?);
        let (share, shared) = (PublicKey::from(&own), own.diffie_hellman(recipient));
        if !shared.was_contributory() {
            return Err("a recipient is no key".to_owned());
        }
        let mut body = key.to_vec();
        let wrap = cipher(&wrapping_key(shared.as_bytes(), &share, recipient))?;
        wrap.seal_in_place_append_tag(zero(), Aad::empty(), &mut body).map_err(|error| error.to_string())?;
        head.push_str(&format!("-> {KIND} {}\n{}\n", base64::encode(share.as_bytes()), base64::encode(&body)));
    }
    head.push_str("---");
    let tag = base64::encode(head_mac(&key, head.as_bytes()).as_ref());
    head.push_str(&format!(" {tag}\n"));
    Ok((head.into_bytes(), key))
}

/// The next line, without its end.
fn line<'a>(rest: &mut &'a [u8]) -> Result<&'a str, String> {
    let end = rest.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == b'\n').ok_or("its head has no end")?;
    let (line, behind) = rest.split_at_checked(end).ok_or("its head has no end")?;
    *rest = behind.get(1..).unwrap_or_default();
    std::str::from_utf8(line).map_err(|_| "its head is no text".to_owned())
}

/// Reads the head; returns the key of the file, and the payload.
///
/// # Errors
/// The fault of the head, or that no identity fits.
pub(super) fn read<'a>(sealed: &'a [u8], identities: &[StaticSecret]) -> Result<(FileKey, &'a [u8]), String> {
    let mut rest = sealed.strip_prefix(VERSION.as_bytes()).ok_or("it is no file of age")?;
    let mut found = None;
    loop {
        let before = sealed.len().saturating_sub(rest.len());
        if before > HEAD_BYTES_MAX {
            return Err("its head is too long".to_owned());
        }
        let text = line(&mut rest)?;
        if let Some(tag) = text.strip_prefix("--- ") {
            let key: FileKey = found.ok_or("none of the identities opens it")?;
            let head = sealed.get(..before.saturating_add(3)).unwrap_or_default();
            let tag = base64::decode(tag).ok_or("its MAC is malformed")?;
            let key_of_mac = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &derive(&key, &[], b"header"));
            ring::hmac::verify(&key_of_mac, head, &tag).map_err(|_| "its head was changed")?;
            return Ok((key, rest));
        }
        let words = text.strip_prefix("-> ").ok_or("its head is malformed")?;
        let mut body = String::new();
        loop {
            let digits = line(&mut rest)?;
            body.push_str(digits);
            if digits.len() > LINE_DIGITS || body.len() > HEAD_BYTES_MAX {
                return Err("its head is malformed".to_owned());
            }
            if digits.len() < LINE_DIGITS {
                break;
            }
        }
        if let Some(share) = words.strip_prefix(KIND).and_then(|share| share.strip_prefix(' ')) {
            let share = base64::decode(share).and_then(|share| <[u8; 32]>::try_from(share).ok());
            let body = base64::decode(&body).filter(|body| body.len() == KEY_BYTES + 16);
            let (share, body) = share.zip(body).ok_or("its head is malformed")?;
            found = found.or_else(|| identities.iter().find_map(|identity| unwrap(identity, share, &body)));
        }
    }
}

/// The key of a file, if it was sealed to this identity.
fn unwrap(identity: &StaticSecret, share: [u8; 32], body: &[u8]) -> Option<FileKey> {
    let (share, own) = (PublicKey::from(share), PublicKey::from(identity));
    let shared = identity.diffie_hellman(&share);
    if !shared.was_contributory() {
        return None;
    }
    let wrap = cipher(&wrapping_key(shared.as_bytes(), &share, &own)).ok()?;
    let mut body = body.to_vec();
    let key = wrap.open_in_place(zero(), Aad::empty(), &mut body).ok()?;
    FileKey::try_from(&*key).ok()
}
