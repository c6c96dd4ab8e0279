//! One layer of an image: where its archive is, and its members once all of it was verified. `oci::Image` makes and
//! applies layers.
//!
//! A compressed layer is verified twice: its blob before anything is read from it, and its uncompressed form, whose
//! digest is the DiffID, while the members are read. Nothing is applied before the last member.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use archive::tar::Members;
use archive::{Input, Member, ReadOptions};
use transfer::Observer;

use super::LAYERS_MAX;
use super::digest::{Digest, Hasher};
use super::document::Descriptor;
use super::store::{Blob, Store, check_digest};
use crate::content::ContentReader;
use crate::error::{Error, Result, shown};

const PLAIN: &[&str] = &[
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];
const COMPRESSED: &[&str] = &[
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
    "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
    "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
];
const READ: &str = "tar, plain or compressed by gzip or zstd, of OCI or Docker";

/// Where the archive of a layer is.
#[derive(Debug, Clone)]
enum Archive {
    Blob(Descriptor),
    /// A path in a Docker archive.
    Path(String),
}

/// A layer of an image.
#[derive(Debug, Clone)]
pub struct Layer {
    archive: Archive,
    index: usize,
    diff_id: Digest,
    /// The blob is the tar archive itself.
    is_plain: bool,
}

impl Layer {
    /// The digest of the uncompressed archive.
    #[must_use]
    pub const fn diff_id(&self) -> &Digest {
        &self.diff_id
    }

    /// The digest of the blob; `None` in a Docker archive.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        match &self.archive {
            Archive::Blob(descriptor) => Some(&descriptor.digest),
            Archive::Path(_) => None,
        }
    }

    /// The media type of the blob; `None` in a Docker archive.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        match &self.archive {
            Archive::Blob(descriptor) => descriptor.media_type.as_deref(),
            Archive::Path(_) => None,
        }
    }

    /// Bytes of the blob; `None` in a Docker archive.
    #[must_use]
    pub const fn size(&self) -> Option<u64> {
        match &self.archive {
            Archive::Blob(descriptor) => Some(descriptor.size),
            Archive::Path(_) => None,
        }
    }

    /// The layer's place, for messages.
    pub(super) fn place(&self, store: &Store) -> String {
        store.place(&format!("layer {}", self.index))
    }

    /// All members of the layer, verified.
    ///
    /// # Errors
    /// [`Error::Mismatch`], [`Error::Archive`]; those of reading, and of `watch`.
    pub(super) fn members(&self, store: &Store, options: &ReadOptions, watch: &dyn Observer) -> Result<Vec<Member>> {
        let place = self.place(store);
        let what = format!("layer {}", self.index);
        let blob = match &self.archive {
            Archive::Path(path) => store.open_path(path, &what)?,
            Archive::Blob(descriptor) => {
                let (blob, digest) = store.open_blob(descriptor, &what)?;
                let found = blob.verify(&[&digest, &self.diff_id], watch)?;
                let [found, plain] = found.as_slice() else { return Ok(Vec::new()) };
                check_digest(&place, "digest", &digest, found)?;
                if self.is_plain {
                    check_digest(&place, "DiffID", &self.diff_id, plain)?;
                }
                blob
            }
        };
        match blob.file.as_ref().filter(|_| self.is_plain) {
            Some(file) => {
                // Contents stay in the file.
                let file = file.try_clone().map_err(Error::host(&place))?;
                let input = Input::file(file).map_err(Error::host(&place))?;
                collect(input, options, &place, watch)
            }
            None => self.members_of_stream(&blob, options, &place, watch),
        }
    }

    fn members_of_stream(
        &self,
        blob: &Blob,
        options: &ReadOptions,
        place: &str,
        watch: &dyn Observer,
    ) -> Result<Vec<Member>> {
        let input = Input::stream(ContentReader::new(Arc::clone(&blob.contents)));
        let plain = archive::decompressed(input).map_err(Error::archive(place))?;
        let hasher = Arc::new(Mutex::new(Some(self.diff_id.hasher())));
        let hashing = Hashing { plain, hasher: Arc::clone(&hasher) };
        let members = collect(Input::stream(hashing), options, place, watch)?;
        let hasher = hasher.lock().unwrap_or_else(PoisonError::into_inner).take();
        let found = hasher
            .map(Hasher::finish)
            .ok_or_else(|| Error::Missing { place: place.to_owned(), what: "the uncompressed archive".into() })?;
        check_digest(place, "DiffID", &self.diff_id, &found)?;
        Ok(members)
    }
}

/// Hashes what passes through.
struct Hashing {
    plain: Box<dyn Read + Send>,
    hasher: Arc<Mutex<Option<Hasher>>>,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("decompressing the layer: {error}"));
        let count = self.plain.read(buffer).map_err(failed)?;
        if let Some(hasher) = &mut *self.hasher.lock().unwrap_or_else(PoisonError::into_inner) {
            hasher.update(buffer.get(..count).unwrap_or_default());
        }
        Ok(count)
    }
}

fn collect(input: Input, options: &ReadOptions, place: &str, watch: &dyn Observer) -> Result<Vec<Member>> {
    let mut archive = Members::new(input, options).map_err(Error::archive(place))?.watched(watch);
    let mut members = Vec::new();
    while let Some(member) = archive.next_member().map_err(Error::archive(place))? {
        members.push(member);
    }
    Ok(members)
}

/// The layers of a manifest.
///
/// # Errors
/// [`Error::Unsupported`] for a media type, [`Error::Missing`] for a layer that is not distributed with the image,
/// [`Error::Mismatch`] for another count of DiffIDs.
pub(super) fn of_manifest(store: &Store, layers: Vec<Descriptor>, diff_ids: Vec<Digest>) -> Result<Vec<Layer>> {
    check_count(store, layers.len(), diff_ids.len())?;
    let layer = |(index, (descriptor, diff_id)): (usize, (Descriptor, Digest))| {
        let media_type = descriptor.media_type.as_deref().unwrap_or_default();
        let is_plain = PLAIN.contains(&media_type);
        let what = format!("layer {index}");
        if !is_plain && !COMPRESSED.contains(&media_type) {
            return Err(Error::Unsupported {
                place: store.place(&what),
                what: "media type",
                expected: READ,
                found: shown(media_type.as_bytes()).trim_matches('`').to_owned(),
            });
        }
        let digest = Digest::parse(&descriptor.digest, &store.place(&what))?;
        let is_foreign = media_type.contains("nondistributable") || media_type.contains("foreign");
        if is_foreign && store.find(&digest.blob_path())?.is_none() {
            let what = format!("{what}, which is not distributed with its image ({media_type}),");
            return Err(Error::Missing { place: store.name().to_owned(), what });
        }
        Ok(Layer { archive: Archive::Blob(descriptor), index, diff_id, is_plain })
    };
    layers.into_iter().zip(diff_ids).enumerate().map(layer).collect()
}

/// The layers of an image in a Docker archive.
///
/// # Errors
/// [`Error::Mismatch`] for another count of DiffIDs.
pub(super) fn of_paths(store: &Store, layers: Vec<String>, diff_ids: Vec<Digest>) -> Result<Vec<Layer>> {
    check_count(store, layers.len(), diff_ids.len())?;
    let layer = |(index, (path, diff_id))| Layer { archive: Archive::Path(path), index, diff_id, is_plain: false };
    Ok(layers.into_iter().zip(diff_ids).enumerate().map(layer).collect())
}

fn check_count(store: &Store, layers: usize, diff_ids: usize) -> Result<()> {
    let place = store.name().to_owned();
    if layers > LAYERS_MAX {
        return Err(Error::Limit { place, what: "layers", limit: 10_000 });
    }
    if layers == diff_ids {
        return Ok(());
    }
    let (expected, found) = (format!("{layers}, one for each layer"), diff_ids.to_string());
    Err(Error::Mismatch { place, what: "count of DiffIDs", expected, found })
}
