//! Holds the findings of a check, with their places, up to a number that is kept. Every pass adds findings; `run`
//! returns them in the report.

use std::cell::RefCell;

use checking::{CodeTable as _, Collection};
use f2fs_disk::{At, BlockAddr, Corrupt, Nid};

use crate::code::Code;
use crate::pass::Pass;

/// Place of a finding, as far as it is known.
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

    /// Adds the place in an error.
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

/// A fault of the file system.
pub type Finding = checking::Finding<Code, Place>;

/// The result of a check.
pub type Report = checking::Report<Code, Place, Pass>;

/// Collects findings of the selected passes.
#[derive(Debug)]
pub(crate) struct Findings {
    passes: Vec<Pass>,
    kept: RefCell<Collection<Code, Place>>,
    notes: RefCell<Vec<String>>,
}

impl Findings {
    pub(crate) fn new(passes: Vec<Pass>) -> Self {
        Self { passes, kept: RefCell::default(), notes: RefCell::default() }
    }

    /// True for a selected pass.
    pub(crate) fn wants(&self, pass: Pass) -> bool {
        self.passes.contains(&pass)
    }

    /// Adds a finding.
    pub(crate) fn add(&self, code: Code, place: Place, expected: impl ToString, found: impl ToString) {
        self.add_what(code, "", place, expected, found);
    }

    /// Adds a finding with the name of the damaged structure.
    pub(crate) fn add_what(&self, code: Code, what: &str, place: Place, expected: impl ToString, found: impl ToString) {
        if !code.info().is_some_and(|info| self.wants(info.pass)) {
            return;
        }
        self.kept.borrow_mut().add(code, what, place, expected, found);
    }

    /// Adds a failed verification.
    pub(crate) fn add_corrupt(&self, code: Code, place: Place, error: &Corrupt) {
        self.add_what(code, error.what, place.with(error.at), error.expected, error.found);
    }

    /// Adds a remark that is no error.
    pub(crate) fn note(&self, text: String) {
        self.notes.borrow_mut().push(text);
    }

    /// A report with all of them.
    pub(crate) fn report(self, inodes: u64, bytes: u64) -> Report {
        let report = self.kept.into_inner().report(self.passes);
        Report { notes: self.notes.into_inner(), inodes, bytes, ..report }
    }
}
