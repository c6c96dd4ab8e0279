//! States go to a store and come back.

use btrfs_backup::{Error, FileStore, Identities, Repository};

use crate::bucket::Bucket;
use crate::support::{assert_restored, backup, inspect, noise, origin, restore, run, sealed, source, writing};

/// Keys for tests, which everybody knows.
const SECRET: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const PUBLIC: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
/// Another key.
const OTHER: &str = "AGE-SECRET-KEY-1JLJGE5S4J0VK95T98VWUDDJ9T6LFSSFG4U4PCUCAAUZK8V2J6W7SEAYG7P";

#[test]
fn states_are_differences_and_come_back() {
    let (source, bucket) = (source(), Bucket::default());
    let first = run(&backup(1), &source, bucket.clone(), writing(1)).unwrap();
    assert_eq!(first.actions[1].parent, None);
    source.write("home/small", "changed").unwrap();
    let second = run(&backup(2), &source, bucket.clone(), writing(2)).unwrap();
    assert_eq!(second.actions[1].parent.as_deref(), Some("home.1970-01-01T000001Z"));
    assert!(second.actions[1].bytes < Some(4096), "{second:?}");
    assert_restored(&source, bucket.clone());
    let found = inspect(bucket.clone());
    assert_eq!((found.states, found.objects, found.read, &found.faults[..]), (2, 7, 7, &[][..]), "{found:?}");
    let states: Vec<String> = origin(bucket, None).states().iter().map(|state| state.state()).collect();
    assert_eq!(states, ["home.1970-01-01T000001Z", "home.1970-01-01T000002Z"]);
}

#[test]
fn a_directory_is_a_store_too() {
    let (source, dir) = (source(), tempfile::tempdir().unwrap());
    let store = || FileStore::open(dir.path()).unwrap();
    run(&backup(1), &source, store(), writing(1)).unwrap();
    source.write("home/large", noise(2, 200_000)).unwrap();
    run(&backup(2), &source, store(), writing(2)).unwrap();
    assert_restored(&source, store());
}

#[test]
fn a_rule_deletes_objects_that_no_kept_state_needs() {
    let (source, bucket) = (source(), Bucket::default());
    let keep = |seconds, full| btrfs_backup::Backup { keep: Some("last=1".parse().unwrap()), full, ..backup(seconds) };
    run(&keep(1, false), &source, bucket.clone(), writing(1)).unwrap();
    source.write("home/small", "changed").unwrap();
    let report = run(&keep(2, false), &source, bucket.clone(), writing(2)).unwrap();
    assert!(
        !report.actions.iter().any(|action| action.state.ends_with("000001Z")
            && action.bytes.is_none()
            && action.side == btrfs_backup::Party::Destination),
        "the parent is deleted: {report:?}"
    );
    run(&keep(3, true), &source, bucket.clone(), writing(3)).unwrap();
    assert!(bucket.keys().iter().all(|key| key == "manifest.json" || key.contains("000003Z")), "{:?}", bucket.keys());
    assert_restored(&source, bucket);
}

#[test]
fn encrypted_states_need_the_identity() {
    let (source, bucket) = (source(), Bucket::default());
    source.write("home/small", "a word that nobody may read").unwrap();
    run(&backup(1), &source, bucket.clone(), sealed(1, PUBLIC)).unwrap();
    for key in bucket.keys() {
        assert!(!bucket.bytes(&key).windows(8).any(|window| window == b"nobody m"), "{key}");
    }
    assert!(inspect(bucket.clone()).faults.is_empty());
    assert!(matches!(restore(bucket.clone(), None), Err(Error::NeedsIdentity(_))));
    let other = Identities::parse(OTHER).unwrap();
    assert!(restore(bucket.clone(), Some(other)).unwrap_err().to_string().contains("encryption"));
    let target = restore(bucket.clone(), Some(Identities::parse(SECRET).unwrap())).unwrap();
    assert_eq!(target.read("back/large").unwrap(), source.read("home/large").unwrap());
    // Plain states do not follow encrypted ones by accident.
    let plain = Repository::write(Box::new(bucket), &crate::support::name(), writing(2));
    assert!(matches!(plain, Err(Error::PlainStates(_))));
}
