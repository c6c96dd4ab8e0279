//! Computes the keys of UUID_KEY_SUBVOL and UUID_KEY_RECEIVED_SUBVOL, which lead from a UUID to subvolumes. Called by
//! `subvol` of `btrfs`, by check and repair.
//!
//! Key: (first half of the UUID, type, second half), both read as little-endian numbers. The
//! item is an array of subvolume numbers.

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::error::{Corrupt, Detail};
use crate::{Key, TreeId, Uuid};

/// The key of a UUID's item; `item_type` is one of the two above.
#[must_use]
pub fn uuid_key(uuid: Uuid, item_type: u8) -> Key {
    let [first, second] = halves(uuid);
    Key::new(u64::from_le_bytes(first), item_type, u64::from_le_bytes(second))
}

/// The UUID that such a key stands for.
#[must_use]
pub fn uuid_of_key(key: &Key) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&key.objectid.to_le_bytes());
    bytes[8..].copy_from_slice(&key.offset.to_le_bytes());
    Uuid(bytes)
}

/// The subvolumes that an item lists.
///
/// # Errors
/// [`Corrupt`] where the size is not a multiple of 8.
pub fn uuid_subvolumes(bytes: &[u8]) -> Result<impl Iterator<Item = TreeId> + use<'_>, Corrupt> {
    let ids = <[U64]>::ref_from_bytes(bytes)
        .map_err(|_| Corrupt::new("UUID item size", Detail::MultipleOf(8), Detail::size(bytes.len())))?;
    Ok(ids.iter().map(|id| TreeId(id.get())))
}

fn halves(uuid: Uuid) -> [[u8; 8]; 2] {
    let mut halves = [[0; 8]; 2];
    halves[0].copy_from_slice(&uuid.0[..8]);
    halves[1].copy_from_slice(&uuid.0[8..]);
    halves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::item_type::UUID_KEY_SUBVOL;

    #[test]
    fn keys_and_uuids_convert() {
        let uuid = Uuid(*b"abcdefghijklmnop");
        let key = uuid_key(uuid, UUID_KEY_SUBVOL);
        assert_eq!(key.objectid, u64::from_le_bytes(*b"abcdefgh"));
        assert_eq!(uuid_of_key(&key), uuid);
    }

    #[test]
    fn an_item_is_whole_numbers() {
        let bytes = [256u64.to_le_bytes(), 257u64.to_le_bytes()].concat();
        assert_eq!(uuid_subvolumes(&bytes).unwrap().count(), 2);
        assert!(uuid_subvolumes(&bytes[..9]).is_err());
    }
}
