//! The writer dies at each of its requests, before and after the store carries it out. The next one finishes: nothing
//! is lost, and no object stays that no state needs.

use btrfs_backup::Backup;

use crate::bucket::{Bucket, Last};
use crate::support::{assert_restored, backup, inspect, noise, run, source, writing};

/// The second backup, which sends a whole state and drops the first one.
fn replacing(seconds: i64) -> Backup {
    Backup { full: true, keep: Some("last=1".parse().unwrap()), ..backup(seconds) }
}

/// Runs two backups that die at this request, and one that does not. Returns whether any of them died.
fn dies_at(end: (u64, Last)) -> bool {
    let (source, bucket) = (source(), Bucket::default());
    bucket.die_at(Some(end));
    let mut has_died = run(&backup(1), &source, bucket.clone(), writing(1)).is_err();
    source.write("home/large", noise(end.0 + 2, 250_000)).unwrap();
    bucket.die_at(Some(end));
    has_died |= run(&replacing(2), &source, bucket.clone(), writing(2)).is_err();
    bucket.die_at(None);
    run(&replacing(3), &source, bucket.clone(), writing(3)).unwrap_or_else(|error| panic!("{end:?}: {error}"));
    assert_restored(&source, bucket.clone());
    let found = inspect(bucket.clone());
    assert_eq!(found.faults, [""; 0], "{end:?}");
    let needed = found.objects + found.states + 1;
    assert_eq!(u64::try_from(bucket.keys().len()).unwrap(), needed, "{end:?}: {:?}", bucket.keys());
    has_died
}

#[test]
fn a_writer_that_dies_at_any_request_leaves_nothing_broken() {
    for last in [Last::Lost, Last::Done] {
        let mut at = 0;
        while dies_at((at, last)) {
            at += 1;
        }
        assert!(at > 25, "{at} requests");
    }
}

#[test]
fn an_upload_goes_on_where_it_was_cut_off() {
    let (source, bucket) = (source(), Bucket::default());
    run(&backup(1), &source, bucket.clone(), writing(1)).unwrap();
    source.write("home/large", noise(7, 2_000_000)).unwrap();
    bucket.die_at(None);
    let whole = {
        let other = Bucket::default();
        run(&Backup { full: true, ..backup(2) }, &source, other.clone(), writing(9)).unwrap();
        other.requests()
    };
    bucket.die_at(Some((whole / 2, Last::Lost)));
    run(&backup(2), &source, bucket.clone(), writing(2)).unwrap_err();
    let there = bucket.keys().len();
    bucket.die_at(None);
    run(&backup(3), &source, bucket.clone(), writing(3)).unwrap();
    assert!(bucket.requests() < whole * 4 / 5 + 12, "{} of {whole} requests, {there} objects", bucket.requests());
    assert_restored(&source, bucket);
}

/// Without its snapshot the state can never be sent: what is there of it goes.
#[test]
fn the_remains_of_a_state_that_is_gone_are_deleted() {
    let (source, bucket) = (source(), Bucket::default());
    run(&backup(1), &source, bucket.clone(), writing(1)).unwrap();
    source.write("home/large", noise(7, 2_000_000)).unwrap();
    bucket.die_at(Some((20, Last::Done)));
    run(&backup(2), &source, bucket.clone(), writing(2)).unwrap_err();
    assert!(bucket.keys().iter().any(|key| key.contains("000002Z")));
    source.delete_subvolume("/.backups/home.1970-01-01T000002Z").unwrap();
    bucket.die_at(None);
    run(&backup(3), &source, bucket.clone(), writing(3)).unwrap();
    assert!(!bucket.keys().iter().any(|key| key.contains("000002Z")), "{:?}", bucket.keys());
    assert_restored(&source, bucket);
}
