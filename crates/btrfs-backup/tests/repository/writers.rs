//! Two writers at once: one of them is told so, and the states of the other are whole.

use btrfs_backup::{Destination as _, Error, Repository, Writing};

use crate::bucket::{Bucket, Last};
use crate::support::{assert_restored, backup, inspect, name, run, source, writing};

/// How a writer writes who believes that all others still run.
fn careful(run: u64) -> Writing {
    Writing { has_ended: Box::new(|_| false), ..writing(run) }
}

#[test]
fn a_claim_is_respected_until_it_is_taken_over() {
    let (source, bucket) = (source(), Bucket::default());
    bucket.die_at(Some((12, Last::Lost)));
    run(&backup(1), &source, bucket.clone(), writing(1)).unwrap_err();
    bucket.die_at(None);
    let error = run(&backup(2), &source, bucket.clone(), careful(2)).unwrap_err();
    assert!(matches!(error, Error::Claimed { .. }), "{error}");
    assert!(error.to_string().contains("process 1 of here, since now"), "{error}");
    run(&backup(3), &source, bucket.clone(), Writing { takes_over: true, ..careful(3) }).unwrap();
    assert_restored(&source, bucket);
}

#[test]
fn the_one_who_comes_second_is_told() {
    let (source, bucket) = (source(), Bucket::default());
    let open = |run: u64| Repository::write(Box::new(bucket.clone()), &name(), careful(run)).unwrap();
    // Both read that there is nothing.
    let (mut one, mut two) = (open(1), open(2));
    let mut report = btrfs_backup::Report::default();
    backup(1).run(&source, &mut one, &(), &mut report).unwrap();
    let error = backup(2).run(&source, &mut two, &(), &mut report).unwrap_err();
    assert!(matches!(error, Error::Overtaken { .. }), "{error}");
    // It does not give back a claim that it did not make.
    two.finish().unwrap();
    assert!(inspect(bucket.clone()).faults.is_empty());
    assert_restored(&source, bucket.clone());
    run(&backup(3), &source, bucket, careful(3)).unwrap();
}

/// The first writer stops in the middle, is taken for dead, and goes on after the second one has finished.
#[test]
fn a_writer_that_was_taken_over_ends_at_its_next_change() {
    use btrfs_backup::{Rule, Stamp};
    let (source, bucket) = (source(), Bucket::default());
    run(&backup(1), &source, bucket.clone(), writing(1)).unwrap();
    let mut sleeper = Repository::write(Box::new(bucket.clone()), &name(), writing(2)).unwrap();
    source.write("home/small", "changed").unwrap();
    let full = btrfs_backup::Backup { full: true, ..backup(2) };
    run(&full, &source, bucket.clone(), writing(3)).unwrap();
    let rule: Rule = "last=1".parse().unwrap();
    let pruned = sleeper.prune(&rule, Stamp::new(9).unwrap(), false);
    assert!(matches!(pruned, Err(Error::Overtaken { .. })), "{pruned:?}");
    assert!(inspect(bucket.clone()).faults.is_empty());
    assert_restored(&source, bucket);
}

#[test]
fn a_store_without_conditions_is_refused() {
    let (source, bucket) = (source(), Bucket::default());
    bucket.ignore_conditions();
    let error = run(&backup(1), &source, bucket, writing(1)).unwrap_err();
    assert!(matches!(error, Error::NoConditions(_)), "{error}");
}

#[test]
fn a_store_need_not_tell_the_tags_of_writes() {
    let (source, bucket) = (source(), Bucket::default());
    bucket.tell_no_tags_of_writes();
    run(&backup(1), &source, bucket.clone(), writing(1)).unwrap();
    assert_restored(&source, bucket);
}
