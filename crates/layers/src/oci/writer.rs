//! Writes images into an OCI image layout, a directory on the host. `image export` of the program calls it.
//!
//! A blob gets its name when all of it is written, and `index.json` is replaced last: a writer that is killed leaves
//! the images that were there before, and perhaps blobs that none of them names. Two writers at once lose neither blobs
//! nor the layout, but one of the two images.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::digest::{Digest, Hasher};
use super::store::JSON_BYTES_MAX;
use crate::error::{Error, Result, shown};

const VERSION_FILE: &str = "oci-layout";
const INDEX_FILE: &str = "index.json";
const BLOBS_DIR: &str = "blobs/sha256";
const VERSION: &str = "1.0.0";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// The annotation that is a tag.
const TAG: &str = "org.opencontainers.image.ref.name";
/// Compresses nearly as well as the highest level, in a fraction of its time.
const LEVEL: u32 = 6;

/// A blob of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenBlob {
    /// Its digest.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// Its media type.
    pub media_type: String,
}

/// A layer of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenLayer {
    /// The compressed archive.
    pub blob: WrittenBlob,
    /// The digest of the archive before compression.
    pub diff_id: Digest,
}

impl WrittenBlob {
    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest.to_string(), "size": self.size })
    }
}

/// An OCI image layout that gets a further image.
#[derive(Debug)]
pub struct LayoutWriter {
    dir: PathBuf,
    index: Value,
}

impl LayoutWriter {
    /// Opens the layout in `dir`, or makes one there.
    ///
    /// # Errors
    /// `Host`; `Rule` for a directory with other files; `Json` for an index that is none.
    pub fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|cause| host(dir, cause))?;
        let version = dir.join(VERSION_FILE);
        let is_new = !version.try_exists().map_err(|cause| host(&version, cause))?;
        let mut names = fs::read_dir(dir).map_err(|cause| host(dir, cause))?;
        if is_new && names.next().is_some() {
            let found = format!("{} with other files", dir.display());
            return Err(Error::rule("directory", "an empty one, or an OCI image layout", found));
        }
        let blobs = dir.join(BLOBS_DIR);
        fs::create_dir_all(&blobs).map_err(|cause| host(&blobs, cause))?;
        let index = if is_new { json!({}) } else { read_index(dir)? };
        if is_new {
            let text = json!({ "imageLayoutVersion": VERSION }).to_string();
            replace(dir, VERSION_FILE, text.as_bytes())?;
        }
        Ok(Self { dir: dir.to_owned(), index })
    }

    /// True if the layout has a blob whole, by its size; its digest is not computed again.
    #[must_use]
    pub fn has(&self, blob: &WrittenBlob) -> bool {
        let found = fs::metadata(self.dir.join(blob.digest.blob_path()));
        found.is_ok_and(|found| found.is_file() && found.len() == blob.size)
    }

    /// Writes a layer; `write` gives its uncompressed archive.
    ///
    /// # Errors
    /// `Host`, and those of `write`.
    pub fn layer<E: From<Error>>(
        &self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<WrittenLayer, E> {
        let blobs = self.dir.join(BLOBS_DIR);
        let mut file = NamedTempFile::new_in(&blobs).map_err(|cause| host(&blobs, cause))?;
        let mut packed = Hashed::new(BufWriter::new(file.as_file_mut()));
        let mut plain = Hashed::new(GzEncoder::new(&mut packed, Compression::new(LEVEL)));
        write(&mut plain)?;
        let (encoder, diff_id, _) = plain.finish();
        encoder.finish().map_err(|cause| host(&blobs, cause))?;
        let (mut out, digest, size) = packed.finish();
        out.flush().map_err(|cause| host(&blobs, cause))?;
        drop(out);
        let blob = WrittenBlob { digest, size, media_type: LAYER_TYPE.to_owned() };
        self.name_blob(file, &blob)?;
        Ok(WrittenLayer { blob, diff_id })
    }

    /// Writes configuration and manifest of the image with these layers, the lowest first, and adds it to the index; it
    /// replaces one with the same tag. The configuration gets the layers' digests. Returns the digest of the manifest.
    ///
    /// # Errors
    /// `Host`; `Rule` for a configuration that is no JSON object.
    pub fn finish(mut self, mut config: Value, layers: &[WrittenLayer], tag: Option<&str>) -> Result<Digest> {
        let Value::Object(fields) = &mut config else {
            return Err(Error::rule("configuration", "a JSON object", shown(config.to_string().as_bytes())));
        };
        let diff_ids: Vec<String> = layers.iter().map(|layer| layer.diff_id.to_string()).collect();
        let platform: BTreeMap<&str, Value> = ["os", "architecture", "variant"]
            .into_iter()
            .filter_map(|name| Some((name, fields.get(name)?.clone())))
            .collect();
        fields.insert("rootfs".to_owned(), json!({ "type": "layers", "diff_ids": diff_ids }));
        let config = self.document(&config, CONFIG_TYPE)?;
        let blobs: Vec<Value> = layers.iter().map(|layer| layer.blob.descriptor()).collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config.descriptor(), "layers": blobs,
        });
        let manifest = self.document(&manifest, MANIFEST_TYPE)?;
        let mut entry = manifest.descriptor();
        entry["platform"] = json!(platform);
        if let Some(tag) = tag {
            entry["annotations"] = json!({ TAG: tag });
        }
        let mut entries = self.index["manifests"].as_array().cloned().unwrap_or_default();
        entries.retain(|old| tag.is_none() || old["annotations"][TAG].as_str() != tag);
        entries.push(entry);
        self.index["schemaVersion"] = json!(2);
        self.index["mediaType"] = json!(INDEX_TYPE);
        self.index["manifests"] = Value::Array(entries);
        replace(&self.dir, INDEX_FILE, self.index.to_string().as_bytes())?;
        Ok(manifest.digest)
    }

    fn document(&self, value: &Value, media_type: &str) -> Result<WrittenBlob> {
        let blobs = self.dir.join(BLOBS_DIR);
        let bytes = value.to_string();
        let mut file = NamedTempFile::new_in(&blobs).map_err(|cause| host(&blobs, cause))?;
        let mut out = Hashed::new(file.as_file_mut());
        out.write_all(bytes.as_bytes()).map_err(|cause| host(&blobs, cause))?;
        let (_, digest, size) = out.finish();
        let blob = WrittenBlob { digest, size, media_type: media_type.to_owned() };
        self.name_blob(file, &blob)?;
        Ok(blob)
    }

    fn name_blob(&self, file: NamedTempFile, blob: &WrittenBlob) -> Result<()> {
        publish(file, &self.dir.join(blob.digest.blob_path()))
    }
}

/// Gives a finished file its name, readable for all.
fn publish(file: NamedTempFile, path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let readable = fs::Permissions::from_mode(0o644);
        file.as_file().set_permissions(readable).map_err(|cause| host(path, cause))?;
    }
    file.as_file().sync_all().map_err(|cause| host(path, cause))?;
    file.persist(path).map_err(|failed| host(path, failed.error))?;
    Ok(())
}

fn replace(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let mut file = NamedTempFile::new_in(dir).map_err(|cause| host(dir, cause))?;
    file.write_all(bytes).map_err(|cause| host(dir, cause))?;
    publish(file, &dir.join(name))
}

fn read_index(dir: &Path) -> Result<Value> {
    let path = dir.join(INDEX_FILE);
    let mut bytes = Vec::new();
    let file = match File::open(&path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(json!({})),
        opened => opened.map_err(|cause| host(&path, cause))?,
    };
    file.take(JSON_BYTES_MAX).read_to_end(&mut bytes).map_err(|cause| host(&path, cause))?;
    let wrong = |cause| Error::Json { place: path.display().to_string(), expected: "an image index", cause };
    let index: Value = serde_json::from_slice(&bytes).map_err(wrong)?;
    match index.is_object() {
        true => Ok(index),
        false => Err(Error::rule("image index", "a JSON object", shown(&bytes))),
    }
}

fn host(path: &Path, cause: io::Error) -> Error {
    Error::Host { path: path.to_owned(), cause }
}

/// Computes the digest of all that is written through it, and counts the bytes.
struct Hashed<W> {
    inner: W,
    hasher: Hasher,
    size: u64,
}

impl<W> Hashed<W> {
    fn new(inner: W) -> Self {
        Self { inner, hasher: Hasher::sha256(), size: 0 }
    }

    fn finish(self) -> (W, Digest, u64) {
        (self.inner, self.hasher.finish(), self.size)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        let done = bytes.get(..count).unwrap_or(bytes);
        self.hasher.update(done);
        self.size = self.size.saturating_add(u64::try_from(done.len()).unwrap_or(u64::MAX));
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
