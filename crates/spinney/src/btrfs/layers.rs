//! Fills a volume with the layers of a container image, each a read-only snapshot of the one below it with its own
//! changes. `mkfs --layers subvol` of the program calls it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ::btrfs::Volume;
use layers::oci::{Image, LayerChange};
use transfer::{
    Item, Made, Name, Observer, Rules, Sink as _, Source as _, Tree, TreeContents, VolumeSink, VolumeSinkOptions,
};
use vfs::file_system::{KnownNode, Time};
use vfs::{Result, SnapshotMode};

use crate::Files;

use crate::source_errors::of_layers;

/// Bytes of contents that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// Makes the subvolumes `DIR/1`, `DIR/2` and so on of the layers of an image, the lowest first: each a read-only
/// snapshot of the one before it with the changes of its layer. Returns the path of the last one. A writable snapshot
/// of that is the root of a container.
///
/// # Errors
/// Those of the image, of the volume, and `EINVAL` for an image without layers.
pub fn import_layers(
    volume: &Volume,
    dir: &Path,
    image: &Image,
    rules: &Rules,
    watch: &dyn Observer,
) -> Result<PathBuf> {
    let files = volume.by_paths();
    files.create_dir_all(dir)?;
    let mut tree = Tree::new(Time::default());
    let mut last: Option<PathBuf> = None;
    for index in 0..image.layers().len() {
        let path = dir.join((index + 1).to_string());
        match &last {
            None => files.create_subvolume(&path)?,
            Some(below) => files.snapshot(below, &path, SnapshotMode::ReadWrite)?,
        }
        let changes = image.apply_layer(&mut tree, index, watch).map_err(of_layers)?;
        let options = VolumeSinkOptions { keeps_ctime: true, ..VolumeSinkOptions::default() };
        replay(files, &path, (&tree, &changes), (rules, options), watch)?;
        files.sync()?;
        volume.set_subvolume_read_only(&path, true)?;
        last = Some(path);
    }
    last.ok_or_else(|| vfs::Error::new(vfs::Errno::EINVAL, vfs::Blame::Caller, NoLayers))
}

/// A container image that has no layers, so that there is nothing to make a snapshot of.
///
/// To do: give an image with layers, or `--layers flat`.
#[derive(Debug, thiserror::Error)]
#[error("layers: expected one or more, found none")]
struct NoLayers;

/// Does to the subvolume at `path` what a layer did to the tree, which has the layer.
pub(super) fn replay(
    files: &Files,
    path: &Path,
    (tree, changes): (&Tree, &[LayerChange]),
    (rules, options): (&Rules, VolumeSinkOptions),
    watch: &dyn Observer,
) -> Result<()> {
    let sink = &VolumeSink::new(files, path, options);
    let replay = Replay { tree, sink, rules, watch };
    changes.iter().try_for_each(|change| replay.change(files, path, change))
}

struct Replay<'a> {
    /// The tree after the layer.
    tree: &'a Tree,
    sink: &'a VolumeSink<'a>,
    rules: &'a Rules,
    watch: &'a dyn Observer,
}

impl Replay<'_> {
    fn change(&self, files: &Files, top: &Path, change: &LayerChange) -> Result<()> {
        match change {
            LayerChange::Remove(path) => remove(files, &top.join(path)),
            LayerChange::Clear(path) => {
                let dir = top.join(path);
                let names = files.read_dir(&dir)?.collect::<Result<Vec<_>>>()?;
                names.iter().try_for_each(|entry| remove(files, &dir.join(entry.file_name())))
            }
            LayerChange::Put(path) => self.put(path),
            LayerChange::Link { first, path } => {
                let (node, contents) = self.found(path)?;
                let item = self.item(path, &node, &contents);
                self.sink.link(first, &self.sink.open_dir(parent(path))?, &item)?;
                Ok(())
            }
            LayerChange::Times(path) => {
                let mut node = self.tree.top(path)?;
                self.rules.change(&mut node);
                Ok(self.sink.finish_dir(path, &node.attr, self.watch)?)
            }
        }
    }

    fn put(&self, path: &Path) -> Result<()> {
        if path.as_os_str().is_empty() {
            let mut node = self.tree.top(path)?;
            self.rules.change(&mut node);
            return Ok(self.sink.begin(&self.item(path, &node, &TreeContents::default()))?);
        }
        let (node, contents) = self.found(path)?;
        let (item, dir) = (self.item(path, &node, &contents), self.sink.open_dir(parent(path))?);
        self.watch.tried();
        if node.attr.is_dir() {
            return Ok(self.sink.make_dir(&dir, &item)?);
        }
        let mut buffer = vec![0; if item.is_streamed() { PIECE_BYTES } else { 0 }];
        if self.sink.make(&dir, &item, &mut buffer)? == Made::Begun {
            self.sink.fill(&item, &mut buffer)?;
        }
        Ok(())
    }

    /// The node at `path`, as the copy gets it.
    fn found(&self, path: &Path) -> Result<(KnownNode, TreeContents)> {
        let dir = self.tree.open_dir(parent(path))?;
        let name = Name { name: name(path).to_owned(), kind: None };
        let mut found = self.tree.look_at_one(&dir, &name)?;
        self.tree.complete(&mut found)?;
        self.rules.change(&mut found.node);
        Ok((found.node, found.contents))
    }

    fn item<'i>(&'i self, path: &'i Path, node: &'i KnownNode, contents: &'i TreeContents) -> Item<'i> {
        Item { name: name(path), from: path, to: path, node, contents, watch: self.watch }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

fn remove(files: &Files, path: &Path) -> Result<()> {
    match files.symlink_metadata(path)?.is_dir() {
        true => files.remove_dir_all(path),
        false => files.remove_file(path),
    }
}
