//! Converts POSIX access control lists between the form of f2fs, which is shorter, and that of Linux. Called by `f2fs`
//! (`xattrs`, `change/xattrs`).
//!
//! Version 1 in four bytes, then entries of tag and permissions, two bytes each; entries for named users and groups
//! have four bytes with the number behind that.

use crate::convert::to_u64;
use crate::error::{Corrupt, Detail, equal};

const VERSION_ON_DISK: u32 = 1;
/// Version of the attribute that Linux shows.
const LINUX_VERSION: u32 = 2;
/// Bytes of an entry there: tag, permissions, number.
const LINUX_ENTRY_SIZE: usize = 8;
/// Id in entries without a user or group.
const NO_ID: [u8; 4] = [0xff; 4];

const TAG_USER: u16 = 0x02;
const TAG_GROUP: u16 = 0x08;
/// The other tags: owner, owning group, mask and others.
const TAGS_WITHOUT_ID: [u16; 4] = [0x01, 0x04, 0x10, 0x20];

/// The value of the attribute that Linux shows: `system.posix_acl_access` or `_default`.
///
/// # Errors
/// [`Corrupt`] for another version, an unknown tag, and bytes that are no whole entries.
pub fn to_linux(value: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let short = || Corrupt::new("ACL size", Detail::Text("whole entries"), Detail::Number(to_u64(value.len())));
    let (version, mut rest) = value.split_first_chunk().ok_or_else(short)?;
    equal("ACL a_version", u64::from(VERSION_ON_DISK), u64::from(u32::from_le_bytes(*version)))?;
    let mut out = LINUX_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (head, behind) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let [tag_low, tag_high, ..] = *head;
        let tag = u16::from_le_bytes([tag_low, tag_high]);
        let (id, behind) = match tag {
            TAG_USER | TAG_GROUP => behind.split_first_chunk::<4>().ok_or_else(short)?,
            tag if TAGS_WITHOUT_ID.contains(&tag) => (&NO_ID, behind),
            tag => {
                return Err(Corrupt::new("ACL e_tag", Detail::Text("a known tag"), Detail::Hex(u64::from(tag))));
            }
        };
        out.extend_from_slice(head);
        out.extend_from_slice(id);
        rest = behind;
    }
    Ok(out)
}

/// The value in the form of the format, of the attribute that Linux shows.
///
/// # Errors
/// [`Corrupt`] for another version, an unknown tag, and bytes that are no whole entries: the caller's value is wrong.
pub fn from_linux(value: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let short = || Corrupt::new("ACL size", Detail::Text("whole entries"), Detail::Number(to_u64(value.len())));
    let (version, rest) = value.split_first_chunk().ok_or_else(short)?;
    equal("ACL a_version", u64::from(LINUX_VERSION), u64::from(u32::from_le_bytes(*version)))?;
    let (entries, cut) = rest.as_chunks::<LINUX_ENTRY_SIZE>();
    if !cut.is_empty() {
        return Err(short());
    }
    let mut out = VERSION_ON_DISK.to_le_bytes().to_vec();
    for [tag_low, tag_high, permissions @ .., id0, id1, id2, id3] in entries {
        let tag = u16::from_le_bytes([*tag_low, *tag_high]);
        out.extend([*tag_low, *tag_high]);
        out.extend_from_slice(permissions);
        if matches!(tag, TAG_USER | TAG_GROUP) {
            out.extend([*id0, *id1, *id2, *id3]);
        } else if !TAGS_WITHOUT_ID.contains(&tag) {
            return Err(Corrupt::new("ACL e_tag", Detail::Text("a known tag"), Detail::Hex(u64::from(tag))));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_without_a_number_get_one() {
        let value = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 0x10, 0, 4, 0, 0x20, 0, 0, 0];
        let found = to_linux(&value).unwrap();
        assert_eq!(found.len(), 4 + 5 * 8);
        assert_eq!(found[..12], [2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(found[12..20], [2, 0, 4, 0, 0xe8, 3, 0, 0]);
        assert_eq!(from_linux(&found).unwrap(), value);
    }

    #[test]
    fn wrong_ones_are_refused() {
        for (value, what) in [
            (&[1, 0, 0][..], "ACL size"),
            (&[2, 0, 0, 0], "ACL a_version"),
            (&[1, 0, 0, 0, 2, 0, 4, 0, 1], "ACL size"),
            (&[1, 0, 0, 0, 3, 0, 4, 0], "ACL e_tag"),
        ] {
            assert_eq!(to_linux(value).unwrap_err().what, what);
        }
        for (value, what) in [
            (&[2, 0, 0][..], "ACL size"),
            (&[1, 0, 0, 0], "ACL a_version"),
            (&[2, 0, 0, 0, 1, 0, 4, 0, 0xff, 0xff, 0xff], "ACL size"),
            (&[2, 0, 0, 0, 3, 0, 4, 0, 0xff, 0xff, 0xff, 0xff], "ACL e_tag"),
        ] {
            assert_eq!(from_linux(value).unwrap_err().what, what);
        }
    }
}
