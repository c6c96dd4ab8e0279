//! Reads the list of images in what `docker save` writes: `manifest.json`. `oci::Image::open` calls it. Newer versions
//! of Docker write an OCI layout beside it, into which the list's paths lead.

use super::digest::Digest;
use super::document::{ConfigDocument, DockerImage};
use super::store::{Blob, Store, check_digest};
use super::{Parts, diff_ids, layer};
use crate::error::{Error, Result, shown};

/// Name of the list in the archive.
pub(super) const LIST: &str = "manifest.json";

/// Chooses the image with the tag, or the only one, and reads its configuration.
///
/// # Errors
/// [`Error::Choice`]; those of reading documents.
pub(super) fn choose(store: &Store, list: &Blob, tag: Option<&str>) -> Result<Parts> {
    let images: Vec<DockerImage> = list.parse(&list.read_json()?, "a list of images of Docker")?;
    let tags: Vec<String> = images.iter().flat_map(|image| image.repo_tags.clone().unwrap_or_default()).collect();
    let is_named = |name: &str, tag: &str| name == tag || name.strip_suffix(":latest") == Some(tag);
    let is_wanted =
        |image: &DockerImage| tag.is_none_or(|tag| image.repo_tags.iter().flatten().any(|name| is_named(name, tag)));
    let mut wanted = images.into_iter().filter(is_wanted);
    let (Some(image), None) = (wanted.next(), wanted.next()) else {
        let wanted = tag.map_or_else(|| "no tag".to_owned(), |tag| format!("the tag `{tag}`"));
        let found = format!("none or several; the tags are {}", shown(tags.join(", ").as_bytes()));
        return Err(Error::Choice { place: store.name().to_owned(), wanted, found });
    };
    let blob = store.open_path(&image.config, "a configuration")?;
    let config_json = blob.read_json()?;
    // The file is named by its digest; other names prove nothing.
    let name = image.config.rsplit('/').next().unwrap_or_default();
    if let Some(digest) = Digest::of_digits(name.strip_suffix(".json").unwrap_or(name)) {
        check_digest(&blob.place, "digest", &digest, &digest.of(&config_json))?;
    }
    let document: ConfigDocument = blob.parse(&config_json, "a configuration")?;
    let diff_ids = diff_ids(&document, &blob.place)?;
    let layers = layer::of_paths(store, image.layers.unwrap_or_default(), diff_ids)?;
    Ok(Parts { document, config_json, layers })
}
