//! Holds the findings of a check, and their places (device, block, tree, inode, key). Every pass adds findings; `run`
//! returns them in the report.

use std::sync::Mutex;

use btrfs_disk::{At, Corrupt, Key, Logical};

use checking::Collection;

use crate::code::Code;
use crate::pass::Pass;
use crate::sort::lock;

/// Where something was found, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the tree.
    pub tree: Option<u64>,
    /// Inode in that tree.
    pub inode: Option<u64>,
    /// Key of the item.
    pub key: Option<Key>,
    /// Logical address, bytes.
    pub logical: Option<u64>,
    /// Number of a device, and the byte on it.
    pub device: Option<(u64, u64)>,
    /// Subvolume and path of the inode; found when the check ends.
    pub path: Option<String>,
}

impl Place {
    pub(crate) fn tree(tree: u64) -> Self {
        Self { tree: Some(tree), ..Self::default() }
    }

    pub(crate) fn inode(tree: u64, inode: u64) -> Self {
        Self { tree: Some(tree), inode: Some(inode), ..Self::default() }
    }

    pub(crate) fn logical(at: u64) -> Self {
        Self { logical: Some(at), ..Self::default() }
    }

    pub(crate) fn device(device: u64, at: u64) -> Self {
        Self { device: Some((device, at)), ..Self::default() }
    }

    pub(crate) fn key(self, key: Key) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(crate) fn at(self, at: u64) -> Self {
        Self { logical: Some(at), ..self }
    }

    pub(crate) fn of_tree(self, tree: u64) -> Self {
        Self { tree: Some(tree), ..self }
    }

    /// Adds the place of a verifier's error.
    pub(crate) fn with(mut self, at: At) -> Self {
        match at {
            At::Block(Logical(block)) => self.logical = Some(block),
            At::Item { block: Logical(block), key, .. } => {
                self.logical = Some(block);
                self.key = Some(key);
            }
            _ => {}
        }
        self
    }
}

/// A defect.
pub type Finding = checking::Finding<Code, Place>;

/// The result of a check.
pub type Report = checking::Report<Code, Place, Pass>;

/// Collects findings from all threads.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<Collection<Code, Place>>);

impl Findings {
    /// Adds a finding.
    pub(crate) fn add(&self, code: Code, place: Place, expected: impl ToString, found: impl ToString) {
        self.add_what(code, String::new(), place, expected, found);
    }

    /// Adds a finding with a subject.
    pub(crate) fn add_what(
        &self,
        code: Code,
        what: impl Into<String>,
        place: Place,
        expected: impl ToString,
        found: impl ToString,
    ) {
        lock(&self.0).add(code, what, place, expected, found);
    }

    /// Adds an error of the verifier.
    pub(crate) fn add_corrupt(&self, code: Code, place: Place, error: &Corrupt) {
        self.add_what(code, error.what, place.with(error.at), error.expected, error.found);
    }

    /// A report with all of them.
    pub(crate) fn report(self, passes: Vec<Pass>) -> Report {
        self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).report(passes)
    }
}
