//! Lock statistics are exact: known sequences of several threads, counted.
#![cfg(feature = "lock-statistics")]

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use host::locks::{ArcRwLock, ArcWriteGuard, Condvar, Mutex, RwLock};
use host::statistics::{Class, Row, Watch, measure, reset, rows};

host::ranks! {
    enum Level {
        /// For one test each.
        Turns = 1,
        Held = 2,
        Readers = 3,
        Handed = 4,
        Waited = 5,
        Wide = 6,
        Chosen = 7,
        Ignored = 8,
    }
    nests: []
}

/// The measured classes, and their counts, are common to the process.
static ONE_TEST: parking_lot::Mutex<()> = parking_lot::const_mutex(());

const PAUSE: Duration = Duration::from_millis(150);

fn begin(names: &[&str]) -> parking_lot::MutexGuard<'static, ()> {
    let one = ONE_TEST.lock();
    measure(names);
    reset();
    one
}

fn of(class: &str) -> Row {
    rows().into_iter().find(|row| row.class == class).unwrap_or_default()
}

/// Acquisitions, those of readers, contended ones, transfers.
fn counts(class: &str) -> (u64, u64, u64, u64) {
    let row = of(class);
    (row.acquisitions, row.shared, row.contended, row.transfers)
}

/// Runs on a thread of its own, which is over then.
fn elsewhere(work: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(work).join().expect("the thread ends"));
}

#[test]
fn only_another_thread_than_the_last_is_a_transfer() {
    let _one = begin(&[]);
    let (first, second) = (Mutex::new(Level::Turns, 0), Mutex::new(Level::Turns, 0));
    for _ in 0..3 {
        *first.lock() += 1;
    }
    assert_eq!(counts("Turns"), (3, 0, 0, 0));
    elsewhere(|| (0..5).for_each(|_| *first.lock() += 1));
    elsewhere(|| *first.lock() += 1);
    assert_eq!(counts("Turns"), (9, 0, 0, 2));
    // Another lock of the class, which no thread had before.
    elsewhere(|| *second.lock() += 1);
    assert_eq!(counts("Turns"), (10, 0, 0, 2));
    *first.lock() += 1;
    *second.lock() += 1;
    assert_eq!(counts("Turns"), (12, 0, 0, 4));
    assert_eq!((first.into_inner(), second.into_inner()), (10, 2));
}

#[test]
fn eight_threads_lose_no_acquisition() {
    let _one = begin(&["Turns"]);
    let lock = Mutex::new(Level::Turns, 0_u64);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
        }
    });
    let row = of("Turns");
    assert_eq!((row.acquisitions, *lock.lock()), (80_000, 80_000));
    assert!(row.transfers >= 7, "{row:?}");
    assert!(row.contended <= row.acquisitions && row.hold_ns > 0, "{row:?}");
}

#[test]
fn who_finds_the_lock_taken_waits_as_long_as_the_other_holds_it() {
    let _one = begin(&["Held"]);
    let lock = Mutex::new(Level::Held, ());
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        let guard = lock.lock();
        let lock = &lock;
        scope.spawn(move || {
            say.send(()).unwrap();
            drop(lock.lock());
        });
        said.recv().unwrap();
        thread::sleep(PAUSE);
        drop(guard);
    });
    let row = of("Held");
    assert_eq!(counts("Held"), (2, 0, 1, 1));
    let (held, waited) = (Duration::from_nanos(row.hold_ns), Duration::from_nanos(row.wait_ns));
    assert!(held >= PAUSE && waited <= held + PAUSE && waited > PAUSE / 3, "{row:?}");
}

#[test]
fn readers_and_attempts_are_counted_where_they_succeed() {
    let _one = begin(&["Readers"]);
    let lock = RwLock::new(Level::Readers, 7);
    let reader = lock.read();
    assert!(lock.try_write().is_none());
    elsewhere(|| assert_eq!(lock.try_read().map(|guard| *guard), Some(7)));
    elsewhere(|| assert_eq!(*lock.read(), 7));
    drop(reader);
    *lock.write() += 1;
    assert_eq!(lock.try_write().map(|guard| *guard), Some(8));
    assert_eq!(counts("Readers"), (5, 3, 0, 3));
}

#[test]
fn a_shared_lock_keeps_its_last_thread_over_all_handles() {
    let _one = begin(&["Handed"]);
    let lock = ArcRwLock::new(Level::Handed, 1);
    let other = lock.clone();
    *lock.write_arc() += 1;
    elsewhere(move || *other.write() += 1);
    let reader = ArcWriteGuard::downgrade(lock.write_arc());
    assert_eq!(*reader, 3);
    drop(reader);
    assert_eq!(counts("Handed"), (3, 0, 0, 2));
}

#[test]
fn waiting_for_a_condition_is_not_holding() {
    let _one = begin(&["Waited"]);
    let (lock, condition) = (Mutex::new(Level::Waited, false), Condvar::new());
    let mut guard = lock.lock();
    assert!(!condition.wait_until(&mut guard, Instant::now() + PAUSE));
    drop(guard);
    // Taken, let go to wait, and taken again.
    assert_eq!(counts("Waited"), (2, 0, 0, 0));
    let held = Duration::from_nanos(of("Waited").hold_ns);
    assert!(held < PAUSE, "{held:?}");
}

#[test]
fn a_class_is_narrower_than_a_rank_where_its_owner_says_so() {
    static NARROW: Class = Class::new("narrow");
    let _one = begin(&[]);
    let (wide, narrow) = (Mutex::new(Level::Wide, ()), Mutex::in_class(Level::Wide, &NARROW, ()));
    drop(wide.lock());
    drop(narrow.lock());
    drop(narrow.lock());
    assert_eq!((of("Wide").acquisitions, of("narrow").acquisitions), (1, 2));
    // The most often taken is first.
    assert_eq!(rows().first().map(|row| row.class), Some("narrow"));
}

#[test]
fn what_is_shared_without_a_lock_is_counted_by_hand() {
    static SHARED: Class = Class::new("shared number");
    let _one = begin(&["shared number"]);
    let watch = Watch::new(&SHARED);
    watch.touch();
    watch.touch();
    elsewhere(|| watch.touch());
    assert_eq!(counts("shared number"), (3, 0, 0, 1));
    let row = of("shared number");
    assert_eq!((row.wait_ns, row.hold_ns), (0, 0));
}

#[test]
fn only_what_was_named_is_measured() {
    let _one = begin(&["Chosen"]);
    let (chosen, ignored) = (Mutex::new(Level::Chosen, ()), Mutex::new(Level::Ignored, ()));
    drop((chosen.lock(), ignored.lock()));
    assert_eq!((counts("Chosen").0, counts("Ignored").0), (1, 0));
    measure(&["Ignored"]);
    drop((chosen.lock(), ignored.lock()));
    assert_eq!((counts("Chosen").0, counts("Ignored").0), (1, 1));
    reset();
    assert!(rows().is_empty());
}
