//! Reads another source into a `Tree`, with its contents left where they are. Called by programs that put an image on
//! top of other sources.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfs::file_system::KnownNode;

use super::{NewNode, Stored, Tree};
use crate::error::{Cause, Error, Result};
use crate::observer::Observer;
use crate::rules::{FileId, file_id};
use crate::source::{Found, Source};

/// Puts everything below the root of `source` into `tree`, over what is there, with hard links. `stored` says
/// where the contents of the file at a path of the source are.
///
/// # Errors
/// Those of the source, of [`Tree::put`] and of [`Observer::check`].
pub fn read_source<S: Source>(
    tree: &mut Tree,
    source: &S,
    stored: &dyn Fn(&Path) -> Arc<dyn Stored>,
    watch: &dyn Observer,
) -> Result<()> {
    let top = source.top(Path::new(""))?;
    if !top.attr.is_dir() {
        return Err(Error::from(Cause::Tree("expected a directory, found a file".to_owned())));
    }
    tree.put(Path::new(""), new_node(top, None))?;
    let mut firsts: HashMap<FileId, PathBuf> = HashMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        watch.check()?;
        let dir = source.open_dir(&path)?;
        let names = source.names(&dir, &mut |error| watch.failed(error))?;
        let first = waiting.len();
        for names in names.chunks(source.at_once().max(1)) {
            for (name, found) in names.iter().zip(source.look(&dir, names)) {
                let (path, found) = (path.join(&name.name), found?);
                let id = (found.node.attr.nlink > 1 && !found.node.attr.is_dir()).then(|| file_id(&found.node.attr));
                if let Some(first) = id.and_then(|id| firsts.get(&id)) {
                    tree.link(first, &path)?;
                    continue;
                }
                if found.node.attr.is_dir() {
                    waiting.push(path.clone());
                }
                take(tree, source, found, &path, stored)?;
                if let Some(id) = id {
                    firsts.insert(id, path);
                }
            }
        }
        // The next directory in the order of names comes first.
        waiting.get_mut(first..).unwrap_or_default().reverse();
    }
    Ok(())
}

fn take<S: Source>(
    tree: &mut Tree,
    source: &S,
    mut found: Found<S::Contents>,
    path: &Path,
    stored: &dyn Fn(&Path) -> Arc<dyn Stored>,
) -> Result<()> {
    source.complete(&mut found)?;
    let has_contents = found.node.attr.is_file() && found.node.attr.size > 0;
    tree.put(path, new_node(found.node, has_contents.then(|| stored(path))))?;
    Ok(())
}

fn new_node(node: KnownNode, contents: Option<Arc<dyn Stored>>) -> NewNode {
    let KnownNode { attr, target, xattrs, .. } = node;
    NewNode { attr, target, xattrs: xattrs.unwrap_or_default(), contents }
}
