//! Looks at the names of a directory of a source, one by one and completely, whichever source it is. Callers: the
//! writer of composefs dumps, and the difference of two trees.

use std::path::Path;

use transfer::{Found, Name, Source, file_id};
use vfs::file_system::{KnownNode, Xattrs};

/// The names of the directory at `path`, in the order of their bytes.
///
/// # Errors
/// Those of the source: a name that cannot be read is one.
pub(crate) fn names<S: Source>(source: &S, dir: &S::Dir) -> transfer::Result<Vec<Name>> {
    let mut names = source.names(dir, &mut |error| Err(error))?;
    names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(names)
}

/// The node of a name, without its contents but with all else.
///
/// # Errors
/// Those of the source, about `path`.
pub(crate) fn look<S: Source>(
    source: &S,
    dir: &S::Dir,
    name: &Name,
    path: &Path,
) -> transfer::Result<Found<S::Contents>> {
    let about = |error: transfer::Error| error.about(source.display(path).unwrap_or_else(|| path.to_owned()));
    let mut found = source.look_at_one(dir, name).map_err(about)?;
    if found.node.attr.is_dir() {
        if found.node.xattrs.is_none() {
            found.node.xattrs = Some(source.xattrs(path).map_err(about)?);
        }
    } else if found.node.attr.is_symlink() || found.node.xattrs.is_none() {
        source.complete(&mut found).map_err(about)?;
    }
    // Some sources read small contents with their nodes; a caller keeps many nodes, and reads contents one by one.
    found.node.data = None;
    Ok(found)
}

/// Attributes of a node in the order of their names.
pub(crate) fn sorted_xattrs(node: &KnownNode) -> Xattrs {
    let mut xattrs = node.xattrs.clone().unwrap_or_default();
    xattrs.sort_unstable();
    xattrs
}

/// The identity of a node that may have several names.
pub(crate) fn shared_id(node: &KnownNode) -> Option<transfer::FileId> {
    (node.attr.nlink > 1 && !node.attr.is_dir()).then(|| file_id(&node.attr))
}
