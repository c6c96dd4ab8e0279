//! Decides whether a write from the kernel's page cache may change an append-only file. Called by the engines
//! (`vfs_impl/data` of each) and by the model file system of `vfs-conformance`.
//!
//! The kernel does not know which nodes of a server are append-only, so it lets a program that may append also store
//! into a shared mapping, which Linux's own file systems refuse. Such bytes arrive later, as a write from the cache.
//! They are refused here if they would change existing bytes.

use crate::file_system::WriteFlags;

/// True if `new` may be written over `old`, the bytes of an append-only file at the same offset. (Bytes after the end
/// of the file may always be written.)
///
/// A cache that collects writes sends whole pages, in any order: a later append may come first, and omitted bytes then
/// read as zeros. So zeros may be overwritten, except by a store into a mapping, if that is known.
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
