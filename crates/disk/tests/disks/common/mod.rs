//! Parts that the tests of this crate share: seeded numbers, sample images, and reference tools. Called by all tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test uses a part")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Numbers that look random and are the same for the same seed (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    /// An index of a slice with `len` elements.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(u64::try_from(len).unwrap())).unwrap()
    }

    /// Bytes that do not compress.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.next().to_le_bytes());
        words.flatten().take(len).collect()
    }
}

/// A directory for a test, with the names of files in it.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn create(&self, name: &str) -> File {
        File::options().read(true).write(true).create(true).truncate(true).open(self.path(name)).unwrap()
    }
}

/// A sparse image with pieces of every kind: text, noise, words, written zeros, at places that are no block's.
pub(crate) fn sample(place: &Place, name: &str, size_bytes: u64, seed: u64) -> File {
    let mut random = Random::new(seed);
    let file = place.create(name);
    for _ in 0..40 {
        if size_bytes == 0 {
            break;
        }
        let at = random.below(size_bytes);
        let len = usize::try_from((random.below(300_000) + 1).min(size_bytes - at)).unwrap();
        let piece = match random.below(4) {
            0 => random.bytes(len),
            1 => b"What is written here is written again. ".iter().copied().cycle().take(len).collect(),
            2 => random.next().to_le_bytes()[..4].iter().copied().cycle().take(len).collect(),
            _ => vec![0; len],
        };
        file.write_all_at(&piece, at).unwrap();
    }
    // Whole blocks of one word, and the first and last bytes.
    if size_bytes >= 1 << 20 {
        file.write_all_at(&[0xa5; 128 * 1024], 64 * 1024).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", size_bytes - 3).unwrap();
    }
    file.set_len(size_bytes).unwrap();
    file
}

/// A reference tool, if it is installed; else a line that says what was skipped.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let dirs = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    let found = dirs.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {name} is not installed");
    }
    found
}

/// Runs a tool, which has to succeed, and returns what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{text}");
    text
}
