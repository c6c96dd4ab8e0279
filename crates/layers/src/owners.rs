//! Changes owners and groups of the nodes of a tree by rules: ranges of ids that are mapped, and one owner for all.
//! Callers: `mkfs` and `put` of the program, between the sources of the tree and the manifest.
//!
//! Order of precedence. A caller applies the parts in this order, so that a later one has the last word:
//! 1. the host's owners, read by [`crate::host::read_into`];
//! 2. the saved state of fakeroot, which the same function applies, and archives and layers, put on top;
//! 3. the rules of this module: ids are mapped, unless one owner for all replaces them;
//! 4. a manifest ([`crate::manifest::apply`]).
//!
//! Invariants: a rule sees every node once, however many names it has, and the ids of access control lists are mapped
//! as owners are. The range of a map contains neither the id 4294967295, which stands for "no id", nor two ranges one
//! id. Failure: [`Error::Unmapped`] names the first path, in the order of names, whose id has no range.

use std::collections::HashSet;
use std::path::Path;
use std::str::FromStr;

use transfer::{NodeNumber, Tree};
use vfs::acl;
use vfs::file_system::Xattrs;

use crate::error::{Error, Result};
use crate::number;

const USER_TAG: [u8; 2] = [2, 0];
const GROUP_TAG: [u8; 2] = [8, 0];

/// A range of ids that become others: `FROM:TO:COUNT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    from: u32,
    to: u32,
    count: u32,
}

impl IdRange {
    /// The `count` ids from `from` on become those from `to` on.
    ///
    /// # Errors
    /// [`Error::Rule`]: no ids, or ids of more than 32 bits.
    pub fn new(from: u32, to: u32, count: u32) -> Result<Self> {
        // The end is not in the range, and 4294967295 is no id.
        let fits = |start: u32| start.checked_add(count).is_some();
        if count > 0 && fits(from) && fits(to) {
            return Ok(Self { from, to, count });
        }
        let expected = "one id or more, each below 4294967295";
        Err(Error::rule("range of ids", expected, format!("{from}:{to}:{count}")))
    }

    fn map(&self, id: u32) -> Option<u32> {
        let offset = id.checked_sub(self.from).filter(|offset| *offset < self.count)?;
        self.to.checked_add(offset)
    }

    const fn overlaps(&self, other: &Self) -> bool {
        self.from < other.from.saturating_add(other.count) && other.from < self.from.saturating_add(self.count)
    }
}

impl FromStr for IdRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(':').map(|part| number::parse::<u32>(part.as_bytes(), 10));
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Some(from)), Some(Some(to)), Some(Some(count)), None) => Self::new(from, to, count),
            _ => Err(Error::rule("range of ids", "FROM:TO:COUNT", text)),
        }
    }
}

/// Ranges of ids that become others. The empty map leaves every id as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdMap {
    ranges: Vec<IdRange>,
}

impl IdMap {
    /// A map of these ranges.
    ///
    /// # Errors
    /// [`Error::Rule`]: two ranges contain the same id.
    pub fn new(ranges: impl IntoIterator<Item = IdRange>) -> Result<Self> {
        let mut map = Self::default();
        for range in ranges {
            if let Some(other) = map.ranges.iter().find(|other| other.overlaps(&range)) {
                let IdRange { from, to, count } = range;
                let expected = format!("a range apart from {}:{}:{}", other.from, other.to, other.count);
                return Err(Error::rule("range of ids", expected, format!("{from}:{to}:{count}")));
            }
            map.ranges.push(range);
        }
        Ok(map)
    }

    fn map(&self, id: u32) -> Option<u32> {
        if self.ranges.is_empty() { Some(id) } else { self.ranges.iter().find_map(|range| range.map(id)) }
    }
}

/// Rules for the owners of all nodes. The default changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerRules {
    /// Owner and group of all nodes; `Some((0, 0))` is `--all-root`. The maps do not matter then.
    pub owner: Option<(u32, u32)>,
    /// How user ids are mapped.
    pub users: IdMap,
    /// How group ids are mapped.
    pub groups: IdMap,
    /// Ids without a range stay as they are; else the first of them is an error.
    pub keeps_unmapped: bool,
}

/// Applies the rules to all nodes of a tree. Returns how many nodes got another owner or group.
///
/// # Errors
/// [`Error::Unmapped`]; the tree is unchanged then.
pub fn apply(tree: &mut Tree, rules: &OwnerRules) -> Result<u64> {
    let mut planned: Vec<(NodeNumber, (u32, u32), Xattrs)> = Vec::new();
    let mut seen = HashSet::new();
    for (path, number) in tree.walk() {
        let node = tree.node(number);
        if node.attr.nlink > 1 && !node.attr.is_dir() && !seen.insert(number) {
            continue;
        }
        let (uid, gid) = (node.attr.uid, node.attr.gid);
        let mut xattrs = node.xattrs.clone();
        let owner = match rules.owner {
            Some(owner) => owner,
            None => {
                rules.map_lists(&path, &mut xattrs)?;
                (rules.map(&path, "user", uid)?, rules.map(&path, "group", gid)?)
            }
        };
        // To edit an implied directory would make it one that a source described.
        if owner != (uid, gid) || xattrs != node.xattrs {
            planned.push((number, owner, xattrs));
        }
    }
    let count = number::to_u64(planned.len());
    for (number, (uid, gid), xattrs) in planned {
        tree.edit(number, |node| {
            (node.attr.uid, node.attr.gid) = (uid, gid);
            node.xattrs = xattrs;
        });
    }
    Ok(count)
}

impl OwnerRules {
    fn map(&self, path: &Path, kind: &'static str, id: u32) -> Result<u32> {
        let map = if kind == "user" { &self.users } else { &self.groups };
        match map.map(id) {
            Some(mapped) => Ok(mapped),
            None if self.keeps_unmapped => Ok(id),
            None => Err(Error::Unmapped { path: Path::new("/").join(path), kind, id }),
        }
    }

    /// Maps the users and groups that access control lists name. A value of another form stays as it is.
    fn map_lists(&self, path: &Path, xattrs: &mut Xattrs) -> Result<()> {
        for (name, value) in xattrs {
            if (name != acl::ACCESS_NAME && name != acl::DEFAULT_NAME) || !matches!(acl::Acl::parse(value), Ok(Some(_)))
            {
                continue;
            }
            // A version of four bytes, then entries: tag, permissions, id.
            for entry in value.get_mut(4..).unwrap_or_default().chunks_exact_mut(8) {
                let Ok([t0, t1, p0, p1, id @ ..]) = <[u8; 8]>::try_from(&*entry) else { continue };
                let kind = match [t0, t1] {
                    USER_TAG => "user",
                    GROUP_TAG => "group",
                    _ => continue,
                };
                let [i0, i1, i2, i3] = self.map(path, kind, u32::from_le_bytes(id))?.to_le_bytes();
                entry.copy_from_slice(&[t0, t1, p0, p1, i0, i1, i2, i3]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_kept_apart() {
        let range: IdRange = "1000:0:10".parse().unwrap();
        assert_eq!((range.map(1000), range.map(1009), range.map(1010), range.map(999)), (Some(0), Some(9), None, None));
        for bad in ["", "1:2", "1:2:0", "1:2:3:4", "4294967295:0:1", "0:4294967290:6", "-1:2:3", "a:b:c"] {
            assert!(bad.parse::<IdRange>().is_err(), "{bad}");
        }
        let ranges = ["0:1:5", "4:9:1"].map(|text| text.parse().unwrap());
        let error = IdMap::new(ranges).unwrap_err();
        assert_eq!(error.to_string(), "range of ids: expected a range apart from 0:1:5, found `4:9:1`");
    }
}
