//! Caches deep directories by their paths, for `walk`, which asks it before it looks names up.
//!
//! Every call names its file by a path from the root, so a walk of directories nested thousands deep would look up
//! every name once for each file below. The cache has the inodes of the directory parts of long paths, as long as no
//! name was removed anywhere in the volume since.

use std::collections::HashMap;

use crate::dir::Found;
use crate::locks::{Mutex, Rank};

/// Paths with fewer slashes are walked: that is cheap.
const SLASHES_MIN: usize = 8;
/// Paths kept.
const PATHS_MAX: usize = 256;
/// Bytes of paths kept.
const BYTES_MAX: usize = 8 << 20;

/// The cached paths. The lock is held for a look-up only; nothing is locked inside.
#[derive(Debug)]
pub(crate) struct PathCache(Mutex<Known>);

impl Default for PathCache {
    fn default() -> Self {
        Self(Mutex::new(Rank::Lists, Known::default()))
    }
}

#[derive(Debug, Default)]
struct Known {
    /// Removals of names that had happened when the paths were walked.
    removals: u64,
    bytes: usize,
    /// Keyed at random, since callers choose the paths.
    paths: HashMap<Box<[u8]>, Found>,
}

impl PathCache {
    /// The inode of `dir`, if no name was removed since; `removals` is their count now.
    pub(super) fn get(&self, dir: &[u8], removals: u64) -> Option<Found> {
        let known = self.0.lock();
        if known.removals != removals {
            return None;
        }
        known.paths.get(dir).copied()
    }

    /// Adds the inode of `dir`; `removals` is their count before it was walked.
    pub(super) fn insert(&self, dir: &[u8], found: Found, removals: u64) {
        let mut known = self.0.lock();
        let is_full = known.paths.len() >= PATHS_MAX || known.bytes > BYTES_MAX;
        if known.removals != removals || is_full {
            *known = Known { removals, ..Known::default() };
        }
        known.bytes += dir.len();
        known.paths.insert(dir.into(), found);
    }
}

/// The directory part of a long path, with its last slash, and the name in it. `None` for short paths, and for those
/// that do not end in a name.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let (named, _) = path.split_at_checked(end)?;
    let start = named.iter().rposition(|byte| *byte == b'/')?.saturating_add(1);
    let (dir, name) = named.split_at_checked(start)?;
    let is_deep = dir.iter().filter(|byte| **byte == b'/').count() >= SLASHES_MIN;
    // A slash at the end requires a directory, which the walk checks.
    (is_deep && end == path.len() && name != b"." && name != b"..").then_some((dir, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_that_end_in_a_name_are_split() {
        let long = b"/a/b/c/d/e/f/g/h/name";
        let dir = &b"/a/b/c/d/e/f/g/h/"[..];
        assert_eq!(split(long), Some((dir, &b"name"[..])));
        for path in [&b"/a/b/name"[..], b"/a/b/c/d/e/f/g/h/..", b"/a/b/c/d/e/f/g/h/", b"", b"////////"] {
            assert_eq!(split(path), None);
        }
    }
}
