//! Keeps backups in a directory of the host: a file for each stream, and a manifest that says which builds on which.
//! The command `backup` opens it as a destination, `restore` as an origin.
//!
//! The manifest is replaced at once, after the stream that it is about is on disk. What it says is checked before
//! any of it is used: a name of a file is the one that its state has, so that no other file is read or deleted; a
//! parent stands in front of what builds on it. What a file has in it is checked when it is written, and before
//! it is restored.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use btrfs_stream::{Command, Decoder};
use checking::{Watch, Watched};
use serde::{Deserialize, Serialize};

use crate::destination::{Destination, Sent};
use crate::digest::{BLOCK_BYTES, DIGEST_BYTES, Digest, Digested, from_hex, hex};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::rule::Rule;
use crate::stamp::Stamp;
use crate::state::{self, State};

const MANIFEST: &str = "manifest.json";
const FORMAT: &str = "spinney-backup";
const VERSION: u32 = 1;
/// Longest manifest that is read: some hundred thousand streams.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Behind the name of a file that is being written.
const PARTIAL: &str = ".partial";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: String,
    version: u32,
    streams: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file: String,
    state: String,
    uuid: String,
    parent: Option<String>,
    bytes: u64,
    /// A chain of SHA-256 over MiBs of the file.
    digest: String,
}

/// A stream in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) name: Name,
    pub(crate) stamp: Stamp,
    pub(crate) uuid: [u8; 16],
    /// The state that it builds on.
    pub(crate) parent: Option<[u8; 16]>,
    bytes: u64,
    digest: [u8; DIGEST_BYTES],
}

impl Stream {
    pub(crate) fn file(&self) -> String {
        file_name(&self.name, self.stamp, self.uuid)
    }

    fn entry(&self) -> Entry {
        Entry {
            file: self.file(),
            state: self.name.at(self.stamp),
            uuid: hex(&self.uuid),
            parent: self.parent.as_ref().map(|parent| hex(parent)),
            bytes: self.bytes,
            digest: hex(&self.digest),
        }
    }

    fn of(entry: &Entry) -> Result<Self, String> {
        let state = || state::parse(&entry.state).ok_or_else(|| format!("{:?} is no name of a state", entry.state));
        let (name, stamp) = state()?;
        let unread = |what: &str, text: &str| format!("{text:?} is no {what}");
        let uuid = from_hex(&entry.uuid).ok_or_else(|| unread("UUID", &entry.uuid))?;
        let parent = entry.parent.as_ref().map(|text| from_hex(text).ok_or_else(|| unread("UUID", text)));
        let digest = from_hex(&entry.digest).ok_or_else(|| unread("digest", &entry.digest))?;
        let stream = Self { name, stamp, uuid, parent: parent.transpose()?, bytes: entry.bytes, digest };
        let expected = stream.file();
        if entry.file != expected {
            return Err(format!("its file: expected {expected}, found {:?}", entry.file));
        }
        Ok(stream)
    }
}

fn file_name(name: &Name, stamp: Stamp, uuid: [u8; 16]) -> String {
    format!("{}.{}.stream", name.at(stamp), hex(&uuid))
}

/// The name and time in the name of a stream's file.
fn parse_file_name(file: &str) -> Option<(Name, Stamp)> {
    let (state, uuid) = file.strip_suffix(".stream")?.rsplit_once('.')?;
    from_hex::<16>(uuid)?;
    state::parse(state)
}

/// The streams of a directory, with the directory locked against other backups.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Holds the lock.
    handle: File,
    name: Name,
    has_manifest: bool,
    pub(crate) streams: Vec<Stream>,
    /// Of those that are there in their length, like all that they build on.
    whole: BTreeSet<[u8; 16]>,
}

impl Directory {
    /// Opens a directory for the backups called `name`.
    ///
    /// # Errors
    /// [`Error::Busy`]; [`Error::Corrupt`] for a manifest that no backup writes, or streams without one;
    /// [`Error::Host`].
    pub fn open(path: &Path, name: &Name) -> Result<Self> {
        let handle = File::open(path).map_err(Error::host(path))?;
        if handle.try_lock().is_err() {
            return Err(Error::Busy(path.to_owned()));
        }
        let read = read_manifest(&path.join(MANIFEST))?;
        let has_manifest = read.is_some();
        let streams = read.unwrap_or_default();
        let mut directory =
            Self { path: path.to_owned(), handle, name: name.clone(), has_manifest, streams, whole: BTreeSet::new() };
        if !has_manifest && let Some((file, ..)) = directory.unknown()?.first() {
            return Err(Error::corrupt(path, format!("there is {file}, and no {MANIFEST} that lists it")));
        }
        for stream in &directory.streams {
            let is_there = open(&directory.path.join(stream.file())).map(|(_, len)| len);
            if is_there.is_ok_and(|len| len == stream.bytes)
                && stream.parent.is_none_or(|parent| directory.whole.contains(&parent))
            {
                directory.whole.insert(stream.uuid);
            }
        }
        Ok(directory)
    }

    /// Files that have names of streams and are in no manifest.
    fn unknown(&self) -> Result<Vec<(String, Name, Stamp)>> {
        let known: BTreeSet<String> = self.streams.iter().map(Stream::file).collect();
        let mut unknown = Vec::new();
        for file in self.names()? {
            if let Some((name, stamp)) = parse_file_name(&file).filter(|_| !known.contains(&file)) {
                unknown.push((file, name, stamp));
            }
        }
        unknown.sort();
        Ok(unknown)
    }

    /// The names in the directory that are UTF-8.
    fn names(&self) -> Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let entries = entries.map_err(Error::host(&self.path))?;
        Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    fn write_manifest(&self) -> Result<()> {
        let streams = self.streams.iter().map(Stream::entry).collect();
        let manifest = Manifest { format: FORMAT.to_owned(), version: VERSION, streams };
        let path = self.path.join(MANIFEST);
        let mut bytes =
            serde_json::to_vec_pretty(&manifest).map_err(|error| Error::corrupt(&path, error.to_string()))?;
        bytes.push(b'\n');
        let partial = self.path.join(format!("{MANIFEST}{PARTIAL}"));
        let mut file = create(&partial)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(Error::host(&partial))?;
        std::fs::rename(&partial, &path).and_then(|()| self.handle.sync_all()).map_err(Error::host(&path))
    }

    /// Reads a stream and compares it with what the manifest says of it.
    ///
    /// # Errors
    /// The file and what is wrong with it.
    pub(crate) fn check(&self, stream: &Stream, watch: &dyn Watch) -> Result<()> {
        let path = self.path.join(stream.file());
        let wrong = |what: String| Error::corrupt(&path, what);
        let (file, len) = open(&path)?;
        if len != stream.bytes {
            return Err(wrong(format!("its length: expected {} bytes, found {len}", stream.bytes)));
        }
        let mut digest = Digest::new();
        let input = Digested { inner: Watched::new(file, watch), digest: &mut digest };
        let input = BufReader::with_capacity(BLOCK_BYTES, input);
        let broken = |error: btrfs_stream::Error| wrong(error.to_string());
        let mut decoder = Decoder::open(input).map_err(broken)?.ok_or_else(|| wrong("it is empty".to_owned()))?;
        if decoder.rest_of().is_some() {
            return Err(wrong("it is the rest of a stream, not a whole one".to_owned()));
        }
        let begins = decoder.command().map_err(broken)?.as_ref().and_then(begins);
        let Some((uuid, parent)) = begins else {
            return Err(wrong("it does not begin with a subvolume".to_owned()));
        };
        if (uuid, parent) != (stream.uuid, stream.parent) {
            let shown = |uuid: [u8; 16], parent: Option<[u8; 16]>| {
                let parent = parent.map_or("nothing".to_owned(), |parent| hex(&parent));
                format!("{} from {parent}", hex(&uuid))
            };
            let (expected, found) = (shown(stream.uuid, stream.parent), shown(uuid, parent));
            return Err(wrong(format!("it is another stream: expected {expected}, found {found}")));
        }
        loop {
            let at = decoder.position();
            match decoder.command().map_err(broken)? {
                None => return Err(wrong(format!("it ends at byte {at} without an end command"))),
                Some(Command::End) => break,
                Some(command) if begins_one(&command) => {
                    return Err(wrong(format!("it begins a second subvolume at byte {at}")));
                }
                Some(_) => {}
            }
        }
        if decoder.next_stream().map_err(broken)? {
            return Err(wrong("it has a second stream in it".to_owned()));
        }
        drop(decoder);
        let (_, found) = digest.finish();
        if found != stream.digest {
            return Err(wrong(format!("its digest: expected {}, found {}", hex(&stream.digest), hex(&found))));
        }
        Ok(())
    }

    /// The streams that make a state, the first one whole.
    ///
    /// # Errors
    /// Where one of them is missing.
    pub(crate) fn chain(&self, last: &Stream) -> Result<Vec<&Stream>> {
        let mut chain = Vec::new();
        let mut wanted = Some(last.uuid);
        // A parent stands in front of what builds on it, so this ends.
        for stream in self.streams.iter().rev() {
            if Some(stream.uuid) == wanted {
                wanted = stream.parent;
                chain.push(stream);
            }
        }
        if let Some(missing) = wanted {
            let what = format!("{} needs a stream of {}, which is not there", last.file(), hex(&missing));
            return Err(Error::corrupt(&self.path, what));
        }
        chain.reverse();
        Ok(chain)
    }

    /// Opens the file of a stream.
    pub(crate) fn read(&self, stream: &Stream) -> Result<BufReader<File>> {
        Ok(BufReader::with_capacity(BLOCK_BYTES, open(&self.path.join(stream.file()))?.0))
    }
}

fn begins(command: &Command<'_>) -> Option<([u8; 16], Option<[u8; 16]>)> {
    match *command {
        Command::Subvol { uuid, .. } => Some((uuid, None)),
        Command::Snapshot { uuid, parent_uuid, .. } => Some((uuid, Some(parent_uuid))),
        _ => None,
    }
}

fn begins_one(command: &Command<'_>) -> bool {
    begins(command).is_some()
}

/// Opens a regular file of a directory that others may have written to, and returns its length. It follows no link and
/// does not block on a pipe.
fn open(path: &Path) -> Result<(File, u64)> {
    let file = crate::host_file::open(path).map_err(Error::host(path))?;
    let found = file.metadata().map_err(Error::host(path))?;
    if found.is_file() { Ok((file, found.len())) } else { Err(Error::NotAFile(path.to_owned())) }
}

/// Makes a file anew.
fn create(path: &Path) -> Result<File> {
    remove(path)?;
    OpenOptions::new().write(true).create_new(true).open(path).map_err(Error::host(path))
}

/// Removes a file that may be missing.
fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::host(path)(error)),
        _ => Ok(()),
    }
}

/// The streams that a manifest lists; `None` if there is no manifest.
fn read_manifest(path: &Path) -> Result<Option<Vec<Stream>>> {
    if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let wrong = |what: String| Error::corrupt(path, what);
    let mut bytes = Vec::new();
    open(path)?.0.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Error::host(path))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > MANIFEST_BYTES_MAX) {
        return Err(wrong(format!("expected at most {MANIFEST_BYTES_MAX} bytes")));
    }
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| wrong(format!("no manifest: {error}")))?;
    if (&*manifest.format, manifest.version) != (FORMAT, VERSION) {
        let (format, version) = (manifest.format, manifest.version);
        return Err(wrong(format!("expected {FORMAT} version {VERSION}, found {format:?} version {version}")));
    }
    let mut streams: Vec<Stream> = Vec::new();
    let mut uuids = BTreeSet::new();
    for (index, entry) in manifest.streams.iter().enumerate() {
        let stream = Stream::of(entry).map_err(|what| wrong(format!("stream {index}: {what}")))?;
        if let Some(parent) = stream.parent.filter(|parent| !uuids.contains(parent)) {
            return Err(wrong(format!("stream {index}: its parent {} does not come before it", hex(&parent))));
        }
        if !uuids.insert(stream.uuid) {
            return Err(wrong(format!("stream {index}: there are two of {}", hex(&stream.uuid))));
        }
        streams.push(stream);
    }
    Ok(Some(streams))
}

impl Destination for Directory {
    fn has(&self, state: &State) -> bool {
        self.knows(state) && self.whole.contains(&state.sent_uuid())
    }

    fn knows(&self, state: &State) -> bool {
        let uuid = state.sent_uuid();
        self.streams.iter().any(|stream| stream.name == self.name && stream.uuid == uuid)
    }

    fn count(&self) -> usize {
        self.streams.iter().filter(|stream| stream.name == self.name).count()
    }

    fn losses(&self) -> Vec<String> {
        let own = self.streams.iter().filter(|stream| stream.name == self.name);
        let lost = own.filter(|stream| !self.whole.contains(&stream.uuid));
        lost.map(|stream| {
            let file = self.path.join(stream.file());
            format!("{}: it, or what it builds on, is missing or has another length", file.display())
        })
        .collect()
    }

    fn clear(&mut self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for file in self.names()? {
            let state = file.strip_suffix(PARTIAL).and_then(parse_file_name);
            left.extend(state.filter(|(name, _)| *name == self.name).map(|_| file));
        }
        // A power cut leaves one stream, the newest, that no manifest tells of. More are something else.
        let newest = self.streams.iter().filter(|stream| stream.name == self.name).map(|stream| stream.stamp).max();
        let unknown = self.unknown()?;
        let mut unknown = unknown.into_iter().filter(|(_, name, _)| *name == self.name);
        if let Some((file, _, stamp)) = unknown.next() {
            if unknown.next().is_some() || newest.is_some_and(|newest| newest >= stamp) {
                let what = format!("{MANIFEST} does not tell of {file}: is it an older one?");
                return Err(Error::corrupt(&self.path, what));
            }
            left.push(file);
        }
        for file in &left {
            remove(&self.path.join(file))?;
        }
        Ok(left)
    }

    fn receive(&mut self, sent: &Sent<'_>, watch: &dyn Watch) -> Result<u64> {
        let uuid = sent.state.sent_uuid();
        let file = file_name(&self.name, sent.state.stamp, uuid);
        let (path, partial) = (self.path.join(&file), self.path.join(format!("{file}{PARTIAL}")));
        let mut digest = Digest::new();
        let out = create(&partial)?;
        let digested = Digested { inner: Watched::new(&out, watch), digest: &mut digest };
        let mut output = BufWriter::with_capacity(BLOCK_BYTES, digested);
        sent.write(&mut output)?;
        output.flush().map_err(Error::host(&partial))?;
        drop(output);
        out.sync_all().map_err(Error::host(&partial))?;
        let (bytes, digest) = digest.finish();
        let parent = sent.parent.map(State::sent_uuid);
        let (name, stamp) = (self.name.clone(), sent.state.stamp);
        // Without a manifest, a stream would look like the remains of a lost manifest.
        if !self.has_manifest {
            self.write_manifest()?;
            self.has_manifest = true;
        }
        std::fs::rename(&partial, &path).and_then(|()| self.handle.sync_all()).map_err(Error::host(&path))?;
        let stream = Stream { name, stamp, uuid, parent, bytes, digest };
        // Before the manifest knows it, so that what it knows can be read.
        if let Err(error) = self.check(&stream, watch) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        self.streams.push(stream);
        self.whole.insert(uuid);
        self.write_manifest()?;
        Ok(bytes)
    }

    fn verify(&mut self, _sent: &Sent<'_>, _watch: &dyn Watch) -> Result<()> {
        // Each stream of the manifest was read back when it was written.
        Ok(())
    }

    fn prune(&mut self, rule: &Rule, newest: Stamp, is_trial: bool) -> Result<Vec<String>> {
        let own = || self.streams.iter().filter(|stream| stream.name == self.name);
        let pruned = rule.dropped(own().map(|stream| stream.stamp), newest);
        // A kept stream needs the streams that it is a difference to.
        let mut needed = BTreeSet::new();
        for stream in own().filter(|stream| !pruned.contains(&stream.stamp)) {
            needed.extend(self.chain(stream)?.iter().map(|stream| stream.uuid));
        }
        let gone: Vec<Stream> = own().filter(|stream| !needed.contains(&stream.uuid)).cloned().collect();
        if !is_trial && !gone.is_empty() {
            self.streams.retain(|stream| !gone.contains(stream));
            self.write_manifest()?;
            for stream in &gone {
                remove(&self.path.join(stream.file()))?;
            }
        }
        Ok(gone.iter().map(|stream| stream.name.at(stream.stamp)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(streams: &str) -> Result<Vec<Stream>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MANIFEST);
        std::fs::write(&path, format!("{{\"format\":\"{FORMAT}\",\"version\":1,\"streams\":[{streams}]}}")).unwrap();
        read_manifest(&path).map(Option::unwrap_or_default)
    }

    fn entry(file: &str, state: &str, uuid: u8, parent: Option<u8>) -> String {
        let parent = parent.map_or("null".to_owned(), |parent| format!("\"{}\"", hex(&[parent; 16])));
        let (uuid, digest) = (hex(&[uuid; 16]), "00".repeat(32));
        format!(
            "{{\"file\":\"{file}\",\"state\":\"{state}\",\"uuid\":\"{uuid}\",\"parent\":{parent},\"bytes\":1,\
             \"digest\":\"{digest}\"}}"
        )
    }

    const STATE: &str = "home.2026-11-25T031500Z";

    fn file(uuid: u8) -> String {
        format!("{STATE}.{}.stream", hex(&[uuid; 16]))
    }

    #[test]
    fn a_manifest_that_lies_is_refused_by_name() {
        let right = manifest(&[entry(&file(1), STATE, 1, None), entry(&file(2), STATE, 2, Some(1))].join(","));
        assert_eq!(right.unwrap().len(), 2);
        for (streams, expected) in [
            (entry("../outside", STATE, 1, None), "its file: expected home."),
            (entry("/etc/passwd", STATE, 1, None), "its file: expected home."),
            (entry(&file(2), STATE, 1, None), "its file: expected home."),
            (entry(&file(1), "../home.2026-11-25T031500Z", 1, None), "no name of a state"),
            (entry(&file(1), "home", 1, None), "no name of a state"),
            (entry(&file(1), STATE, 1, Some(2)), "does not come before it"),
            (entry(&file(1), STATE, 1, Some(1)), "does not come before it"),
            ([entry(&file(1), STATE, 1, None), entry(&file(1), STATE, 1, None)].join(","), "there are two"),
            (entry(&file(1), STATE, 1, None).replace("0000", "00"), "no digest"),
            (entry(&file(1), STATE, 1, None).replace("bytes", "size"), "unknown field"),
            (entry(&file(1), STATE, 1, None).replace(":1,", ":-1,"), "no manifest"),
            ("{".to_owned(), "no manifest"),
        ] {
            let error = manifest(&streams).unwrap_err().to_string();
            assert!(error.contains(expected), "{streams}: {error}");
            assert!(error.contains(MANIFEST), "{error}");
        }
    }
}
