//! Computes the digest of a stream in a file: a chain of SHA-256 over its MiBs. `directory` writes it to the manifest,
//! and checks files against it.

use std::io::{Read, Write};

use codec::checksum::{ChecksumType, checksum};

/// Bytes of a stream that one link of a digest covers.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;
/// Bytes of a digest.
pub(crate) const DIGEST_BYTES: usize = 32;

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that a text of lower-case hexadecimal digits names; `None` for another text.
#[must_use]
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = text.len() == 2 * N && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let pairs = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    pairs.collect::<Option<Vec<u8>>>().filter(|_| is_hex)?.try_into().ok()
}

/// A digest of what passes through: of each MiB together with the digest of what was before.
pub(crate) struct Digest {
    sum: [u8; DIGEST_BYTES],
    block: Vec<u8>,
    bytes: u64,
}

impl Digest {
    pub(crate) fn new() -> Self {
        Self { sum: [0; DIGEST_BYTES], block: vec![0; DIGEST_BYTES], bytes: 0 }
    }

    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(0));
        while !bytes.is_empty() {
            let room = (DIGEST_BYTES + BLOCK_BYTES).saturating_sub(self.block.len());
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == DIGEST_BYTES + BLOCK_BYTES {
                self.link();
            }
        }
    }

    fn link(&mut self) {
        self.sum = checksum(ChecksumType::Sha256, &self.block);
        self.block.clear();
        self.block.extend_from_slice(&self.sum);
    }

    pub(crate) fn finish(mut self) -> (u64, [u8; DIGEST_BYTES]) {
        if self.block.len() > DIGEST_BYTES {
            self.link();
        }
        (self.bytes, self.sum)
    }
}

/// A reader or writer whose bytes are counted into a digest.
pub(crate) struct Digested<'a, I> {
    pub(crate) inner: I,
    pub(crate) digest: &'a mut Digest,
}

impl<R: Read> Read for Digested<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.digest.add(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

impl<W: Write> Write for Digested<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.add(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_does_not_depend_on_pieces() {
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES + 5).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let digest = |piece: usize| {
            let mut digest = Digest::new();
            bytes.chunks(piece).for_each(|piece| digest.add(piece));
            digest.finish()
        };
        assert_eq!(digest(bytes.len()), digest(4097));
        assert_ne!(digest(bytes.len()).1, Digest::new().finish().1);
    }
}
