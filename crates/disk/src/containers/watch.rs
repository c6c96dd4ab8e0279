//! Tells the caller how far a conversion is, and asks whether it should end. Called by `scan`.

use std::cell::Cell;

use super::options::Options;
use crate::{Error, Result};

/// Progress and cancellation of one conversion. A second pass over the image counts as its second half.
pub(super) struct Watch<'a> {
    progress: &'a dyn Fn(u64),
    is_cancelled: &'a dyn Fn() -> bool,
    pass: Cell<Pass>,
}

#[derive(Clone, Copy)]
enum Pass {
    Only,
    First,
    Second,
}

impl<'a> Watch<'a> {
    pub(super) fn new(options: &Options<'a>) -> Self {
        Self { progress: options.progress, is_cancelled: options.is_cancelled, pass: Cell::new(Pass::Only) }
    }

    /// The next bytes are the first pass of two.
    pub(super) fn first_pass(&self) {
        self.pass.set(Pass::First);
    }

    /// The next bytes are the second pass of two.
    pub(super) fn second_pass(&self) {
        self.pass.set(Pass::Second);
    }

    /// `done_bytes` of `size_bytes` were read in this pass.
    pub(super) fn read(&self, done_bytes: u64, size_bytes: u64) -> Result<()> {
        if (self.is_cancelled)() {
            return Err(Error::Cancelled);
        }
        let first_half = size_bytes / 2;
        (self.progress)(match self.pass.get() {
            Pass::Only => done_bytes,
            Pass::First => done_bytes / 2,
            Pass::Second if done_bytes == size_bytes => size_bytes,
            Pass::Second => first_half.saturating_add(done_bytes / 2),
        });
        Ok(())
    }
}
