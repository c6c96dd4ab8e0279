//! Encrypts objects to the keys of recipients, and decrypts them, in the format of age (C2SP, age-encryption.org/v1),
//! which the program `age` reads and writes too.
//!
//! ```text
//! head      age-encryption.org/v1, for each recipient the key of the file sealed to it (X25519), a MAC
//! payload   a nonce, then chunks of 64 KiB, each sealed with its number; the last one is marked
//! ```
//!
//! * [`bech32`] has the texts of keys, [`base64`] the binary values of a head;
//! * [`head`] writes and reads heads, [`payload`] the chunks.
//!
//! The ciphers are those of `ring`, the curve that of `x25519-dalek`; here is only their order. Recipients of other
//! kinds (passwords, SSH keys, plugins) are passed over: what is sealed to them alone is not opened.
//!
//! Failure: [`NotKey`] for texts; for an object a text that says what is wrong with it. Caller: `part`.

mod base64;
mod bech32;
mod head;
mod payload;

use x25519_dalek::{PublicKey, StaticSecret};

use crate::error::{Error, Result};

/// Begins the text of a recipient and that of an identity.
const PUBLIC: &str = "age";
const SECRET: &str = "AGE-SECRET-KEY-";
/// Longest file of identities.
const FILE_BYTES_MAX: usize = 1 << 20;

/// The text is no key.
///
/// To do: a recipient is `age1` and 58 letters and digits, as `age-keygen` prints it; a file of identities has lines
/// that begin with `AGE-SECRET-KEY-1`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotKey(String);

/// The public keys to which objects are encrypted.
#[derive(Debug, Clone)]
pub struct Recipients(Vec<PublicKey>);

impl Recipients {
    /// The recipients that texts as `age1...` name.
    ///
    /// # Errors
    /// For a text that is none, and for an empty list.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> std::result::Result<Self, NotKey> {
        let parse = |text: &str| {
            let key = bech32::decode(PUBLIC, text).ok_or_else(|| NotKey(format!("{text:?} is no recipient")));
            key.map(PublicKey::from)
        };
        let keys = texts.into_iter().map(parse).collect::<std::result::Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(NotKey("no recipient".to_owned())) } else { Ok(Self(keys)) }
    }

    /// Encrypts.
    pub(super) fn seal(&self, plain: &[u8]) -> Result<Vec<u8>> {
        let sealed = head::write(&self.0).and_then(|(head, key)| payload::seal(head, &key, plain));
        sealed.map_err(|what| Error::Output(std::io::Error::other(format!("encryption: {what}"))))
    }
}

/// The secret keys that open objects.
pub struct Identities(Vec<StaticSecret>);

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identities({})", self.0.len())
    }
}

impl Identities {
    /// The identities in the text of a file, as `age-keygen` writes it: one a line; empty lines and those that begin
    /// with `#` are passed over.
    ///
    /// # Errors
    /// For a line that is none, and where there is none. The message never has the line.
    pub fn parse(text: &str) -> std::result::Result<Self, NotKey> {
        if text.len() > FILE_BYTES_MAX {
            return Err(NotKey("longer than 1 MiB".to_owned()));
        }
        let mut keys = Vec::new();
        for (number, line) in (1u64..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = bech32::decode(SECRET, line).ok_or_else(|| NotKey(format!("line {number} is no identity")))?;
            keys.push(StaticSecret::from(key));
        }
        if keys.is_empty() { Err(NotKey("no identity".to_owned())) } else { Ok(Self(keys)) }
    }

    /// Decrypts.
    ///
    /// # Errors
    /// The fault of the object, or that none of the keys opens it.
    pub(super) fn open(&self, sealed: &[u8]) -> std::result::Result<Vec<u8>, String> {
        let opened = head::read(sealed, &self.0).and_then(|(key, rest)| payload::open(&key, rest));
        opened.map_err(|what| format!("its encryption: {what}"))
    }
}

/// Fills an array with random bytes.
fn random<const N: usize>() -> std::result::Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// HMAC-SHA-256.
fn mac(key: &[u8], parts: &[&[u8]]) -> ring::hmac::Tag {
    let mut context = ring::hmac::Context::with_key(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    context.sign()
}

/// 32 bytes of HKDF-SHA-256 (RFC 5869): its first block.
fn derive(secret: &[u8], salt: &[u8], info: &[u8]) -> [u8; 32] {
    // An empty salt stands for as many zeros as the hash has bytes, which is the same key of an HMAC.
    let extracted = mac(salt, &[secret]);
    let block = mac(extracted.as_ref(), &[info, &[1]]);
    let mut key = [0; 32];
    key.iter_mut().zip(block.as_ref()).for_each(|(to, from)| *to = *from);
    key
}

/// A key of ChaCha20-Poly1305.
fn cipher(key: &[u8; 32]) -> std::result::Result<ring::aead::LessSafeKey, String> {
    let key = ring::aead::UnboundKey::new(&ring::aead::CHACHA20_POLY1305, key).map_err(|error| error.to_string())?;
    Ok(ring::aead::LessSafeKey::new(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Keys for tests, which everybody knows.
    const KEY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
    const TO: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn what_is_sealed_is_opened_by_its_keys_alone() {
        let key = Identities::parse(&format!("# a key\n\n{KEY}\n")).unwrap();
        let other = Identities(vec![StaticSecret::from([7; 32])]);
        let both = Recipients(vec![PublicKey::from(&other.0[0]), Recipients::parse([TO]).unwrap().0[0]]);
        for len in [0, 1, 65_535, 65_536, 65_537, 200_000] {
            let sealed = both.seal(&pattern(len)).unwrap();
            for key in [&key, &other] {
                assert!(key.open(&sealed).unwrap() == pattern(len), "{len}");
            }
            let sealed = Recipients::parse([TO]).unwrap().seal(&pattern(len)).unwrap();
            assert!(other.open(&sealed).unwrap_err().contains("none of the identities"));
        }
    }

    #[test]
    fn what_was_changed_or_cut_is_refused() {
        let key = Identities::parse(KEY).unwrap();
        let sealed = Recipients::parse([TO]).unwrap().seal(&pattern(70_000)).unwrap();
        for at in (0..300).chain([65_800, sealed.len() - 1]) {
            let mut wrong = sealed.clone();
            wrong[at] ^= 1;
            assert!(key.open(&wrong).is_err(), "byte {at}");
        }
        // The first chunk alone is no file, nor is one with a chunk behind the last.
        let chunk = 65_536 + 16;
        let start = sealed.len() - (70_000 - 65_536) - 16 - chunk;
        for end in [0, 10, 100, start, start + 5, start + chunk, sealed.len() - 1] {
            assert!(key.open(&sealed[..end]).is_err(), "{end} bytes");
        }
        assert!(key.open(&[sealed.as_slice(), &[0; 16]].concat()).is_err());
        assert!(key.open(&vec![b'-'; 1 << 20]).is_err());
    }

    #[test]
    fn what_is_no_key_is_named_without_secrets() {
        assert!(Recipients::parse(["age1abc"]).unwrap_err().to_string().contains("age1abc"));
        assert!(Recipients::parse([TO, KEY]).is_err());
        assert!(Recipients::parse([]).is_err());
        let error = Identities::parse("# one\nAGE-SECRET-KEY-1HUSH\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("HUSH"), "{error}");
        assert!(Identities::parse("").is_err());
    }

    /// Runs `age` with this input; `None` without the program.
    fn age(words: &[&str], input: &[u8]) -> Option<Vec<u8>> {
        use std::io::Write as _;
        let mut command = Command::new("age");
        let child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            println!("SKIPPED: age is not here");
            return None;
        };
        let (mut to, bytes) = (child.stdin.take().unwrap(), input.to_vec());
        let writer = std::thread::spawn(move || to.write_all(&bytes));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        Some(output.stdout)
    }

    #[test]
    fn the_program_age_reads_and_writes_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key.txt");
        std::fs::write(&file, KEY).unwrap();
        let (key, plain) = (Identities::parse(KEY).unwrap(), pattern(150_000));
        let sealed = Recipients::parse([TO]).unwrap().seal(&plain).unwrap();
        let Some(opened) = age(&["-d", "-i", file.to_str().unwrap()], &sealed) else { return };
        assert!(opened == plain);
        let sealed = age(&["-r", TO], &plain).unwrap();
        assert!(key.open(&sealed).unwrap() == plain);
    }
}
