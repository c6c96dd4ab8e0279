//! A tree of the host goes into a volume in memory, from there into another, and back to the host.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use transfer::{
    Cause, Error, Existing, HostOptions, HostSink, HostSource, Observer, Options, Origin, Rules, Sharing, Transfer,
    VolumeSink, VolumeSinkOptions, VolumeSource, measure, measure_host,
};
use vfs::Volume;
use vfs_conformance::MemoryFs;

fn volume() -> Volume {
    Volume::new(Arc::new(MemoryFs::default()))
}

/// Files small and large, one with a hole, two names of one file, links, modes, an old directory.
fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("sub/deep")).unwrap();
    fs::write(dir.join("small"), "small").unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("sub/large"), vec![7; 3 << 20]).unwrap();
    fs::write(dir.join("sub/sparse"), "begin").unwrap();
    fs::OpenOptions::new().write(true).open(dir.join("sub/sparse")).unwrap().set_len(8 << 20).unwrap();
    fs::hard_link(dir.join("small"), dir.join("sub/again")).unwrap();
    symlink("../small", dir.join("sub/link")).unwrap();
    for number in 0..600 {
        fs::write(dir.join(format!("sub/deep/{number}")), number.to_string()).unwrap();
    }
    fs::set_permissions(dir.join("sub"), fs::Permissions::from_mode(0o750)).unwrap();
    let time = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000, 5));
    fs::File::open(dir.join("sub")).unwrap().set_times(time).unwrap();
}

/// The nodes below a directory: paths, modes, sizes, times, targets, contents.
fn seen(dir: &Path) -> Vec<String> {
    let (mut seen, mut todo) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = todo.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(dir).unwrap().display();
        let what = match found.file_type() {
            kind if kind.is_dir() => {
                todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                String::new()
            }
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
            _ => format!("{} {:?}", found.nlink(), fs::read(&path).unwrap().iter().map(|b| u64::from(*b)).sum::<u64>()),
        };
        let size = if found.is_dir() { 0 } else { found.len() };
        seen.push(format!("{name} {:o} {size} {}.{} {what}", found.mode(), found.mtime(), found.mtime_nsec()));
    }
    seen.sort();
    seen
}

#[test]
fn a_tree_comes_back_as_it_was() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(source.path());
    for thread_count in [1, 4] {
        let options = Options { thread_count, ..Options::default() };
        let (first, second) = (volume(), volume());
        let host = HostSource::open(source.path()).unwrap();
        let sink = VolumeSink::new(&first, "/", VolumeSinkOptions::default());
        Transfer::new(&host, &sink, &options, &()).contents().unwrap();
        let between = VolumeSource::new(&first, "/");
        let sink = VolumeSink::new(&second, "/", VolumeSinkOptions::default());
        Transfer::new(&between, &sink, &options, &()).contents().unwrap();
        let out = target.path().join(thread_count.to_string());
        let (back, sink) = (VolumeSource::new(&second, "/"), HostSink::create(&out, HostOptions::default()).unwrap());
        Transfer::new(&back, &sink, &options, &()).contents().unwrap();
        assert_eq!(seen(source.path()), seen(&out));
        let totals = measure(&back, &options, &()).unwrap();
        assert_eq!(totals.names, measure_host(source.path(), &options).unwrap().names);
        assert_eq!(totals.names, 609);
    }
}

/// Continues past failures, and counts.
#[derive(Default)]
struct Counting {
    failures: AtomicU64,
    done: AtomicU64,
    ends: AtomicBool,
}

impl Observer for Counting {
    fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, _error: Error) -> transfer::Result<()> {
        self.failures.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_cancelled(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

#[test]
fn one_failure_hides_no_other_file_unless_it_is_to_end_the_copy() {
    let source = tempfile::tempdir().unwrap();
    fill(source.path());
    let host = HostSource::open(source.path()).unwrap();
    let options = Options { thread_count: 1, ..Options::default() };
    let copy = |watch: &dyn Observer| {
        let volume = volume();
        volume.write("/small", "in the way").unwrap();
        let sink = VolumeSink::new(&volume, "/", VolumeSinkOptions::default());
        (Transfer::new(&host, &sink, &options, watch).contents(), volume)
    };
    let watch = Counting::default();
    let (copied, volume) = copy(&watch);
    copied.unwrap();
    // `small` fails, and its other name is made as a file of its own.
    assert_eq!(watch.failures.load(Ordering::Relaxed), 1);
    assert_eq!(volume.read("/small").unwrap(), b"in the way");
    assert_eq!(volume.read("/sub/again").unwrap(), b"small");
    assert_eq!(watch.done.load(Ordering::Relaxed), 607);
    let (copied, _) = copy(&());
    let error = copied.unwrap_err();
    assert!(error.path().is_some_and(|path| path.ends_with("small")), "{error}");
    assert!(matches!(error.cause(), Cause::Volume(_)), "{error}");
    let (copied, volume) = copy(&Counting { ends: true.into(), ..Counting::default() });
    assert!(copied.unwrap_err().is_cancelled());
    assert!(!volume.exists("/sub").unwrap());
}

#[test]
fn one_file_goes_to_another_name_with_another_owner() {
    let source = tempfile::tempdir().unwrap();
    fill(source.path());
    let (host, volume) = (HostSource::open(source.path()).unwrap(), volume());
    let options = Options { rules: Rules { owner: Some((7, 8)), ..Rules::default() }, ..Options::default() };
    let sink = VolumeSink::new(&volume, "/", VolumeSinkOptions::default());
    let transfer = Transfer::new(&host, &sink, &options, &());
    assert!(transfer.one(Path::new("small"), Path::new("renamed")).unwrap());
    assert!(transfer.one(Path::new("sub"), Path::new("dir")).unwrap());
    let found = volume.metadata("/renamed").unwrap();
    // The second name of the file came with another call.
    assert_eq!((found.uid, found.gid, found.nlink), (7, 8, 2));
    assert_eq!(volume.read("/dir/again").unwrap(), b"small");
    assert_eq!(volume.metadata("/dir").unwrap().mtime.sec, 1_000_000);
}

/// Two threads took the same name for a copy that was to replace a file.
#[test]
fn many_threads_replace_files_by_complete_copies() {
    let source = tempfile::tempdir().unwrap();
    fill(source.path());
    let (host, first, second) = (HostSource::open(source.path()).unwrap(), volume(), volume());
    let options = Options { thread_count: 8, ..Options::default() };
    let sink = VolumeSink::new(&first, "/", VolumeSinkOptions::default());
    Transfer::new(&host, &sink, &options, &()).contents().unwrap();
    second.create_dir_all("/sub/deep").unwrap();
    for number in 0..600 {
        second.write(format!("/sub/deep/{number}"), "before").unwrap();
    }
    let from = VolumeSource::new(&first, "/");
    let copy = |existing| {
        let origin = Origin::OtherVolume;
        let sink =
            VolumeSink::new(&second, "/", VolumeSinkOptions { existing, origin, ..VolumeSinkOptions::default() });
        Transfer::new(&from, &sink, &options, &()).contents()
    };
    let error = copy(Existing::Fail).unwrap_err();
    assert!(matches!(error.cause(), Cause::Exists), "{error}");
    copy(Existing::Exchange).unwrap();
    for number in 0..600 {
        assert_eq!(second.read(format!("/sub/deep/{number}")).unwrap(), number.to_string().as_bytes());
    }
    assert_eq!(second.read_dir("/sub/deep").unwrap().count(), 600);
    assert_eq!(second.read("/sub/large").unwrap(), vec![7; 3 << 20]);
}

/// A directory was copied into itself without end.
#[test]
fn a_directory_goes_into_itself_once() {
    let volume = volume();
    volume.create_dir_all("/a/b").unwrap();
    volume.write("/a/b/file", "text").unwrap();
    let (source, options) = (VolumeSource::new(&volume, ""), Options::default());
    let origin = Origin::ThisVolume(Sharing::Auto);
    let sink = VolumeSink::new(&volume, "", VolumeSinkOptions { origin, ..VolumeSinkOptions::default() });
    let transfer = Transfer::new(&source, &sink, &options, &());
    assert!(transfer.one(Path::new("/a"), Path::new("/a/b/copy")).unwrap());
    assert_eq!(volume.read("/a/b/copy/b/file").unwrap(), b"text");
    assert!(!volume.exists("/a/b/copy/b/copy").unwrap());
    let error = transfer.one(Path::new("/a"), Path::new("/a/b")).unwrap_err();
    assert_eq!(error.to_string(), "/a/b: exists already");
}
