//! Chooses the manifest of one image from the index of a layout: by tag, then by platform. `oci::Image::open` calls it.
//!
//! Indexes may refer to indexes. Each is read once, at most [`NESTING_MAX`] deep and [`MANIFESTS_MAX`] entries in all,
//! so that neither a loop nor a tree of references that multiplies can hold it up.

use super::document::{ConfigDocument, Descriptor, Index, Manifest, PlatformName};
use super::place::Platform;
use super::store::{Seen, Store};
use crate::error::{Error, Result, shown};

/// Deepest nesting of indexes.
pub(super) const NESTING_MAX: usize = 8;
/// Most entries of all indexes of an image.
pub(super) const MANIFESTS_MAX: usize = 4096;

pub(super) const INDEX_TYPES: &[&str] =
    &["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
pub(super) const MANIFEST_TYPES: &[&str] =
    &["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

/// A manifest that may be the one.
struct Candidate {
    descriptor: Descriptor,
    platform: Option<Platform>,
}

struct Search<'a> {
    store: &'a Store,
    seen: Seen,
    entry_count: usize,
    candidates: Vec<Candidate>,
}

/// The descriptor of the manifest that `tag` and `platform` mean.
///
/// # Errors
/// [`Error::Choice`] if there is none, or more than one; those of reading indexes.
pub(super) fn choose(store: &Store, tag: Option<&str>, platform: Option<&Platform>) -> Result<Descriptor> {
    let blob = store.open_path("index.json", "the index of an OCI image layout")?;
    let index: Index = blob.parse(&blob.read_json()?, "an index")?;
    let entries = index.manifests.unwrap_or_default();
    let tags: Vec<&str> = entries.iter().flat_map(Descriptor::tags).collect();
    let is_wanted = |entry: &&Descriptor| tag.is_none_or(|tag| entry.tags().any(|name| name == tag));
    let wanted: Vec<&Descriptor> = entries.iter().filter(is_wanted).collect();
    let mut search = Search { store, seen: Seen::new(), entry_count: entries.len(), candidates: Vec::new() };
    for entry in wanted {
        search.take(entry, 0)?;
    }
    search.decide(tag, platform, &tags)
}

impl Search<'_> {
    /// Adds the manifest, or those of the index, that an entry refers to.
    fn take(&mut self, entry: &Descriptor, depth: usize) -> Result<()> {
        let place = || self.store.place(&format!("entry {} of an index", entry.digest.escape_debug()));
        if !self.seen.insert(entry.digest.clone()) {
            return Ok(());
        }
        let media_type = entry.media_type.as_deref().unwrap_or_default();
        if INDEX_TYPES.contains(&media_type) {
            if depth >= NESTING_MAX {
                return Err(Error::Limit { place: place(), what: "nesting of indexes", limit: 8 });
            }
            let (index, _): (Index, _) = self.store.document(entry, "an index")?;
            let entries = index.manifests.unwrap_or_default();
            self.entry_count = self.entry_count.saturating_add(entries.len());
            if self.entry_count > MANIFESTS_MAX {
                return Err(Error::Limit { place: place(), what: "entries of indexes", limit: 4096 });
            }
            return entries.iter().try_for_each(|entry| self.take(entry, depth.saturating_add(1)));
        }
        let platform = entry.platform.clone().map(platform_of);
        let is_image = MANIFEST_TYPES.contains(&media_type) || media_type.is_empty();
        // BuildKit puts statements on how an image was made beside it, as manifests for no platform.
        let is_statement = platform.as_ref().is_some_and(|found| found.os == "unknown");
        if is_image && !is_statement {
            self.candidates.push(Candidate { descriptor: entry.clone(), platform });
        } else if !is_statement {
            return Err(Error::Unsupported {
                place: place(),
                what: "media type",
                expected: "an index or a manifest of OCI, or of Docker in its second schema",
                found: shown(media_type.as_bytes()).trim_matches('`').to_owned(),
            });
        }
        Ok(())
    }

    fn decide(self, tag: Option<&str>, platform: Option<&Platform>, tags: &[&str]) -> Result<Descriptor> {
        let Self { store, mut candidates, .. } = self;
        if let ([_], None) = (candidates.as_slice(), platform)
            && let Some(only) = candidates.pop()
        {
            return Ok(only.descriptor);
        }
        let machine = Platform::of_this_machine();
        let platform = platform.unwrap_or(&machine);
        let mut found = Vec::new();
        let mut others = Vec::new();
        for candidate in candidates {
            let own = match candidate.platform {
                Some(own) => own,
                None => platform_of_image(store, &candidate.descriptor)?,
            };
            if platform.accepts(&own) {
                found.push(candidate.descriptor);
            } else {
                others.push(own.to_string());
            }
        }
        let wanted = tag.map_or_else(|| platform.to_string(), |tag| format!("{platform} with the tag `{tag}`"));
        let list = |names: Vec<String>| shown(names.join(", ").as_bytes());
        let tag_list = || list(tags.iter().map(|tag| (*tag).to_owned()).collect());
        let told = match found.len() {
            // Of several for one platform under one tag, the first counts, as the specification of the index says.
            1 => None,
            0 if others.is_empty() => Some(format!("none; the tags are {}", tag_list())),
            0 => Some(format!("images for {}", list(others))),
            count if tag.is_none() => Some(format!("{count}; the tags are {}", tag_list())),
            _ => None,
        };
        match (told, found.into_iter().next()) {
            (None, Some(descriptor)) => Ok(descriptor),
            (told, _) => {
                let found = told.unwrap_or_default();
                Err(Error::Choice { place: store.name().to_owned(), wanted, found })
            }
        }
    }
}

fn platform_of(name: PlatformName) -> Platform {
    let PlatformName { os, architecture, variant } = name;
    Platform { os, architecture, variant: variant.filter(|variant| !variant.is_empty()) }
}

fn platform_of_image(store: &Store, descriptor: &Descriptor) -> Result<Platform> {
    let (manifest, _): (Manifest, _) = store.document(descriptor, "a manifest")?;
    let (config, _): (ConfigDocument, _) = store.document(&manifest.config, "a configuration")?;
    Ok(platform_of(config.platform))
}
