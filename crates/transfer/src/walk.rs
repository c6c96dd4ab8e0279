//! Walks the source of a transfer: directories are read, their names dealt out in runs, and each name is decided on and
//! made in the sink. `put`, `get`, `cp` and `mkfs` of the program run a `Transfer`.
//!
//! ```text
//! Dir --names--> Run Run Run --each subdirectory--> Dir ...
//!                  \___|___/
//!                the last one finishes the directory
//! ```
//!
//! A few threads walk the source. A thread that has a directory reads its names, makes the first run and leaves the
//! rest to all. With one thread the sink gets the same calls in the same order for the same source.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portable::OsStrExt as _;
use vfs::Metadata;
use vfs::file_system::KnownNode;

use crate::contents::{Contents, NO_CONTENTS};
use crate::error::{Cause, Error, Result};
use crate::observer::{Loss, Observer};
use crate::queue::{self, Queue, default_threads};
use crate::rules::{Decision, FileId, Rules, Taken, file_id};
use crate::sink::{Item, Made, Sink};
use crate::source::{Found, Name, Source};

/// Names that one thread makes before another may take over. A directory's names share blocks of a tree, so short runs
/// would make the threads wait for each other.
const RUN_NAMES: usize = 256;
/// Files up to this size are made together with others.
const BATCH_FILE_BYTES_MAX: u64 = 64 << 10;
/// Most bytes of contents in a batch, which then is made.
const BATCH_BYTES: usize = 384 << 10;

/// How a tree is copied.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that read and write. With one the order of all calls is fixed.
    pub thread_count: usize,
    /// Which nodes are copied, and with which owner and attributes.
    pub rules: Rules,
}

impl Default for Options {
    fn default() -> Self {
        Self { thread_count: default_threads(), rules: Rules::default() }
    }
}

/// A copy from a source to a sink. Several calls keep hard links between what they copy.
pub struct Transfer<'a, S, K> {
    source: &'a S,
    sink: &'a K,
    options: &'a Options,
    watch: &'a dyn Observer,
    /// The first name in the sink of each file with several: one in each subvolume that has some, since hard links do
    /// not lead from one to another.
    links: Mutex<HashMap<FileId, Vec<PathBuf>>>,
    /// The directory that is being made, where it may be below its own source.
    own: Mutex<Option<FileId>>,
}

/// A directory whose names are to be copied.
struct SubDir {
    from: PathBuf,
    to: PathBuf,
    /// As the copy gets it.
    attr: Metadata,
    ids: Arc<Above>,
}

/// The directories on the way to one, itself first.
struct Above {
    id: FileId,
    parent: Option<Arc<Self>>,
}

impl Above {
    fn contains_itself(&self) -> bool {
        let mut above = self.parent.as_deref();
        while let Some(dir) = above {
            if dir.id == self.id {
                return true;
            }
            above = dir.parent.as_deref();
        }
        false
    }

    fn top(&self) -> FileId {
        let mut top = self;
        while let Some(parent) = top.parent.as_deref() {
            top = parent;
        }
        top.id
    }
}

enum Job<S: Source, K: Sink> {
    Dir(SubDir),
    Run(Arc<OpenDir<S, K>>, Range<usize>),
}

/// A directory whose names are being made.
struct OpenDir<S: Source, K: Sink> {
    sub: SubDir,
    from: S::Dir,
    to: K::Dir,
    names: Vec<Name>,
    /// Runs that are not finished.
    runs_left: AtomicUsize,
}

/// A node that is to be made, and its paths.
struct Entry<'n, C> {
    name: &'n OsStr,
    from: PathBuf,
    to: PathBuf,
    found: Found<C>,
}

impl<C: Contents> Entry<'_, C> {
    fn item<'a>(&'a self, watch: &'a dyn Observer) -> Item<'a> {
        let Self { name, from, to, found } = self;
        Item { name, from, to, node: &found.node, contents: &found.contents, watch }
    }
}

/// Small files of one directory that are made together, where that takes less time.
struct Batch<'n> {
    files: Vec<Waiting<'n>>,
    bytes: usize,
    files_max: usize,
}

/// A small file that waits. Its contents are in `node`, so that no file of the source stays open.
struct Waiting<'n> {
    name: &'n OsStr,
    from: PathBuf,
    to: PathBuf,
    node: KnownNode,
    taken: Taken,
}

impl Waiting<'_> {
    fn item<'a>(&'a self, watch: &'a dyn Observer) -> Item<'a> {
        let Self { name, from, to, node, .. } = self;
        Item { name, from, to, node, contents: &NO_CONTENTS, watch }
    }
}

impl<'n> Batch<'n> {
    fn new(files_max: usize) -> Self {
        Self { files: Vec::new(), bytes: 0, files_max }
    }

    /// Whether a file is small, and has no other name that may be linked to it meanwhile.
    fn takes(&self, found: &Metadata) -> bool {
        self.files_max > 1 && found.is_file() && found.size <= BATCH_FILE_BYTES_MAX && found.nlink < 2
    }

    fn add<C>(&mut self, entry: Entry<'n, C>, taken: Taken) {
        let Entry { name, from, to, found: Found { node, .. } } = entry;
        self.bytes = self.bytes.saturating_add(node.data.as_ref().map_or(0, Vec::len));
        self.files.push(Waiting { name, from, to, node, taken });
    }

    fn is_full(&self) -> bool {
        self.files.len() >= self.files_max || self.bytes >= BATCH_BYTES
    }
}

impl<'a, S: Source, K: Sink> Transfer<'a, S, K> {
    /// A copy from `source` to `sink`.
    pub fn new(source: &'a S, sink: &'a K, options: &'a Options, watch: &'a dyn Observer) -> Self {
        Self { source, sink, options, watch, links: Mutex::default(), own: Mutex::default() }
    }

    /// Copies the names inside the root of the source into the root of the sink, which gets its metadata.
    ///
    /// # Errors
    /// As [`Transfer::contents_of`].
    pub fn contents(&self) -> Result<()> {
        self.contents_of(Path::new(""), Path::new(""))
    }

    /// Copies the names inside the directory `from` of the source into the existing directory `to` of the sink, which
    /// gets its metadata.
    ///
    /// # Errors
    /// The first failure for which [`Observer::failed`] does not continue.
    pub fn contents_of(&self, from: &Path, to: &Path) -> Result<()> {
        let begin = || {
            let mut node = self.source.top(from)?;
            let id = file_id(&node.attr);
            self.options.rules.apply(&mut node);
            let name = to.file_name().unwrap_or_default();
            self.sink.begin(&Item { name, from, to, node: &node, contents: &NO_CONTENTS, watch: self.watch })?;
            Ok((node.attr, id))
        };
        let (attr, id) = begin().map_err(|error| self.named(error, from, to))?;
        let ids = Arc::new(Above { id, parent: None });
        self.walk(SubDir { from: from.to_owned(), to: to.to_owned(), attr, ids })
    }

    /// Copies the file or directory at `from` in the source to the name `to` in the sink. Returns false if the rules
    /// left it out. For a node that the target does not permit it returns true and reports [`Loss::Device`].
    ///
    /// # Errors
    /// The failure of this name; below it, the first failure for which [`Observer::failed`] does not continue.
    pub fn one(&self, from: &Path, to: &Path) -> Result<bool> {
        let (is_made, sub) = self.top(from, to).map_err(|error| match self.source.display(from) {
            Some(shown) => error.about(shown),
            None => error.in_volume(to),
        })?;
        let Some(sub) = sub else { return Ok(is_made) };
        *self.own() = self.sink.own_id(to)?;
        self.walk(sub).map(|()| is_made)
    }

    fn top(&self, from: &Path, to: &Path) -> Result<(bool, Option<SubDir>)> {
        let nameless = || Error::from(std::io::Error::other("a path without a name"));
        let own = to.file_name().ok_or_else(nameless)?;
        let (dir, mut name) = match from.file_name() {
            Some(name) => (from.parent().unwrap_or(Path::new("")), name.to_owned()),
            None => (from, ".".into()),
        };
        // A slash at the end follows a symbolic link.
        name.push(if from.as_os_str().as_bytes().ends_with(b"/") { "/" } else { "" });
        let dir = self.source.open_dir(dir)?;
        let target = self.sink.open_dir(to.parent().unwrap_or(Path::new("")))?;
        self.watch.tried();
        self.watch.check()?;
        let found = self.source.look_at_one(&dir, &Name { name, kind: None })?;
        let entry = Entry { name: own, from: from.to_owned(), to: to.to_owned(), found };
        let is_left = self.options.rules.decide(&entry.found.node.attr) != Decision::Make;
        let mut buffer = Vec::new();
        if entry.found.node.attr.is_file() {
            buffer.resize(self.source.piece_bytes(), 0);
        }
        let sub = self.make(&mut buffer, &target, entry, None)?;
        Ok((!is_left, sub))
    }

    fn walk(&self, first: SubDir) -> Result<()> {
        let buffer = || vec![0; self.source.piece_bytes()];
        let run = |buffer: &mut Vec<u8>, job, queue: &Queue<Job<S, K>, Error>| match job {
            Job::Dir(sub) => self.note(self.start_dir(sub, queue)).map(drop),
            Job::Run(open, range) => self.do_run(buffer, &open, range, queue),
        };
        let walked = queue::run(self.options.thread_count, Job::Dir(first), buffer, run);
        let xattrs = |from: &Path| {
            let mut xattrs = self.source.xattrs(from)?;
            xattrs.retain(|(name, _)| self.options.rules.keeps_xattr(name));
            Ok(xattrs)
        };
        let ended = self.sink.end(self.watch, &xattrs);
        walked.and(ended)
    }

    /// Asks the caller whether the walk continues after a failure.
    fn note<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_cancelled() => Err(error),
            Err(error) => self.watch.failed(error).map(|()| None),
        }
    }

    /// The failure with the path on the host.
    fn named(&self, error: Error, from: &Path, to: &Path) -> Error {
        match self.source.display(from).or_else(|| self.sink.display(to)) {
            Some(shown) => error.about(shown),
            None => error.in_volume(to),
        }
    }

    fn links(&self) -> MutexGuard<'_, HashMap<FileId, Vec<PathBuf>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, Option<FileId>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_dir(&self, sub: SubDir, queue: &Queue<Job<S, K>, Error>) -> Result<()> {
        self.watch.check()?;
        if self.source.is_tree() && sub.ids.contains_itself() {
            return Err(Error::from(Cause::Cycle).about(&sub.from));
        }
        let (from, to) = (self.source.open_dir(&sub.from)?, self.sink.open_dir(&sub.to)?);
        let names = self.source.names(&from, &mut |error| self.note::<()>(Err(error)).map(drop))?;
        let count = names.len();
        let run_count = count.div_ceil(RUN_NAMES);
        let open = OpenDir { sub, from, to, names, runs_left: AtomicUsize::new(run_count) };
        if run_count == 0 {
            return self.finish_dir(&open);
        }
        let open = Arc::new(open);
        queue.add((0..run_count).map(|index| {
            let start = index * RUN_NAMES;
            Job::Run(Arc::clone(&open), start..count.min(start + RUN_NAMES))
        }));
        Ok(())
    }

    fn finish_dir(&self, OpenDir { sub, .. }: &OpenDir<S, K>) -> Result<()> {
        let finished = self.sink.finish_dir(&sub.to, &sub.attr, self.watch);
        finished.map_err(|error| self.named(error, &sub.from, &sub.to))
    }

    fn do_run(
        &self,
        buffer: &mut [u8],
        open: &OpenDir<S, K>,
        range: Range<usize>,
        queue: &Queue<Job<S, K>, Error>,
    ) -> Result<()> {
        let (mut subs, mut batch) = (Vec::new(), Batch::new(self.sink.at_once()));
        let names = open.names.get(range).unwrap_or_default();
        for names in names.chunks(self.source.at_once().max(1)) {
            let mut looked = self.source.look(&open.from, names).into_iter();
            for name in names {
                self.watch.check()?;
                self.watch.tried();
                let name = name.name.as_os_str();
                let paths = || (open.sub.from.join(name), open.sub.to.join(name));
                let Some(found) = looked.next() else { continue };
                let made = found.and_then(|found| {
                    let (from, to) = paths();
                    let entry = Entry { name, from, to, found };
                    self.make(buffer, &open.to, entry, Some((&mut batch, &open.sub.ids)))
                });
                let made = made.map_err(|error| {
                    let (from, to) = paths();
                    self.named(error, &from, &to)
                });
                subs.extend(self.note(made)?.flatten());
                if batch.is_full() {
                    self.make_batch(buffer, &open.to, &mut batch)?;
                }
            }
        }
        self.make_batch(buffer, &open.to, &mut batch)?;
        if !subs.is_empty() {
            queue.add(subs.into_iter().map(Job::Dir));
        }
        // The last one sees everything that the others did.
        if open.runs_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.note(self.finish_dir(open))?;
        }
        Ok(())
    }

    /// Makes a node, or adds it to the batch. Returns a directory whose names are to be copied next. `within` is
    /// missing for the top of a transfer.
    fn make<'n>(
        &self,
        buffer: &mut [u8],
        dir: &K::Dir,
        mut entry: Entry<'n, S::Contents>,
        within: Option<(&mut Batch<'n>, &Arc<Above>)>,
    ) -> Result<Option<SubDir>> {
        let attr = entry.found.node.attr;
        match self.options.rules.decide(&attr) {
            Decision::Make if attr.is_dir() && *self.own() == Some(file_id(&attr)) => return Ok(None),
            Decision::Make => {}
            Decision::Skip => {
                self.watch.done();
                return Ok(None);
            }
            Decision::LeaveDevice => {
                self.watch.lost(Loss::WithheldDevice);
                self.watch.done();
                return Ok(None);
            }
        }
        let (mut batch, above) = within.unzip();
        if !batch.as_ref().is_some_and(|batch| batch.takes(&attr)) {
            self.make_earlier(buffer, dir, batch.as_deref_mut())?;
        }
        if attr.is_dir() {
            return self.make_dir(dir, entry, above);
        }
        if let Some(batch) = batch.filter(|batch| batch.takes(&attr)) {
            let taken = self.complete(&mut entry)?;
            if !entry.item(self.watch).is_streamed() {
                batch.add(entry, taken);
                return Ok(None);
            }
            self.make_earlier(buffer, dir, Some(batch))?;
            let made = self.sink.make(dir, &entry.item(self.watch), buffer)?;
            return self.finish(&entry.item(self.watch), made, taken, buffer).map(|()| None);
        }
        // Held until the file is there, so that no other thread links to a name that does not exist yet.
        let mut links = (attr.nlink > 1).then(|| self.links());
        let firsts = links.as_ref().and_then(|links| links.get(&file_id(&attr)));
        let linked = firsts.into_iter().flatten().find_map(|first| {
            let linked = self.sink.link(first, dir, &entry.item(self.watch));
            if linked.as_ref().is_err_and(Error::is_crossing) { None } else { Some(linked) }
        });
        let (made, taken) = match linked {
            Some(linked) => (linked?, Taken::default()),
            None => {
                let taken = self.complete(&mut entry)?;
                let made = self.sink.make(dir, &entry.item(self.watch), buffer)?;
                if let Some(links) = links.as_mut().filter(|_| made != Made::Left) {
                    links.entry(file_id(&attr)).or_default().push(entry.to.clone());
                }
                (made, taken)
            }
        };
        drop(links);
        self.finish(&entry.item(self.watch), made, taken, buffer).map(|()| None)
    }

    fn make_dir(
        &self,
        dir: &K::Dir,
        mut entry: Entry<'_, S::Contents>,
        above: Option<&Arc<Above>>,
    ) -> Result<Option<SubDir>> {
        let id = file_id(&entry.found.node.attr);
        let taken = self.complete(&mut entry)?;
        self.sink.make_dir(dir, &entry.item(self.watch))?;
        self.count(taken);
        self.watch.done();
        if self.options.rules.one_file_system && above.is_some_and(|above| above.top().0 != id.0) {
            return Ok(None);
        }
        let Entry { from, to, found, .. } = entry;
        let ids = Arc::new(Above { id, parent: above.cloned() });
        Ok(Some(SubDir { from, to, attr: found.node.attr, ids }))
    }

    /// Reads the rest of a node, and applies the rules to it.
    fn complete(&self, entry: &mut Entry<'_, S::Contents>) -> Result<Taken> {
        self.source.complete(&mut entry.found)?;
        Ok(self.options.rules.apply(&mut entry.found.node))
    }

    fn finish(&self, item: &Item<'_>, made: Made, taken: Taken, buffer: &mut [u8]) -> Result<()> {
        if made == Made::Begun {
            self.sink.fill(item, buffer)?;
        }
        if matches!(made, Made::Whole | Made::Begun) {
            self.count(taken);
        }
        self.watch.done();
        Ok(())
    }

    /// Reports what the rules removed from a copy.
    fn count(&self, taken: Taken) {
        if taken.power {
            self.watch.lost(if taken.is_disowned { Loss::DisownedPower } else { Loss::WithheldPower });
        }
        (0..taken.xattrs).for_each(|_| self.watch.lost(Loss::Attribute));
    }

    /// Makes the files that wait, where one thread makes all names in their order.
    fn make_earlier(&self, buffer: &mut [u8], dir: &K::Dir, batch: Option<&mut Batch<'_>>) -> Result<()> {
        let batch = batch.filter(|_| self.options.thread_count == 1);
        batch.map_or(Ok(()), |batch| self.make_batch(buffer, dir, batch))
    }

    /// Makes the files that wait.
    fn make_batch(&self, buffer: &mut [u8], dir: &K::Dir, batch: &mut Batch<'_>) -> Result<()> {
        batch.bytes = 0;
        let files = std::mem::take(&mut batch.files);
        let Some(first) = files.first() else { return Ok(()) };
        let items: Vec<Item<'_>> = files.iter().map(|file| file.item(self.watch)).collect();
        let made = self.sink.make_many(dir, &items, buffer);
        let made = made.map_err(|error| self.named(error, &first.from, &first.to))?;
        for ((file, item), made) in files.iter().zip(&items).zip(made) {
            let finished = made.and_then(|made| self.finish(item, made, file.taken, buffer));
            self.note(finished.map_err(|error| self.named(error, &file.from, &file.to)))?;
        }
        Ok(())
    }
}
