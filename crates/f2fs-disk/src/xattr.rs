//! Parses and encodes extended attributes: a header, and entries one after the other up to one that begins with four
//! zeros. Called by `f2fs` (`xattrs`, `change/xattrs`) and `f2fs-check`.
//!
//! They lie in the inode, in a node of their own, or in both: then the entries go on in the node where the inode's
//! room ends, in the middle of an entry if need be.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::OnDisk;
use crate::convert::to_u64;
use crate::error::{Corrupt, Detail};

/// The first four bytes of attributes.
const MAGIC: u32 = 0xf2f5_2011;
/// Entries begin at multiples of this.
const ALIGN: usize = 4;
/// Zero bytes that the kernel wants behind the last entry, within the room of attributes.
pub const END_SIZE: usize = 4;

/// The header of an attribute list.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct Header {
    h_magic: U32,
    h_refcount: U32,
    h_reserved: [U32; 4],
}

const _: () = assert!(size_of::<Header>() == 24);

impl OnDisk for Header {
    const NAME: &'static str = "xattr header size";
}

/// The header of an entry.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct EntryHead {
    e_name_index: u8,
    e_name_len: u8,
    e_value_size: U16,
}

impl OnDisk for EntryHead {
    const NAME: &'static str = "xattr entry size";
}

/// The kinds of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// `user.`
    User,
    /// `system.posix_acl_access`, with a list in the format's own form.
    AclAccess,
    /// `system.posix_acl_default`, with a list in the format's own form.
    AclDefault,
    /// `trusted.`
    Trusted,
    /// `security.`
    Security,
    /// Attributes of the format itself: encryption contexts, verity descriptors, and unknown ones.
    Internal(u8),
}

impl Namespace {
    const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::User,
            2 => Self::AclAccess,
            3 => Self::AclDefault,
            4 => Self::Trusted,
            6 => Self::Security,
            other => Self::Internal(other),
        }
    }

    /// The number of the kind (`F2FS_XATTR_INDEX_*`).
    #[must_use]
    pub const fn to_raw(self) -> u8 {
        match self {
            Self::User => 1,
            Self::AclAccess => 2,
            Self::AclDefault => 3,
            Self::Trusted => 4,
            Self::Security => 6,
            Self::Internal(raw) => raw,
        }
    }

    /// The prefix of the name in Linux; `None` for attributes that programs do not see.
    #[must_use]
    pub const fn prefix(self) -> Option<&'static str> {
        Some(match self {
            Self::User => "user.",
            Self::AclAccess => "system.posix_acl_access",
            Self::AclDefault => "system.posix_acl_default",
            Self::Trusted => "trusted.",
            Self::Security => "security.",
            Self::Internal(_) => return None,
        })
    }

    /// True where the prefix is the whole name.
    #[must_use]
    pub const fn is_acl(self) -> bool {
        matches!(self, Self::AclAccess | Self::AclDefault)
    }
}

/// An attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// Kind of name.
    pub namespace: Namespace,
    /// The rest of the name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl Xattr<'_> {
    /// The name that Linux has for it; `None` where no program sees it.
    #[must_use]
    pub fn full_name(&self) -> Option<Vec<u8>> {
        let prefix = self.namespace.prefix()?.as_bytes();
        let rest = if self.namespace.is_acl() { &[][..] } else { self.name };
        Some([prefix, rest].concat())
    }
}

/// The attributes in bytes: the inode's room and the node's, joined. Bytes without the magic have none.
///
/// # Errors
/// [`Corrupt`] for the first entry that does not fit; nothing comes after it.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<Xattr<'_>, Corrupt>> {
    let is_there = Header::parse(bytes).is_ok_and(|header| header.h_magic.get() == MAGIC);
    let mut rest = if is_there { bytes.get(size_of::<Header>()..).unwrap_or_default() } else { &[] };
    std::iter::from_fn(move || {
        if rest.first_chunk().is_none_or(|head| *head == [0; ALIGN]) {
            return None;
        }
        let found = split(rest);
        rest = found.as_ref().map_or(&[], |(_, behind)| behind);
        Some(found.map(|(xattr, _)| xattr))
    })
}

fn split(bytes: &[u8]) -> Result<(Xattr<'_>, &[u8]), Corrupt> {
    let head = EntryHead::parse(bytes)?;
    let (name_len, value_len) = (usize::from(head.e_name_len), usize::from(head.e_value_size.get()));
    let start = size_of::<EntryHead>();
    let name_end = start.saturating_add(name_len);
    let end = name_end.saturating_add(value_len);
    let parts = bytes.get(start..name_end).zip(bytes.get(name_end..end));
    let (name, value) =
        parts.ok_or(Corrupt::new("xattr entry size", Detail::AtMost(to_u64(bytes.len())), Detail::size(end)))?;
    let behind = bytes.get(end.next_multiple_of(ALIGN)..).unwrap_or_default();
    Ok((Xattr { namespace: Namespace::from_raw(head.e_name_index), name, value }, behind))
}

/// The namespace and the rest of a name in Linux; `None` for names that the format does not store, and for a prefix
/// without a name.
#[must_use]
pub fn split_name(full: &[u8]) -> Option<(Namespace, &[u8])> {
    let kinds = [Namespace::User, Namespace::Trusted, Namespace::Security, Namespace::AclAccess, Namespace::AclDefault];
    kinds.into_iter().find_map(|kind| {
        let rest = full.strip_prefix(kind.prefix()?.as_bytes())?;
        (kind.is_acl() == rest.is_empty()).then_some((kind, rest))
    })
}

/// Bytes of attributes, without the [`END_SIZE`] zeros that have to follow them.
#[must_use]
pub fn encoded_size(xattrs: &[Xattr<'_>]) -> usize {
    if xattrs.is_empty() {
        return 0;
    }
    let sizes = xattrs.iter().map(|xattr| {
        let size = size_of::<EntryHead>().saturating_add(xattr.name.len()).saturating_add(xattr.value.len());
        size.next_multiple_of(ALIGN)
    });
    sizes.fold(size_of::<Header>(), usize::saturating_add)
}

/// The bytes of attributes, for the inode's room and the node's; none where there are no attributes. Names have at most
/// 255 bytes and values at most 65,535, and [`END_SIZE`] zeros have to follow.
#[must_use]
pub fn encode(xattrs: &[Xattr<'_>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(encoded_size(xattrs));
    if xattrs.is_empty() {
        return bytes;
    }
    let header = Header { h_magic: U32::new(MAGIC), h_refcount: U32::new(1), ..Header::new_zeroed() };
    bytes.extend_from_slice(header.as_bytes());
    for xattr in xattrs {
        let (name_len, value_size) = (u8::try_from(xattr.name.len()), u16::try_from(xattr.value.len()));
        debug_assert!(name_len.is_ok() && value_size.is_ok(), "an attribute is too long");
        let head = EntryHead {
            e_name_index: xattr.namespace.to_raw(),
            e_name_len: name_len.unwrap_or(0),
            e_value_size: U16::new(value_size.unwrap_or(0)),
        };
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(xattr.name);
        bytes.extend_from_slice(xattr.value);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(entries: &[(u8, &[u8], &[u8])]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.resize(24, 0);
        for (index, name, value) in entries {
            bytes.extend([*index, u8::try_from(name.len()).unwrap()]);
            bytes.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn names_get_their_prefix() {
        let mut bytes = sample(&[(1, b"a", b"12345"), (3, b"", b"acl"), (6, b"selinux", b""), (9, b"c", b"context")]);
        bytes.extend([0; 40]);
        let found: Vec<_> = entries(&bytes).map(Result::unwrap).collect();
        let names: Vec<_> = found.iter().map(Xattr::full_name).collect();
        let expected = [Some("user.a"), Some("system.posix_acl_default"), Some("security.selinux"), None];
        assert_eq!(names, expected.map(|name| name.map(|name| name.as_bytes().to_vec())));
        assert_eq!(found[0].value, b"12345");
        assert_eq!(entries(&[0; 100]).count(), 0, "no magic");
        assert_eq!(entries(&bytes[..10]).count(), 0);
    }

    #[test]
    fn a_built_block_parses() {
        let xattr = |name: &'static [u8], value: &'static [u8]| {
            let (namespace, name) = split_name(name).unwrap();
            Xattr { namespace, name, value }
        };
        let all = [
            xattr(b"user.a", b"12345"),
            xattr(b"system.posix_acl_access", b"\x01\0\0\0"),
            xattr(b"system.posix_acl_default", b""),
            xattr(b"trusted.t", b"xy"),
            xattr(b"security.selinux", b"context"),
            Xattr { namespace: Namespace::Internal(9), name: b"c", value: b"1" },
        ];
        let bytes = encode(&all);
        assert_eq!(bytes.len(), encoded_size(&all));
        assert_eq!(entries(&bytes).map(Result::unwrap).collect::<Vec<_>>(), all);
        assert_eq!(bytes[4..8], [1, 0, 0, 0]);
        assert_eq!((encode(&[]), encoded_size(&[])), (vec![], 0));
        for name in [&b"system.x"[..], b"user.", b"system.posix_acl_accessx", b"a", b""] {
            assert_eq!(split_name(name), None);
        }
    }

    #[test]
    fn the_list_ends_with_its_bytes_or_with_an_error() {
        let bytes = sample(&[(1, b"a", b"1234567")]);
        assert_eq!(entries(&bytes).count(), 1, "no zeros at the end");
        let cut: Vec<_> = entries(&bytes[..30]).collect();
        assert_eq!(cut.len(), 1);
        assert_eq!(
            cut[0].unwrap_err().to_string(),
            "corrupt xattr entry size at an unknown place: expected at most 6, found 12"
        );
        assert_eq!(entries(&bytes[..26]).count(), 0, "less than a head");
    }
}
