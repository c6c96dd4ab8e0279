//! What the kernel's page cache may write back to an append-only file.
//!
//! The kernel does not know which nodes of a server are append-only, so it lets a program that may
//! append also store into a shared mapping, which Linux's own file systems refuse. Such bytes arrive
//! later, as a write from the cache, and are judged here by what they would change.

use crate::file_system::WriteFlags;

/// True where `new` may be written over `old`, the bytes that an append-only file has in the same place. (Bytes behind
/// the end of the file may always be written.)
///
/// A cache that collects writes sends whole pages, in any order: what was appended second may come first, and what it
/// left out then reads as zeros. So zeros may be filled, except by what is known to be a store into a mapping.
#[must_use]
pub fn may_overwrite(old: &[u8], new: &[u8], flags: WriteFlags) -> bool {
    let fills_zeros = !flags.contains(WriteFlags::FROM_MAPPING);
    old.iter().zip(new).all(|(old, new)| old == new || (fills_zeros && *old == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_collected_write_fills_zeros() {
        let (cache, mapping) = (WriteFlags::FROM_CACHE, WriteFlags::FROM_CACHE | WriteFlags::FROM_MAPPING);
        for (old, new, by_cache, by_mapping) in [
            (&b"same"[..], &b"same"[..], true, true),
            (b"same", b"same and more", true, true),
            (b"a\0c", b"abc", true, false),
            (b"abc", b"a\0c", false, false),
        ] {
            assert_eq!(may_overwrite(old, new, cache), by_cache, "{new:?}");
            assert_eq!(may_overwrite(old, new, mapping), by_mapping, "{new:?}");
        }
    }
}
