//! What a writer did in its order, each entry with its place in the record of a disk.

use super::attributes::{Attributes, Change};
use super::ledger::{Ledger, Write};
use std::fs::File;
use std::io;

/// What is about to happen to a file, or what was promised. Files are numbered in the order of their making.
#[derive(Debug, Clone)]
pub(in crate::mount) enum Event {
    /// A file of this name is about to be made.
    New(String),
    /// A file was made, with these attributes.
    Made(usize, Attributes),
    /// A file is about to be written.
    Write(usize, Write),
    /// A file is about to be read.
    Used(usize),
    /// An attribute is about to change.
    Change(usize, Change),
    /// A file is about to get another name.
    Rename(usize, String),
    /// Two files are about to change names.
    Exchange(usize, usize),
    /// A file is about to get the name of another one, which is about to lose it.
    Replace { index: usize, old: usize },
    /// An fdatasync has returned.
    DataSynced(usize),
    /// An fsync has returned.
    Synced(usize),
    /// An fsync of the folder has returned.
    FolderSynced,
    /// A syncfs has returned.
    AllSynced,
    /// A snapshot of the folder was made at this path.
    Snapshot(String),
}

impl Event {
    /// In words; `names` are those that a file may have.
    pub(super) fn line(&self, names: impl Fn(usize) -> String) -> String {
        let of = |what: &str, index: usize| format!("{what} #{index}: {}", names(index));
        match self {
            Self::New(name) => format!("new {name}"),
            Self::Made(index, _) => of("made", *index),
            Self::Write(index, write) => of(&format!("write {}+{}", write.offset, write.len), *index),
            Self::Used(index) => of("read", *index),
            Self::Change(index, change) => of(&format!("{change:?}"), *index),
            Self::Rename(index, _) => of("rename", *index),
            Self::Exchange(one, other) => format!("{}, {}", of("exchange", *one), of("with", *other)),
            Self::Replace { index, old } => format!("{}, {}", of("replace by", *index), of("the", *old)),
            Self::DataSynced(index) => of("data synced", *index),
            Self::Synced(index) => of("synced", *index),
            Self::FolderSynced => "folder synced".to_owned(),
            Self::AllSynced => "all synced".to_owned(),
            Self::Snapshot(path) => format!("snapshot {path}"),
        }
    }
}

/// Where the record of a disk ends at the moment.
#[derive(Debug)]
pub(in crate::mount) enum Clock {
    /// Nothing is recorded: the last moment is the only one that is judged.
    None,
    /// The file to which a recording disk appends: its length in bytes only grows.
    Record(File),
}

impl Clock {
    fn now(&self) -> io::Result<u64> {
        match self {
            Self::None => Ok(0),
            Self::Record(file) => Ok(file.metadata()?.len()),
        }
    }
}

/// A ledger with its history.
#[derive(Debug)]
pub(in crate::mount) struct Diary {
    clock: Clock,
    events: Vec<(u64, Event)>,
    pub(in crate::mount) ledger: Ledger,
}

impl Diary {
    pub(in crate::mount) fn new(clock: Clock) -> Self {
        Self { clock, events: Vec::new(), ledger: Ledger::default() }
    }

    /// Notes what is about to happen before it does, and a promise after it was made.
    ///
    /// # Errors
    /// The record's length cannot be told.
    pub(in crate::mount) fn note(&mut self, event: Event) -> io::Result<()> {
        self.ledger.apply(&event);
        if !matches!(self.clock, Clock::None) {
            self.events.push((self.clock.now()?, event));
        }
        Ok(())
    }

    /// Goes through it again from the beginning.
    pub(in crate::mount) fn replay(&self) -> Replay<'_> {
        Replay { rest: &self.events, ledger: Ledger::default() }
    }
}

/// What a writer knew at an earlier moment.
#[derive(Debug)]
pub(in crate::mount) struct Replay<'a> {
    rest: &'a [(u64, Event)],
    ledger: Ledger,
}

impl Replay<'_> {
    /// The ledger when the record had `position` bytes: what had begun by then may be on the disk, and what was
    /// promised by then has to be. Moments come in their order.
    pub(in crate::mount) fn at(&mut self, position: u64) -> &Ledger {
        while let Some(((when, event), rest)) = self.rest.split_first() {
            if *when > position {
                break;
            }
            self.ledger.apply(event);
            self.rest = rest;
        }
        &self.ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_promise_counts_from_where_the_record_was_when_it_was_made() {
        let path = std::env::temp_dir().join(format!("spinney-diary-{}", std::process::id()));
        let mut record = File::create(&path).unwrap();
        let mut diary = Diary::new(Clock::Record(File::open(&path).unwrap()));
        diary.note(Event::New("a".to_owned())).unwrap();
        record.write_all(&[0; 100]).unwrap();
        diary.note(Event::DataSynced(0)).unwrap();
        let mut replay = diary.replay();
        assert_eq!((replay.at(0).files.len(), replay.at(0).syncs), (1, 0));
        assert_eq!(replay.at(99).syncs, 0);
        assert_eq!(replay.at(100).syncs, 1);
        std::fs::remove_file(path).unwrap();
    }
}
