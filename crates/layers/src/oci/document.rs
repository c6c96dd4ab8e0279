//! The JSON documents of images as types: index, manifest, configuration, and the list in a Docker archive. The other
//! modules of `oci` read them through `store`.
//!
//! The types are ours. The crate oci-spec 0.10 has them, too, but draws derive_builder, getset, strum and regex into
//! the build, and refuses documents that Docker, Podman and BuildKit read: lists that are `null`, as Go writes empty
//! ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The annotation of a manifest in an index that holds its tag.
const TAG: &str = "org.opencontainers.image.ref.name";
/// The same, as containerd and Docker write it: the full name.
const FULL_NAME: &str = "io.containerd.image.name";

/// Refers to a blob.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Descriptor {
    #[serde(default, rename = "mediaType")]
    pub(super) media_type: Option<String>,
    pub(super) digest: String,
    /// Bytes.
    pub(super) size: u64,
    #[serde(default)]
    pub(super) annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) platform: Option<PlatformName>,
}

impl Descriptor {
    /// The names that a person may give as the tag.
    pub(super) fn tags(&self) -> impl Iterator<Item = &str> {
        let annotations = self.annotations.as_ref();
        [TAG, FULL_NAME].into_iter().filter_map(move |name| annotations?.get(name).map(String::as_str))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct PlatformName {
    #[serde(default)]
    pub(super) os: String,
    #[serde(default)]
    pub(super) architecture: String,
    #[serde(default)]
    pub(super) variant: Option<String>,
}

/// An index, or Docker's list of manifests.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Index {
    pub(super) manifests: Option<Vec<Descriptor>>,
}

/// The manifest of one image.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Manifest {
    #[serde(default, rename = "schemaVersion")]
    pub(super) schema_version: u64,
    #[serde(default, rename = "mediaType")]
    pub(super) media_type: Option<String>,
    pub(super) config: Descriptor,
    #[serde(default)]
    pub(super) layers: Option<Vec<Descriptor>>,
}

/// One image in the `manifest.json` of a Docker archive.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DockerImage {
    pub(super) config: String,
    #[serde(default)]
    pub(super) repo_tags: Option<Vec<String>>,
    #[serde(default)]
    pub(super) layers: Option<Vec<String>>,
}

/// The configuration blob of an image.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ConfigDocument {
    #[serde(flatten)]
    pub(super) platform: PlatformName,
    #[serde(default)]
    pub(super) created: Option<String>,
    #[serde(default)]
    pub(super) author: Option<String>,
    #[serde(default)]
    pub(super) config: Option<Execution>,
    pub(super) rootfs: RootFs,
}

/// How a container of the image is run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Execution {
    pub(super) user: Option<String>,
    pub(super) exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    pub(super) env: Option<Vec<String>>,
    pub(super) entrypoint: Option<Vec<String>>,
    pub(super) cmd: Option<Vec<String>>,
    pub(super) volumes: Option<BTreeMap<String, serde_json::Value>>,
    pub(super) working_dir: Option<String>,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) stop_signal: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RootFs {
    #[serde(default)]
    pub(super) diff_ids: Option<Vec<String>>,
}

/// The configuration of an image and of the programs in it. It can be saved: it implements [`Serialize`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Operating system.
    pub os: String,
    /// Architecture, as Go calls it.
    pub architecture: String,
    /// Variant of the architecture.
    pub variant: Option<String>,
    /// When the image was made (RFC 3339).
    pub created: Option<String>,
    /// The person or organisation that made it.
    pub author: Option<String>,
    /// User, and group after a colon, that programs run as.
    pub user: Option<String>,
    /// Environment: `NAME=VALUE`.
    pub env: Vec<String>,
    /// Program and arguments that always are run.
    pub entrypoint: Vec<String>,
    /// Arguments, or program, that may be replaced.
    pub cmd: Vec<String>,
    /// Directory in which programs begin.
    pub working_dir: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Ports that programs listen on: `PORT/PROTOCOL`.
    pub exposed_ports: Vec<String>,
    /// Directories with data of their own.
    pub volumes: Vec<String>,
    /// Signal that ends the program.
    pub stop_signal: Option<String>,
}

impl From<ConfigDocument> for Config {
    fn from(document: ConfigDocument) -> Self {
        let ConfigDocument { platform, created, author, config, .. } = document;
        let run = config.unwrap_or_default();
        let keys = |map: Option<BTreeMap<String, serde_json::Value>>| map.unwrap_or_default().into_keys().collect();
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        Self {
            os: platform.os,
            architecture: platform.architecture,
            variant: text(platform.variant),
            created,
            author: text(author),
            user: text(run.user),
            env: run.env.unwrap_or_default(),
            entrypoint: run.entrypoint.unwrap_or_default(),
            cmd: run.cmd.unwrap_or_default(),
            working_dir: text(run.working_dir),
            labels: run.labels.unwrap_or_default(),
            exposed_ports: keys(run.exposed_ports),
            volumes: keys(run.volumes),
            stop_signal: text(run.stop_signal),
        }
    }
}
