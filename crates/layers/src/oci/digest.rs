//! Parses digests (`sha256:...`, `sha512:...`), and computes those of bytes that pass through. The reader of blobs
//! verifies by it, and layers their uncompressed form.

use std::fmt::{self, Write as _};

use sha2::{Digest as _, Sha256, Sha512};

use crate::error::{Error, Result, shown};

/// The algorithm of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Algorithm {
    const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    const fn digit_count(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// The digest of a blob: it is its name, and proves its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    /// Lower-case hexadecimal digits, as many as the algorithm has: nothing in them can lead elsewhere in a path.
    digits: String,
}

impl Digest {
    /// Parses a digest that stands at `place`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for another algorithm or form.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let (name, digits) = text.split_once(':').unwrap_or_default();
        let algorithm = [Algorithm::Sha256, Algorithm::Sha512].into_iter().find(|known| known.name() == name);
        let is_hex = |digits: &str| digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match algorithm.filter(|known| known.digit_count() == digits.len() && is_hex(digits)) {
            Some(algorithm) => Ok(Self { algorithm, digits: digits.to_owned() }),
            None => Err(Error::Unsupported {
                place: place.to_owned(),
                what: "digest",
                expected: "sha256 or sha512, a colon, and their hexadecimal digits in lower case",
                found: shown(text.as_bytes()).trim_matches('`').to_owned(),
            }),
        }
    }

    /// The sha256 digest with these digits, if that is what they are.
    pub(crate) fn of_digits(digits: &str) -> Option<Self> {
        Self::parse(&format!("sha256:{digits}"), "").ok()
    }

    /// The algorithm, a dash, and the digits: as the name of a file.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}-{}", self.algorithm.name(), self.digits)
    }

    /// The path of the blob in a layout.
    pub(crate) fn blob_path(&self) -> String {
        format!("blobs/{}/{}", self.algorithm.name(), self.digits)
    }

    /// Computes digests of the same algorithm.
    pub(crate) fn hasher(&self) -> Hasher {
        match self.algorithm {
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(Sha512::new()),
        }
    }

    /// The digest of bytes in memory, by the same algorithm.
    pub(crate) fn of(&self, bytes: &[u8]) -> Self {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.digits)
    }
}

/// A digest that is being computed.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn sha256() -> Self {
        Self::Sha256(Sha256::new())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => Digest { algorithm: Algorithm::Sha256, digits: digits(&hasher.finalize()) },
            Self::Sha512(hasher) => Digest { algorithm: Algorithm::Sha512, digits: digits(&hasher.finalize()) },
        }
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut digits, byte| {
        // To write to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digests_are_digests() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest = Digest::parse(empty, "x").unwrap();
        assert_eq!(digest.of(b""), digest);
        assert_eq!(digest.to_string(), empty);
        let long = Digest { algorithm: Algorithm::Sha512, digits: String::new() }.of(b"");
        assert_eq!(Digest::parse(&long.to_string(), "x").unwrap(), long);
        for bad in ["", "sha256:", "sha256:../../etc/passwd", "md5:00", &empty.to_uppercase(), &empty[..70]] {
            assert!(Digest::parse(bad, "x").is_err(), "{bad}");
        }
        let error = Digest::parse("sha256:../../etc/passwd", "index.json").unwrap_err();
        assert!(error.to_string().ends_with("in lower case, found `sha256:../../etc/passwd`"), "{error}");
    }
}
