//! The manifest of a repository and the lists of parts, as JSON that is checked before any of it is used. Pure.
//!
//! Keys of objects are made from names, UUIDs and numbers that were checked, so that a manifest names no object outside
//! of its repository. A parent stands in front of the streams that build on it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::digest::{DIGEST_BYTES, from_hex, hex};
use crate::name::Name;
use crate::stamp::Stamp;
use crate::state;

/// The key of the manifest.
pub(crate) const MANIFEST: &str = "manifest.json";
const FORMAT: &str = "spinney-repository";
const VERSION: u32 = 1;
/// Longest manifest and longest list of parts.
pub(crate) const CATALOG_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of a stream in one part.
pub(crate) const PART_BYTES_MAX: u64 = 64 << 20;
/// Most bytes that a part may have more than its piece of the stream: frames, and the head of an encrypted file.
const PART_HEAD_BYTES_MAX: u64 = 1 << 20;
/// Parts that are uploaded between two changes of the manifest, at least.
const PARTS_BETWEEN: u64 = 4;
/// Most parts that are deleted for one entry of the list of garbage.
const GARBAGE_PARTS_MAX: u64 = 1 << 24;
/// Longest text of a mark.
const TEXT_BYTES_MAX: usize = 255;

/// The parts that may be in a store without being in the manifest, where that has `known`.
pub(crate) fn parts_between(known: u64) -> u64 {
    // A sixteenth: the manifests of a long stream are written as often as its length has grown by that.
    PARTS_BETWEEN.max(known / 16)
}

/// The writer that uses a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Its host.
    pub host: String,
    /// Names the boot of the host.
    pub boot: String,
    /// The number of its process, a slash, and the time when that began.
    pub process: String,
    /// When it began to use the repository.
    pub since: String,
    /// Differs between any two runs: 16 hexadecimal digits.
    pub run: String,
}

impl Mark {
    fn check(&self) -> Result<(), String> {
        for text in [&self.host, &self.boot, &self.process, &self.since] {
            if text.len() > TEXT_BYTES_MAX || text.chars().any(|one| one.is_control()) {
                return Err("a text of the writer is too long or has control characters".to_owned());
            }
        }
        is_run(&self.run)
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let process = self.process.split('/').next().unwrap_or_default();
        write!(f, "process {process} of {}, since {}", self.host, self.since)
    }
}

fn is_run(text: &str) -> Result<(), String> {
    from_hex::<8>(text).map(drop).ok_or_else(|| format!("{text:?} is no name of a run"))
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// Its bytes of the stream.
    pub(crate) bytes: u64,
    /// The bytes of the object.
    pub(crate) stored: u64,
    /// SHA-256 of the object.
    pub(crate) sha256: String,
}

impl Part {
    pub(crate) fn digest(&self) -> Option<[u8; DIGEST_BYTES]> {
        from_hex(&self.sha256)
    }

    fn check(&self) -> Result<(), String> {
        let stored_max = self.bytes.saturating_add(self.bytes / 64).saturating_add(PART_HEAD_BYTES_MAX);
        if self.bytes == 0 || self.bytes > PART_BYTES_MAX || self.stored > stored_max {
            return Err(format!("a part of {} bytes in an object of {} bytes", self.bytes, self.stored));
        }
        self.digest().map(drop).ok_or_else(|| format!("{:?} is no digest", self.sha256))
    }
}

/// Parts that one run of the program uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// The name of the run, which is in the keys.
    pub(crate) run: String,
    pub(crate) parts: u64,
}

/// The state that a stream makes, and where the parts of the stream are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) name: Name,
    pub(crate) stamp: Stamp,
    pub(crate) uuid: [u8; 16],
    /// The state that it builds on.
    pub(crate) parent: Option<[u8; 16]>,
    /// True if its parts are encrypted.
    pub(crate) is_encrypted: bool,
    /// The runs that uploaded its parts, in their order.
    pub(crate) runs: Vec<Run>,
}

impl Head {
    pub(crate) fn state(&self) -> String {
        self.name.at(self.stamp)
    }

    pub(crate) fn part_count(&self) -> u64 {
        self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.parts))
    }

    /// The key of a part.
    pub(crate) fn part_key(&self, run: &str, index: u64) -> String {
        format!("{}.{}.{run}.{index:08}", self.state(), hex(&self.uuid))
    }

    /// The keys of all parts.
    pub(crate) fn part_keys(&self) -> impl Iterator<Item = String> + '_ {
        let runs = self.runs.iter().flat_map(|run| (0..run.parts).map(move |_| &run.run));
        runs.zip(0u64..).map(|(run, index)| self.part_key(run, index))
    }

    /// The key of the list of its parts.
    pub(crate) fn list_key(&self) -> String {
        let run = self.runs.last().map_or("", |run| run.run.as_str());
        format!("{}.{}.{run}.list", self.state(), hex(&self.uuid))
    }

    /// All that is deleted with the stream.
    pub(crate) fn garbage(&self) -> Vec<Garbage> {
        let mut first = 0u64;
        let mut all = Vec::new();
        for run in &self.runs {
            all.push(self.garbage_of(&run.run, first, run.parts));
            first = first.saturating_add(run.parts);
        }
        all
    }

    /// Parts of a run that no stream has.
    pub(crate) fn garbage_of(&self, run: &str, first: u64, parts: u64) -> Garbage {
        Garbage { state: self.state(), uuid: hex(&self.uuid), run: run.to_owned(), first, parts }
    }
}

/// A whole stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) head: Head,
    pub(crate) bytes: u64,
    /// Bytes of its objects.
    pub(crate) stored: u64,
    /// A chain of SHA-256 over the pieces of the stream.
    pub(crate) digest: [u8; DIGEST_BYTES],
    /// SHA-256 of the list of its parts.
    pub(crate) list: [u8; DIGEST_BYTES],
}

/// A stream whose upload has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) head: Head,
    /// Bytes of the stream in each part.
    pub(crate) part_bytes: u64,
    /// The chain over the parts so far.
    pub(crate) digest: [u8; DIGEST_BYTES],
    pub(crate) parts: Vec<Part>,
}

impl Pending {
    /// All that may be there of it.
    pub(crate) fn garbage(&self) -> Vec<Garbage> {
        let mut all = self.head.garbage();
        let known = self.head.part_count();
        if let Some(last) = all.last_mut() {
            last.parts = last.parts.saturating_add(parts_between(known)).saturating_add(1);
        }
        all
    }
}

/// Parts that are to be deleted, with the list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Garbage {
    state: String,
    uuid: String,
    run: String,
    /// The first of them.
    first: u64,
    parts: u64,
}

impl Garbage {
    pub(crate) fn state(&self) -> &str {
        &self.state
    }

    /// The keys of what is to be deleted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = String> + '_ {
        let Self { state, uuid, run, first, parts } = self;
        let parts = (*first..first.saturating_add(*parts)).map(move |index| format!("{state}.{uuid}.{run}.{index:08}"));
        parts.chain([format!("{state}.{uuid}.{run}.list")])
    }

    fn check(&self) -> Result<(), String> {
        state::parse(&self.state).ok_or_else(|| format!("{:?} is no name of a state", self.state))?;
        uuid(&self.uuid)?;
        is_run(&self.run)?;
        if self.parts > GARBAGE_PARTS_MAX {
            return Err(format!("expected at most {GARBAGE_PARTS_MAX} parts to delete, found {}", self.parts));
        }
        Ok(())
    }
}

/// All that a repository has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Differs between any two manifests of a repository, together with the mark.
    pub(crate) serial: u64,
    /// The writer that uses it.
    pub(crate) writer: Option<Mark>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) pending: Option<Pending>,
    pub(crate) garbage: Vec<Garbage>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogEntry {
    format: String,
    version: u32,
    serial: u64,
    writer: Option<Mark>,
    streams: Vec<StreamEntry>,
    pending: Option<PendingEntry>,
    garbage: Vec<Garbage>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadEntry {
    state: String,
    uuid: String,
    parent: Option<String>,
    encrypted: bool,
    runs: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamEntry {
    stream: HeadEntry,
    bytes: u64,
    stored: u64,
    digest: String,
    list: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PendingEntry {
    stream: HeadEntry,
    part_bytes: u64,
    digest: String,
    parts: Vec<Part>,
}

fn uuid(text: &str) -> Result<[u8; 16], String> {
    from_hex(text).ok_or_else(|| format!("{text:?} is no UUID"))
}

fn digest(text: &str) -> Result<[u8; DIGEST_BYTES], String> {
    from_hex(text).ok_or_else(|| format!("{text:?} is no digest"))
}

impl HeadEntry {
    fn of(head: &Head) -> Self {
        Self {
            state: head.state(),
            uuid: hex(&head.uuid),
            parent: head.parent.as_ref().map(|parent| hex(parent)),
            encrypted: head.is_encrypted,
            runs: head.runs.clone(),
        }
    }

    fn checked(self) -> Result<Head, String> {
        let Self { state, uuid: own, parent, encrypted, runs } = self;
        let (name, stamp) = state::parse(&state).ok_or_else(|| format!("{state:?} is no name of a state"))?;
        let parent = parent.map(|text| uuid(&text)).transpose()?;
        if runs.is_empty() {
            return Err(format!("{state}: no run uploaded it"));
        }
        for run in &runs {
            is_run(&run.run)?;
        }
        let head = Head { name, stamp, uuid: uuid(&own)?, parent, is_encrypted: encrypted, runs };
        if head.part_count() > CATALOG_BYTES_MAX {
            return Err(format!("{state}: it cannot have {} parts", head.part_count()));
        }
        Ok(head)
    }
}

impl Catalog {
    /// The bytes of the manifest.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let streams = self.streams.iter().map(|stream| StreamEntry {
            stream: HeadEntry::of(&stream.head),
            bytes: stream.bytes,
            stored: stream.stored,
            digest: hex(&stream.digest),
            list: hex(&stream.list),
        });
        let pending = self.pending.as_ref().map(|pending| PendingEntry {
            stream: HeadEntry::of(&pending.head),
            part_bytes: pending.part_bytes,
            digest: hex(&pending.digest),
            parts: pending.parts.clone(),
        });
        let entry = CatalogEntry {
            format: FORMAT.to_owned(),
            version: VERSION,
            serial: self.serial,
            writer: self.writer.clone(),
            streams: streams.collect(),
            pending,
            garbage: self.garbage.clone(),
        };
        // Structs of texts and numbers always have a form in JSON.
        let mut bytes = serde_json::to_vec_pretty(&entry).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// The first thing in it that no backup writes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let entry: CatalogEntry = serde_json::from_slice(bytes).map_err(|error| format!("no manifest: {error}"))?;
        let CatalogEntry { format, version, serial, writer, streams: entries, pending, garbage } = entry;
        if (&*format, version) != (FORMAT, VERSION) {
            return Err(format!("expected {FORMAT} version {VERSION}, found {format:?} version {version}"));
        }
        if let Some(mark) = &writer {
            mark.check()?;
        }
        for one in &garbage {
            one.check()?;
        }
        let (mut streams, mut uuids) = (Vec::new(), BTreeSet::new());
        for (index, entry) in entries.into_iter().enumerate() {
            let stream = stream(entry).map_err(|what| format!("stream {index}: {what}"))?;
            if let Some(parent) = stream.head.parent.filter(|parent| !uuids.contains(parent)) {
                return Err(format!("stream {index}: its parent {} does not come before it", hex(&parent)));
            }
            if !uuids.insert(stream.head.uuid) {
                return Err(format!("stream {index}: there are two of {}", hex(&stream.head.uuid)));
            }
            streams.push(stream);
        }
        let pending = pending.map(self::pending).transpose().map_err(|what| format!("the pending stream: {what}"))?;
        Ok(Self { serial, writer, streams, pending, garbage })
    }

    /// The streams that make a state, the first one whole.
    ///
    /// # Errors
    /// The UUID of a state whose stream is missing.
    pub(crate) fn chain(&self, last: &Stream) -> Result<Vec<&Stream>, [u8; 16]> {
        let mut chain = Vec::new();
        let mut wanted = Some(last.head.uuid);
        // A parent stands in front of what builds on it, so this ends.
        for stream in self.streams.iter().rev() {
            if Some(stream.head.uuid) == wanted {
                wanted = stream.head.parent;
                chain.push(stream);
            }
        }
        chain.reverse();
        wanted.map_or(Ok(chain), Err)
    }
}

fn stream(entry: StreamEntry) -> Result<Stream, String> {
    let StreamEntry { stream, bytes, stored, digest: sum, list } = entry;
    let head = stream.checked()?;
    Ok(Stream { head, bytes, stored, digest: digest(&sum)?, list: digest(&list)? })
}

fn pending(entry: PendingEntry) -> Result<Pending, String> {
    let PendingEntry { stream, part_bytes, digest: sum, parts } = entry;
    let head = stream.checked()?;
    if part_bytes == 0 || part_bytes > PART_BYTES_MAX {
        return Err(format!("parts of {part_bytes} bytes"));
    }
    check_parts(&parts, head.part_count())?;
    if let Some(part) = parts.iter().find(|part| part.bytes != part_bytes) {
        return Err(format!("parts of {part_bytes} bytes, and one of {}", part.bytes));
    }
    Ok(Pending { head, part_bytes, digest: digest(&sum)?, parts })
}

fn check_parts(parts: &[Part], count: u64) -> Result<(), String> {
    if u64::try_from(parts.len()) != Ok(count) {
        return Err(format!("expected {count} parts, found {}", parts.len()));
    }
    parts.iter().try_for_each(Part::check)
}

/// The bytes of a list of parts.
pub(crate) fn encode_list(parts: &[Part]) -> Vec<u8> {
    // As in `Catalog::encode`.
    serde_json::to_vec(parts).unwrap_or_default()
}

/// Parses the list of parts of a stream.
///
/// # Errors
/// The difference to the manifest.
pub(crate) fn decode_list(bytes: &[u8], stream: &Stream) -> Result<Vec<Part>, String> {
    let parts: Vec<Part> = serde_json::from_slice(bytes).map_err(|error| format!("no list of parts: {error}"))?;
    check_parts(&parts, stream.head.part_count())?;
    let sum = |of: fn(&Part) -> u64| parts.iter().fold(0u64, |sum, part| sum.saturating_add(of(part)));
    for (what, expected, found) in [
        ("bytes of the stream", stream.bytes, sum(|part| part.bytes)),
        ("bytes of the objects", stream.stored, sum(|part| part.stored)),
    ] {
        if expected != found {
            return Err(format!("{what}: expected {expected}, found {found}"));
        }
    }
    Ok(parts)
}

/// Parses a manifest as a repository does, looks at all of it, and writes it again. For the fuzz target
/// `backup_manifest`.
///
/// # Errors
/// The first thing in it that no backup writes.
#[doc(hidden)]
pub fn rewrite_manifest(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let catalog = Catalog::decode(bytes)?;
    for stream in &catalog.streams {
        // Either may fail; neither may panic.
        let _ = (catalog.chain(stream), decode_list(bytes, stream));
    }
    let keys = catalog.garbage.iter().flat_map(|garbage| garbage.keys().take(4));
    let keys = keys.chain(catalog.streams.iter().flat_map(|stream| stream.head.part_keys().take(4)));
    match keys.into_iter().find(|key| key.contains('/') || key.starts_with('.')) {
        Some(key) => Err(format!("{key} leads out of the repository")),
        None => Ok(catalog.encode()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let (name, stamp) = state::parse("home.2026-11-25T031500Z").unwrap();
        let run = |parts| Run { run: "00000000000000aa".to_owned(), parts };
        let head = |uuid: u8, parent: Option<u8>| Head {
            name: name.clone(),
            stamp,
            uuid: [uuid; 16],
            parent: parent.map(|parent| [parent; 16]),
            is_encrypted: false,
            runs: vec![run(2)],
        };
        let stream = |head| Stream { head, bytes: 9, stored: 7, digest: [3; DIGEST_BYTES], list: [4; DIGEST_BYTES] };
        let part = Part { bytes: 64, stored: 7, sha256: hex(&[5; 32]) };
        let pending = Pending {
            head: head(3, Some(2)),
            part_bytes: 64,
            digest: [6; DIGEST_BYTES],
            parts: vec![part.clone(), part],
        };
        Catalog {
            serial: 5,
            writer: None,
            streams: vec![stream(head(1, None)), stream(head(2, Some(1)))],
            garbage: pending.garbage(),
            pending: Some(pending),
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let catalog = catalog();
        assert_eq!(Catalog::decode(&catalog.encode()), Ok(catalog.clone()));
        let keys: Vec<String> = catalog.streams.iter().flat_map(|stream| stream.head.part_keys()).collect();
        assert_eq!(keys.len(), 4);
        let uuid = "01".repeat(16);
        assert_eq!(keys.first().unwrap(), &format!("home.2026-11-25T031500Z.{uuid}.00000000000000aa.00000000"));
        // Two known parts, those that may have followed, and the list.
        assert_eq!(catalog.garbage.iter().flat_map(Garbage::keys).count(), 8);
    }

    #[test]
    fn a_manifest_that_lies_is_refused() {
        let text = String::from_utf8(catalog().encode()).unwrap();
        let sum = "06".repeat(32);
        for (from, to, expected) in [
            ("spinney-repository", "other", "expected spinney-repository"),
            ("home.2026-11-25T031500Z", "../home.2026-11-25T031500Z", "no name of a state"),
            ("home.2026-11-25T031500Z", "/etc/passwd", "no name of a state"),
            ("00000000000000aa", "../../aa", "no name of a run"),
            ("\"parts\": 2", "\"parts\": 3", "expected 3 parts"),
            ("\"parts\": 2", "\"parts\": 18446744073709551615", "cannot have"),
            ("\"part_bytes\": 64", "\"part_bytes\": 0", "parts of 0 bytes"),
            ("\"part_bytes\": 64", "\"part_bytes\": 99999999999", "parts of 99999999999"),
            ("\"stored\": 7,\n        \"sha256\"", "\"stored\": 9999999,\n        \"sha256\"", "object of 9999999"),
            ("\"bytes\": 9", "\"bytes\": -9", "no manifest"),
            ("\"encrypted\"", "\"secret\"", "unknown field"),
            (&sum, "06", "no digest"),
        ] {
            let wrong = text.replace(from, to);
            assert_ne!(wrong, text, "{from}");
            let error = Catalog::decode(wrong.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{from}: {error}");
        }
        let mut catalog = catalog();
        catalog.streams.reverse();
        assert!(Catalog::decode(&catalog.encode()).unwrap_err().contains("does not come before it"));
    }
}
