//! Promises of an fsync are kept after a power cut: when reading, when writing, and permanently.

use std::path::Path;
use std::sync::Arc;

use f2fs::{F2fs, MakeOptions, OpenOptions};
use tempfile::NamedTempFile;
use vfs::file_system::{AllocateFlags, XattrMode};
use vfs::{File, FileOptions, FileSystem, Volume};

use crate::{WITH_EXTRA, check, device, make, open};

/// A volume that is written, and its image.
struct Bench {
    image: NamedTempFile,
    fs: Arc<F2fs>,
    volume: Volume,
}

/// How an fsync was made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Nodes,
    Checkpoint,
}

/// Names and contents of files; `None` for a missing name.
type Wanted<'a> = &'a [(&'a str, Option<&'a [u8]>)];

impl Bench {
    fn new() -> Self {
        Self::of(256 << 20, &MakeOptions { features: WITH_EXTRA, ..MakeOptions::default() })
    }

    fn of(size_bytes: u64, options: &MakeOptions) -> Self {
        let image = NamedTempFile::new().unwrap();
        make(image.path(), size_bytes, options);
        let fs = open(image.path());
        let volume = Volume::new(Arc::<F2fs>::clone(&fs));
        volume.create_dir("dir").unwrap();
        volume.write("dir/old", vec![b'o'; 50_000]).unwrap();
        volume.write("small", "a few bytes").unwrap();
        volume.sync().unwrap();
        Self { image, fs, volume }
    }

    fn file(&self, path: &str) -> File {
        FileOptions::new().read(true).write(true).create(true).open(&self.volume, path).unwrap()
    }

    /// Syncs a file; checks how that was done.
    #[track_caller]
    fn sync(&self, file: &File, expected: By) {
        let before = self.fs.info().unwrap().checkpoint;
        file.sync_all().unwrap();
        let is_same = self.fs.info().unwrap().checkpoint == before;
        assert_eq!(if is_same { By::Nodes } else { By::Checkpoint }, expected);
    }

    fn put(&self, path: &str, data: &[u8], expected: By) {
        let file = self.file(path);
        file.write_at(data, 0).unwrap();
        self.sync(&file, expected);
    }

    /// Checks the files after a power cut now.
    fn cut(&self, wanted: Wanted<'_>) {
        let copy = NamedTempFile::new().unwrap();
        std::fs::copy(self.image.path(), copy.path()).unwrap();
        look(&reader(copy.path()), wanted);
        check(copy.path());
        for _ in 0..2 {
            // Opened for writing, and cut again at once.
            let fs = open(copy.path());
            look(&Volume::new(Arc::<F2fs>::clone(&fs)), wanted);
            fs.finish().unwrap();
            drop(fs);
            check(copy.path());
            look(&reader(copy.path()), wanted);
        }
    }
}

fn reader(path: &Path) -> Volume {
    Volume::new(Arc::new(OpenOptions::new().open(device(path)).unwrap()))
}

fn opened(path: &Path, is_writable: bool) -> Volume {
    if is_writable { Volume::new(open(path)) } else { reader(path) }
}

fn look(volume: &Volume, wanted: Wanted<'_>) {
    for (path, data) in wanted {
        assert_eq!(volume.exists(path).unwrap(), data.is_some(), "{path}");
        let listed = volume.read_dir(Path::new("/").join(path).parent().unwrap()).unwrap();
        let name = Path::new(path).file_name().unwrap();
        let count = listed.filter(|entry| entry.as_ref().unwrap().file_name() == name).count();
        assert_eq!(count, usize::from(data.is_some()), "{path} is listed");
        if let Some(data) = data {
            let found = volume.read(path).unwrap();
            assert_eq!(found.len(), data.len(), "{path}");
            assert!(found == *data, "{path} holds something else");
        }
    }
}

#[test]
fn a_new_file_is_there_with_its_name() {
    let bench = Bench::new();
    let (small, large) = (b"inline".to_vec(), vec![7; 3_000_000]);
    bench.put("dir/new", &large, By::Nodes);
    bench.put("tiny", &small, By::Nodes);
    bench.put("dir/empty", b"", By::Nodes);
    // Not synced.
    bench.volume.write("dir/unsynced", "lost").unwrap();
    bench.cut(&[
        ("dir/new", Some(&large)),
        ("tiny", Some(&small)),
        ("dir/empty", Some(b"")),
        ("dir/unsynced", None),
        ("dir/old", Some(&[b'o'; 50_000])),
    ]);
}

#[test]
fn new_files_get_the_numbers_that_they_had() {
    // Direct nodes that a replay makes must not take the number of a later new inode.
    let bench = Bench::new();
    let large = vec![5; 5_000_000];
    let names: Vec<String> = (0..40).map(|number| format!("dir/{number}")).collect();
    let old = bench.file("dir/old");
    for (number, name) in names.iter().enumerate() {
        let file = bench.file(name);
        file.write_at(&large[..number * 20_000], 0).unwrap();
        bench.sync(&file, By::Nodes);
    }
    old.write_at(&large, 0).unwrap();
    bench.sync(&old, By::Nodes);
    let mut wanted: Vec<(&str, Option<&[u8]>)> = vec![("dir/old", Some(&large))];
    wanted.extend(names.iter().enumerate().map(|(number, name)| (name.as_str(), Some(&large[..number * 20_000]))));
    bench.cut(&wanted);
}

#[test]
fn contents_that_changed_are_there() {
    let bench = Bench::new();
    let file = bench.file("dir/old");
    let mut data = vec![b'o'; 50_000];
    for round in 0..40_usize {
        let at = round * 1_111 % 49_000;
        data[at..at + 600].fill(u8::try_from(round).unwrap());
        file.write_at(&data[at..at + 600], u64::try_from(at).unwrap()).unwrap();
        bench.sync(&file, By::Nodes);
    }
    bench.cut(&[("dir/old", Some(&data))]);
    // Longer, and later changes do not count.
    data.extend([1; 70_000]);
    file.write_at(&[1; 70_000], 50_000).unwrap();
    bench.sync(&file, By::Nodes);
    file.write_at(&[2; 120_000], 0).unwrap();
    bench.cut(&[("dir/old", Some(&data))]);
    // Out of the inode.
    let small = bench.file("small");
    small.write_at(&data, 0).unwrap();
    bench.sync(&small, By::Nodes);
    bench.cut(&[("small", Some(&data))]);
    // Shorter, with a hole.
    small.set_len(20_000).unwrap();
    small.allocate(AllocateFlags::KEEP_SIZE | AllocateFlags::PUNCH_HOLE, 4096, 8192).unwrap();
    bench.sync(&small, By::Nodes);
    data.truncate(20_000);
    data[4096..12_288].fill(0);
    bench.cut(&[("small", Some(&data))]);
}

#[test]
fn nodes_that_went_take_a_checkpoint() {
    let bench = Bench::new();
    let file = bench.file("large");
    let data = vec![9; 9 << 20];
    file.write_at(&data, 0).unwrap();
    bench.sync(&file, By::Nodes);
    file.set_len(100_000).unwrap();
    bench.sync(&file, By::Checkpoint);
    bench.cut(&[("large", Some(&data[..100_000]))]);
    file.set_len(9 << 20).unwrap();
    bench.sync(&file, By::Nodes);
    let mut grown = data[..100_000].to_vec();
    grown.resize(9 << 20, 0);
    bench.cut(&[("large", Some(&grown))]);
}

#[test]
fn attributes_are_there() {
    let bench = Bench::new();
    let file = bench.file("dir/old");
    bench.volume.set_permissions("dir/old", 0o4711).unwrap();
    bench.volume.set_owner("dir/old", Some(12), Some(34)).unwrap();
    bench.volume.set_xattr("dir/old", b"user.a", b"inline", XattrMode::Either).unwrap();
    bench.sync(&file, By::Nodes);
    let copy = NamedTempFile::new().unwrap();
    std::fs::copy(bench.image.path(), copy.path()).unwrap();
    for is_writable in [false, true, false] {
        let volume = opened(copy.path(), is_writable);
        let found = volume.metadata("dir/old").unwrap();
        assert_eq!((found.permissions, found.uid, found.gid), (0o4711, 12, 34));
        assert_eq!(volume.get_xattr("dir/old", b"user.a").unwrap().unwrap(), b"inline");
        volume.close().unwrap();
        check(copy.path());
    }
    // In a node of its own.
    bench.volume.set_xattr("dir/old", b"user.b", [1; 2000], XattrMode::Either).unwrap();
    bench.sync(&file, By::Checkpoint);
    file.write_at(b"x", 0).unwrap();
    bench.sync(&file, By::Nodes);
    let copy = NamedTempFile::new().unwrap();
    std::fs::copy(bench.image.path(), copy.path()).unwrap();
    for is_writable in [false, true, false] {
        let volume = opened(copy.path(), is_writable);
        assert_eq!(volume.get_xattr("dir/old", b"user.b").unwrap().unwrap(), [1; 2000]);
        volume.close().unwrap();
        check(copy.path());
    }
}

#[test]
fn names_that_changed_take_a_checkpoint() {
    let bench = Bench::new();
    let old = [b'o'; 50_000];
    // Moved.
    let file = bench.file("dir/old");
    bench.volume.rename("dir/old", "moved").unwrap();
    bench.sync(&file, By::Checkpoint);
    bench.cut(&[("moved", Some(&old)), ("dir/old", None)]);
    // Another name, and one less.
    bench.volume.hard_link("moved", "dir/link").unwrap();
    bench.sync(&file, By::Checkpoint);
    file.write_at(b"o", 0).unwrap();
    bench.sync(&file, By::Checkpoint);
    bench.volume.remove_file("moved").unwrap();
    bench.sync(&file, By::Checkpoint);
    bench.cut(&[("dir/link", Some(&old)), ("moved", None)]);
    // The former name of another file, all of whose nodes may be gone.
    bench.volume.remove_file("small").unwrap();
    bench.put("small", b"new", By::Checkpoint);
    bench.cut(&[("small", Some(b"new"))]);
    // Over another file.
    bench.put("temporary", b"newer", By::Nodes);
    bench.volume.rename("temporary", "small").unwrap();
    bench.cut(&[("temporary", Some(b"newer")), ("small", Some(b"new"))]);
    bench.put("other", b"other", By::Nodes);
    bench.cut(&[("temporary", Some(b"newer")), ("small", Some(b"new")), ("other", Some(b"other"))]);
    bench.put("temporary", b"third", By::Checkpoint);
    bench.cut(&[("temporary", Some(b"third")), ("small", Some(b"newer"))]);
}

#[test]
fn new_directories_take_a_checkpoint() {
    let bench = Bench::new();
    bench.volume.create_dir("dir/inner").unwrap();
    bench.put("dir/inner/file", b"contents", By::Checkpoint);
    bench.put("dir/inner/second", b"more", By::Nodes);
    bench.cut(&[("dir/inner/file", Some(b"contents")), ("dir/inner/second", Some(b"more"))]);
}

#[test]
fn what_was_unlinked_after_its_fsync_comes_back() {
    let bench = Bench::new();
    bench.put("gone", &[3; 100_000], By::Nodes);
    bench.volume.remove_file("gone").unwrap();
    bench.volume.remove_file("dir/old").unwrap();
    // Its blocks, and its number, are not reused before a checkpoint.
    for number in 0..50 {
        bench.put(&format!("dir/{number}"), &[number; 100_000], By::Nodes);
    }
    bench.cut(&[("gone", Some(&[3; 100_000])), ("dir/old", Some(&[b'o'; 50_000])), ("dir/49", Some(&[49; 100_000]))]);
    bench.volume.sync().unwrap();
    bench.cut(&[("gone", None), ("dir/old", None), ("dir/49", Some(&[49; 100_000]))]);
}

#[test]
fn files_without_names_that_the_checkpoint_has_go_with_a_replay() {
    let bench = Bench::new();
    let held: Vec<File> = (0..3).map(|number| bench.file(&format!("dir/held{number}"))).collect();
    for (number, file) in held.iter().enumerate() {
        file.write_at(&vec![3; 5_000_000 * number], 0).unwrap();
        bench.volume.remove_file(format!("dir/held{number}")).unwrap();
    }
    bench.volume.sync().unwrap();
    assert_eq!(bench.fs.info().unwrap().orphans, 3, "the checkpoint lists them");
    bench.put("dir/new", b"synced", By::Nodes);
    bench.cut(&[("dir/new", Some(b"synced")), ("dir/held1", None)]);
    // Their numbers are free, and may be reused.
    drop(held);
    for number in 0..40 {
        bench.put(&format!("dir/next{number}"), b"next", By::Nodes);
    }
    bench.cut(&[("dir/new", Some(b"synced")), ("dir/next0", Some(b"next")), ("dir/next39", Some(b"next"))]);
}

#[test]
fn two_files_take_turns() {
    for section_segments in [1, 2] {
        let bench = Bench::of(160 << 20, &MakeOptions { section_segments, ..MakeOptions::default() });
        let (first, second) = (bench.file("first"), bench.file("dir/second"));
        let before = bench.fs.info().unwrap().checkpoint;
        // The log of nodes goes on in other segments; a checkpoint comes in between.
        for round in 0..1500_u32 {
            let at = u64::from(round) * 1000;
            first.write_at(&round.to_le_bytes(), at).unwrap();
            second.write_at(&round.to_be_bytes(), at / 2).unwrap();
            first.sync_all().unwrap();
            second.sync_data().unwrap();
            if round == 700 {
                bench.volume.sync().unwrap();
            }
        }
        let (first, second) = (bench.volume.read("first").unwrap(), bench.volume.read("dir/second").unwrap());
        assert_eq!(first[1_000_000..][..4], 1000_u32.to_le_bytes());
        let checkpoints = bench.fs.info().unwrap().checkpoint - before;
        assert!(checkpoints < 100, "{checkpoints} checkpoints");
        bench.cut(&[("first", Some(&first)), ("dir/second", Some(&second))]);
        // Writing continues from there, and again after closing.
        bench.put("dir/old", b"end", By::Nodes);
        bench.fs.finish().unwrap();
        check(bench.image.path());
        bench.put("dir/old", b"END", By::Checkpoint);
        bench.put("dir/old", b"End", By::Nodes);
        let mut old = vec![b'o'; 50_000];
        old[..3].copy_from_slice(b"End");
        bench.cut(&[("first", Some(&first)), ("dir/second", Some(&second)), ("dir/old", Some(&old))]);
    }
}

#[test]
fn a_full_volume_is_replayed() {
    let bench = Bench::of(64 << 20, &MakeOptions::default());
    let mut written = Vec::new();
    for number in 0..2000_u32 {
        let name = format!("dir/{number}");
        let options = FileOptions::new().write(true).create(true);
        let Ok(file) = options.open(&bench.volume, &name) else { break };
        let data = vec![u8::try_from(number % 251).unwrap(); 40_000];
        if file.write_at(&data, 0).is_err() {
            break;
        }
        file.sync_all().unwrap();
        drop(file);
        written.push((name, data));
        if number % 50 == 49 {
            let wanted: Vec<(&str, Option<&[u8]>)> =
                written.iter().map(|(name, data)| (name.as_str(), Some(data.as_slice()))).collect();
            bench.cut(&wanted);
        }
    }
    assert!(written.len() > 300, "{}", written.len());
    let wanted: Vec<(&str, Option<&[u8]>)> =
        written.iter().map(|(name, data)| (name.as_str(), Some(data.as_slice()))).collect();
    bench.cut(&wanted);
}
