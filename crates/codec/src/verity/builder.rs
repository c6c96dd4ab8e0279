//! Builds the Merkle tree of a file while its blocks pass by, in memory that does not grow with the file.

use sha2::{Digest as _, Sha256, Sha512};

use super::{
    Algorithm, BLOCK_BYTES, BLOCK_SIZE, DESCRIPTOR_SIZE, LOG_BLOCK_SIZE, ROOT_HASH_AT, SALT_AT, SALT_SIZE_MAX, Tree,
    WrongDescriptor, levels,
};

/// How the tree of a file is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// The hash function of data and tree.
    pub algorithm: Algorithm,
    /// Bytes that are hashed before each block, at most 32.
    pub salt: Vec<u8>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { algorithm: Algorithm::Sha256, salt: Vec::new() }
    }
}

/// Writes a block of a tree, which has this number in it.
pub type WriteBlock<'w, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'w;

/// The block of a level that is not full yet.
#[derive(Clone, Debug, Default)]
struct Open {
    hashes: Vec<u8>,
    /// Number of the block within its level.
    index: u64,
}

/// A tree that grows with each block of data.
#[derive(Debug)]
pub struct Builder {
    options: TreeOptions,
    tree: Tree,
    open: Vec<Open>,
    data_bytes: u64,
    added_blocks: u64,
}

impl Builder {
    /// Begins the tree of a file with `data_bytes` bytes.
    ///
    /// # Errors
    /// [`WrongDescriptor`] for a salt that is too long, and a file that would need too many levels.
    pub fn new(options: TreeOptions, data_bytes: u64) -> Result<Self, WrongDescriptor> {
        let found = u64::try_from(options.salt.len()).unwrap_or(u64::MAX);
        if found > SALT_SIZE_MAX {
            return Err(WrongDescriptor { what: "verity salt_size", expected: SALT_SIZE_MAX, found });
        }
        let data_blocks = data_bytes.div_ceil(BLOCK_BYTES);
        let too_high = WrongDescriptor { what: "levels of the verity tree", expected: 8, found: 9 };
        let (starts, blocks) = levels(data_blocks, options.algorithm).ok_or(too_high)?;
        let mut salt = options.salt.clone();
        salt.resize(salt.len().next_multiple_of(options.algorithm.input_size()), 0);
        let open = vec![Open::default(); starts.len()];
        let root = vec![0; options.algorithm.digest_size()];
        let tree = Tree { algorithm: options.algorithm, salt, root, starts, blocks, data_blocks };
        Ok(Self { options, tree, open, data_bytes, added_blocks: 0 })
    }

    /// Adds the next block of data, which may be short if it is the last one. `write` gets the blocks of the tree that
    /// are complete by then, each with its number in the tree; in no order of their numbers.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn add<E>(&mut self, block: &[u8], write: &mut WriteBlock<'_, E>) -> Result<(), E> {
        self.added_blocks = self.added_blocks.saturating_add(1);
        let hash = self.tree.hash(block);
        self.put(0, hash, write)
    }

    /// Completes the tree. Returns its descriptor; `None` if the file had another number of blocks than its size says.
    ///
    /// # Errors
    /// Those of `write`, which is as in [`Self::add`].
    pub fn finish<E>(mut self, write: &mut WriteBlock<'_, E>) -> Result<Option<Vec<u8>>, E> {
        for level in 0..self.open.len() {
            if self.open.get(level).is_some_and(|open| !open.hashes.is_empty()) {
                self.close(level, write)?;
            }
        }
        Ok((self.added_blocks == self.tree.data_blocks).then(|| self.descriptor()))
    }

    fn put<E>(&mut self, level: usize, hash: Vec<u8>, write: &mut WriteBlock<'_, E>) -> Result<(), E> {
        let Some(open) = self.open.get_mut(level) else {
            self.tree.root = hash;
            return Ok(());
        };
        open.hashes.extend(hash);
        if open.hashes.len() >= BLOCK_SIZE { self.close(level, write) } else { Ok(()) }
    }

    /// Writes the open block of a level, and adds its hash to the level above.
    fn close<E>(&mut self, level: usize, write: &mut WriteBlock<'_, E>) -> Result<(), E> {
        let Some((open, start)) = self.open.get_mut(level).zip(self.tree.starts.get(level)) else { return Ok(()) };
        let mut block = std::mem::take(&mut open.hashes);
        block.resize(BLOCK_SIZE, 0);
        write(start.saturating_add(open.index), &block)?;
        open.index = open.index.saturating_add(1);
        let hash = self.tree.hash(&block);
        self.put(level.saturating_add(1), hash, write)
    }

    fn descriptor(&self) -> Vec<u8> {
        let salt = &self.options.salt;
        let head = [1, self.options.algorithm.number(), LOG_BLOCK_SIZE, u8::try_from(salt.len()).unwrap_or(u8::MAX)];
        let parts: [(usize, &[u8]); 4] =
            [(0, &head), (8, &self.data_bytes.to_le_bytes()), (ROOT_HASH_AT, &self.tree.root), (SALT_AT, salt)];
        let mut bytes = vec![0; DESCRIPTOR_SIZE];
        for (at, part) in parts {
            bytes.iter_mut().skip(at).zip(part).for_each(|(to, from)| *to = *from);
        }
        bytes
    }
}

/// The digest by which `fsverity digest` and `fsverity measure` name a file: that of its descriptor without the
/// signature. `None` if there is no valid descriptor.
#[must_use]
pub fn digest(descriptor: &[u8]) -> Option<(Algorithm, Vec<u8>)> {
    let (fixed, _) = descriptor.split_first_chunk::<DESCRIPTOR_SIZE>()?;
    let algorithm = Algorithm::from_number(fixed[1])?;
    let mut unsigned = *fixed;
    // The size of the signature.
    unsigned[4..8].fill(0);
    Some(match algorithm {
        Algorithm::Sha256 => (algorithm, Sha256::digest(unsigned).to_vec()),
        Algorithm::Sha512 => (algorithm, Sha512::digest(unsigned).to_vec()),
    })
}
