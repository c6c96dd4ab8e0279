//! Keeps backups as objects of a [`Store`]: S3, a web server, a directory.
//!
//! ```text
//! stream -> pieces of some MiB -> compressed, encrypted -> objects that are never changed
//! manifest.json: the streams, the one whose upload has not ended, what is to be deleted, who writes
//! ```
//!
//! * [`catalog`] has the manifest and the lists of parts, checked;
//! * [`part`] makes an object of a piece; [`seal`] encrypts it;
//! * [`upload`] writes a stream, [`download`] reads it, [`inspect`] verifies all of a repository.
//!
//! Invariants
//! * The manifest alone says what there is. It is written only if it is still the one that was read, so that of two
//!   writers the second one fails; no other object is written twice.
//! * An object is in the store before the manifest, or a list that the manifest has the digest of, names it; and it is
//!   deleted after the manifest has it among the garbage. So a writer that is killed at any moment leaves a repository
//!   that is whole, and the next one finds the keys of all that is to be deleted.
//! * The store is not trusted: each object is compared with its SHA-256, and has the length that is expected of it. The
//!   manifest itself is not signed: who can write to the store can replace a backup by another one.
//!
//! Failure: [`Error::Claimed`] and [`Error::Overtaken`] for a second writer, [`Error::NoConditions`] for a store that
//! keeps no conditions, [`Error::Corrupt`] for what does not fit. Callers: `restore`, and `backup` by [`Destination`].

pub(crate) mod catalog;
mod download;
mod inspect;
mod part;
mod seal;
mod upload;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use checking::{Watch, Watched};

pub use catalog::Mark;
#[doc(hidden)]
pub use catalog::rewrite_manifest;
pub use inspect::Inspection;
pub use seal::{Identities, NotKey, Recipients};

use crate::destination::{Destination, Sent};
use crate::digest::hex;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::rule::Rule;
use crate::stamp::Stamp;
use crate::state::State;
use crate::store::{Condition, Put, Store};
use catalog::{CATALOG_BYTES_MAX, Catalog, Garbage, MANIFEST, PART_BYTES_MAX, Stream};
use upload::Upload;

/// Bytes of the stream in a part, unless the caller says another number.
const PART_BYTES: u64 = 16 << 20;
/// Fewest bytes of the stream in a part.
const PART_BYTES_MIN: u64 = 64 << 10;
/// A tag that no object has.
const NO_TAG: &str = "\"no-object-has-this-tag\"";

/// The way a backup writes to a repository.
pub struct Writing {
    /// The writer.
    pub mark: Mark,
    /// True for a mark whose writer has ended; its claim is taken over without a question.
    pub has_ended: Box<dyn Fn(&Mark) -> bool + Send + Sync>,
    /// Take the repository over from another writer.
    pub takes_over: bool,
    /// The keys to which the parts are encrypted.
    pub recipients: Option<Recipients>,
    /// Bytes of the stream in a part; between 64 KiB and 64 MiB.
    pub part_bytes: Option<u64>,
}

/// Backups in a store.
pub struct Repository {
    store: Box<dyn Store>,
    /// The name of the states that are written.
    name: Name,
    catalog: Catalog,
    /// Of the manifest, if there is one.
    tag: Option<String>,
    writing: Option<Writing>,
    is_claimed: bool,
    /// There is no manifest yet.
    is_new: bool,
    /// States that can be restored, as far as the manifest and its lists tell.
    whole: BTreeSet<[u8; 16]>,
    losses: Vec<String>,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repository").field("store", &self.store.name()).finish_non_exhaustive()
    }
}

impl Repository {
    /// Opens a repository to restore from it.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Corrupt`] for a manifest that no backup writes.
    pub fn read(store: Box<dyn Store>) -> Result<Self> {
        // The name selects states of a backup; a restore reads those of all names.
        Self::new(store, Name::of_path(Path::new("/"))?, None)
    }

    /// Opens a repository for the backups called `name`. It may be empty.
    ///
    /// # Errors
    /// As [`Repository::read`]; [`Error::PlainStates`] if encrypted states would be followed by plain ones.
    pub fn write(store: Box<dyn Store>, name: &Name, writing: Writing) -> Result<Self> {
        let is_plain = writing.recipients.is_none();
        let mut repository = Self::new(store, name.clone(), Some(writing))?;
        if is_plain && repository.catalog.streams.iter().any(|stream| stream.head.is_encrypted) {
            return Err(Error::PlainStates(repository.store.name()));
        }
        repository.look_for_losses()?;
        Ok(repository)
    }

    fn new(store: Box<dyn Store>, name: Name, writing: Option<Writing>) -> Result<Self> {
        let mut repository = Self {
            store,
            name,
            catalog: Catalog::default(),
            tag: None,
            writing,
            is_claimed: false,
            is_new: true,
            whole: BTreeSet::new(),
            losses: Vec::new(),
        };
        if let Some((catalog, tag)) = repository.fetch()? {
            repository.whole = catalog.streams.iter().map(|stream| stream.head.uuid).collect();
            if tag.is_none() && repository.writing.is_some() {
                return Err(Error::NoConditions(repository.store.name()));
            }
            (repository.catalog, repository.tag, repository.is_new) = (catalog, tag, false);
        }
        Ok(repository)
    }

    /// True when it was opened without a manifest: no backup was ever made there.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.is_new
    }

    /// The manifest and its tag; `None` if there is none.
    fn fetch(&self) -> Result<Option<(Catalog, Option<String>)>> {
        let found = self.store.get(MANIFEST, CATALOG_BYTES_MAX).map_err(|error| self.failed(MANIFEST, error))?;
        let Some(found) = found else { return Ok(None) };
        let catalog = Catalog::decode(&found.bytes).map_err(|what| self.corrupt(MANIFEST, what))?;
        Ok(Some((catalog, found.tag)))
    }

    /// Asks for the lists of the newest state and of those that it builds on, which costs a short request for each.
    fn look_for_losses(&mut self) -> Result<()> {
        let newest = self.own().max_by_key(|stream| stream.head.stamp);
        let chain = newest.map(|newest| self.catalog.chain(newest).unwrap_or_default()).unwrap_or_default();
        let mut lost = None;
        for stream in chain {
            let key = stream.head.list_key();
            if self.store.size(&key).map_err(|error| self.failed(&key, error))?.is_none() {
                lost = Some((stream.head.uuid, self.place(&key)));
                break;
            }
        }
        if let Some((uuid, path)) = lost {
            self.losses.push(format!("{}: is missing", path.display()));
            self.whole.remove(&uuid);
            for stream in &self.catalog.streams {
                if stream.head.parent.is_some_and(|parent| !self.whole.contains(&parent)) {
                    self.whole.remove(&stream.head.uuid);
                }
            }
        }
        Ok(())
    }

    fn own(&self) -> impl Iterator<Item = &Stream> {
        self.catalog.streams.iter().filter(|stream| stream.head.name == self.name)
    }

    pub(crate) fn streams(&self) -> &[Stream] {
        &self.catalog.streams
    }

    /// An object, as messages name it.
    fn place(&self, key: &str) -> PathBuf {
        Path::new(&self.store.name()).join(key)
    }

    fn failed(&self, key: &str, error: crate::SideError) -> Error {
        Error::Store { object: self.place(key), error }
    }

    fn corrupt(&self, key: &str, what: impl Into<String>) -> Error {
        Error::corrupt(&self.place(key), what)
    }

    /// The streams that make a state, the first one whole.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one is missing.
    pub(crate) fn chain(&self, last: &Stream) -> Result<Vec<&Stream>> {
        self.catalog.chain(last).map_err(|missing| {
            self.corrupt(
                MANIFEST,
                format!("{} needs a stream of {}, which is not there", last.head.state(), hex(&missing)),
            )
        })
    }

    /// Writes the manifest, if it is still the one that was read or written last.
    fn commit(&mut self) -> Result<()> {
        self.catalog.serial = self.catalog.serial.saturating_add(1);
        let bytes = self.catalog.encode();
        let condition = self.tag.as_deref().map_or(Condition::Absent, Condition::Matches);
        let put = self.store.put(MANIFEST, &bytes, condition);
        if let Ok(Put::Done(Some(tag))) = put {
            self.tag = Some(tag);
            return Ok(());
        }
        // The reply may have been lost after the manifest was written, and some servers tell no tag.
        let found = self.fetch()?;
        match (found, put) {
            (Some((_, None)), _) => Err(Error::NoConditions(self.store.name())),
            (Some((catalog, tag)), _) if catalog == self.catalog => {
                self.tag = tag;
                Ok(())
            }
            (Some((_, tag)), Err(error)) if self.tag == tag => Err(self.failed(MANIFEST, error)),
            (None, Err(error)) => Err(self.failed(MANIFEST, error)),
            (found, _) => {
                let by = found.and_then(|(catalog, _)| catalog.writer);
                let by = by.map_or_else(|| "another writer".to_owned(), |mark| mark.to_string());
                self.is_claimed = false;
                Err(Error::Overtaken { place: self.store.name(), by })
            }
        }
    }

    fn writing(&self) -> Result<&Writing> {
        self.writing.as_ref().ok_or_else(|| Error::ReadOnly(self.store.name()))
    }

    /// Marks the repository as used by this writer.
    fn claim(&mut self) -> Result<()> {
        if self.is_claimed {
            return Ok(());
        }
        let writing = self.writing()?;
        if let Some(other) = &self.catalog.writer
            && !writing.takes_over
            && !(writing.has_ended)(other)
        {
            return Err(Error::Claimed { place: self.store.name(), by: other.to_string() });
        }
        self.catalog.writer = Some(writing.mark.clone());
        self.commit()?;
        self.is_claimed = true;
        self.check_conditions()
    }

    /// Fails if the store writes an object although the condition does not hold: two writers would not notice.
    fn check_conditions(&self) -> Result<()> {
        let bytes = self.catalog.encode();
        for condition in [Condition::Absent, Condition::Matches(NO_TAG)] {
            let put = self.store.put(MANIFEST, &bytes, condition).map_err(|error| self.failed(MANIFEST, error))?;
            if put != Put::Refused {
                return Err(Error::NoConditions(self.store.name()));
            }
        }
        Ok(())
    }

    /// Deletes the garbage, and then its list. Returns the names of the states that it belonged to.
    fn collect(&mut self) -> Result<Vec<String>> {
        let mut left: Vec<String> = Vec::new();
        for garbage in &self.catalog.garbage {
            for key in garbage.keys() {
                self.store.delete(&key).map_err(|error| self.failed(&key, error))?;
            }
            if left.last().is_none_or(|last| last != garbage.state()) {
                left.push(garbage.state().to_owned());
            }
        }
        if !self.catalog.garbage.is_empty() {
            self.catalog.garbage.clear();
            self.commit()?;
        }
        Ok(left)
    }

    /// The bytes of the stream in a part of a new upload.
    fn part_bytes(&self) -> u64 {
        let asked = self.writing.as_ref().and_then(|writing| writing.part_bytes);
        asked.unwrap_or(PART_BYTES).clamp(PART_BYTES_MIN, PART_BYTES_MAX)
    }

    /// Uploads a stream; `false` if it is another one than the upload that it continues.
    fn upload(&mut self, sent: &Sent<'_>, watch: &dyn Watch) -> Result<bool> {
        let mut upload = Upload::begin(self, sent)?;
        let written = sent.write(&mut Watched::new(&mut upload, watch));
        match (upload.failure.take(), written) {
            (Some(upload::Failure::Differs), _) => Ok(false),
            (Some(upload::Failure::Error(error)), _) | (None, Err(error)) => Err(error),
            (None, Ok(())) => upload.finish(),
        }
    }
}

impl Destination for Repository {
    fn has(&self, state: &State) -> bool {
        self.whole.contains(&state.sent_uuid())
    }

    fn knows(&self, state: &State) -> bool {
        self.catalog.streams.iter().any(|stream| stream.head.uuid == state.sent_uuid())
    }

    fn count(&self) -> usize {
        self.own().count()
    }

    fn losses(&self) -> Vec<String> {
        self.losses.clone()
    }

    fn clear(&mut self) -> Result<Vec<String>> {
        if self.catalog.pending.is_none() && self.catalog.garbage.is_empty() {
            return Ok(Vec::new());
        }
        self.claim()?;
        if let Some(pending) = self.catalog.pending.take() {
            self.catalog.garbage.extend(pending.garbage());
            self.commit()?;
        }
        self.collect()
    }

    fn receive(&mut self, sent: &Sent<'_>, watch: &dyn Watch) -> Result<u64> {
        self.claim()?;
        if !self.upload(sent, watch)? {
            // The source sends other bytes than before: from the beginning.
            self.clear()?;
            if !self.upload(sent, watch)? {
                return Err(Error::NothingReceived);
            }
        }
        self.collect()?;
        Ok(self.catalog.streams.last().map_or(0, |stream| stream.stored))
    }

    fn verify(&mut self, _sent: &Sent<'_>, _watch: &dyn Watch) -> Result<()> {
        // The store confirmed each object. Reading all back would cost as much as a restore: see `Inspection`.
        self.catalog.streams.last().map_or(Ok(()), |stream| self.measure_all(stream))
    }

    fn prune(&mut self, rule: &Rule, newest: Stamp, is_trial: bool) -> Result<Vec<String>> {
        let pruned = rule.dropped(self.own().map(|stream| stream.head.stamp), newest);
        // A kept stream needs the streams that it is a difference to; also one of another name may.
        let mut needed = BTreeSet::new();
        for stream in &self.catalog.streams {
            if stream.head.name != self.name || !pruned.contains(&stream.head.stamp) {
                needed.extend(self.chain(stream)?.iter().map(|stream| stream.head.uuid));
            }
        }
        let gone: Vec<Stream> = self.own().filter(|stream| !needed.contains(&stream.head.uuid)).cloned().collect();
        if !is_trial && !gone.is_empty() {
            self.claim()?;
            self.catalog.streams.retain(|stream| !gone.contains(stream));
            let garbage: Vec<Garbage> = gone.iter().flat_map(|stream| stream.head.garbage()).collect();
            self.catalog.garbage.extend(garbage);
            self.commit()?;
            self.collect()?;
        }
        Ok(gone.iter().map(|stream| stream.head.state()).collect())
    }

    fn finish(&mut self) -> Result<()> {
        if !self.is_claimed {
            return Ok(());
        }
        self.catalog.writer = None;
        self.commit()?;
        self.is_claimed = false;
        Ok(())
    }
}
