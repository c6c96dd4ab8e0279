//! Computes the hashes in keys of names and references: CRC-32C without its usual inversions, each with a seed of its
//! own. Called by `btrfs` for directory entries, by the extent items here, and by repair.

use codec::checksum::crc32c_raw;

/// Hash of a name in the key of a DIR_ITEM or XATTR_ITEM.
#[must_use]
pub fn name_hash(name: &[u8]) -> u64 {
    u64::from(crc32c_raw(!1, name))
}

/// Hash of a name in the key of an INODE_EXTREF.
#[must_use]
pub fn extref_hash(parent: u64, name: &[u8]) -> u64 {
    let [a, b, c, d, ..] = parent.to_le_bytes();
    u64::from(crc32c_raw(u32::from_le_bytes([a, b, c, d]), name))
}

/// Hash of a reference from a file to a data extent: the offset of an EXTENT_DATA_REF's key, and
/// the order of such references inside an extent item.
#[must_use]
pub fn extent_data_ref_hash(root: u64, objectid: u64, offset: u64) -> u64 {
    let high = crc32c_raw(!0, &root.to_le_bytes());
    let low = crc32c_raw(!0, &objectid.to_le_bytes());
    let low = crc32c_raw(low, &offset.to_le_bytes());
    (u64::from(high) << 31) ^ u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_subvolume_has_its_well_known_hash() {
        assert_eq!(name_hash(b"default"), 2_378_154_706);
    }
}
