//! Applies the members of a layer to a tree that has the layers below: whiteouts first, then nodes. `oci::Image` calls
//! it.
//!
//! A whiteout hides names of lower layers only. So all whiteouts are applied to the lower tree before the first node is
//! put, wherever they stand in the archive, and their paths are those of the lower tree. A hard link that stands before
//! the whiteout of its lower file keeps that file, as it does where members are unpacked one by one; behind the
//! whiteout
//! it leads nowhere.
//!
//! Names that begin with `.wh.`: `.wh..wh..opq` empties its directory; other names that begin with `.wh..wh.`, and what
//! is below them, are notes of aufs, which mean nothing; `.wh.NAME` removes NAME. None becomes a file. Failure: a
//! whiteout of no plain name, something below a whiteout, and members that have no place in the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use archive::{Member, MemberKind};
use portable::OsStrExt as _;
use transfer::{Observer, Tree};

use super::changes::{LayerChange, Recorder};
use crate::error::{Error, Result, shown};

const WHITEOUT: &[u8] = b".wh.";
const NOTE: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The meaning of a member's path.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// A node, or a name of one.
    Node,
    /// A name that lower layers have and this one does not.
    Whiteout(PathBuf),
    /// A directory of which nothing in lower layers is seen.
    Opaque(PathBuf),
    /// A note of aufs.
    Note,
}

/// Applies the members. Returns the changes.
///
/// # Errors
/// See the head of the module; those of `watch`.
pub(super) fn apply(
    tree: &mut Tree,
    members: Vec<Member>,
    place: &str,
    watch: &dyn Observer,
) -> Result<Vec<LayerChange>> {
    let mut recorder = Recorder::new(tree);
    let (mut nodes, mut linked) = (Vec::with_capacity(members.len()), Linked::default());
    for member in members {
        watch.check()?;
        match meaning(&member.path, place)? {
            Meaning::Node => {
                if let MemberKind::HardLink(first) = &member.kind {
                    linked.wanted.insert(plain(first));
                }
                nodes.push(member);
            }
            Meaning::Note => {}
            Meaning::Whiteout(path) => {
                linked.keep(tree, &path)?;
                hide(tree, &path, &mut recorder)?;
            }
            Meaning::Opaque(dir) => {
                linked.keep(tree, &dir)?;
                empty(tree, &dir, &mut recorder)?;
            }
        }
    }
    for Member { path, kind, .. } in nodes {
        watch.check()?;
        match kind {
            MemberKind::Node(node) => recorder.put(tree, &path, node)?,
            MemberKind::HardLink(first) => {
                let kept = linked.kept.get(&plain(&first)).filter(|_| matches!(tree.find(&first), Ok(None)));
                recorder.link(tree, kept.unwrap_or(&first), &path)?;
            }
        }
    }
    for kept in linked.kept.values() {
        tree.remove(kept)?;
    }
    Ok(recorder.finish(tree))
}

/// Lower files that hard links of the layer name before a whiteout hides them.
#[derive(Default)]
struct Linked {
    /// Files that the members so far link to.
    wanted: BTreeSet<PathBuf>,
    /// Hidden ones, and the names that they have until all members are applied: no member can have these.
    kept: BTreeMap<PathBuf, PathBuf>,
}

impl Linked {
    /// Keeps the wanted files at and below a path that is about to be hidden.
    fn keep(&mut self, tree: &mut Tree, path: &Path) -> Result<()> {
        for first in self.wanted.range(path.to_owned()..).take_while(|first| first.starts_with(path)) {
            let is_file = tree.find(first).ok().flatten().is_some_and(|number| !tree.node(number).attr.is_dir());
            if is_file && !self.kept.contains_key(first) {
                let name = PathBuf::from(format!(".wh.kept-{}", self.kept.len()));
                tree.link(first, &name)?;
                self.kept.insert(first.clone(), name);
            }
        }
        Ok(())
    }
}

/// A path with plain names only.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn meaning(path: &Path, place: &str) -> Result<Meaning> {
    let bytes = path.as_os_str().as_bytes();
    let mut names = bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let Some(last) = names.next_back() else { return Ok(Meaning::Node) };
    let mut dir = PathBuf::new();
    for name in names {
        if name.starts_with(NOTE) && name != OPAQUE {
            return Ok(Meaning::Note);
        }
        if name.starts_with(WHITEOUT) {
            return Err(bad_name(place, "nothing below a whiteout", bytes));
        }
        dir.push(OsStr::from_bytes(name));
    }
    if last == OPAQUE {
        return Ok(Meaning::Opaque(dir));
    }
    if last.starts_with(NOTE) {
        return Ok(Meaning::Note);
    }
    let Some(name) = last.strip_prefix(WHITEOUT) else { return Ok(Meaning::Node) };
    if name.is_empty() || name == b"." || name == b".." {
        return Err(bad_name(place, "a whiteout of a plain name", bytes));
    }
    Ok(Meaning::Whiteout(dir.join(OsStr::from_bytes(name))))
}

fn bad_name(place: &str, expected: &str, path: &[u8]) -> Error {
    let (place, expected) = (place.to_owned(), expected.to_owned());
    Error::Mismatch { place, what: "path", expected, found: shown(path) }
}

/// The path of a name in the lower tree; `None` where that has no such directory. A whiteout of something that is not
/// there is none, so it does not matter why.
fn lower_path(tree: &Tree, path: &Path) -> Option<PathBuf> {
    tree.real_path(path).ok().flatten()
}

fn hide(tree: &mut Tree, path: &Path, recorder: &mut Recorder) -> Result<()> {
    if let Some(path) = lower_path(tree, path)
        && tree.remove(&path)?
    {
        recorder.removed(path);
    }
    Ok(())
}

fn empty(tree: &mut Tree, dir: &Path, recorder: &mut Recorder) -> Result<()> {
    // Only as the way to a name inside, links of the directory's own path are followed.
    let inside = lower_path(tree, &dir.join(OsString::from("x")));
    let Some(dir) = inside.as_deref().and_then(Path::parent) else { return Ok(()) };
    let Some(number) = tree.find(dir)? else { return Ok(()) };
    if tree.names(number).next().is_some() {
        tree.clear(dir)?;
        recorder.cleared(dir.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_what_they_mean() {
        let meaning = |path: &str| meaning(Path::new(path), "layer").map_err(|error| error.to_string());
        assert_eq!(meaning("./a/.wh.b"), Ok(Meaning::Whiteout("a/b".into())));
        assert_eq!(meaning(".wh.b/"), Ok(Meaning::Whiteout("b".into())));
        assert_eq!(meaning("a/.wh..wh..opq"), Ok(Meaning::Opaque("a".into())));
        assert_eq!(meaning(".wh..wh..opq"), Ok(Meaning::Opaque("".into())));
        for note in [".wh..wh.aufs", ".wh..wh.plnk/", "a/.wh..wh.plnk/1.2", ".wh..wh.orph"] {
            assert_eq!(meaning(note), Ok(Meaning::Note), "{note}");
        }
        for node in ["", "./", "a/b", "a.wh.b", ".wh"] {
            assert_eq!(meaning(node), Ok(Meaning::Node), "{node}");
        }
        for bad in [".wh.", ".wh..", ".wh...", "a/.wh./", ".wh.a/b", ".wh..wh..opq/x"] {
            assert!(meaning(bad).is_err(), "{bad}");
        }
    }
}
