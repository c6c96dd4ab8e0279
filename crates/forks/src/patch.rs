//! Writes the differences of two subvolumes as a patch that `git apply` and `patch -p1` take. The commands `fork diff`
//! and `diff --patch` call it.
//!
//! Texts have their changed lines; of other files the patch says that they differ. A renamed file is one that is
//! removed and one that is added.

use std::io::Write;
use std::path::Path;

use btrfs::Volume;
use portable::OsStrExt as _;

use crate::node::Node;
use crate::place::rooted;
use crate::text::unified;
use crate::touched::Touched;
use crate::tree::Tree;

/// Bytes of the largest file whose lines are shown.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// A failure of the volume, or of the output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The volume cannot be read, or a path is wrong.
    ///
    /// To do: see the cause behind the colon.
    #[error("{0}")]
    Volume(#[from] vfs::Error),
    /// The output cannot be written.
    ///
    /// To do: see the cause: a full disk, or a reader that ended.
    #[error("the output: {0}")]
    Output(#[from] std::io::Error),
}

/// Writes the differences between the subvolumes at `old` and `new`. Syncs first.
///
/// # Errors
/// Those of the volume and of the output.
pub fn write_patch(volume: &Volume, old: &Path, new: &Path, output: &mut dyn Write) -> Result<(), PatchError> {
    let (old_path, new_path) = (rooted(old), rooted(new));
    let old = Tree::open(volume.by_paths(), &old_path)?;
    let new = Tree::open(volume.by_paths(), &new_path)?;
    let mut touched = Touched::default();
    volume.for_each_change(&old_path, &new_path, |change| touched.add(&change, &old, &new))?;
    for path in &touched.paths {
        let pair = Pair { path, old: old.node(path)?, new: new.node(path)? };
        pair.write(&old, &new, output)?;
    }
    Ok(())
}

/// The nodes of both trees at a path.
struct Pair<'a> {
    path: &'a Path,
    old: Option<Node>,
    new: Option<Node>,
}

impl Pair<'_> {
    fn write(&self, old: &Tree<'_>, new: &Tree<'_>, output: &mut dyn Write) -> Result<(), PatchError> {
        let is_shown = |node: &&Node| node.kind.is_file() || node.kind.is_symlink();
        let (old_node, new_node) = (self.old.as_ref().filter(is_shown), self.new.as_ref().filter(is_shown));
        let mut title = Vec::new();
        match (old_node, new_node) {
            (None, None) => return Ok(()),
            (None, Some(node)) => writeln!(title, "new file mode {}", mode(node))?,
            (Some(node), None) => writeln!(title, "deleted file mode {}", mode(node))?,
            (Some(one), Some(two)) if mode(one) != mode(two) => {
                writeln!(title, "old mode {}\nnew mode {}", mode(one), mode(two))?;
            }
            _ => {}
        }
        let (before, after) = (lines(old, self.path, old_node)?, lines(new, self.path, new_node)?);
        let body = match (&before, &after) {
            (Some(before), Some(after)) => self.hunks((before, old_node), (after, new_node)),
            _ if self.is_same(old, new, old_node, new_node)? => Vec::new(),
            _ => {
                [&b"Binary files "[..], &self.side("a/", old_node), b" and ", &self.side("b/", new_node), b" differ\n"]
                    .concat()
            }
        };
        if title.is_empty() && body.is_empty() {
            return Ok(());
        }
        let (a, b) = (quoted("a/", self.path), quoted("b/", self.path));
        output.write_all(&[&b"diff --git "[..], &a, b" ", &b, b"\n", &title, &body].concat())?;
        Ok(())
    }

    fn hunks(&self, (before, old): (&[u8], Option<&Node>), (after, new): (&[u8], Option<&Node>)) -> Vec<u8> {
        let hunks = unified(before, after);
        if hunks.is_empty() {
            return Vec::new();
        }
        let (old, new) = (self.side("a/", old), self.side("b/", new));
        [&b"--- "[..], &old, b"\n+++ ", &new, b"\n", &hunks].concat()
    }

    fn side(&self, prefix: &str, node: Option<&Node>) -> Vec<u8> {
        node.map_or_else(|| b"/dev/null".to_vec(), |_| quoted(prefix, self.path))
    }

    fn is_same(
        &self,
        old: &Tree<'_>,
        new: &Tree<'_>,
        old_node: Option<&Node>,
        new_node: Option<&Node>,
    ) -> Result<bool, PatchError> {
        let are_files = [old_node, new_node].iter().all(|node| node.is_some_and(|node| node.kind.is_file()));
        Ok(are_files && old.has_same_data(self.path, new, self.path)?)
    }
}

/// The text of a node: empty for none; `None` for a file that is large or no text.
fn lines(tree: &Tree<'_>, path: &Path, node: Option<&Node>) -> Result<Option<Vec<u8>>, PatchError> {
    Ok(match node {
        None => Some(Vec::new()),
        Some(node) if node.kind.is_symlink() => Some(node.target.clone()),
        Some(node) if node.size > TEXT_BYTES_MAX => None,
        Some(_) => Some(tree.read(path)?).filter(|text| !text.contains(&0)),
    })
}

/// The mode of a file as a patch has it.
fn mode(node: &Node) -> &'static str {
    match (node.kind.is_symlink(), node.attributes.permissions & 0o100 != 0) {
        (true, _) => "120000",
        (false, true) => "100755",
        (false, false) => "100644",
    }
}

/// A path, in quotes if it has characters that a patch cannot have otherwise.
fn quoted(prefix: &str, path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().all(|byte| (b' '..0x7f).contains(byte) && !b"\"\\".contains(byte)) {
        return [prefix.as_bytes(), bytes].concat();
    }
    let mut text = format!("\"{prefix}").into_bytes();
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', *byte]),
            b' '..0x7f => text.push(*byte),
            _ => text.extend(format!("\\{byte:03o}").bytes()),
        }
    }
    text.push(b'"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_git_does() {
        assert_eq!(quoted("a/", Path::new("x y")), b"a/x y");
        assert_eq!(quoted("b/", Path::new("x\n\"\u{e4}")), b"\"b/x\\012\\\"\\303\\244\"");
    }
}
