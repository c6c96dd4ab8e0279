//! Turns the fields of a header, and the records that stand before it, into the attributes of a node. `members` calls
//! it.

use std::collections::BTreeMap;

use transfer::plain_metadata;
use vfs::Metadata;
use vfs::acl::{ACCESS_NAME, Acl, DEFAULT_NAME};
use vfs::file_system::{NodeKind, Time, Xattrs};

use super::header::{Dialect, Field, Header};
use super::pax::Merged;
use crate::accounts::Accounts;
use crate::acl;
use crate::base64;
use crate::error::{Place, Result, shown};

/// Owner, permissions, times and device number.
pub(super) fn metadata(header: &Header, records: Merged<'_>, kind: NodeKind, place: &Place) -> Result<Metadata> {
    let mode: u32 = field(header, Field::MODE, "mode", place)?;
    let mtime = match records.time("mtime", place)? {
        Some(time) => time,
        None => seconds(header, Field::MTIME, "mtime", place)?,
    };
    let mut attr = plain_metadata(kind, mode & 0o7777, mtime);
    let (atime, ctime) = more_times(header, place)?;
    attr.atime = records.time("atime", place)?.or(atime).unwrap_or(mtime);
    attr.ctime = records.time("ctime", place)?.or(ctime).unwrap_or(mtime);
    attr.btime = records.time("LIBARCHIVE.creationtime", place)?.unwrap_or(mtime);
    attr.uid = match records.number("uid", place)? {
        Some(uid) => uid,
        None => field(header, Field::UID, "uid", place)?,
    };
    attr.gid = match records.number("gid", place)? {
        Some(gid) => gid,
        None => field(header, Field::GID, "gid", place)?,
    };
    if matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice) {
        let major = match records.number("SCHILY.devmajor", place)? {
            Some(major) => major,
            None => field(header, Field::MAJOR, "major device number", place)?,
        };
        let minor = match records.number("SCHILY.devminor", place)? {
            Some(minor) => minor,
            None => field(header, Field::MINOR, "minor device number", place)?,
        };
        attr.rdev = crate::device::number(major, minor)
            .ok_or_else(|| place.field("device number", "12 and 20 bits", format!("{major}:{minor}")))?;
    }
    Ok(attr)
}

/// Access and change time of the dialects that have them in the header.
fn more_times(header: &Header, place: &Place) -> Result<(Option<Time>, Option<Time>)> {
    let (atime, ctime) = match header.dialect() {
        Dialect::Star => (Field::STAR_ATIME, Field::STAR_CTIME),
        Dialect::Gnu => (Field::GNU_ATIME, Field::GNU_CTIME),
        Dialect::V7 | Dialect::Ustar => return Ok((None, None)),
    };
    let read = |at: Field, name| match header.bytes(at).first() {
        None | Some(0) => Ok(None),
        Some(_) => seconds(header, at, name, place).map(Some),
    };
    Ok((read(atime, "atime")?, read(ctime, "ctime")?))
}

fn seconds(header: &Header, at: Field, name: &'static str, place: &Place) -> Result<Time> {
    field(header, at, name, place).map(|sec| Time::new(sec, 0))
}

/// A number of a header.
pub(super) fn field<N: TryFrom<i128>>(header: &Header, at: Field, name: &'static str, place: &Place) -> Result<N> {
    let value = header.number(at).and_then(|value| N::try_from(value).ok());
    value.ok_or_else(|| place.field(name, "a number in octal digits or base 256", shown(header.bytes(at))))
}

/// Extended attributes and access lists, in the order of their names.
pub(super) fn xattrs(records: Merged<'_>, kind: NodeKind, accounts: &Accounts, place: &Place) -> Result<Xattrs> {
    // A map, since a header has room for tens of thousands.
    let mut found = BTreeMap::new();
    let mut add = |name: Vec<u8>, value: Vec<u8>| {
        found.entry(name).or_insert(value);
    };
    for (name, value) in records.below("SCHILY.xattr.") {
        add(plain_name(name), value.to_vec());
    }
    for (name, value) in records.below("LIBARCHIVE.xattr.") {
        let wrong = || place.field("LIBARCHIVE.xattr", "a name with percent signs and a value in base64", shown(value));
        let (name, value) = percent_decoded(name).zip(base64::decode(value)).ok_or_else(wrong)?;
        add(name, value);
    }
    if let Some(label) = records.get("RHT.security.selinux") {
        // The kernel keeps the label with a zero behind it.
        add(b"security.selinux".to_vec(), [label, b"\0"].concat());
    }
    for (key, name) in [("SCHILY.acl.access", ACCESS_NAME), ("SCHILY.acl.default", DEFAULT_NAME)] {
        // Links have none, and only directories have a default for what is made in them.
        let is_kept = if name == DEFAULT_NAME { kind == NodeKind::Directory } else { kind != NodeKind::Symlink };
        if let Some(text) = records.get(key).filter(|_| is_kept) {
            let list = acl::from_text(text, accounts);
            add(name.to_vec(), list.map_err(|expected| place.field(key, expected, shown(text)))?);
        }
    }
    if let Some(name) = found.keys().find(|name| name.contains(&0)) {
        return Err(place.field("extended attribute", "a name without zeros", shown(name)));
    }
    // GNU tar writes such a list for every directory with a default one. The kernel keeps none.
    found.retain(|name, value| name != ACCESS_NAME || !is_mode_only(value));
    Ok(found.into_iter().collect())
}

/// True for a list that permission bits alone say as well.
fn is_mode_only(value: &[u8]) -> bool {
    Acl::parse(value).is_ok_and(|list| list.as_ref().is_none_or(Acl::is_mode_only))
}

/// The permissions with those of an access list, which the kernel shows in their place. libarchive writes the group's
/// own ones.
pub(super) fn shown_permissions(permissions: u32, xattrs: &Xattrs) -> u32 {
    let list = xattrs.iter().find(|(name, _)| name == ACCESS_NAME);
    let list = list.and_then(|(_, value)| Acl::parse(value).ok().flatten());
    list.map_or(permissions, |list| list.apply_to(permissions))
}

/// GNU tar writes `=` of a name as `%3D`, and `%` as `%25`; everything else stands for itself.
fn plain_name(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        let (byte, left) = match rest {
            [b'%', b'3', b'D', left @ ..] => (b'=', left),
            [b'%', b'2', b'5', left @ ..] => (b'%', left),
            _ => (*first, behind),
        };
        plain.push(byte);
        rest = left;
    }
    plain
}

/// A name in which `%` and two hexadecimal digits stand for a byte.
fn percent_decoded(name: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        let (byte, left) = match rest {
            [b'%', high, low, left @ ..] => (digit(*high)? * 16 + digit(*low)?, left),
            [b'%', ..] => return None,
            _ => (*first, behind),
        };
        plain.push(byte);
        rest = left;
    }
    Some(plain)
}
