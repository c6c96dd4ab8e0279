//! The rules of a three-way merge for single values: pure functions. `merge` applies them.

use std::collections::BTreeSet;

use crate::node::{Attributes, Xattrs};

/// The result for one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The target's value stays.
    Ours,
    /// The fork's value is taken.
    Theirs,
    /// Both changed it, in different ways.
    Conflict,
}

/// Chooses between two values that have a common ancestor.
pub(crate) fn choose<T: PartialEq + ?Sized>(base: Option<&T>, theirs: &T, ours: &T) -> Choice {
    if theirs == ours || base == Some(theirs) {
        Choice::Ours
    } else if base == Some(ours) {
        Choice::Theirs
    } else {
        Choice::Conflict
    }
}

/// Merges attributes one by one; true if some of them conflict. Of those `takes_theirs` decides.
pub(crate) fn attributes(
    base: Option<&Attributes>,
    theirs: &Attributes,
    ours: &Attributes,
    takes_theirs: bool,
) -> (Attributes, bool) {
    let mut conflicts = false;
    let mut number = |base: Option<u32>, theirs: u32, ours: u32| match choose(base.as_ref(), &theirs, &ours) {
        Choice::Ours => ours,
        Choice::Theirs => theirs,
        Choice::Conflict => {
            conflicts = true;
            if takes_theirs { theirs } else { ours }
        }
    };
    let permissions = number(base.map(|base| base.permissions), theirs.permissions, ours.permissions);
    let uid = number(base.map(|base| base.uid), theirs.uid, ours.uid);
    let gid = number(base.map(|base| base.gid), theirs.gid, ours.gid);
    let (xattrs, differ) = merged_xattrs(base.map(|base| &base.xattrs), &theirs.xattrs, &ours.xattrs, takes_theirs);
    (Attributes { permissions, uid, gid, xattrs }, conflicts || differ)
}

fn merged_xattrs(base: Option<&Xattrs>, theirs: &Xattrs, ours: &Xattrs, takes_theirs: bool) -> (Xattrs, bool) {
    let mut conflicts = false;
    let mut merged = Xattrs::new();
    let names: BTreeSet<&Vec<u8>> = theirs.keys().chain(ours.keys()).collect();
    for name in names {
        let (their, our) = (theirs.get(name), ours.get(name));
        // Without an ancestor, a name that only one has was added by it.
        let base = base.and_then(|base| base.get(name));
        let value = match choose(Some(&base), &their, &our) {
            Choice::Ours => our,
            Choice::Theirs => their,
            Choice::Conflict => {
                conflicts = true;
                if takes_theirs { their } else { our }
            }
        };
        merged.extend(value.map(|value| (name.clone(), value.clone())));
    }
    (merged, conflicts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_one_side_changed_is_taken() {
        for (base, theirs, ours, wanted) in [
            (Some(1), 1, 1, Choice::Ours),
            (Some(1), 2, 1, Choice::Theirs),
            (Some(1), 1, 2, Choice::Ours),
            (Some(1), 2, 2, Choice::Ours),
            (Some(1), 2, 3, Choice::Conflict),
            (None, 2, 2, Choice::Ours),
            (None, 2, 3, Choice::Conflict),
        ] {
            assert_eq!(choose(base.as_ref(), &theirs, &ours), wanted, "{base:?} {theirs} {ours}");
        }
    }

    #[test]
    fn attributes_are_merged_one_by_one() {
        let with = |permissions, uid, xattr: &str| {
            let xattrs = [(b"user.a".to_vec(), xattr.as_bytes().to_vec())].into_iter().collect();
            Attributes { permissions, uid, gid: 0, xattrs }
        };
        let base = with(0o644, 0, "x");
        let merged = attributes(Some(&base), &with(0o755, 0, "y"), &with(0o644, 5, "x"), false);
        assert_eq!(merged, (with(0o755, 5, "y"), false));
        let merged = attributes(Some(&base), &with(0o755, 0, "y"), &with(0o600, 0, "z"), true);
        assert_eq!(merged, (with(0o755, 0, "y"), true));
    }
}
