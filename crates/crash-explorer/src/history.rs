//! Records the values of each property of the volume, one after the other, with the times of their changes. `oracle`
//! holds these histories, `drive` adds to them, `compare` reads them.

use super::tape::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use vfs::Metadata;
use vfs::file_system::{NodeFlags, Time as Timestamp};

/// Subvolume and inode number: never used again while the volume is open.
pub(super) type Ino = (u64, u64);
/// A directory, and a name in it.
pub(super) type Slot = (Ino, Vec<u8>);
pub(super) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;
pub(super) type Names = BTreeSet<Slot>;

/// The attributes that `stat` reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attrs {
    /// Permission bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Those that a caller can set.
    pub(super) flags: NodeFlags,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) btime: Timestamp,
}

impl Attrs {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            mode: metadata.permissions,
            uid: metadata.uid,
            gid: metadata.gid,
            flags: metadata.flags,
            atime: metadata.atime,
            mtime: metadata.mtime,
            ctime: metadata.ctime,
            btime: metadata.btime,
        }
    }
}

impl fmt::Display for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:o} {}:{} {:?}", self.mode, self.uid, self.gid, self.flags)?;
        for (name, time) in [("atime", self.atime), ("mtime", self.mtime), ("ctime", self.ctime), ("btime", self.btime)]
        {
            write!(f, " {name} {}.{}", time.sec, time.nsec)?;
        }
        Ok(())
    }
}

/// The values that something had, and when the operation began that gave it each.
#[derive(Debug, Clone)]
pub(super) struct Versions<T> {
    list: Vec<(Time, T)>,
}

/// The legal values at a moment: the last promised one, and all possible later ones.
#[derive(Debug)]
pub(super) struct Window<'a, T>(&'a [(Time, T)]);

impl<T: PartialEq> Versions<T> {
    pub(super) fn new(began: Time, value: T) -> Self {
        Self { list: vec![(began, value)] }
    }

    /// Notes a value, if it is another.
    pub(super) fn push(&mut self, began: Time, value: T) {
        if self.list.last().is_none_or(|(_, last)| *last != value) {
            self.list.push((began, value));
        }
    }

    /// Number of the value it has now.
    pub(super) fn last_index(&self) -> usize {
        self.list.len().saturating_sub(1)
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.list.last().map(|(_, value)| value)
    }

    /// The time when the operation that made it began.
    pub(super) fn first_began(&self) -> Time {
        self.list.first().map_or(0, |(began, _)| *began)
    }

    /// Number of the last change for which `is_part(before, after)`; 0 without one.
    pub(super) fn last_change(&self, is_part: impl Fn(&T, &T) -> bool) -> usize {
        let changes = self.list.windows(2).zip(1..);
        let parts = changes.filter(|(pair, _)| matches!(pair, [(_, before), (_, after)] if is_part(before, after)));
        parts.map(|(_, index)| index).last().unwrap_or(0)
    }

    /// From value number `floor` up to those of operations that had begun before `now`. If none had begun that early,
    /// it is the first value.
    pub(super) fn window(&self, floor: usize, now: Time) -> Window<'_, T> {
        let end = self.list.partition_point(|(began, _)| *began < now).max(1);
        Window(self.list.get(floor.min(end.saturating_sub(1))..end).unwrap_or_default())
    }
}

impl<T: PartialEq> Window<'_, T> {
    pub(super) fn has(&self, value: &T) -> bool {
        self.0.iter().any(|(_, legal)| legal == value)
    }

    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.0.iter().map(|(_, value)| value)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// How far each thing is promised: the number of the value that has to be there at least.
#[derive(Debug, Clone, Default)]
pub(super) struct Floors {
    pub(super) data: BTreeMap<Ino, usize>,
    pub(super) xattrs: BTreeMap<Ino, usize>,
    pub(super) attrs: BTreeMap<Ino, usize>,
    pub(super) names: BTreeMap<Ino, usize>,
    pub(super) slots: BTreeMap<Slot, usize>,
}

impl Floors {
    /// Both are promised.
    pub(super) fn raise(&mut self, other: &Self) {
        raise(&mut self.data, &other.data);
        raise(&mut self.xattrs, &other.xattrs);
        raise(&mut self.attrs, &other.attrs);
        raise(&mut self.names, &other.names);
        raise(&mut self.slots, &other.slots);
    }
}

fn raise<K: Ord + Clone>(floors: &mut BTreeMap<K, usize>, others: &BTreeMap<K, usize>) {
    for (key, other) in others {
        let floor = floors.entry(key.clone()).or_default();
        *floor = (*floor).max(*other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_with_what_was_promised_and_ends_with_what_had_begun() {
        let mut versions = Versions::new(0, 'a');
        versions.push(10, 'b');
        versions.push(20, 'b');
        versions.push(30, 'c');
        let window = |floor, now| versions.window(floor, now).values().copied().collect::<String>();
        assert_eq!((window(0, 0), window(0, 10), window(0, 11)), ("a".into(), "a".into(), "ab".into()));
        assert_eq!((window(1, 99), window(2, 99), window(2, 5)), ("bc".into(), "c".into(), "a".into()));
        assert_eq!(versions.last_change(|before, _| *before == 'a'), 1);
        assert_eq!(versions.last_change(|before, _| *before == 'x'), 0);
        assert!(versions.window(1, 99).has(&'c') && !versions.window(1, 99).has(&'a'));
    }
}
