//! Opens the files of an image: those of a layout's directory, or the members of an archive. Verifies blobs and parses
//! JSON. `oci` and its parts read images through it.
//!
//! Invariants: a blob's bytes count only when size and digest are those of its descriptor; a document has a limit of
//! size and of nesting. Symbolic links in a layout's directory are followed, since some tools make layouts of links
//! into a cache, but only to regular files. Members of an archive never lead out of it.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use archive::{Input, ReadOptions};
use serde::de::DeserializeOwned;
use transfer::{Contents, HostContents, Observer, Tree};
use vfs::file_system::Time;

use super::digest::Digest;
use super::document::Descriptor;
use super::place::{Place, Storage};
use crate::content::ContentReader;
use crate::error::{Error, Result};
use crate::number::to_u64;

/// Most bytes of a JSON document.
pub const JSON_BYTES_MAX: u64 = 8 << 20;
/// Most symbolic links from one member of an archive to another.
const LINKS_MAX: usize = 8;
/// Bytes that are hashed at once.
const PIECE_BYTES: usize = 128 << 10;

enum Files {
    Dir(PathBuf),
    Archive(Tree),
}

/// The files of an image.
pub(super) struct Store {
    files: Files,
    /// The image's place, for messages.
    name: String,
}

/// An open file of an image.
pub(super) struct Blob {
    pub(super) contents: Arc<dyn Contents + Send + Sync>,
    /// The file of the host that it is, if it is one by itself.
    pub(super) file: Option<File>,
    /// Bytes.
    pub(super) size: u64,
    /// For messages.
    pub(super) place: String,
}

impl Store {
    /// Opens the directory or archive. An archive is read through once.
    ///
    /// # Errors
    /// Those of the host and of the archive.
    pub(super) fn open(place: &Place, options: &ReadOptions, watch: &dyn Observer) -> Result<Self> {
        let name = Place { tag: None, ..place.clone() }.to_string();
        if place.storage == Storage::Layout {
            return Ok(Self { files: Files::Dir(place.path.clone()), name });
        }
        let file = open_file(&place.path).map_err(Error::host(&place.path))?;
        let input = Input::file(file).map_err(Error::host(&place.path))?;
        let mut tree = Tree::new(Time::default());
        archive::read_into(&mut tree, input, options, watch).map_err(Error::archive(&name))?;
        Ok(Self { files: Files::Archive(tree), name })
    }

    /// The place of a file, for messages.
    pub(super) fn place(&self, path: &str) -> String {
        format!("{}: {path}", self.name)
    }

    /// The image's place, for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Opens a file. `None` if it is not there.
    ///
    /// # Errors
    /// Those of the host; it is no regular file.
    pub(super) fn find(&self, path: &str) -> Result<Option<Blob>> {
        let place = self.place(path);
        let tree = match &self.files {
            Files::Archive(tree) => tree,
            Files::Dir(dir) => {
                let path = dir.join(path);
                let file = match open_file(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                    file => file.map_err(Error::host(&path))?,
                };
                let found = file.metadata().map_err(Error::host(&path))?;
                if !found.is_file() {
                    return Err(not_a_file(place));
                }
                let contents = HostContents::from(file.try_clone().map_err(Error::host(&path))?);
                return Ok(Some(Blob { contents: Arc::new(contents), file: Some(file), size: found.len(), place }));
            }
        };
        let mut path = PathBuf::from(path);
        for _ in 0..=LINKS_MAX {
            let Some(number) = tree.find(&path)? else { return Ok(None) };
            let node = tree.node(number);
            if let Some(target) = node.target.as_deref().filter(|_| node.attr.is_symlink()) {
                use portable::OsStrExt as _;
                path = path.parent().unwrap_or(Path::new("")).join(std::ffi::OsStr::from_bytes(target));
                continue;
            }
            if !node.attr.is_file() {
                return Err(not_a_file(place));
            }
            let contents: Arc<dyn Contents + Send + Sync> = match &node.contents {
                Some(stored) => stored.open()?.into(),
                None => Arc::new(crate::content::Bytes(Arc::default())),
            };
            return Ok(Some(Blob { contents, file: None, size: node.attr.size, place }));
        }
        Err(not_a_file(place))
    }

    /// Opens a file that has to be there.
    ///
    /// # Errors
    /// [`Error::Missing`]; see [`Store::find`].
    pub(super) fn open_path(&self, path: &str, what: &str) -> Result<Blob> {
        let missing = || Error::Missing { place: self.name.clone(), what: format!("{what} ({path})") };
        self.find(path)?.ok_or_else(missing)
    }

    /// Opens the blob of a descriptor. Its size is verified, its digest is not yet.
    ///
    /// # Errors
    /// [`Error::Mismatch`]; see [`Store::open_path`].
    pub(super) fn open_blob(&self, descriptor: &Descriptor, what: &str) -> Result<(Blob, Digest)> {
        let digest = Digest::parse(&descriptor.digest, &self.place(what))?;
        let blob = self.open_path(&digest.blob_path(), what)?;
        if blob.size != descriptor.size {
            return Err(Error::Mismatch {
                place: blob.place,
                what: "size",
                expected: format!("{} bytes", descriptor.size),
                found: format!("{} bytes", blob.size),
            });
        }
        Ok((blob, digest))
    }

    /// Reads the document that a descriptor refers to, and verifies it. Returns its bytes, too.
    ///
    /// # Errors
    /// [`Error::Mismatch`], [`Error::Json`], [`Error::Limit`]; see [`Store::open_path`].
    pub(super) fn document<D: DeserializeOwned>(
        &self,
        descriptor: &Descriptor,
        what: &'static str,
    ) -> Result<(D, Vec<u8>)> {
        let (blob, digest) = self.open_blob(descriptor, what)?;
        let bytes = blob.read_json()?;
        check_digest(&blob.place, "digest", &digest, &digest.of(&bytes))?;
        Ok((blob.parse(&bytes, what)?, bytes))
    }
}

impl Blob {
    /// Reads a document whole.
    ///
    /// # Errors
    /// [`Error::Limit`]; those of reading.
    pub(super) fn read_json(&self) -> Result<Vec<u8>> {
        let (place, what, limit) = (self.place.clone(), "bytes of a JSON document", JSON_BYTES_MAX);
        if self.size > limit {
            return Err(Error::Limit { place, what, limit });
        }
        let mut bytes = Vec::new();
        let reader = ContentReader::new(Arc::clone(&self.contents));
        reader.take(limit).read_to_end(&mut bytes).map_err(Error::host(&self.place))?;
        Ok(bytes)
    }

    /// Parses a document.
    ///
    /// # Errors
    /// [`Error::Json`].
    pub(super) fn parse<D: DeserializeOwned>(&self, bytes: &[u8], expected: &'static str) -> Result<D> {
        serde_json::from_slice(bytes).map_err(|cause| Error::Json { place: self.place.clone(), expected, cause })
    }

    /// Reads all bytes, whose count has to be the size, and returns their digests by the algorithms of `digests`.
    ///
    /// # Errors
    /// [`Error::Mismatch`]; those of reading, and of `watch`.
    pub(super) fn verify(&self, digests: &[&Digest], watch: &dyn Observer) -> Result<Vec<Digest>> {
        let mut hashers: Vec<_> = digests.iter().map(|digest| digest.hasher()).collect();
        let mut reader = ContentReader::new(Arc::clone(&self.contents));
        let (mut buffer, mut count) = (vec![0; PIECE_BYTES], 0_u64);
        loop {
            watch.check()?;
            let read = match reader.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(Error::host(&self.place))?,
            };
            let part = buffer.get(..read).unwrap_or_default();
            hashers.iter_mut().for_each(|hasher| hasher.update(part));
            count = count.saturating_add(to_u64(read));
            if read == 0 || count > self.size {
                break;
            }
        }
        if count != self.size {
            return Err(Error::Mismatch {
                place: self.place.clone(),
                what: "size",
                expected: format!("{} bytes", self.size),
                found: if count > self.size { "more".into() } else { format!("{count} bytes") },
            });
        }
        Ok(hashers.into_iter().map(super::digest::Hasher::finish).collect())
    }
}

/// Fails unless the digests are the same.
///
/// # Errors
/// [`Error::Mismatch`].
pub(super) fn check_digest(place: &str, what: &'static str, expected: &Digest, found: &Digest) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(Error::Mismatch { place: place.to_owned(), what, expected, found })
}

fn not_a_file(place: String) -> Error {
    Error::Mismatch { place, what: "kind", expected: "a regular file".into(), found: "something else".into() }
}

/// Opens a file without waiting for the other end of a pipe.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default());
    }
    options.open(path)
}

/// Digests of documents that were read, so that none is read twice.
pub(super) type Seen = HashSet<String>;
