//! What a check finds, and how much of it is kept.

use std::collections::BTreeMap;
use std::sync::Mutex;

use btrfs_disk::{At, Corrupt, Key, Logical};

use crate::code::Code;
use crate::sort::lock;

/// Findings of one code that are kept; of the others the number is.
const KEPT_PER_CODE: usize = 200;

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

    /// What the verifier's error says of the place.
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

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub code: Code,
    /// What exactly, where the code stands for several things.
    pub what: String,
    /// Where.
    pub place: Place,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// Collects findings from all threads.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<BTreeMap<Code, Kept>>);

#[derive(Debug, Default)]
struct Kept {
    count: u64,
    findings: Vec<Finding>,
}

impl Findings {
    /// Adds one.
    pub(crate) fn add(&self, code: Code, place: Place, expected: impl ToString, found: impl ToString) {
        self.add_what(code, String::new(), place, expected, found);
    }

    /// Adds one that names what it is about.
    pub(crate) fn add_what(
        &self,
        code: Code,
        what: impl Into<String>,
        place: Place,
        expected: impl ToString,
        found: impl ToString,
    ) {
        let mut all = lock(&self.0);
        let kept = all.entry(code).or_default();
        kept.count = kept.count.saturating_add(1);
        if kept.findings.len() < KEPT_PER_CODE {
            let (expected, found) = (expected.to_string(), found.to_string());
            kept.findings.push(Finding { code, what: what.into(), place, expected, found });
        }
    }

    /// Adds what the verifier refuses.
    pub(crate) fn add_corrupt(&self, code: Code, place: Place, error: &Corrupt) {
        self.add_what(code, error.what, place.with(error.at), error.expected, error.found);
    }

    /// All that were kept, by code, and the number of each code.
    pub(crate) fn finish(self) -> (Vec<Finding>, Vec<(Code, u64)>) {
        let all = self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let counts = all.iter().map(|(code, kept)| (*code, kept.count)).collect();
        let findings = all.into_values().flat_map(|kept| kept.findings).collect();
        (findings, counts)
    }
}
