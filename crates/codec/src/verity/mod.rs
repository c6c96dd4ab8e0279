//! Builds the Merkle trees of fs-verity, and verifies the blocks of a file against a root hash by them (the kernel's
//! `Documentation/filesystems/fsverity.rst`). File reads, `check` and `mkfs` use it.
//!
//! ```text
//!    root hash (of the descriptor) <- first block of the tree <- ... <- last level: a hash of each block of data
//! ```
//!
//! A level has the hashes of the blocks of the next one. The level below the root comes first, the one over the data
//! last. For a file of one block the root hash is the hash of that block, and there is no tree.

mod builder;

use std::collections::HashMap;
use std::fmt;

use sha2::{Digest as _, Sha256, Sha512};

pub use builder::{Builder, TreeOptions, WriteBlock, digest};

/// Block size of data and tree; others are not supported.
pub const BLOCK_SIZE: usize = 4096;
const BLOCK_BYTES: u64 = 4096;
const LOG_BLOCK_SIZE: u8 = 12;
/// Bytes of a descriptor without its signature.
pub const DESCRIPTOR_SIZE: usize = 256;
/// Limit on a descriptor with its signature, in bytes.
pub const DESCRIPTOR_SIZE_MAX: usize = 16_384;
/// Limit on the levels of a tree, as in the kernel.
const LEVELS_MAX: usize = 8;
const ROOT_HASH_AT: usize = 16;
const SALT_AT: usize = 80;
const RESERVED_AT: usize = 112;
const SALT_SIZE_MAX: u64 = 32;

/// An invalid value in a descriptor.
///
/// To do: run `spinney check IMAGE`; the page on rescue says how to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}, found {found}")]
pub struct WrongDescriptor {
    /// Name of the value.
    pub what: &'static str,
    /// The required or the largest value.
    pub expected: u64,
    /// The value found.
    pub found: u64,
}

/// A hash function of trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256, which `fsverity` takes if it is told nothing.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// The algorithm that `fsverity` knows by this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha512].into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The name that `fsverity` has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha512),
            _ => None,
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    const fn digest_size(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// The salt is zero-padded to a multiple of this.
    const fn input_size(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The tree of a file.
#[derive(Clone, Debug)]
pub struct Tree {
    algorithm: Algorithm,
    /// Zero-padded, as it is hashed before each block.
    salt: Vec<u8>,
    root: Vec<u8>,
    /// First block of each level, that over the data first.
    starts: Vec<u64>,
    blocks: u64,
    data_blocks: u64,
}

impl Tree {
    /// The tree for a descriptor of a file with this size.
    ///
    /// # Errors
    /// [`WrongDescriptor`] for the first value that is invalid or not supported.
    pub fn new(descriptor: &[u8], data_bytes: u64) -> Result<Self, WrongDescriptor> {
        let wrong = |what, expected, found| Err(WrongDescriptor { what, expected, found });
        let size = u64::try_from(descriptor.len()).unwrap_or(u64::MAX);
        let Some((fixed, signature)) = descriptor.split_first_chunk::<DESCRIPTOR_SIZE>() else {
            return wrong("size of the verity descriptor", 256, size);
        };
        let [version, algorithm, log_block_size, salt_size, rest @ ..] = *fixed;
        if version != 1 {
            return wrong("verity descriptor version", 1, version.into());
        }
        let Some(algorithm) = Algorithm::from_number(algorithm) else {
            return wrong("verity hash_algorithm", 2, algorithm.into());
        };
        if log_block_size != LOG_BLOCK_SIZE {
            return wrong("verity log_blocksize", LOG_BLOCK_SIZE.into(), log_block_size.into());
        }
        if u64::from(salt_size) > SALT_SIZE_MAX {
            return wrong("verity salt_size", SALT_SIZE_MAX, salt_size.into());
        }
        let (signature_size, rest) = rest.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let signature_size = u64::from(u32::from_le_bytes(*signature_size));
        let signature_room = u64::try_from(signature.len()).unwrap_or(u64::MAX);
        if signature_size > signature_room {
            return wrong("verity sig_size", signature_room, signature_size);
        }
        let stored_bytes = u64::from_le_bytes(rest.first_chunk().copied().unwrap_or_default());
        if stored_bytes != data_bytes {
            return wrong("verity data_size", data_bytes, stored_bytes);
        }
        if let Some(byte) = fixed.get(RESERVED_AT..).unwrap_or_default().iter().find(|byte| **byte != 0) {
            return wrong("verity reserved bytes", 0, (*byte).into());
        }
        let part = |at: usize, len: usize| fixed.get(at..at.saturating_add(len)).unwrap_or_default().to_vec();
        let root = part(ROOT_HASH_AT, algorithm.digest_size());
        let mut salt = part(SALT_AT, usize::from(salt_size));
        salt.resize(salt.len().next_multiple_of(algorithm.input_size()), 0);
        let data_blocks = data_bytes.div_ceil(BLOCK_BYTES);
        let Some((starts, blocks)) = levels(data_blocks, algorithm) else {
            return wrong("levels of the verity tree", 8, 9);
        };
        Ok(Self { algorithm, salt, root, starts, blocks, data_blocks })
    }

    /// Number of blocks in the tree.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The hash of a block, zero-padded to the block size.
    #[must_use]
    pub fn hash(&self, block: &[u8]) -> Vec<u8> {
        static ZEROS: [u8; BLOCK_SIZE] = [0; BLOCK_SIZE];
        let missing = ZEROS.get(..BLOCK_SIZE.saturating_sub(block.len())).unwrap_or_default();
        let parts = [&self.salt[..], block, missing];
        match self.algorithm {
            Algorithm::Sha256 => {
                parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize().to_vec()
            }
            Algorithm::Sha512 => {
                parts.iter().fold(Sha512::new(), |hash, part| hash.chain_update(part)).finalize().to_vec()
            }
        }
    }
}

/// First blocks of the levels, beginning with the one over the data, and the number of blocks in the tree; `None` for
/// too many levels.
fn levels(data_blocks: u64, algorithm: Algorithm) -> Option<(Vec<u64>, u64)> {
    let per_block = u64::try_from(BLOCK_SIZE.checked_div(algorithm.digest_size())?).ok()?;
    let (mut counts, mut count) = (Vec::new(), data_blocks);
    while count > 1 {
        if counts.len() >= LEVELS_MAX {
            return None;
        }
        count = count.div_ceil(per_block);
        counts.push(count);
    }
    let mut starts = vec![0; counts.len()];
    let mut next = 0_u64;
    for (start, count) in starts.iter_mut().zip(&counts).rev() {
        *start = next;
        next = next.saturating_add(*count);
    }
    Some((starts, next))
}

/// Compares blocks of a file with its tree, and caches verified tree blocks.
#[derive(Debug)]
pub struct Verifier<'t> {
    tree: &'t Tree,
    right: HashMap<u64, Vec<u8>>,
}

/// Limit on cached tree blocks: 1 MiB.
const REMEMBERED_MAX: usize = 256;

impl<'t> Verifier<'t> {
    /// A verifier with an empty cache.
    #[must_use]
    pub fn new(tree: &'t Tree) -> Self {
        Self { tree, right: HashMap::new() }
    }

    /// True if a block of data matches the tree. `read` reads a block of the tree.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn is_right<E>(
        &mut self,
        index: u64,
        data: &[u8],
        read: &mut dyn FnMut(u64) -> Result<Vec<u8>, E>,
    ) -> Result<bool, E> {
        if index >= self.tree.data_blocks {
            return Ok(false);
        }
        let Some(wanted) = self.hash_at(0, index, read)? else { return Ok(false) };
        Ok(self.tree.hash(data) == wanted)
    }

    /// The hash at an index of a level, counted from the one over the data; `None` if the tree is damaged.
    fn hash_at<E>(
        &mut self,
        level: usize,
        index: u64,
        read: &mut dyn FnMut(u64) -> Result<Vec<u8>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let Some(start) = self.tree.starts.get(level) else { return Ok(Some(self.tree.root.clone())) };
        let size = self.tree.algorithm.digest_size();
        let per_block = u64::try_from(BLOCK_SIZE.checked_div(size).unwrap_or(1)).unwrap_or(1);
        let (above, slot) = (index.checked_div(per_block).unwrap_or(0), index.checked_rem(per_block).unwrap_or(0));
        let at = start.saturating_add(above);
        let part = |block: &[u8]| {
            let from = usize::try_from(slot).unwrap_or(0).saturating_mul(size);
            block.get(from..from.saturating_add(size)).map(<[u8]>::to_vec)
        };
        if let Some(block) = self.right.get(&at) {
            return Ok(part(block));
        }
        let Some(wanted) = self.hash_at(level.saturating_add(1), above, read)? else { return Ok(None) };
        let block = read(at)?;
        if block.len() != BLOCK_SIZE || self.tree.hash(&block) != wanted {
            return Ok(None);
        }
        let found = part(&block);
        if self.right.len() >= REMEMBERED_MAX {
            self.right.clear();
        }
        self.right.insert(at, block);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor without its root hash.
    fn descriptor(algorithm: u8, salt: &[u8], data_bytes: u64) -> Vec<u8> {
        let mut bytes = vec![0; DESCRIPTOR_SIZE];
        bytes[..4].copy_from_slice(&[1, algorithm, 12, u8::try_from(salt.len()).unwrap()]);
        bytes[8..16].copy_from_slice(&data_bytes.to_le_bytes());
        bytes[80..80 + salt.len()].copy_from_slice(salt);
        bytes
    }

    /// The blocks of the tree over some data, top first, and the root hash.
    fn build(tree: &Tree, data: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut levels: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut below: Vec<Vec<u8>> = data.chunks(BLOCK_SIZE).map(<[u8]>::to_vec).collect();
        while below.len() > 1 {
            let hashes = below.iter().flat_map(|block| tree.hash(block)).collect::<Vec<_>>();
            let mut blocks: Vec<Vec<u8>> = hashes.chunks(BLOCK_SIZE).map(<[u8]>::to_vec).collect();
            blocks.iter_mut().for_each(|block| block.resize(BLOCK_SIZE, 0));
            below.clone_from(&blocks);
            levels.push(blocks);
        }
        (levels.into_iter().rev().flatten().collect(), tree.hash(&below[0]))
    }

    /// The blocks of the tree and its descriptor, by the builder.
    fn build_in_order(algorithm: u8, salt: &[u8], data: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let options = TreeOptions { algorithm: Algorithm::from_number(algorithm).unwrap(), salt: salt.to_vec() };
        let mut builder = Builder::new(options, u64::try_from(data.len()).unwrap()).unwrap();
        let mut blocks = std::collections::BTreeMap::new();
        let mut write = |number: u64, block: &[u8]| {
            assert_eq!(blocks.insert(number, block.to_vec()), None);
            Ok::<_, ()>(())
        };
        for block in data.chunks(BLOCK_SIZE) {
            builder.add(block, &mut write).unwrap();
        }
        let descriptor = builder.finish(&mut write).unwrap().unwrap();
        assert!((0..).zip(blocks.keys()).all(|(expected, found): (u64, _)| expected == *found));
        (blocks.into_values().collect(), descriptor)
    }

    /// Algorithm, salt and data, and the digest of them.
    const DIGESTS: &[(u8, &[u8], &[u8], &str)] = &[
        (1, &[], b"", "3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95"),
        (
            2,
            &[1, 2, 0xff],
            b"",
            "46bd2865cb88ae4d55efc541ce3bde29cbc83da5245ea2f88d34f892971460b6\
             d424d04ac2b545831c6f239f2464487c80d706fd6a8fcd117719b48963b345f2",
        ),
        (1, &[], b"hello\n", "9c76eecc7b76fcb46199cb27b90cf59a660e10575bb0412128905129d5b1c2aa"),
        (
            2,
            &[1, 2, 0xff],
            b"hello\n",
            "cad78db2f543c9c937bdfc9e7a9da99de19abfa9432dd5b322010c466b8005db\
             46c634931839895c5dfe2ffab1778d7688cf0c8ee45e7c59f7f5fcf9a013bafa",
        ),
        (1, &[], &[0; 10_000], "9673b4ca4cc979b11de1f50e235210cec780fc5f71fab218f9fb5efe18dfd866"),
        (
            2,
            &[1, 2, 0xff],
            &[0; 10_000],
            "a0a0117cda9d3d0bf97652bb888bb301a42f1fb0a8e73ee4454b29b691688186\
             c793d41a5629d5ae308cb61593a93d4e620728df423d87c37481c76de81fdfde",
        ),
    ];

    /// The digests are those that `fsverity digest` of fsverity-utils 1.5 prints.
    #[test]
    fn digests_are_those_of_fsverity() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (algorithm, salt, data, expected) in DIGESTS {
            let (_, descriptor) = build_in_order(*algorithm, salt, data);
            assert_eq!(hex(&digest(&descriptor).unwrap().1), *expected);
        }
    }

    #[test]
    fn a_builder_refuses_long_salts_and_missing_blocks() {
        let options = TreeOptions { salt: vec![0; 33], ..TreeOptions::default() };
        assert_eq!(Builder::new(options, 1).unwrap_err().what, "verity salt_size");
        assert!(Builder::new(TreeOptions::default(), u64::MAX).is_ok());
        let builder = Builder::new(TreeOptions::default(), 4097).unwrap();
        assert_eq!(builder.finish(&mut |_, _| Ok::<_, ()>(())), Ok(None));
    }

    #[test]
    fn each_block_of_data_and_tree_counts() {
        for (algorithm, salt) in [(1, &b""[..]), (1, b"some salt"), (2, b""), (2, &[7; 32])] {
            for len in [1, 4096, 4097, 129 * 4096, 5_000_000] {
                let data: Vec<u8> =
                    (0..len).map(|at: usize| u8::try_from((at / 4096 + at % 251) % 256).unwrap()).collect();
                let mut bytes = descriptor(algorithm, salt, u64::try_from(len).unwrap());
                let (blocks, root) = build(&Tree::new(&bytes, u64::try_from(len).unwrap()).unwrap(), &data);
                bytes[16..16 + root.len()].copy_from_slice(&root);
                assert_eq!(build_in_order(algorithm, salt, &data), (blocks.clone(), bytes.clone()));
                let tree = Tree::new(&bytes, u64::try_from(len).unwrap()).unwrap();
                assert_eq!(tree.blocks(), u64::try_from(blocks.len()).unwrap());
                let is_right = |index: usize, data: &[u8], blocks: &[Vec<u8>]| {
                    let read = &mut |at: u64| Ok::<_, ()>(blocks[usize::try_from(at).unwrap()].clone());
                    Verifier::new(&tree).is_right(u64::try_from(index).unwrap(), data, read).unwrap()
                };
                let all: Vec<&[u8]> = data.chunks(BLOCK_SIZE).collect();
                for (index, block) in all.iter().enumerate() {
                    assert!(is_right(index, block, &blocks));
                    assert!(!is_right(index, b"other", &blocks));
                    assert!(!is_right(all.len(), block, &blocks));
                }
                for number in 0..blocks.len() {
                    let mut damaged = blocks.clone();
                    damaged[number][0] ^= 1;
                    // The first byte of a block of the tree is of the first hash in it.
                    assert!((0..all.len()).any(|index| !is_right(index, all[index], &damaged)), "{number}");
                }
            }
        }
    }

    #[test]
    fn the_salt_is_hashed_first_and_filled_up() {
        let tree = Tree::new(&descriptor(1, b"", 1), 1).unwrap();
        assert_eq!(tree.hash(&[]), Sha256::digest([0; BLOCK_SIZE]).to_vec());
        let salted = Tree::new(&descriptor(1, b"ab", 1), 1).unwrap();
        let mut input = vec![b'a', b'b'];
        input.resize(64, 0);
        input.extend([b'x']);
        input.resize(64 + BLOCK_SIZE, 0);
        assert_eq!(salted.hash(b"x"), Sha256::digest(&input).to_vec());
    }

    #[test]
    fn wrong_descriptors_are_refused_by_name() {
        let good = descriptor(1, b"", 5);
        let wrong: [(usize, u8, &str); 7] = [
            (0, 2, "version"),
            (1, 3, "hash_algorithm"),
            (2, 10, "log_blocksize"),
            (3, 33, "salt_size"),
            (4, 1, "sig_size"),
            (8, 6, "data_size"),
            (255, 1, "reserved"),
        ];
        for (at, value, what) in wrong {
            let mut bytes = good.clone();
            bytes[at] = value;
            let error = Tree::new(&bytes, 5).unwrap_err();
            assert!(error.what.contains(what), "{error}");
        }
        assert!(Tree::new(&good[..255], 5).is_err());
        assert!(Tree::new(&descriptor(2, b"", u64::MAX), u64::MAX).is_err());
    }
}
