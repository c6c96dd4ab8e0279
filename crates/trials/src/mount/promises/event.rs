//! Defines the events of files: the operations of a writer, and the promises that it gets. `writer` makes them,
//! `ledger` applies them.

use super::attributes::{Attributes, Change};
use std::sync::Arc;
use testkit::Random;

/// A write: `len` bytes at `offset`.
#[derive(Debug, Clone)]
pub(in crate::mount) struct Write {
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) source: Source,
}

/// Source of the bytes of a write.
#[derive(Debug, Clone)]
pub(in crate::mount) enum Source {
    /// Pseudo-random bytes of a seed.
    Seed(u64),
    /// Copied from another file or offset.
    Copied(Arc<[u8]>),
}

impl Write {
    /// The written bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match &self.source {
            Source::Seed(seed) => Random::new(*seed).noise(self.len),
            Source::Copied(bytes) => bytes.to_vec(),
        }
    }

    /// Offset of the first byte behind it.
    pub(super) fn end(&self) -> usize {
        self.offset.saturating_add(self.len)
    }
}

/// An operation that is about to begin, or a promise. Files are numbered in the order of their creation.
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
    /// As text; `names` gives the possible names of a file.
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
