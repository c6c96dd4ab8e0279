//! Blocks on disk: shared by processes, checked, bounded, and of one version of the image.

use std::os::unix::fs::FileExt as _;

use crate::fake::{Fake, Reply};
use crate::support::{open, pattern, read_all};

const LEN: usize = 3_000_001;

#[test]
fn the_second_reader_fetches_only_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("made here");
    let file = pattern(LEN);
    let server = Fake::file(file.clone());
    let url = server.url(&format!("/a.img?cache={}", cache.display().to_string().replace(' ', "%20")));
    assert_eq!(read_all(&open(&url).unwrap()), file);
    let first = server.bytes();
    assert_eq!(read_all(&open(&url).unwrap()), file);
    assert!(server.bytes() - first <= 69_632, "{} bytes again", server.bytes() - first);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&cache).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn rotten_blocks_are_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = pattern(LEN);
    let server = Fake::file(file.clone());
    let url = server.url(&format!("/a.img?cache={}", dir.path().display()));
    read_all(&open(&url).unwrap());
    let blocks = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let blocks = blocks.filter(|path| path.extension().unwrap() == "blocks").collect::<Vec<_>>();
    let rot = std::fs::File::options().write(true).open(&blocks[0]).unwrap();
    for at in [200_000, 1_000_000, 2_999_990] {
        rot.write_all_at(b"rot", at).unwrap();
    }
    assert_eq!(read_all(&open(&url).unwrap()), file);
    assert_eq!(read_all(&open(&url).unwrap()), file);
}

#[test]
fn another_version_has_other_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let options = format!("/a.img?cache={}", dir.path().display());
    let (old, new) = (pattern(LEN), vec![5; LEN]);
    let copy = old.clone();
    let first = Fake::start(move |request, _| Reply::part(&copy, request, "\"old\""));
    assert_eq!(read_all(&open(&first.url(&options)).unwrap()), old);
    let copy = new.clone();
    let second = Fake::start(move |request, _| Reply::part(&copy, request, "\"new\""));
    assert_eq!(read_all(&open(&second.url(&options)).unwrap()), new);
}

#[test]
fn several_processes_may_fill_it_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = pattern(LEN);
    let server = Fake::file(file.clone());
    let url = server.url(&format!("/a.img?cache={}&cache_size=1000000", dir.path().display()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(read_all(&open(&url).unwrap()), file));
        }
    });
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error() {
    let server = Fake::file(pattern(100_000));
    let error = open(&server.url("/a.img?cache=/proc/none")).unwrap_err().to_string();
    assert!(error.contains("cache /proc/none"), "{error}");
}
