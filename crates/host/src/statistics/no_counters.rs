//! Stands in for the statistics in builds without the feature `lock-statistics`: it counts nothing. `locks` calls it as
//! it calls `counters`.

use std::ops::Deref;

use super::{Access, Row, Slot};

/// A name, forgotten at once.
#[derive(Debug)]
pub struct Class;

impl Class {
    /// A class of this name.
    #[must_use]
    pub const fn new(_name: &'static str) -> Self {
        Self
    }
}

/// Counts nothing.
#[derive(Debug)]
pub struct Watch;

impl Watch {
    /// For a class.
    #[inline]
    #[must_use]
    pub const fn new(_class: &'static Class) -> Self {
        Self
    }

    /// Nothing to count.
    #[inline]
    pub const fn touch(&self) {}
}

/// Nothing is measured.
pub const fn measure(_names: &[&str]) {}

/// Nothing to forget.
pub const fn reset() {}

/// No rows.
#[must_use]
pub const fn rows() -> Vec<Row> {
    Vec::new()
}

pub(crate) struct Last;

impl Last {
    pub(crate) const fn new() -> Self {
        Self
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Meter;

impl Meter {
    #[inline]
    pub(crate) const fn new(_class: &'static Class) -> Self {
        Self
    }

    #[inline]
    pub(crate) fn take<T: ?Sized, G: Deref<Target = Slot<T>>>(
        self,
        _access: Access,
        _attempt: impl FnOnce() -> Option<G>,
        wait: impl FnOnce() -> G,
    ) -> (G, Timed) {
        (wait(), Timed)
    }

    #[inline]
    pub(crate) const fn took(self, _access: Access, _last: &Last) -> Timed {
        Timed
    }
}

pub(crate) struct Timed;

impl Timed {
    #[inline]
    pub(crate) const fn none() -> Self {
        Self
    }

    #[inline]
    pub(crate) const fn pause(&mut self) {}

    #[inline]
    pub(crate) const fn resume(&mut self, _access: Access, _last: &Last) {}
}
