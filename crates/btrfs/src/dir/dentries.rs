//! Caches which inode a name in a directory leads to, without a tree search.
//!
//! An entry is found by the 64-bit hash of (tree, directory, name); the name is compared, and of two names with one
//! hash only the newer is kept. The cache is bounded: a full shard drops entries that were not used since it was last
//! full. Used by `lookup`, `create` and path resolution; `entry` changes it with the names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use btrfs_disk::{InodeNo, TreeId};
use host::Shards;

use super::Found;
use crate::locks::{Rank, RwLock};

/// Names kept.
const DENTRIES_MAX: usize = 1 << 17;
/// Shards; a power of two.
const SHARD_COUNT: usize = 64;

type Map = HashMap<u64, Dentry, BuildHasherDefault<HashIsKey>>;

/// The cached names of all directories.
#[derive(Debug)]
pub(crate) struct DentryCache {
    shards: Shards<RwLock<Map>>,
    /// Names that were removed.
    removals: AtomicU64,
}

#[derive(Debug)]
struct Dentry {
    tree: TreeId,
    dir: InodeNo,
    name: Box<[u8]>,
    found: Found,
    recently_used: AtomicBool,
}

impl Default for DentryCache {
    fn default() -> Self {
        Self {
            shards: Shards::new(SHARD_COUNT, || RwLock::new(Rank::Dentries, Map::default())),
            removals: AtomicU64::new(0),
        }
    }
}

impl DentryCache {
    /// The inode that `name` in a directory leads to, if it is cached.
    pub(crate) fn get(&self, tree: TreeId, dir: InodeNo, name: &[u8]) -> Option<Found> {
        let hash = hash(tree, dir, name);
        let shard = self.shard(hash).read();
        let dentry = shard.get(&hash).filter(|dentry| dentry.is(tree, dir, name))?;
        if !dentry.recently_used.load(Ordering::Relaxed) {
            dentry.recently_used.store(true, Ordering::Relaxed);
        }
        Some(dentry.found)
    }

    /// Adds a name and its inode. The caller holds the directory's `names` lock.
    pub(crate) fn insert(&self, tree: TreeId, dir: InodeNo, name: &[u8], found: Found) {
        let hash = hash(tree, dir, name);
        let dentry = Dentry { tree, dir, name: name.into(), found, recently_used: AtomicBool::new(false) };
        let mut shard = self.shard(hash).write();
        if shard.len() >= DENTRIES_MAX / SHARD_COUNT {
            shard.retain(|_, dentry| dentry.recently_used.swap(false, Ordering::Relaxed));
            if shard.len() >= DENTRIES_MAX / SHARD_COUNT * 7 / 8 {
                shard.clear();
            }
        }
        shard.insert(hash, dentry);
    }

    /// Forgets a name. The caller holds the directory's `names` lock.
    pub(crate) fn remove(&self, tree: TreeId, dir: InodeNo, name: &[u8]) {
        self.removals.fetch_add(1, Ordering::AcqRel);
        let hash = hash(tree, dir, name);
        let mut shard = self.shard(hash).write();
        if shard.get(&hash).is_some_and(|dentry| dentry.is(tree, dir, name)) {
            shard.remove(&hash);
        }
    }

    /// How many names were removed: while the number stays the same, cached paths stay valid.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Forgets all names in a tree, and all that lead into it.
    pub(crate) fn remove_tree(&self, tree: TreeId) {
        self.removals.fetch_add(1, Ordering::AcqRel);
        for shard in &self.shards {
            shard.write().retain(|_, dentry| dentry.tree != tree && dentry.found.tree != tree);
        }
    }

    fn shard(&self, hash: u64) -> &RwLock<Map> {
        self.shards.of(hash)
    }
}

impl Dentry {
    fn is(&self, tree: TreeId, dir: InodeNo, name: &[u8]) -> bool {
        *self.name == *name && self.dir == dir && self.tree == tree
    }
}

/// Multiply and rotate, eight bytes at a time. Not keyed: callers choose names, but collisions only make the cache
/// miss.
fn hash(tree: TreeId, dir: InodeNo, name: &[u8]) -> u64 {
    let mut state = mix(mix(0, tree.0), dir.0);
    let (words, rest) = name.as_chunks::<8>();
    for word in words {
        state = mix(state, u64::from_le_bytes(*word));
    }
    let mut last = [0xff; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let state = mix(state, u64::from_le_bytes(last));
    state ^ (state >> 29)
}

fn mix(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

/// The key is a hash already.
#[derive(Debug, Default)]
struct HashIsKey(u64);

impl Hasher for HashIsKey {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0, u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::FileType;

    fn found(ino: u64) -> Found {
        Found { tree: TreeId::FS, ino: InodeNo(ino), kind: FileType::File }
    }

    #[test]
    fn names_are_distinguished_by_directory_and_tree() {
        let cache = DentryCache::default();
        cache.insert(TreeId::FS, InodeNo(256), b"name", found(300));
        assert_eq!(cache.get(TreeId::FS, InodeNo(256), b"name"), Some(found(300)));
        assert_eq!(cache.get(TreeId::FS, InodeNo(257), b"name"), None);
        assert_eq!(cache.get(TreeId(256), InodeNo(256), b"name"), None);
        assert_eq!(cache.get(TreeId::FS, InodeNo(256), b"name\xff"), None);
        cache.remove(TreeId::FS, InodeNo(256), b"name");
        assert_eq!(cache.get(TreeId::FS, InodeNo(256), b"name"), None);
    }

    #[test]
    fn the_cache_stays_within_its_bound() {
        let cache = DentryCache::default();
        for number in 0..(DENTRIES_MAX * 2) {
            let ino = u64::try_from(number).unwrap();
            cache.insert(TreeId::FS, InodeNo(256), format!("file{number}").as_bytes(), found(ino));
        }
        let held: usize = cache.shards.iter().map(|shard| shard.read().len()).sum();
        assert!(held <= DENTRIES_MAX, "{held}");
        assert!(held > DENTRIES_MAX / 16, "{held}: shards are used evenly");
    }
}
