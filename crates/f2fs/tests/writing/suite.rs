//! The suite that all formats pass.

use std::sync::{Arc, Mutex};

use f2fs::MakeOptions;
use f2fs_disk::flags::Features;
use vfs::FileSystem;

use crate::{WITH_EXTRA, check, make, open};

/// Runs the conformance suite, and checks the image after each of its cases.
fn conform(features: Features) {
    let images = Mutex::new(Vec::new());
    let fresh = || -> Arc<dyn FileSystem> {
        let image = tempfile::NamedTempFile::new().unwrap();
        make(image.path(), 256 << 20, &MakeOptions { features, ..MakeOptions::default() });
        let opened = open(image.path());
        images.lock().unwrap().push((image, Arc::downgrade(&opened)));
        opened
    };
    let report = vfs_conformance::run(&fresh);
    assert!(report.is_ok(), "{report}");
    for (image, opened) in images.into_inner().unwrap() {
        assert!(opened.upgrade().is_none(), "a case keeps its volume open");
        check(image.path());
    }
}

#[test]
fn the_conformance_suite_passes() {
    conform(Features::empty());
}

#[test]
fn the_conformance_suite_passes_with_extra_attributes() {
    conform(WITH_EXTRA);
}
