//! Provides locks with ranks: a thread may take a lock only when every lock it holds has a lower rank. The engines use
//! them for all their locks.
//!
//! An engine names its ranks with [`crate::ranks!`]. Levels are compared over all crates, so crates that work on top of
//! each other share one order. A rank that is listed as nesting may be held several times by one thread, in an order
//! that its owner keeps.
//!
//! Debug builds assert the order on every acquisition and name both ranks; release builds have neither rank nor check.
//! A `try_` acquisition cannot wait, so it may violate the order, but its lock counts for later acquisitions.
//!
//! A lock can be measured ([`crate::statistics`]), together with the locks of its rank or of a narrower class given by
//! its owner. Builds without the feature `lock-statistics` have no code for it.
//!
//! Guards stay on the thread that took them (they are not `Send`), which is what lets the
//! check be a thread-local counter. Locks are never poisoned: a panic releases them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use crate::spinning;
use crate::statistics::{Access, Class, Meter, Slot, Timed};

/// Levels that ranks may have: 0 to this one, exclusive.
pub const LEVELS: usize = 64;

/// A position in the order of locks.
pub trait Rank: Copy {
    /// Its level, below [`LEVELS`]: locks of lower levels are taken first.
    fn level(self) -> u8;
    /// Its name, for messages.
    fn name(self) -> &'static str;
    /// True when a thread may hold several locks of this rank.
    fn nests(self) -> bool;
    /// With which others its locks are measured, where they have no class of their own.
    fn class(self) -> &'static Class;
}

/// Declares an enum of ranks with their levels, outermost first, and which of them nest.
#[macro_export]
macro_rules! ranks {
    (
        $(#[$about:meta])*
        $vis:vis enum $name:ident { $($(#[$doc:meta])* $rank:ident = $level:literal,)* }
        nests: [$($nesting:ident),*]
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[$doc])* $rank,)* }

        impl $crate::locks::Rank for $name {
            fn level(self) -> u8 {
                match self { $(Self::$rank => $level,)* }
            }

            fn name(self) -> &'static str {
                match self { $(Self::$rank => stringify!($rank),)* }
            }

            fn nests(self) -> bool {
                let nesting: &[Self] = &[$(Self::$nesting),*];
                nesting.contains(&self)
            }

            fn class(self) -> &'static $crate::statistics::Class {
                match self {
                    $(Self::$rank => {
                        static CLASS: $crate::statistics::Class =
                            $crate::statistics::Class::new(stringify!($rank));
                        &CLASS
                    })*
                }
            }
        }
    };
}

/// Until the guard is dropped, this thread counts as holding a lock of `rank`.
#[inline]
pub fn hold(rank: impl Rank) -> Guard<()> {
    Guard { timed: Timed::none(), guard: (), _held: order::Position::new(rank).enter_without_waiting() }
}

/// Mutual exclusion with a rank.
pub struct Mutex<T: ?Sized> {
    order: order::Position,
    meter: Meter,
    inner: parking_lot::Mutex<Slot<T>>,
}

impl<T> Mutex<T> {
    /// A lock at `rank`.
    pub fn new(rank: impl Rank, value: T) -> Self {
        Self::in_class(rank, rank.class(), value)
    }

    /// A lock at `rank` that is measured with the others of `class`.
    pub fn in_class(rank: impl Rank, class: &'static Class, value: T) -> Self {
        let (order, meter) = (order::Position::new(rank), Meter::new(class));
        Self { order, meter, inner: parking_lot::Mutex::new(Slot::new(value)) }
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().value
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.order.enter();
        let attempt = || self.inner.try_lock();
        let wait = || spinning::take(attempt, || self.inner.lock());
        let (guard, timed) = self.meter.take(Access::Exclusive, attempt, wait);
        Guard { timed, guard, _held: held }
    }

    /// Takes the lock if it is free, and never waits.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.inner.try_lock()?;
        let timed = self.meter.took(Access::Exclusive, &guard.last);
        Some(Guard { timed, guard, _held: self.order.enter_without_waiting() })
    }

    /// Access without locking: the exclusive borrow proves that no other thread holds the lock.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner.get_mut().value
    }
}

/// Many readers or one writer, with a rank.
pub struct RwLock<T: ?Sized> {
    order: order::Position,
    meter: Meter,
    inner: parking_lot::RwLock<Slot<T>>,
}

impl<T> RwLock<T> {
    /// A lock at `rank`.
    pub fn new(rank: impl Rank, value: T) -> Self {
        Self::in_class(rank, rank.class(), value)
    }

    /// A lock at `rank` that is measured with the others of `class`.
    pub fn in_class(rank: impl Rank, class: &'static Class, value: T) -> Self {
        let (order, meter) = (order::Position::new(rank), Meter::new(class));
        Self { order, meter, inner: parking_lot::RwLock::new(Slot::new(value)) }
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().value
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer has the lock.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let held = self.order.enter();
        let attempt = || self.inner.try_read();
        let wait = || spinning::take(attempt, || self.inner.read());
        let (guard, timed) = self.meter.take(Access::Shared, attempt, wait);
        Guard { timed, guard, _held: held }
    }

    /// As [`RwLock::read`], for a thread that may have it for reading already: a writer that waits is passed by. The
    /// rank must be one that nests.
    #[inline]
    pub fn read_recursive(&self) -> ReadGuard<'_, T> {
        let held = self.order.enter();
        let attempt = || self.inner.try_read_recursive();
        let wait = || spinning::take(attempt, || self.inner.read_recursive());
        let (guard, timed) = self.meter.take(Access::Shared, attempt, wait);
        Guard { timed, guard, _held: held }
    }

    /// Takes the lock exclusively; waits until no thread holds it.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let held = self.order.enter();
        let attempt = || self.inner.try_write();
        let wait = || spinning::take(attempt, || self.inner.write());
        let (guard, timed) = self.meter.take(Access::Exclusive, attempt, wait);
        Guard { timed, guard, _held: held }
    }

    /// Takes the lock for reading when that needs no waiting.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        let guard = self.inner.try_read()?;
        let timed = self.meter.took(Access::Shared, &guard.last);
        Some(Guard { timed, guard, _held: self.order.enter_without_waiting() })
    }

    /// Takes the lock for writing when that needs no waiting.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let guard = self.inner.try_write()?;
        let timed = self.meter.took(Access::Exclusive, &guard.last);
        Some(Guard { timed, guard, _held: self.order.enter_without_waiting() })
    }

    /// Access without locking: the exclusive borrow proves that no other thread holds the lock.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner.get_mut().value
    }
}

/// A shared [`RwLock`] whose guards keep it alive, for locks that are taken on the way
/// down a tree and outlive the place they were found in. Clones share the lock.
pub struct ArcRwLock<T> {
    order: order::Position,
    meter: Meter,
    inner: Arc<parking_lot::RwLock<Slot<T>>>,
}

impl<T> ArcRwLock<T> {
    /// A lock at `rank`.
    pub fn new(rank: impl Rank, value: T) -> Self {
        let (order, meter) = (order::Position::new(rank), Meter::new(rank.class()));
        Self { order, meter, inner: Arc::new(parking_lot::RwLock::new(Slot::new(value))) }
    }

    /// Waits until no writer has the lock.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let held = self.order.enter();
        let attempt = || self.inner.try_read();
        let wait = || spinning::take(attempt, || self.inner.read());
        let (guard, timed) = self.meter.take(Access::Shared, attempt, wait);
        Guard { timed, guard, _held: held }
    }

    /// As [`RwLock::read`], for a thread that may have it for reading already: a writer that waits is passed by. The
    /// rank must be one that nests.
    #[inline]
    pub fn read_recursive(&self) -> ReadGuard<'_, T> {
        let held = self.order.enter();
        let attempt = || self.inner.try_read_recursive();
        let wait = || spinning::take(attempt, || self.inner.read_recursive());
        let (guard, timed) = self.meter.take(Access::Shared, attempt, wait);
        Guard { timed, guard, _held: held }
    }

    /// Takes the lock exclusively; waits until no thread holds it.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let held = self.order.enter();
        let attempt = || self.inner.try_write();
        let wait = || spinning::take(attempt, || self.inner.write());
        let (guard, timed) = self.meter.take(Access::Exclusive, attempt, wait);
        Guard { timed, guard, _held: held }
    }

    /// Like [`Self::read`]; the guard keeps the lock alive.
    #[inline]
    pub fn read_arc(&self) -> ArcReadGuard<T> {
        let held = self.order.enter();
        let attempt = || self.inner.try_read_arc();
        let wait = || spinning::take(attempt, || self.inner.read_arc());
        let (guard, timed) = self.meter.take(Access::Shared, attempt, wait);
        Guard { timed, guard, _held: held }
    }

    /// Like [`Self::write`]; the guard keeps the lock alive.
    #[inline]
    pub fn write_arc(&self) -> ArcWriteGuard<T> {
        let held = self.order.enter();
        let attempt = || self.inner.try_write_arc();
        let wait = || spinning::take(attempt, || self.inner.write_arc());
        let (guard, timed) = self.meter.take(Access::Exclusive, attempt, wait);
        Guard { timed, guard, _held: held }
    }

    /// Takes the lock for reading when that needs no waiting.
    #[inline]
    pub fn try_read_arc(&self) -> Option<ArcReadGuard<T>> {
        let guard = self.inner.try_read_arc()?;
        let timed = self.meter.took(Access::Shared, &guard.last);
        Some(Guard { timed, guard, _held: self.order.enter_without_waiting() })
    }

    /// Takes the lock for writing when that needs no waiting.
    #[inline]
    pub fn try_write_arc(&self) -> Option<ArcWriteGuard<T>> {
        let guard = self.inner.try_write_arc()?;
        let timed = self.meter.took(Access::Exclusive, &guard.last);
        Some(Guard { timed, guard, _held: self.order.enter_without_waiting() })
    }

    /// True when both are the same lock.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Handles and guards on this lock; exact only when no other thread has a handle.
    #[must_use]
    pub fn handle_count(&self) -> usize {
        Arc::strong_count(&self.inner)
    }
}

impl<T> Clone for ArcRwLock<T> {
    fn clone(&self) -> Self {
        Self { order: self.order, meter: self.meter, inner: Arc::clone(&self.inner) }
    }
}

/// Waits for a condition on the value of a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Lets go of the mutex until notified.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.timed.pause();
        self.0.wait(&mut guard.guard);
        guard.timed.resume(Access::Exclusive, &guard.guard.last);
    }

    /// Lets go of the mutex as long as `is_blocked` holds.
    pub fn wait_while<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, mut is_blocked: impl FnMut(&mut T) -> bool) {
        while is_blocked(guard) {
            self.wait(guard);
        }
    }

    /// Lets go of the mutex until notified; false when `deadline` came first.
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> bool {
        guard.timed.pause();
        let is_notified = !self.0.wait_until(&mut guard.guard, deadline).timed_out();
        guard.timed.resume(Access::Exclusive, &guard.guard.last);
        is_notified
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Access to a locked value until dropped.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard<G> {
    /// Ends before the lock is released: waking waiters is not part of the holding time.
    timed: Timed,
    guard: G,
    _held: order::Held,
}

/// Guard of a [`Mutex`].
pub type MutexGuard<'a, T> = Guard<parking_lot::MutexGuard<'a, Slot<T>>>;
/// Guard of a reader.
pub type ReadGuard<'a, T> = Guard<parking_lot::RwLockReadGuard<'a, Slot<T>>>;
/// Guard of a writer.
pub type WriteGuard<'a, T> = Guard<parking_lot::RwLockWriteGuard<'a, Slot<T>>>;
/// Guard of a reader that keeps the lock alive.
pub type ArcReadGuard<T> = Guard<parking_lot::ArcRwLockReadGuard<parking_lot::RawRwLock, Slot<T>>>;
/// Guard of a writer that keeps the lock alive.
pub type ArcWriteGuard<T> = Guard<parking_lot::ArcRwLockWriteGuard<parking_lot::RawRwLock, Slot<T>>>;

impl<T> WriteGuard<'_, T> {
    /// Lets waiters have the lock first, if there are any, and takes it again.
    pub fn bump(this: &mut Self) {
        this.timed.pause();
        parking_lot::RwLockWriteGuard::bump(&mut this.guard);
        this.timed.resume(Access::Exclusive, &this.guard.last);
    }
}

impl<T> ArcWriteGuard<T> {
    /// Turns the writer into a reader without letting another writer in between.
    pub fn downgrade(this: Self) -> ArcReadGuard<T> {
        let Self { timed, guard, _held } = this;
        Guard { timed, guard: parking_lot::ArcRwLockWriteGuard::downgrade(guard), _held }
    }
}

impl<T: ?Sized, G: Deref<Target = Slot<T>>> Deref for Guard<G> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard.value
    }
}

impl<T: ?Sized, G: DerefMut<Target = Slot<T>>> DerefMut for Guard<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard.value
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock")
    }
}

impl<T> fmt::Debug for ArcRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArcRwLock")
    }
}

impl<G> fmt::Debug for Guard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// The check, in debug builds.
#[cfg(debug_assertions)]
mod order {
    use std::cell::RefCell;

    use super::{LEVELS, Rank};

    thread_local! {
        /// For each level the count of locks held, and the name of the rank.
        static HELD: RefCell<[(u32, &'static str); LEVELS]> = const { RefCell::new([(0, ""); LEVELS]) };
    }

    #[derive(Clone, Copy)]
    pub(super) struct Position {
        level: usize,
        name: &'static str,
        nests: bool,
    }

    impl Position {
        pub(super) fn new(rank: impl Rank) -> Self {
            let level = usize::from(rank.level());
            assert!(level < LEVELS, "level of the lock rank {}", rank.name());
            Self { level, name: rank.name(), nests: rank.nests() }
        }

        pub(super) fn enter(self) -> Held {
            let highest = HELD.with_borrow(|held| held.iter().rposition(|(count, _)| *count > 0));
            if let Some(highest) = highest {
                let other = HELD.with_borrow(|held| held[highest].1);
                let is_higher = highest < self.level || (highest == self.level && self.nests);
                assert!(is_higher, "lock order: {} wanted while {other} is held", self.name);
            }
            self.enter_without_waiting()
        }

        pub(super) fn enter_without_waiting(self) -> Held {
            change(self.level, |held| *held = (held.0 + 1, self.name));
            Held(self.level)
        }
    }

    /// One lock held by this thread.
    pub(super) struct Held(usize);

    impl Drop for Held {
        fn drop(&mut self) {
            change(self.0, |held| held.0 -= 1);
        }
    }

    fn change(level: usize, change: impl FnOnce(&mut (u32, &'static str))) {
        // A thread-local may be gone while a thread ends; then there is nothing to check.
        let _ = HELD.try_with(|held| change(&mut held.borrow_mut()[level]));
    }
}

/// Nothing at all, in release builds.
#[cfg(not(debug_assertions))]
mod order {
    use super::Rank;

    #[derive(Clone, Copy)]
    pub(super) struct Position;

    impl Position {
        #[inline]
        pub(super) fn new(_: impl Rank) -> Self {
            Self
        }

        #[inline]
        pub(super) fn enter(self) -> Held {
            Held
        }

        #[inline]
        pub(super) fn enter_without_waiting(self) -> Held {
            Held
        }
    }

    pub(super) struct Held;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::ranks! {
        enum Level {
            /// Outermost.
            CommitGate = 1,
            /// Nests.
            TreeBlock = 2,
            /// A list.
            Groups = 3,
            /// One of the list.
            Group = 4,
            /// Innermost.
            Cache = 5,
        }
        nests: [TreeBlock]
    }

    #[test]
    fn ascending_ranks_and_tree_blocks_among_themselves_are_allowed() {
        let root = RwLock::new(Level::TreeBlock, 1);
        let parent = ArcRwLock::new(Level::TreeBlock, 2);
        let child = ArcRwLock::new(Level::TreeBlock, 3);
        let cache = Mutex::new(Level::Cache, 4);
        let root_guard = root.read();
        let parent_guard = parent.write_arc();
        drop(root_guard);
        let child_guard = child.read_arc();
        drop(parent_guard);
        assert_eq!(*child_guard + *cache.lock(), 7);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order: Groups wanted while Cache is held")]
    fn a_lower_rank_after_a_higher_one_is_refused() {
        let cache = Mutex::new(Level::Cache, ());
        let groups = RwLock::new(Level::Groups, ());
        let _cache = cache.lock();
        let _groups = groups.read();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order: Group wanted while Group is held")]
    fn two_locks_of_one_rank_are_refused() {
        let (a, b) = (Mutex::new(Level::Group, ()), Mutex::new(Level::Group, ()));
        let _a = a.lock();
        let _b = b.lock();
    }

    #[test]
    fn a_downgraded_writer_still_counts_once() {
        let block = ArcRwLock::new(Level::TreeBlock, 5);
        let mut writer = block.write_arc();
        *writer += 1;
        let reader = ArcWriteGuard::downgrade(writer);
        assert!(block.try_write_arc().is_none());
        assert_eq!(*reader, 6);
        drop(reader);
        let outer = Mutex::new(Level::CommitGate, ());
        drop(outer.lock());
    }

    #[test]
    fn the_condition_is_seen_by_the_waiter() {
        let pair = Arc::new((Mutex::new(Level::CommitGate, false), Condvar::new()));
        let theirs = Arc::clone(&pair);
        let thread = std::thread::spawn(move || {
            *theirs.0.lock() = true;
            theirs.1.notify_all();
        });
        let mut ready = pair.0.lock();
        pair.1.wait_while(&mut ready, |ready| !*ready);
        drop(ready);
        thread.join().unwrap();
    }
}
