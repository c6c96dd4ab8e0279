//! The keys of a description as they are written. Called by `spec`; `rules` makes values of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use uuid::Uuid;

use super::value::{OptionValue, Owner, Size, Text};
use super::{Label, Subvolume};
use crate::containers::{Compression, Form};
use crate::gpt::{Attributes, kind_named};
use crate::{Error, Result};

/// All of a description.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) disk: Option<Spanned<DiskKeys>>,
    #[serde(default, rename = "partition")]
    pub(super) partitions: Vec<Spanned<PartitionKeys>>,
    pub(super) output: Option<OutputKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DiskKeys {
    #[serde(default)]
    pub(super) size: Size,
    pub(super) sector_size: Option<u64>,
    pub(super) uuid: Option<Uuid>,
    #[serde(default)]
    pub(super) label: Label,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PartitionKeys {
    pub(super) name: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<Text<Kind>>,
    pub(super) partition_uuid: Option<Uuid>,
    pub(super) attributes: Option<Vec<Text<Attributes>>>,
    #[serde(default)]
    pub(super) size: Size,
    pub(super) content: Option<PathBuf>,
    pub(super) format: Option<String>,
    pub(super) label: Option<String>,
    pub(super) uuid: Option<Uuid>,
    pub(super) sources: Option<Vec<String>>,
    pub(super) subvolumes: Option<Vec<Subvolume>>,
    pub(super) options: Option<BTreeMap<String, OptionValue>>,
    pub(super) shrink: Option<bool>,
    pub(super) owner: Option<Text<Owner>>,
    pub(super) all_root: Option<bool>,
    pub(super) verity: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutputKeys {
    pub(super) file: PathBuf,
    pub(super) form: Option<Form>,
    pub(super) compress: Option<Text<Compression>>,
}

/// The type of a partition: a name, or a GUID.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind(pub(super) Uuid);

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let given = || Uuid::try_parse(text).ok().filter(|kind| !kind.is_nil());
        kind_named(text).or_else(given).map(Self).ok_or_else(|| {
            let names: Vec<&str> = crate::gpt::KINDS.iter().map(|(name, _)| *name).collect();
            format!("type `{text}`: expected a GUID or one of {}", names.join(", "))
        })
    }
}

/// Reads the keys.
pub(super) fn read(text: &str, path: &Path) -> Result<Document> {
    toml::from_str(text).map_err(|error| Error::Spec {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        message: error.message().trim().replace('\n', "; "),
    })
}

/// The line of a byte of the text, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count().saturating_add(1)
}
