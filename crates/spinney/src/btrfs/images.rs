//! Keeps container images in a volume, so that equal layers are there once: each layer is a read-only snapshot of the
//! one below it with its own changes, named by its chain id. A container's root is a writable snapshot of the last one.
//! `spinney image` of the program calls it, on images and on mounts.
//!
//! ```text
//! DIR/layers/sha256-CHAIN_ID   the tree that a layer and those below it make
//! DIR/names/NAME               the record of an image: its configuration and layers, as JSON
//! DIR/roots/PATH               the image that the root at PATH was made of
//! ```
//!
//! A layer gets its name when all of it is there, and an image counts when its record says that it is complete: an
//! import that is killed leaves neither half, but perhaps subvolumes that begin with `.new-`, which
//! [`ImageStore::prune`] deletes.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use layers::oci::{DifferenceOptions, Digest, Image, LayoutWriter, WrittenBlob, WrittenLayer, difference};
use serde::{Deserialize, Serialize};
use transfer::{Observer, Rules, Source, Tree, VolumeSinkOptions, VolumeSource};
use vfs::file_system::{RenameFlags, Time};
use vfs::{Blame, Errno, Error, FileOptions, Result, SnapshotMode};

use super::layers::replay;
use crate::Files;
use crate::source_errors::of_layers;

/// Most bytes of a record, which has a configuration.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of the name of a file.
const NAME_BYTES_MAX: usize = 255;
/// Begins the names of layers that are being made.
const UNFINISHED: &str = ".new-";
/// Layers of one chain id that may be under way at once.
const UNFINISHED_MAX: u32 = 1000;

/// A layer of an image in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLayer {
    /// The digest of the tree that it and the layers below it make.
    pub chain_id: String,
    /// The digest of its uncompressed archive.
    pub diff_id: String,
    /// The blob that it was read from; `None` for an archive of `docker save`.
    pub blob: Option<StoredBlob>,
}

/// The blob of a layer, which is not in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBlob {
    /// Its digest.
    pub digest: String,
    /// Its bytes.
    pub size: u64,
    /// Its media type.
    pub media_type: String,
}

/// An image in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredImage {
    /// Its name.
    pub name: String,
    /// False while it is imported, and after an import that was ended.
    pub is_complete: bool,
    /// The digest of its manifest; `None` for an archive of `docker save`.
    pub manifest: Option<String>,
    /// The layers, the lowest first.
    pub layers: Vec<StoredLayer>,
    /// The configuration as it stood in the image.
    pub config: serde_json::Value,
}

/// The image that a root was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Its path from the root of the volume.
    pub path: PathBuf,
    /// The name of the image.
    pub image: String,
}

/// The result of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Layers of the image.
    pub layers: usize,
    /// Those that were there before.
    pub shared: usize,
}

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The digest of the manifest.
    pub manifest: Digest,
    /// Layers of the image.
    pub layers: usize,
    /// Those whose blobs were there before.
    pub known: usize,
    /// Whether the root had changes, which are the last layer.
    pub has_changes: bool,
}

/// A name that no image in the store has, or an image that cannot be used so.
///
/// To do: `spinney image list` shows the images; import the image, or choose another name.
#[derive(Debug, thiserror::Error)]
enum StoreError {
    /// There is no such image.
    #[error("image {0:?}: expected an image of the store, found none of that name")]
    Unknown(String),
    /// An image of this name is there.
    #[error("image {0:?}: expected a new name, found an image of that name")]
    Exists(String),
    /// An import ended before the image was whole.
    #[error("image {0:?}: expected a whole image, found one whose import was ended or still runs")]
    Incomplete(String),
    /// The image has no layers.
    #[error("image {0:?}: expected one layer or more, found none")]
    NoLayers(String),
    /// Roots were made of the image.
    #[error("image {name:?}: expected no roots of it, found {}", root.display())]
    InUse { name: String, root: PathBuf },
    /// A root would lie in the directory of the store.
    #[error("{}: expected a path outside of {}, the directory of the store", path.display(), dir.display())]
    Inside { path: PathBuf, dir: PathBuf },
    /// The name cannot be that of a file.
    #[error("name of an image: expected 1 to 255 bytes after escaping, found {0}")]
    Name(usize),
    /// The root is not in the list of roots.
    #[error("{}: expected a root that `image fork` has made, found none of that path", .0.display())]
    NotARoot(PathBuf),
    /// A record is damaged.
    #[error("{}: expected the record of an image, found other JSON: {cause}", path.display())]
    Record { path: PathBuf, cause: serde_json::Error },
    /// A record says something impossible.
    #[error("{}: expected {expected}, found {found:?}", path.display())]
    Field { path: PathBuf, expected: &'static str, found: String },
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let (errno, blame) = match &error {
            StoreError::Unknown(_) | StoreError::NotARoot(_) => (Errno::ENOENT, Blame::Caller),
            StoreError::Exists(_) => (Errno::EEXIST, Blame::Caller),
            StoreError::InUse { .. } => (Errno::EBUSY, Blame::Caller),
            StoreError::Record { .. } | StoreError::Field { .. } => (Errno::EIO, Blame::Image),
            StoreError::Incomplete(_) | StoreError::NoLayers(_) | StoreError::Name(_) | StoreError::Inside { .. } => {
                (Errno::EINVAL, Blame::Caller)
            }
        };
        Self::new(errno, blame, error)
    }
}

/// The images in a directory of a btrfs volume.
#[derive(Debug, Clone)]
pub struct ImageStore {
    files: Files,
    dir: PathBuf,
}

impl ImageStore {
    /// The store in the directory `dir`, which the first import makes.
    #[must_use]
    pub fn new(files: Files, dir: impl Into<PathBuf>) -> Self {
        Self { files, dir: dir.into() }
    }

    /// Imports an image; `copy` says what its files get. Layers that the store has are not copied again; all of them
    /// are verified.
    ///
    /// # Errors
    /// `EEXIST` for a name that is taken, unless by an import that has not ended; of two such imports the last one
    /// stays. Those of the image and of the volume.
    pub fn import(
        &self,
        image: &Image,
        name: &str,
        copy: (&Rules, VolumeSinkOptions),
        watch: &dyn Observer,
    ) -> Result<Imported> {
        let path = self.record_path(name)?;
        if self.files.exists(&path)? && self.read_record(&path).is_ok_and(|there| there.is_complete) {
            return Err(StoreError::Exists(name.to_owned()).into());
        }
        for sub in ["layers", "names", "roots"] {
            self.files.create_dir_all(self.dir.join(sub))?;
        }
        let mut record = record_of(image, name)?;
        self.write_record(&path, &record)?;
        let mut tree = Tree::new(Time::default());
        let mut imported = Imported { layers: record.layers.len(), shared: 0 };
        let mut below: Option<PathBuf> = None;
        for (index, chain_id) in image.chain_ids().iter().enumerate() {
            let changes = image.apply_layer(&mut tree, index, watch).map_err(of_layers)?;
            let layer = self.layer_dir(chain_id);
            if self.files.exists(&layer)? {
                imported.shared += 1;
            } else {
                self.make_layer(&layer, below.as_deref(), |dir| {
                    replay(&self.files, dir, (&tree, &changes), copy, watch)
                })?;
            }
            below = Some(layer);
        }
        record.is_complete = true;
        self.write_record(&path, &record)?;
        self.files.sync()?;
        Ok(imported)
    }

    /// All images, in the order of their names.
    ///
    /// # Errors
    /// `EIO` for a damaged record; those of the volume.
    pub fn list(&self) -> Result<Vec<StoredImage>> {
        let records = self.names_in("names")?;
        records.iter().map(|name| self.read_record(&self.dir.join("names").join(name))).collect()
    }

    /// The image with a name.
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` for one whose import was ended; as [`Self::list`].
    pub fn find(&self, name: &str) -> Result<StoredImage> {
        let image = self.read_record(&self.known_path(name)?)?;
        if image.is_complete { Ok(image) } else { Err(StoreError::Incomplete(name.to_owned()).into()) }
    }

    /// The subvolume with the tree of an image; nothing may change it.
    ///
    /// # Errors
    /// `EINVAL` for an image without layers, `EIO` for a record that names no layer.
    pub fn tree_of(&self, image: &StoredImage) -> Result<PathBuf> {
        let layer = image.layers.last().ok_or_else(|| StoreError::NoLayers(image.name.clone()))?;
        self.stored_dir(layer)
    }

    /// Makes a root of an image at `target`: a snapshot, whatever the size of the image.
    ///
    /// # Errors
    /// As [`Self::find`] and [`Files::snapshot`].
    pub fn fork(&self, name: &str, target: &Path, mode: SnapshotMode) -> Result<()> {
        let tree = self.tree_of(&self.find(name)?)?;
        if plain(target).starts_with(plain(&self.dir)) {
            return Err(StoreError::Inside { path: target.to_owned(), dir: self.dir.clone() }.into());
        }
        self.files.snapshot(tree, target, mode)?;
        let root = Root { path: target.to_owned(), image: name.to_owned() };
        let text = serde_json::to_vec(&root).map_err(|_| Error::from(Errno::EINVAL))?;
        self.files.write(self.root_path(target)?, text)
    }

    /// The roots that are still there.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn roots(&self) -> Result<Vec<Root>> {
        let mut roots = Vec::new();
        for name in self.names_in("roots")? {
            let root = self.read_root(&self.dir.join("roots").join(name))?;
            if self.files.exists(&root.path)? {
                roots.push(root);
            }
        }
        Ok(roots)
    }

    /// The image that the root at `path` was made of.
    ///
    /// # Errors
    /// `ENOENT` if it is no such root; as [`Self::list`].
    pub fn image_of(&self, path: &Path) -> Result<StoredImage> {
        let found = self.roots()?.into_iter().find(|root| plain(&root.path) == plain(path));
        self.find(&found.ok_or_else(|| StoreError::NotARoot(path.to_owned()))?.image)
    }

    /// Removes an image, and the layers that no other image has. Returns the number of these.
    ///
    /// # Errors
    /// `EBUSY` while there are roots of it, unless `with_roots`: they stay whole, but cannot be exported any more.
    pub fn remove(&self, name: &str, with_roots: bool) -> Result<usize> {
        let path = self.known_path(name)?;
        if !with_roots && let Some(root) = self.roots()?.into_iter().find(|root| root.image == name) {
            return Err(StoreError::InUse { name: name.to_owned(), root: root.path }.into());
        }
        self.files.remove_file(&path)?;
        self.remove_layers(|name| !name.starts_with(UNFINISHED))
    }

    /// Removes what ended imports left: their records, their layers, and layers that no image has. No import may run
    /// meanwhile. Returns the number of layers.
    ///
    /// # Errors
    /// As [`Self::list`], and those of the volume.
    pub fn prune(&self) -> Result<usize> {
        for name in self.names_in("names")? {
            let path = self.dir.join("names").join(name);
            // A power cut can leave a record without contents.
            if self.read_record(&path).map_or_else(|error| error.blame() == Blame::Image, |image| !image.is_complete) {
                self.files.remove_file(&path)?;
            }
        }
        for name in self.names_in("roots")? {
            let path = self.dir.join("roots").join(name);
            let is_there = match self.read_root(&path) {
                Ok(root) => self.files.exists(&root.path).unwrap_or(true),
                Err(error) => error.blame() != Blame::Image,
            };
            if !is_there {
                self.files.remove_file(&path)?;
            }
        }
        self.remove_layers(|_| true)
    }

    /// Writes the root at `root`, made of the image `base`, as an image: the layers of `base`, and its changes as one
    /// more, into the OCI image layout in the directory `layout`, which is made if it is not there. `created` is the
    /// time in the configuration (RFC 3339). The layers of `base` whose blobs the layout has are taken from it; the
    /// others are written anew, with the same trees and other digests.
    ///
    /// # Errors
    /// Those of the volume, of what an archive cannot have, and of the layout.
    pub fn export(
        &self,
        (root, base): (&Path, &StoredImage),
        (layout, tag): (&Path, Option<&str>),
        created: &str,
        watch: &dyn Observer,
    ) -> Result<Exported> {
        let layout = LayoutWriter::open(layout).map_err(of_layers)?;
        let mut written: Vec<WrittenLayer> = Vec::with_capacity(base.layers.len() + 1);
        let mut known = 0;
        let mut below: Option<PathBuf> = None;
        for layer in &base.layers {
            let dir = self.stored_dir(layer)?;
            let there = known_layer(&layout, layer);
            known += usize::from(there.is_some());
            written.push(match there {
                Some(there) => there,
                None => self.write_layer(&layout, below.as_deref(), &dir, watch)?.0,
            });
            below = Some(dir);
        }
        let (last, has_changes) = self.write_layer(&layout, below.as_deref(), root, watch)?;
        let mut config = base.config.clone();
        if has_changes {
            written.push(last);
            note_history(&mut config, created);
        }
        let manifest = layout.finish(config, &written, tag).map_err(of_layers)?;
        Ok(Exported { manifest, layers: written.len(), known, has_changes })
    }

    /// Writes the layer that makes `new` of `below`, or of nothing. False if it has no members.
    fn write_layer(
        &self,
        layout: &LayoutWriter,
        below: Option<&Path>,
        new: &Path,
        watch: &dyn Observer,
    ) -> Result<(WrittenLayer, bool)> {
        let mut has_members = false;
        let mut write = |out: &mut dyn Write| -> layers::Result<()> {
            let new = VolumeSource::new(&self.files, new);
            let written = match below {
                None => changes(&Tree::new(Time::default()), &new, out, watch)?,
                Some(below) => changes(&VolumeSource::new(&self.files, below), &new, out, watch)?,
            };
            has_members = written != layers::oci::Written::default();
            Ok(())
        };
        let layer = layout.layer(&mut write).map_err(of_layers)?;
        Ok((layer, has_members))
    }

    /// Makes a layer under another name, has `fill` fill it, and gives it its name.
    fn make_layer(&self, layer: &Path, below: Option<&Path>, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let unfinished = self.begin_layer(layer, below)?;
        let sealed = fill(&unfinished).and_then(|()| {
            self.files.set_subvolume_mode(&unfinished, SnapshotMode::ReadOnly)?;
            self.files.rename_with(&unfinished, layer, RenameFlags::NO_REPLACE)
        });
        let Err(error) = sealed else { return Ok(()) };
        let deleted = self.files.delete_subvolume(&unfinished);
        // Another import made the layer meanwhile.
        if error.errno() == Errno::EEXIST { deleted } else { Err(error) }
    }

    fn begin_layer(&self, layer: &Path, below: Option<&Path>) -> Result<PathBuf> {
        let name = layer.file_name().unwrap_or_default().to_string_lossy();
        let begin = |path: &Path| match below {
            None => self.files.create_subvolume(path),
            Some(below) => self.files.snapshot(below, path, SnapshotMode::ReadWrite),
        };
        let dir = self.dir.join("layers");
        Ok(first_free(|number| dir.join(format!("{UNFINISHED}{number}-{name}")), begin)?.0)
    }

    /// Removes the layers that no image has and whose names are `wanted`.
    fn remove_layers(&self, wanted: impl Fn(&str) -> bool) -> Result<usize> {
        let used: BTreeSet<String> = self
            .list()?
            .into_iter()
            .flat_map(|image| image.layers)
            .map(|layer| layer.chain_id.replace(':', "-"))
            .collect();
        let mut removed = 0;
        for name in self.names_in("layers")? {
            if !used.contains(&name) && wanted(&name) {
                self.files.delete_subvolume(self.dir.join("layers").join(name))?;
                removed += 1;
            }
        }
        self.files.sync()?;
        Ok(removed)
    }

    fn layer_dir(&self, chain_id: &Digest) -> PathBuf {
        self.dir.join("layers").join(chain_id.file_name())
    }

    /// The subvolume of a layer in a record, which may say anything.
    fn stored_dir(&self, layer: &StoredLayer) -> Result<PathBuf> {
        let digest = Digest::parse(&layer.chain_id, "chain id").map_err(of_layers)?;
        Ok(self.layer_dir(&digest))
    }

    fn record_path(&self, name: &str) -> Result<PathBuf> {
        Ok(self.dir.join("names").join(file_name(name.as_bytes())?))
    }

    /// The path of a record that is there.
    fn known_path(&self, name: &str) -> Result<PathBuf> {
        let path = self.record_path(name)?;
        if self.files.exists(&path)? { Ok(path) } else { Err(StoreError::Unknown(name.to_owned()).into()) }
    }

    fn root_path(&self, root: &Path) -> Result<PathBuf> {
        Ok(self.dir.join("roots").join(file_name(plain(root).as_os_str().as_encoded_bytes())?))
    }

    fn names_in(&self, sub: &str) -> Result<Vec<String>> {
        let dir = self.dir.join(sub);
        if !self.files.exists(&dir)? {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for entry in self.files.read_dir(&dir)? {
            let entry = entry?;
            // Other things there are not of the store.
            let kind = entry.file_type();
            if if sub == "layers" { kind.is_dir() } else { kind.is_file() } {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn read_bounded(&self, path: &Path) -> Result<Vec<u8>> {
        let len = self.files.metadata(path)?.size;
        if len > RECORD_BYTES_MAX {
            let expected = "at most 16 MiB";
            return Err(StoreError::Field { path: path.to_owned(), expected, found: format!("{len} bytes") }.into());
        }
        self.files.read(path)
    }

    fn read_root(&self, path: &Path) -> Result<Root> {
        let wrong = |cause| StoreError::Record { path: path.to_owned(), cause };
        Ok(serde_json::from_slice(&self.read_bounded(path)?).map_err(wrong)?)
    }

    fn read_record(&self, path: &Path) -> Result<StoredImage> {
        let bytes = self.read_bounded(path)?;
        let image: StoredImage =
            serde_json::from_slice(&bytes).map_err(|cause| StoreError::Record { path: path.to_owned(), cause })?;
        let own = file_name(image.name.as_bytes())?;
        if path.file_name().is_none_or(|name| name.as_encoded_bytes() != own.as_bytes()) {
            let expected = "the record of the image whose name the file has";
            return Err(StoreError::Field { path: path.to_owned(), expected, found: image.name }.into());
        }
        Ok(image)
    }

    /// Replaces a record at once.
    fn write_record(&self, path: &Path, image: &StoredImage) -> Result<()> {
        let text = serde_json::to_vec(image).map_err(|_| Error::from(Errno::EINVAL))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Imports at the same time have files of their own.
        let make = |path: &Path| FileOptions::new().write(true).create_new(true).open(&self.files, path);
        let (unfinished, file) = first_free(|number| self.dir.join(format!("{name}.new{number}")), make)?;
        file.write_at(&text, 0)?;
        file.sync_all()?;
        drop(file);
        self.files.rename(unfinished, path)
    }
}

/// Makes the first thing whose name is free, and returns its path, too.
fn first_free<T>(path: impl Fn(u32) -> PathBuf, make: impl Fn(&Path) -> Result<T>) -> Result<(PathBuf, T)> {
    let mut number = 0;
    loop {
        let path = path(number);
        match make(&path) {
            Err(error) if error.errno() == Errno::EEXIST && number + 1 < UNFINISHED_MAX => number += 1,
            made => return Ok((path, made?)),
        }
    }
}

fn record_of(image: &Image, name: &str) -> Result<StoredImage> {
    let stored = |(layer, chain_id): (&layers::oci::Layer, &Digest)| StoredLayer {
        chain_id: chain_id.to_string(),
        diff_id: layer.diff_id().to_string(),
        blob: blob_of(layer),
    };
    let layers: Vec<StoredLayer> = image.layers().iter().zip(&image.chain_ids()).map(stored).collect();
    if layers.is_empty() {
        return Err(StoreError::NoLayers(name.to_owned()).into());
    }
    let wrong = |cause| StoreError::Record { path: PathBuf::from(name), cause };
    let config = serde_json::from_slice(image.config_json()).map_err(wrong)?;
    let manifest = image.digest().map(Digest::to_string);
    Ok(StoredImage { name: name.to_owned(), is_complete: false, manifest, layers, config })
}

fn blob_of(layer: &layers::oci::Layer) -> Option<StoredBlob> {
    let (digest, size, media_type) = (layer.digest()?.to_owned(), layer.size()?, layer.media_type()?.to_owned());
    Some(StoredBlob { digest, size, media_type })
}

/// The layer as a blob that the layout has.
fn known_layer(layout: &LayoutWriter, layer: &StoredLayer) -> Option<WrittenLayer> {
    let parse = |text: &str| Digest::parse(text, "layer").ok();
    let StoredBlob { digest, size, media_type } = layer.blob.as_ref()?;
    let blob = WrittenBlob { digest: parse(digest)?, size: *size, media_type: media_type.clone() };
    layout.has(&blob).then_some(WrittenLayer { blob, diff_id: parse(&layer.diff_id)? })
}

fn changes(
    old: &impl Source,
    new: &impl Source,
    out: &mut dyn Write,
    watch: &dyn Observer,
) -> layers::Result<layers::oci::Written> {
    difference(old, new, out, &DifferenceOptions::default(), watch)
}

/// Adds a line to the history of a configuration, and says when it was made.
fn note_history(config: &mut serde_json::Value, created: &str) {
    let Some(fields) = config.as_object_mut() else { return };
    fields.insert("created".to_owned(), created.into());
    let history = fields.entry("history").or_insert_with(|| serde_json::json!([]));
    if let Some(lines) = history.as_array_mut() {
        lines.push(serde_json::json!({ "created": created, "created_by": "spinney image export" }));
    }
}

/// The path without slashes at its ends.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect()
}

/// A name as that of a file: other bytes than letters, digits, `_`, `-`, `:`, `@`, `+` and dots behind the first byte
/// become `%XX`.
fn file_name(name: &[u8]) -> Result<String> {
    let mut text = String::with_capacity(name.len());
    for (at, byte) in name.iter().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || b"_-:@+".contains(byte) || (*byte == b'.' && at > 0);
        match is_plain {
            true => text.push(char::from(*byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    if text.is_empty() || text.len() > NAME_BYTES_MAX - ".new1000".len() {
        return Err(StoreError::Name(text.len()).into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        assert_eq!(file_name(b"docker.io/library/debian:12").unwrap(), "docker.io%2Flibrary%2Fdebian:12");
        assert_eq!(file_name(b"..").unwrap(), "%2E.");
        assert_eq!(file_name("ä\0".as_bytes()).unwrap(), "%C3%A4%00");
        assert!(file_name(b"").is_err());
        assert!(file_name(&[b'x'; 248]).is_err());
    }
}
