//! Files with several names.

use std::path::Path;

use forks::{Merge, Strategy};

use crate::sample::Sample;

fn merge(sample: &Sample) {
    let merged = sample.forks.merge(Path::new("trial"), &Merge { into: None, strategy: Strategy::Fail }).unwrap();
    assert!(merged.conflicts.is_empty(), "{merged:?}");
}

fn ino(sample: &Sample, path: &str) -> (u64, u32) {
    let attr = sample.volume.metadata(path).unwrap();
    (attr.ino, attr.nlink)
}

#[test]
fn new_names_are_links_in_the_target() {
    let sample = Sample::new();
    sample.write("base/old", "old");
    sample.fork("base", "trial");
    sample.volume.hard_link("trial/old", "trial/a").unwrap();
    sample.write("trial/new", "new");
    sample.volume.hard_link("trial/new", "trial/b").unwrap();
    merge(&sample);
    assert_eq!(ino(&sample, "base/old"), ino(&sample, "base/a"));
    assert_eq!(ino(&sample, "base/new"), ino(&sample, "base/b"));
    assert_eq!(ino(&sample, "base/new").1, 2);
    sample.check();
}

#[test]
fn contents_change_under_all_names_or_under_one_as_in_the_fork() {
    let sample = Sample::new();
    sample.write("base/a", "old");
    sample.volume.hard_link("base/a", "base/b").unwrap();
    sample.fork("base", "trial");
    sample.write("trial/a", "in place");
    merge(&sample);
    assert_eq!((sample.read("base/a").as_str(), sample.read("base/b").as_str()), ("in place", "in place"));
    // As editors do.
    sample.write("trial/temporary", "apart");
    sample.volume.rename("trial/temporary", "trial/a").unwrap();
    merge(&sample);
    assert_eq!((sample.read("base/a").as_str(), sample.read("base/b").as_str()), ("apart", "in place"));
    sample.check();
}
