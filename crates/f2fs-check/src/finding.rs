//! What a check finds, and how much of it is kept.

use std::cell::RefCell;
use std::collections::BTreeMap;

use f2fs_disk::{At, BlockAddr, Corrupt, Nid};

use crate::code::Code;
use crate::pass::Pass;

/// Findings of one code that are kept; of the others the number is.
const KEPT_PER_CODE: usize = 200;

/// Where something was found, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the inode.
    pub inode: Option<u32>,
    /// Number of the node.
    pub node: Option<u32>,
    /// Block of the inode's contents.
    pub file_block: Option<u64>,
    /// Block of the device.
    pub block: Option<u32>,
    /// Segment of the main area.
    pub segment: Option<u32>,
    /// Byte of the device.
    pub device_offset: Option<u64>,
    /// Path of the inode; found when the check ends.
    pub path: Option<String>,
}

impl Place {
    pub(crate) fn inode(ino: Nid) -> Self {
        Self { inode: Some(ino.0), ..Self::default() }
    }

    pub(crate) fn node(nid: Nid) -> Self {
        Self { node: Some(nid.0), ..Self::default() }
    }

    pub(crate) fn segment(segment: u32) -> Self {
        Self { segment: Some(segment), ..Self::default() }
    }

    pub(crate) fn block(at: BlockAddr) -> Self {
        Self { block: Some(at.0), ..Self::default() }
    }

    pub(crate) fn byte(offset: u64) -> Self {
        Self { device_offset: Some(offset), ..Self::default() }
    }

    pub(crate) fn of_inode(self, ino: Nid) -> Self {
        Self { inode: Some(ino.0), ..self }
    }

    pub(crate) fn with_node(self, nid: Nid) -> Self {
        Self { node: Some(nid.0), ..self }
    }

    pub(crate) fn at(self, at: BlockAddr) -> Self {
        Self { block: Some(at.0), ..self }
    }

    pub(crate) fn file_block(self, index: u64) -> Self {
        Self { file_block: Some(index), ..self }
    }

    /// What an error says of the place.
    fn with(mut self, at: At) -> Self {
        match at {
            At::Unknown => {}
            At::Superblock(offset) => self.device_offset = Some(offset),
            At::Checkpoint(at) | At::Block(at) => self.block = Some(at.0),
            At::Node(nid, at) => (self.node, self.block) = (Some(nid.0), Some(at.0)),
            At::Inode(ino) => self.inode = Some(ino.0),
            At::File(ino, index) => (self.inode, self.file_block) = (Some(ino.0), Some(index)),
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

/// What was collected.
pub(crate) struct Collected {
    pub(crate) findings: Vec<Finding>,
    pub(crate) counts: Vec<(Code, u64)>,
    pub(crate) passes: Vec<Pass>,
    pub(crate) notes: Vec<String>,
}

/// Collects findings of the passes that were asked for.
#[derive(Debug)]
pub(crate) struct Findings {
    passes: Vec<Pass>,
    kept: RefCell<BTreeMap<Code, Kept>>,
    notes: RefCell<Vec<String>>,
}

#[derive(Debug, Default)]
struct Kept {
    count: u64,
    findings: Vec<Finding>,
}

impl Findings {
    pub(crate) fn new(passes: Vec<Pass>) -> Self {
        Self { passes, kept: RefCell::default(), notes: RefCell::default() }
    }

    /// True for a pass that was asked for.
    pub(crate) fn wants(&self, pass: Pass) -> bool {
        self.passes.contains(&pass)
    }

    /// Adds one.
    pub(crate) fn add(&self, code: Code, place: Place, expected: impl ToString, found: impl ToString) {
        self.add_what(code, "", place, expected, found);
    }

    /// Adds one that names what it is about.
    pub(crate) fn add_what(&self, code: Code, what: &str, place: Place, expected: impl ToString, found: impl ToString) {
        if !code.info().is_some_and(|info| self.wants(info.pass)) {
            return;
        }
        let mut all = self.kept.borrow_mut();
        let kept = all.entry(code).or_default();
        kept.count = kept.count.saturating_add(1);
        if kept.findings.len() < KEPT_PER_CODE {
            let (expected, found) = (expected.to_string(), found.to_string());
            kept.findings.push(Finding { code, what: what.to_owned(), place, expected, found });
        }
    }

    /// Adds what a verification refuses.
    pub(crate) fn add_corrupt(&self, code: Code, place: Place, error: &Corrupt) {
        self.add_what(code, error.what, place.with(error.at), error.expected, error.found);
    }

    /// Says what is no error and worth knowing.
    pub(crate) fn note(&self, text: String) {
        self.notes.borrow_mut().push(text);
    }

    /// All that were kept, by code, the number of each code, the passes, and the notes.
    pub(crate) fn finish(self) -> Collected {
        let all = self.kept.into_inner();
        let counts = all.iter().map(|(code, kept)| (*code, kept.count)).collect();
        let findings = all.into_values().flat_map(|kept| kept.findings).collect();
        Collected { findings, counts, passes: self.passes, notes: self.notes.into_inner() }
    }
}
