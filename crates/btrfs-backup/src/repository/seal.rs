//! Encrypts objects to the keys of recipients, and decrypts them, in the format of age (age-encryption.org/v1), which the
//! program `age` reads too. Called by `part`.

use std::io::Read as _;
use std::io::Write as _;
use std::str::FromStr as _;

use age::x25519::{Identity, Recipient};

use crate::error::{Error, Result};

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
pub struct Recipients(Vec<Recipient>);

impl Recipients {
    /// The recipients that texts as `age1...` name.
    ///
    /// # Errors
    /// For a text that is none, and for an empty list.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> std::result::Result<Self, NotKey> {
        let parse = |text: &str| Recipient::from_str(text).map_err(|why| NotKey(format!("{text:?}: {why}")));
        let keys = texts.into_iter().map(parse).collect::<std::result::Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(NotKey("no recipient".to_owned())) } else { Ok(Self(keys)) }
    }

    /// Encrypts.
    pub(super) fn seal(&self, plain: &[u8]) -> Result<Vec<u8>> {
        let failed = |error: String| Error::Output(std::io::Error::other(format!("encryption: {error}")));
        let keys = self.0.iter().map(|key| {
            let key: &dyn age::Recipient = key;
            key
        });
        let encryptor = age::Encryptor::with_recipients(keys).map_err(|error| failed(error.to_string()))?;
        let mut sealed = Vec::with_capacity(plain.len().saturating_add(plain.len() / 64).saturating_add(1024));
        let mut output = encryptor.wrap_output(&mut sealed).map_err(Error::Output)?;
        output.write_all(plain).map_err(Error::Output)?;
        output.finish().map_err(Error::Output)?;
        Ok(sealed)
    }
}

/// The secret keys that open objects.
pub struct Identities(Vec<Identity>);

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
            keys.push(Identity::from_str(line).map_err(|why| NotKey(format!("line {number}: {why}")))?);
        }
        if keys.is_empty() { Err(NotKey("no identity".to_owned())) } else { Ok(Self(keys)) }
    }

    /// Decrypts.
    ///
    /// # Errors
    /// What is wrong with the object, or that none of the keys opens it.
    pub(super) fn open(&self, sealed: &[u8]) -> std::result::Result<Vec<u8>, String> {
        let decryptor = age::Decryptor::new(sealed).map_err(|error| format!("its encryption: {error}"))?;
        let keys = self.0.iter().map(|key| {
            let key: &dyn age::Identity = key;
            key
        });
        let mut input = decryptor.decrypt(keys).map_err(|error| format!("its encryption: {error}"))?;
        let mut plain = Vec::with_capacity(sealed.len());
        input.read_to_end(&mut plain).map_err(|error| format!("its encryption: {error}"))?;
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_by_its_keys_alone() {
        use age::secrecy::ExposeSecret as _;
        let [one, two] = [(); 2].map(|()| Identity::generate());
        let to = [&one, &two].map(|key| key.to_public().to_string());
        let recipients = Recipients::parse(to.iter().map(String::as_str)).unwrap();
        let sealed = recipients.seal(b"words").unwrap();
        for key in [one, two] {
            let text = format!("# a comment\n\n{}\n", key.to_string().expose_secret());
            assert_eq!(Identities::parse(&text).unwrap().open(&sealed).unwrap(), b"words");
        }
        let other = Identities(vec![Identity::generate()]);
        assert!(other.open(&sealed).unwrap_err().contains("encryption"));
        assert!(other.open(b"garbage").unwrap_err().contains("encryption"));
        let mut cut = sealed.clone();
        cut.pop();
        assert!(Identities(vec![]).open(&cut).is_err());
    }

    #[test]
    fn what_is_no_key_is_named_without_secrets() {
        assert!(Recipients::parse(["age1abc"]).unwrap_err().to_string().contains("age1abc"));
        assert!(Recipients::parse([]).is_err());
        let error = Identities::parse("# one\nAGE-SECRET-KEY-1HUSH\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("HUSH"), "{error}");
        assert!(Identities::parse("").is_err());
    }
}
