//! Reads container images and applies their layers to a tree, without root and without a container engine.
//!
//! ```text
//!  Place --> Store (directory or archive) --> index, by tag and platform --> manifest --> configuration
//!                                                                               |
//!                                    Tree <--whiteouts, members-- layer <-------+
//! ```
//!
//! Read are OCI image layouts, in a directory or an archive, and what `docker save` writes. Layers are tar, plain or
//! compressed.
//!
//! Invariants
//! * A blob counts only with the size and the digest of its descriptor, a layer only with its DiffID. A tree is not
//!   changed by a layer before all of the layer was verified.
//! * A whiteout hides only what lower layers have, wherever it stands in the archive of its layer; names that begin
//!   with `.wh.` never become files.
//! * Owners, modes, devices and attributes are those of the layer. Nothing is made on the host, so none needs root.
//!
//! Failure: [`crate::Error`] names the blob or layer. Callers: `mkfs`, `put` and the making of snapshots from images.

mod apply;
mod changes;
mod choice;
mod difference;
mod digest;
mod docker;
mod document;
mod inventory;
mod layer;
mod place;
mod store;
mod writer;

use archive::ReadOptions;
use transfer::{Observer, Tree};

use crate::error::{Error, Result, shown};
use document::{ConfigDocument, Manifest};
use store::Store;

pub use changes::LayerChange;
pub use difference::{DifferenceOptions, Written, difference};
pub use digest::Digest;
pub use document::Config;
pub use layer::Layer;
pub use place::{Place, Platform, Storage};
pub use store::JSON_BYTES_MAX;
pub use writer::{LayoutWriter, WrittenBlob, WrittenLayer};

const CONFIG_TYPES: &[&str] =
    &["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
/// Most layers of an image.
pub const LAYERS_MAX: usize = 10_000;
/// Most bytes of one uncompressed layer, unless the caller says otherwise.
const LAYER_BYTES_MAX: u64 = 1 << 40;

/// How an image is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The platform; `None` for that of this machine, or, where there is one image only, for that.
    pub platform: Option<Platform>,
    /// Limits of reading layers and archives, and where their contents are kept.
    pub read: ReadOptions,
}

impl Default for OpenOptions {
    /// Any platform, contents in the directory for temporary files, layers of 1 TiB at most.
    fn default() -> Self {
        Self { platform: None, read: ReadOptions { max_bytes: LAYER_BYTES_MAX, ..ReadOptions::default() } }
    }
}

/// A container image.
pub struct Image {
    store: Store,
    read: ReadOptions,
    digest: Option<Digest>,
    config: Config,
    config_json: Vec<u8>,
    layers: Vec<Layer>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { digest, config, layers, .. } = self;
        let place = self.store.name();
        f.debug_struct("Image")
            .field("place", &place)
            .field("digest", digest)
            .field("config", config)
            .field("layers", layers)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// Opens an image: chooses it, and reads its manifest and configuration. Layers are read when they are applied.
    ///
    /// # Errors
    /// See [`Error`]; those of `watch`, while an archive is read.
    pub fn open(place: &Place, options: &OpenOptions, watch: &dyn Observer) -> Result<Self> {
        let store = Store::open(place, &options.read, watch)?;
        let tag = place.tag.as_deref();
        if place.storage == Storage::DockerArchive
            && let Some(list) = store.find(docker::LIST)?
        {
            let image = docker::choose(&store, &list, tag)?;
            return Self::with(store, options, None, image);
        }
        let descriptor = choice::choose(&store, tag, options.platform.as_ref())?;
        let (manifest, _): (Manifest, _) = store.document(&descriptor, "a manifest")?;
        let name = store.place(&format!("manifest {}", descriptor.digest));
        check_manifest(&manifest, &name)?;
        let (document, config_json): (ConfigDocument, _) = store.document(&manifest.config, "a configuration")?;
        let diff_ids = diff_ids(&document, &name)?;
        let layers = layer::of_manifest(&store, manifest.layers.unwrap_or_default(), diff_ids)?;
        let digest = Digest::parse(&descriptor.digest, &name)?;
        Self::with(store, options, Some(digest), Parts { document, config_json, layers })
    }

    fn with(store: Store, options: &OpenOptions, digest: Option<Digest>, parts: Parts) -> Result<Self> {
        let Parts { document, config_json, layers } = parts;
        let config = Config::from(document);
        let own = Platform {
            os: config.os.clone(),
            architecture: config.architecture.clone(),
            variant: config.variant.clone(),
        };
        match &options.platform {
            Some(wanted) if !wanted.accepts(&own) => Err(Error::Choice {
                place: store.name().to_owned(),
                wanted: wanted.to_string(),
                found: format!("one for {}", shown(own.to_string().as_bytes())),
            }),
            _ => Ok(Self { store, read: options.read.clone(), digest, config, config_json, layers }),
        }
    }

    /// The digest of the manifest; a Docker archive has none.
    #[must_use]
    pub const fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The configuration of the image and of its programs.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The configuration as it stands in the image, to be saved with nothing lost.
    #[must_use]
    pub fn config_json(&self) -> &[u8] {
        &self.config_json
    }

    /// The layers, the lowest first.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The chain id of each layer, the lowest first: the digest of the tree that it and the layers below it make.
    /// Images with the same lowest layers have the same ids of these.
    #[must_use]
    pub fn chain_ids(&self) -> Vec<Digest> {
        let mut chain: Vec<Digest> = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let own = layer.diff_id();
            let next = chain.last().map_or_else(|| own.clone(), |below| own.of(format!("{below} {own}").as_bytes()));
            chain.push(next);
        }
        chain
    }

    /// Applies all layers to a tree.
    ///
    /// # Errors
    /// See [`Image::apply_layer`].
    pub fn apply(&self, tree: &mut Tree, watch: &dyn Observer) -> Result<()> {
        (0..self.layers.len()).try_for_each(|index| self.apply_layer(tree, index, watch).map(drop))
    }

    /// Applies the layer with this index to a tree that has those below it. Returns what changed, in an order in which
    /// it can be done to a copy of the tree as it was before.
    ///
    /// # Errors [`Error::Mismatch`] for a damaged layer, [`Error::Archive`] for one that is no tar archive; the tree is
    /// unchanged then. [`Error::Transfer`] for a member that has no place in the tree; some of the layer is applied
    /// then.
    pub fn apply_layer(&self, tree: &mut Tree, index: usize, watch: &dyn Observer) -> Result<Vec<LayerChange>> {
        let Some(layer) = self.layers.get(index) else {
            let what = format!("layer {index} of {}", self.layers.len());
            return Err(Error::Missing { place: self.store.name().to_owned(), what });
        };
        let members = layer.members(&self.store, &self.read, watch)?;
        let place = layer.place(&self.store);
        tree.begin_source(place.as_str());
        apply::apply(tree, members, &place, watch)
    }
}

/// The parts of an image that are read when it is opened.
struct Parts {
    document: ConfigDocument,
    config_json: Vec<u8>,
    layers: Vec<Layer>,
}

fn check_manifest(manifest: &Manifest, place: &str) -> Result<()> {
    let unsupported = |what, expected, found: &str| {
        let found = shown(found.as_bytes()).trim_matches('`').to_owned();
        Err(Error::Unsupported { place: place.to_owned(), what, expected, found })
    };
    if manifest.schema_version != 2 {
        return unsupported("schema version", "2", &manifest.schema_version.to_string());
    }
    match manifest.media_type.as_deref() {
        None | Some("") => {}
        Some(name) if choice::MANIFEST_TYPES.contains(&name) => {}
        Some(name) => return unsupported("media type", "the manifests of OCI and Docker", name),
    }
    match manifest.config.media_type.as_deref() {
        None | Some("") => Ok(()),
        Some(name) if CONFIG_TYPES.contains(&name) => Ok(()),
        Some(name) => unsupported("media type of the configuration", "that of a container image", name),
    }
}

fn diff_ids(document: &ConfigDocument, place: &str) -> Result<Vec<Digest>> {
    let texts = document.rootfs.diff_ids.as_deref().unwrap_or_default();
    texts.iter().map(|text| Digest::parse(text, place)).collect()
}
