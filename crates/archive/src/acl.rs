//! Turns access control lists from the text that archives carry (`user::rwx`, one entry a line or between commas) into
//! the attribute of Linux, and back. Readers and writers of tar call it.
//!
//! A user or group is a number, or a name followed by its number as a fourth field, as libarchive writes it. GNU tar
//! writes names alone, whatever its options say, where its host has an account of the number: the reader's `Accounts`
//! give the number back.

use vfs::acl::Acl;

use crate::accounts::Accounts;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
const NO_ID: u32 = u32::MAX;
const VERSION: u32 = 2;
/// Version, then entries of tag, permissions and id.
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// The attribute's value for a list as text; on failure, what is wrong.
pub(crate) fn from_text(text: &[u8], accounts: &Accounts) -> Result<Vec<u8>, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "an access list in plain text")?;
    let mut entries = Vec::new();
    for line in text.split(['\n', ',', '\0']) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            entries.push(entry(line, accounts)?);
        }
    }
    // The kernel wants them in this order.
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    match Acl::parse(&value) {
        Ok(Some(_)) => Ok(value),
        _ => Err("a complete access list"),
    }
}

fn entry(line: &str, accounts: &Accounts) -> Result<(u16, u32, u16), &'static str> {
    const FORM: &str = "entries such as `user:1000:rwx`";
    let mut fields = line.split(':').map(str::trim);
    let (tag, mut who) = (fields.next().unwrap_or_default(), fields.next().ok_or(FORM)?);
    let mut third = fields.next();
    // `mask:rwx` and `other:rwx` are short forms.
    if third.is_none() && matches!(tag, "mask" | "m" | "other" | "o") {
        (third, who) = (Some(who), "");
    }
    let permissions = bits(third.ok_or(FORM)?).ok_or(FORM)?;
    let named = if tag.starts_with('u') { accounts.user(who) } else { accounts.group(who) };
    let id = match fields.next() {
        Some(number) => number.parse().ok(),
        None => who.parse().ok().or(named),
    };
    let id = || id.filter(|id| *id != NO_ID).ok_or("numbers, or names that this host knows, of users and groups");
    Ok(match (tag, who) {
        ("user" | "u", "") => (OWNER, NO_ID, permissions),
        ("user" | "u", _) => (USER, id()?, permissions),
        ("group" | "g", "") => (OWNING_GROUP, NO_ID, permissions),
        ("group" | "g", _) => (GROUP, id()?, permissions),
        ("mask" | "m", "") => (MASK, NO_ID, permissions),
        ("other" | "o", "") => (OTHERS, NO_ID, permissions),
        _ => return Err(FORM),
    })
}

/// The bits of `rwx`, in which `-` stands for none.
fn bits(text: &str) -> Option<u16> {
    text.bytes().try_fold(0, |bits, letter| {
        Some(match letter {
            b'r' => bits | 4,
            b'w' => bits | 2,
            b'x' => bits | 1,
            b'-' => bits,
            _ => return None,
        })
    })
}

/// The attribute's value for the list that permission bits alone stand for.
pub(crate) fn of_permissions(permissions: u32) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, shift) in [(OWNER, 6), (OWNING_GROUP, 3), (OTHERS, 0)] {
        let bits = u16::try_from((permissions >> shift) & 7).unwrap_or_default();
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(NO_ID.to_le_bytes());
    }
    value
}

/// The text of an attribute's value: an entry a line, ids as numbers. `None` for a value that is no list.
pub(crate) fn to_text(value: &[u8]) -> Option<Vec<u8>> {
    Acl::parse(value).ok().flatten()?;
    let mut text = String::new();
    for entry in value.get(HEADER_BYTES..)?.chunks_exact(ENTRY_BYTES) {
        let [tag_low, tag_high, low, high, id @ ..] = entry else { return None };
        let id = u32::from_le_bytes(id.try_into().ok()?);
        let name = match u16::from_le_bytes([*tag_low, *tag_high]) {
            OWNER => "user:".to_owned(),
            USER => format!("user:{id}"),
            OWNING_GROUP => "group:".to_owned(),
            GROUP => format!("group:{id}"),
            MASK => "mask:".to_owned(),
            _ => "other:".to_owned(),
        };
        let bits = u16::from_le_bytes([*low, *high]);
        let letter = |bit, letter| if bits & bit == 0 { '-' } else { letter };
        text.push_str(&name);
        text.push(':');
        text.extend([letter(4, 'r'), letter(2, 'w'), letter(1, 'x'), '\n']);
    }
    Some(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attribute_say_the_same() {
        let text = b"user::rw-\nuser:7:r--\ngroup::r-x\ngroup:9:rwx\nmask::rwx\nother::---\n";
        let accounts = Accounts::parse("joe:x:7:100::/:\n", "some:x:9:\n");
        let value = from_text(text, &accounts).unwrap();
        let named = b"user::rw-\nuser:joe:r--\ngroup::r-x\ngroup:some:rwx\nmask::rwx\nother::---\n";
        assert_eq!(from_text(named, &accounts).unwrap(), value);
        assert_eq!(to_text(&value).unwrap(), text);
        let libarchive = b"other::---,mask::rwx,group:some:rwx:9,user::rw-,user:joe:r--:7,group::r-x";
        assert_eq!(from_text(libarchive, &Accounts::default()).unwrap(), value);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", "user::rwx", "user:joe:rwx,user::r--,group::r--,mask::r--,other::r--", "x", "user::rwz", "::"]
        {
            assert!(from_text(text.as_bytes(), &Accounts::default()).is_err(), "{text}");
        }
        assert!(to_text(b"\x02\0\0\0short").is_none());
    }
}
