//! The manifest of a repository of backups, which a store may have changed.

/// An accepted manifest is written and read again without a change, and names nothing outside of its repository.
pub fn backup_manifest(data: &[u8]) {
    match btrfs_backup::rewrite_manifest(data) {
        Err(why) => assert!(!why.contains("leads out"), "{why}"),
        Ok(once) => assert_eq!(btrfs_backup::rewrite_manifest(&once).as_ref(), Ok(&once)),
    }
}
