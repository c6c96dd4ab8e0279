//! Files on a real store, compared with plain arrays of bytes, and checked by `btrfs check`
//! wherever that program is installed.
#![allow(clippy::as_conversions, clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use blockdev::backends::{FileDevice, FileOptions};
use btrfs_disk::TreeId;
use btrfs_store::{Store, StoreOptions};

use vfs::file_system::ExtentKind;

use super::{AllocateMode, CloneRange};
use crate::dir::{Namespace, NewInode};
use crate::inode::{Core, FileType, Inode, InodeFlags, Settings, Step};
use crate::writeback::{flush_all, flush_inode, flusher_step};

const K: usize = 4096;
const DEFAULT: &str = "no-holes";

struct Volume {
    image: tempfile::NamedTempFile,
    names: Namespace,
}

fn device(path: &Path, size: u64) -> Arc<FileDevice> {
    let options = FileOptions { size: Some(size), create: true, ..FileOptions::default() };
    Arc::new(FileDevice::open(path, &options).unwrap())
}

fn names_on(store: Store, dirty_bytes: usize) -> Namespace {
    let settings = Settings {
        max_inline: 2048,
        dirty_bytes,
        compress: None,
        file_flags: InodeFlags::empty(),
        writes_ahead: false,
        inherits_data_flags: false,
        is_reproducible: false,
        verifies_data: true,
    };
    Namespace::new(Arc::new(Core::new(store, settings)))
}

impl Volume {
    fn new(size: u64, dirty_bytes: usize, features: &str) -> Self {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(size).unwrap();
        let made = Command::new("mkfs.btrfs").args(["-q", "-O", features]).arg(image.path()).output();
        let is_made = made.is_ok_and(|output| output.status.success());
        assert!(is_made, "mkfs.btrfs (package btrfs-progs) is needed");
        let store = Store::open(vec![device(image.path(), size) as _], &StoreOptions::default());
        Self { image, names: names_on(store.unwrap(), dirty_bytes) }
    }

    fn core(&self) -> &Core {
        &self.names.core
    }

    fn create(&self, name: &str) -> Arc<Inode> {
        let dir = self.core().root_dir(TreeId::FS).unwrap();
        let new = NewInode { kind: FileType::File, permissions: 0o644, ..NewInode::default() };
        self.names.create(&dir, name.as_bytes(), &new).unwrap()
    }

    /// Writes everything, closes the volume, checks the image and opens it again, with the files.
    fn reopen(self, files: Vec<Arc<Inode>>) -> (Self, Vec<Arc<Inode>>) {
        flush_all(self.core()).unwrap();
        self.core().store.commit().unwrap();
        let numbers: Vec<_> = files.iter().map(|file| (file.tree_id(), file.ino())).collect();
        let Self { image, names } = self;
        drop((names, files));
        check(image.path());
        let size = image.as_file().metadata().unwrap().len();
        let store = Store::open(vec![device(image.path(), size) as _], &StoreOptions::default());
        let names = names_on(store.unwrap(), 1 << 20);
        let files = numbers.iter().map(|(tree, ino)| names.core.inode(*tree, *ino).unwrap()).collect();
        (Self { image, names }, files)
    }
}

/// Skipped, not failed, where btrfs-progs is missing.
fn check(image: &Path) {
    let run = Command::new("btrfs").args(["check", "--check-data-csum", "--force"]).arg(image).output();
    if let Ok(output) = run {
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !text.contains("rror:"), "{text}");
    }
}

fn contents(volume: &Volume, inode: &Inode) -> Vec<u8> {
    let mut bytes = vec![0xee; inode.state().size as usize];
    assert_eq!(super::read_at(volume.core(), inode, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ seed).collect()
}

fn write(volume: &Volume, inode: &Arc<Inode>, model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    super::write_at(volume.core(), inode, at as u64, bytes).unwrap();
    if model.len() < at + bytes.len() {
        model.resize(at + bytes.len(), 0);
    }
    model[at..at + bytes.len()].copy_from_slice(bytes);
}

fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
        panic!("{what}: byte {at} is {} and should be {}", found[at], expected[at]);
    }
}

#[test]
fn small_files_are_inline_and_large_ones_one_extent() {
    let volume = Volume::new(512 << 20, 64 << 20, DEFAULT);
    let (small, large) = (volume.create("small"), volume.create("large"));
    let mut models = [Vec::new(), Vec::new()];
    write(&volume, &small, &mut models[0], 0, &pattern(100, 1));
    for index in 0..40 {
        write(&volume, &large, &mut models[1], index << 20, &pattern(1 << 20, index as u8));
    }
    write(&volume, &large, &mut models[1], 40 << 20, &pattern(100_001, 9));
    assert_same(&contents(&volume, &large), &models[1], "before the flush");
    let extents = super::extents(volume.core(), &small, 0).unwrap();
    assert_eq!((extents.len(), extents[0].kind), (1, ExtentKind::Inline));
    let extents = super::extents(volume.core(), &large, 0).unwrap();
    // The first block group of a new image is small.
    assert!(extents.len() <= 2, "{extents:?}");
    assert_same(&contents(&volume, &large), &models[1], "after the flush");
    let (volume, files) = volume.reopen(vec![small, large]);
    for (inode, model) in files.iter().zip(&models) {
        assert_same(&contents(&volume, inode), model, "after the open");
    }
}

#[test]
fn many_small_files_lie_side_by_side() {
    let volume = Volume::new(512 << 20, 64 << 20, DEFAULT);
    let files: Vec<Arc<Inode>> = (0..600).map(|n| volume.create(&format!("f{n}"))).collect();
    for (n, file) in files.iter().enumerate() {
        super::write_at(volume.core(), file, 0, &pattern(5000 + n, n as u8)).unwrap();
    }
    flush_all(volume.core()).unwrap();
    let mut next = None;
    let mut jumps = 0;
    for file in &files {
        let extents = super::extents(volume.core(), file, 0).unwrap();
        assert_eq!(extents.len(), 1);
        let at = extents[0].logical.unwrap();
        jumps += usize::from(next != Some(at));
        next = Some(at + extents[0].disk_len);
    }
    assert!(jumps < 10, "{jumps} jumps");
    volume.reopen(files);
}

#[test]
fn a_growing_inline_file_becomes_regular() {
    let volume = Volume::new(256 << 20, 1 << 20, DEFAULT);
    let file = volume.create("file");
    let mut model = Vec::new();
    write(&volume, &file, &mut model, 0, &pattern(700, 3));
    flush_inode(volume.core(), &file).unwrap();
    write(&volume, &file, &mut model, 5 * K, b"far");
    flush_inode(volume.core(), &file).unwrap();
    assert_same(&contents(&volume, &file), &model, "after a write behind a gap");
    let other = volume.create("other");
    super::write_at(volume.core(), &other, 0, &pattern(300, 4)).unwrap();
    flush_inode(volume.core(), &other).unwrap();
    super::set_size(volume.core(), &other, 100_000).unwrap();
    let mut expected = pattern(300, 4);
    expected.resize(100_000, 0);
    assert_same(&contents(&volume, &other), &expected, "after growing");
    let (volume, files) = volume.reopen(vec![file, other]);
    assert_same(&contents(&volume, &files[0]), &model, "after the open");
    assert_same(&contents(&volume, &files[1]), &expected, "after the open");
}

#[test]
fn preallocated_space_is_written_in_place_and_reads_as_zeros() {
    let volume = Volume::new(256 << 20, 1 << 20, DEFAULT);
    let core = volume.core();
    let file = volume.create("file");
    super::allocate(core, &file, AllocateMode::Allocate, 0, 1 << 20).unwrap();
    assert_same(&contents(&volume, &file), &vec![0; 1 << 20], "preallocated");
    let before = super::extents(core, &file, 0).unwrap();
    let mut model = vec![0; 1 << 20];
    write(&volume, &file, &mut model, 3 * K + 5, &pattern(9000, 1));
    let after = super::extents(core, &file, 0).unwrap();
    assert_eq!(after.len(), 3, "{after:?}");
    let moved = after[1].logical.unwrap() - before[0].logical.unwrap();
    assert_eq!((moved, after[1].kind), (3 * K as u64, ExtentKind::Data));
    assert_eq!(super::seek_data(core, &file, 0).unwrap(), 3 * K as u64);
    assert_eq!(super::seek_hole(core, &file, 3 * K as u64).unwrap(), 6 * K as u64);
    super::allocate(core, &file, AllocateMode::PunchHole, 4 * K as u64, K as u64).unwrap();
    model[4 * K..5 * K].fill(0);
    assert_same(&contents(&volume, &file), &model, "punched");
    super::allocate(core, &file, AllocateMode::KeepSize, 0, 4 << 20).unwrap();
    assert_same(&contents(&volume, &file), &model, "kept size");
    let (volume, files) = volume.reopen(vec![file]);
    let file = &files[0];
    assert_same(&contents(&volume, file), &model, "after the open");
    super::set_size(volume.core(), file, 1 << 20).unwrap();
    let listed = super::extents(volume.core(), file, 1 << 20).unwrap();
    assert_eq!(listed, [], "cutting to the same size drops what is behind the end");
    volume.reopen(files);
}

#[test]
fn data_without_copy_on_write_stays_where_it_is() {
    let volume = Volume::new(256 << 20, 1 << 20, DEFAULT);
    let core = volume.core();
    let file = volume.create("file");
    file.change_in_memory(|state| state.flags |= InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    let mut model = Vec::new();
    write(&volume, &file, &mut model, 0, &pattern(300_000, 1));
    let before = super::extents(core, &file, 0).unwrap();
    write(&volume, &file, &mut model, 50_000, &pattern(100_000, 2));
    assert_eq!(super::extents(core, &file, 0).unwrap(), before);
    let copy = volume.create("copy");
    copy.change_in_memory(|state| state.flags |= InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    let range = CloneRange { source: 0, destination: 0, len: 0 };
    super::reflink(core, &file, &copy, range).unwrap();
    let old = model.clone();
    write(&volume, &file, &mut model, 0, &pattern(8192, 3));
    assert_same(&contents(&volume, &copy), &old, "the clone");
    assert_same(&contents(&volume, &file), &model, "the file");
    let (volume, files) = volume.reopen(vec![copy, file]);
    assert_same(&contents(&volume, &files[0]), &old, "the clone, opened");
    assert_same(&contents(&volume, &files[1]), &model, "the file, opened");
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// One random operation on one of two files, and on its model.
fn random_step(volume: &Volume, files: &[Arc<Inode>], models: &mut [Vec<u8>; 2], r: &mut Random) {
    const SPAN: usize = 1 << 20;
    let core = volume.core();
    let n = r.below(2);
    let (file, at) = (&files[n], r.below(SPAN));
    match r.below(12) {
        0..=3 => {
            let bytes = pattern(1 + r.below(9000), r.below(256) as u8);
            write(volume, file, &mut models[n], at, &bytes);
        }
        4 => {
            let bytes = pattern((1 + r.below(40)) * K, r.below(256) as u8);
            write(volume, file, &mut models[n], at / K * K, &bytes);
        }
        5 => {
            let bytes = pattern(1 + r.below(1500), r.below(256) as u8);
            write(volume, file, &mut models[n], 0, &bytes);
        }
        6 => {
            let size = if r.below(3) == 0 { r.below(3000) } else { at };
            super::set_size(core, file, size as u64).unwrap();
            models[n].resize(size, 0);
        }
        7 => flush_inode(core, file).unwrap(),
        8 => {
            let end = at + 1 + r.below(100_000);
            let mode = [AllocateMode::PunchHole, AllocateMode::ZeroRange][r.below(2)];
            super::allocate(core, file, mode, at as u64, (end - at) as u64).unwrap();
            if mode == AllocateMode::ZeroRange && models[n].len() < end {
                models[n].resize(end, 0);
            }
            let end = end.min(models[n].len());
            models[n][at.min(end)..end].fill(0);
        }
        9 => {
            let len = 1 + r.below(100_000);
            let mode = [AllocateMode::KeepSize, AllocateMode::Allocate][r.below(2)];
            super::allocate(core, file, mode, at as u64, len as u64).unwrap();
            if mode == AllocateMode::Allocate && models[n].len() < at + len {
                models[n].resize(at + len, 0);
            }
        }
        10 => {
            let (source, to) = (r.below(models[n].len()) / K * K, at / K * K);
            let len = r.below(models[n].len() - source) / K * K;
            let range = CloneRange { source: source as u64, destination: to as u64, len: len as u64 };
            if len > 0 {
                super::reflink(core, file, &files[1 - n], range).unwrap();
                let bytes = models[n][source..source + len].to_vec();
                let other = &mut models[1 - n];
                other.resize(other.len().max(to + len), 0);
                other[to..to + len].copy_from_slice(&bytes);
            }
        }
        _ => {
            core.store.commit().unwrap();
        }
    }
    let (from, len) = (r.below(SPAN), 1 + r.below(50_000));
    let mut bytes = vec![0xee; len];
    let found = super::read_at(core, &files[n], from as u64, &mut bytes).unwrap();
    let end = models[n].len().min(from + len);
    assert_same(&bytes[..found], &models[n][from.min(end)..end], "a read");
}

fn random_operations(features: &str, seeds: std::ops::Range<u64>, steps: usize) {
    for seed in seeds {
        let mut volume = Volume::new(256 << 20, 256 << 10, features);
        let mut files = vec![volume.create("a"), volume.create("b")];
        let mut models = [Vec::new(), Vec::new()];
        let mut random = Random(seed);
        for part in 0..2 {
            for _ in 0..steps {
                random_step(&volume, &files, &mut models, &mut random);
            }
            (volume, files) = volume.reopen(files);
            for (file, model) in files.iter().zip(&models) {
                let what = format!("seed {seed}, part {part}, inode {}", file.ino());
                assert_same(&contents(&volume, file), model, &what);
            }
        }
    }
}

#[test]
fn random_operations_match_arrays() {
    random_operations(DEFAULT, 0..6, 300);
}

#[test]
fn random_operations_match_arrays_where_holes_need_items() {
    random_operations("^no-holes", 100..104, 300);
}

/// A full volume refuses writes when they are made, fulfils its reservations, and can be emptied.
#[test]
fn a_full_volume_says_so_at_the_write() {
    let volume = Volume::new(160 << 20, 4 << 20, DEFAULT);
    let core = volume.core();
    let promised = volume.create("promised");
    super::allocate(core, &promised, AllocateMode::Allocate, 0, 1 << 20).unwrap();
    let mut files = vec![volume.create("large")];
    let mut models = vec![Vec::new()];
    let mut at = 0;
    let full = loop {
        let bytes = pattern(1 << 20, (at >> 20) as u8);
        match super::write_at(core, &files[0], at as u64, &bytes) {
            Ok(()) => models[0].extend(bytes),
            Err(error) => break error,
        }
        at += 1 << 20;
    };
    assert!(matches!(full, crate::Error::NoSpace(_)), "{full}");
    assert!(at > 64 << 20, "full at {at}");
    models[0].truncate(files[0].state().size as usize);
    for n in 0..2000 {
        files.push(volume.create(&format!("small{n}")));
        let bytes = pattern(3000, n as u8);
        match super::write_at(core, &files[n + 1], 0, &bytes) {
            Ok(()) => models.push(bytes),
            Err(crate::Error::NoSpace(_)) => {
                models.push(Vec::new());
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    flush_all(core).unwrap();
    for (file, model) in files.iter().zip(&models).skip(1) {
        assert_same(&contents(&volume, file), model, "a file on a full volume");
    }
    for part in 0..8 {
        super::write_at(core, &promised, part << 17, &pattern(1 << 17, 8)).unwrap();
    }
    flush_inode(core, &promised).unwrap();
    assert_same(&contents(&volume, &promised)[..1 << 17], &pattern(1 << 17, 8), "preallocated");
    drop(promised);
    super::set_size(core, &files[0], 4 << 20).unwrap();
    models[0].truncate(4 << 20);
    let late = volume.create("late");
    super::write_at(core, &late, 0, &pattern(8 << 20, 5)).unwrap();
    drop(late);
    let (volume, files) = volume.reopen(files);
    assert_same(&contents(&volume, &files[0]), &models[0], "the file that was cut");
}

/// A write without room leaves the file unchanged, or returns how much it wrote: readers may have the rest cached.
#[test]
fn on_a_full_volume_a_file_changes_as_far_as_its_writer_learns() {
    const LEN: usize = 330_001;
    let volume = Volume::new(160 << 20, 4 << 20, DEFAULT);
    let core = volume.core();
    let files: Vec<Arc<Inode>> = (0..24).map(|n| volume.create(&format!("f{n}"))).collect();
    for (n, file) in files.iter().enumerate() {
        super::write_at(core, file, 0, &pattern(LEN, n as u8)).unwrap();
    }
    let mut fill = Vec::new();
    loop {
        let file = volume.create(&format!("fill{}", fill.len()));
        let result = super::write_at(core, &file, 0, &pattern(100_000, 7)).and_then(|()| flush_inode(core, &file));
        fill.push(file);
        if result.is_err() {
            break;
        }
    }
    let (mut short, mut refused) = (0, 0);
    for (n, file) in files.iter().enumerate() {
        if n % 3 == 2 {
            super::set_size(core, &fill[n], 0).unwrap();
            core.store.commit().unwrap();
        }
        let mut model = pattern(LEN, n as u8);
        let (at, len) = (1 + n * 7919, 5000 + n * 3917);
        if n % 2 == 0 {
            let bytes = pattern(200_000.min(LEN - at), 0xee);
            match super::write_some(core, file, at as u64, &bytes) {
                Ok(count) => {
                    short += usize::from(count < bytes.len());
                    model[at..at + count].copy_from_slice(&bytes[..count]);
                }
                Err(error) => assert!(matches!(error, crate::Error::NoSpace(_)), "{error}"),
            }
        } else {
            match super::allocate(core, file, AllocateMode::ZeroRange, at as u64, len as u64) {
                Ok(()) => model[at..at + len].fill(0),
                Err(error) => {
                    assert!(matches!(error, crate::Error::NoSpace(_)), "{error}");
                    refused += 1;
                }
            }
        }
        assert_same(&contents(&volume, file), &model, &format!("file {n}"));
    }
    assert!(short > 0 && refused > 0, "{short} short writes, {refused} ranges refused");
}

/// Writers, a reader and a flusher on shared files: every read sees whole writes.
#[test]
fn threads_see_whole_writes() {
    let volume = Volume::new(512 << 20, 1 << 20, DEFAULT);
    let files: Vec<Arc<Inode>> = (0..3).map(|n| volume.create(&format!("f{n}"))).collect();
    for file in &files {
        super::write_at(volume.core(), file, 0, &vec![0; 4 << 20]).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let (volume, files) = (&volume, &files);
            scope.spawn(move || {
                let mut random = Random(u64::from(thread));
                for round in 0..300 {
                    let file = &files[random.below(3)];
                    let len = if round % 4 == 0 { 64 * K } else { K };
                    let at = random.below(60) * 16 * K;
                    let value = random.below(256) as u8;
                    super::write_at(volume.core(), file, at as u64, &vec![value; len]).unwrap();
                    let mut page = vec![0; K];
                    super::read_at(volume.core(), file, (random.below(1024) * K) as u64, &mut page).unwrap();
                    assert!(page.iter().all(|byte| *byte == page[0]), "a torn page");
                    if round % 50 == 0 {
                        flush_inode(volume.core(), file).unwrap();
                    }
                }
            });
        }
    });
    volume.reopen(files);
}

/// Where syncs of the volume follow each other, a file that is still growing waits for the next one; one that is
/// complete, is changed in its middle, or is large, does not.
#[test]
fn a_file_that_is_being_made_waits_for_the_sync() {
    // Longer ones go to the disk at once.
    const PIECE: usize = 16 << 10;
    let volume = Volume::new(256 << 20, 64 << 20, DEFAULT);
    let core = volume.core();
    let write = |file: &Arc<Inode>, pieces: std::ops::Range<usize>| {
        for piece in pieces {
            super::write_at(core, file, (piece * PIECE) as u64, &[7; PIECE]).unwrap();
        }
    };
    let waits = |file: &Arc<Inode>| file.data.dirty_bytes() > 0;
    let flush_early = || while flusher_step(core).unwrap() == Step::More {};
    let [grows, complete, overwritten] = ["grows", "complete", "overwritten"].map(|name| volume.create(name));
    write(&overwritten, 0..128);
    flush_inode(core, &overwritten).unwrap();
    [&grows, &overwritten].into_iter().for_each(|file| file.open().unwrap());
    [&grows, &complete, &overwritten].into_iter().for_each(|file| write(file, 0..128));
    flush_early();
    assert!(waits(&complete) && waits(&overwritten), "the volume is not being synced");
    (0..2).for_each(|_| drop(core.data.syncs.begin()));
    flush_early();
    assert!(!waits(&complete) && !waits(&overwritten) && waits(&grows));
    write(&grows, 128..512);
    (0..2).for_each(|_| drop(core.data.syncs.begin()));
    flush_early();
    assert!(!waits(&grows), "8 MiB lie well on their own");
    write(&grows, 512..640);
    flush_early();
    assert!(waits(&grows));
    grows.close();
    (0..2).for_each(|_| drop(core.data.syncs.begin()));
    flush_early();
    assert!(!waits(&grows), "it has no open handle");
    overwritten.close();
}

/// Reading changes the access time, where that is due, and nothing else.
#[test]
fn accesses_are_noted_without_a_commit() {
    use vfs::AtimeMode;
    let volume = Volume::new(128 << 20, 1 << 20, DEFAULT);
    let file = volume.create("f");
    let before = file.metadata();
    volume.names.note_access(&file, AtimeMode::No);
    assert_eq!(file.metadata(), before);
    volume.core().store.commit().unwrap();
    let generation = volume.core().store.generation();
    std::thread::sleep(std::time::Duration::from_millis(5));
    volume.names.note_access(&file, AtimeMode::Relative);
    let after = file.metadata();
    assert!(after.atime > before.atime);
    assert_eq!((after.mtime, after.ctime), (before.mtime, before.ctime));
    volume.names.note_access(&file, AtimeMode::Relative);
    assert_eq!(file.metadata().atime, after.atime, "newer than the last change");
    file.change_in_memory(|state| state.flags |= InodeFlags::NOATIME);
    volume.names.note_access(&file, AtimeMode::Strict);
    assert_eq!(file.metadata().atime, after.atime);
    assert_eq!(volume.core().store.generation(), generation, "nothing was committed");
    let sequence = file.state().sequence;
    file.change_in_memory(|state| state.flags = InodeFlags::empty());
    volume.names.note_access(&file, AtimeMode::Strict);
    assert!(file.metadata().atime > after.atime);
    assert_eq!(file.state().sequence, sequence);
    let atime = file.metadata().atime;
    volume.core().store.commit().unwrap();
    volume.core().inodes.remove(file.tree_id(), file.ino());
    let read = volume.core().inode(file.tree_id(), file.ino()).unwrap();
    assert_eq!(read.metadata().atime, atime);
}

const RACE_BLOCKS: usize = 128;

/// A file of blocks that contain their place and write count, and the least count of each that a reader may see.
struct Race<'a> {
    volume: &'a Volume,
    file: &'a Arc<Inode>,
    done: Vec<AtomicU64>,
    over: AtomicBool,
}

impl Race<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn put(&self, index: usize, version: u64) {
        let block = (((index as u64) << 40) | version).to_le_bytes().repeat(K / 8);
        let (core, at) = (self.volume.core(), (index * K) as u64);
        super::write_at(core, self.file, at, &block).unwrap();
        self.done[index].store(version, Ordering::SeqCst);
        // The same again, as a part of a page.
        super::write_at(core, self.file, at + 8, &block[8..80]).unwrap();
    }

    fn write(&self, writer: usize) {
        for round in 2..400 {
            let mine = (writer..RACE_BLOCKS).step_by(3);
            for index in mine.filter(|index| (index * 7 + round) % 5 == 0) {
                self.put(index, round as u64);
            }
        }
    }

    fn read(&self, reader: usize) {
        let mut at = reader;
        let mut buf = vec![0; 5 * K];
        while !self.is_over() {
            at = (at * 31 + 17) % (RACE_BLOCKS - 5);
            let least: Vec<u64> = self.done[at..at + 5].iter().map(|done| done.load(Ordering::SeqCst)).collect();
            super::read_at(self.volume.core(), self.file, (at * K) as u64, &mut buf).unwrap();
            for (i, block) in buf.chunks(K).enumerate() {
                let word = u64::from_le_bytes(block[..8].try_into().unwrap());
                assert!(block.chunks(8).all(|w| w == word.to_le_bytes()), "torn");
                assert_eq!(word >> 40, (at + i) as u64, "another block's bytes");
                assert!(word & 0xff_ffff_ffff >= least[i], "older than {}", least[i]);
            }
        }
    }

    fn edit(&self) {
        let core = self.volume.core();
        while !self.is_over() {
            flush_inode(core, self.file).unwrap();
            core.store.commit().unwrap();
            super::set_size(core, self.file, ((RACE_BLOCKS + 40) * K) as u64).unwrap();
            super::set_size(core, self.file, (RACE_BLOCKS * K) as u64).unwrap();
        }
    }

    /// Takes the space that the file gives up.
    fn take_space(&self) {
        let (core, other) = (self.volume.core(), self.volume.create("other"));
        while !self.is_over() {
            super::write_at(core, &other, 0, &vec![0xee; 64 * K]).unwrap();
            flush_inode(core, &other).unwrap();
        }
    }
}

/// Threads write and read one file while it is flushed, committed, cut and extended: a reader sees every block as a
/// writer wrote it, and never older than the writes that were finished when it began.
#[test]
fn readers_see_whole_blocks_while_space_is_reused() {
    let volume = Volume::new(128 << 20, 128 << 10, DEFAULT);
    let file = volume.create("f");
    let race = Race {
        volume: &volume,
        file: &file,
        done: (0..RACE_BLOCKS).map(|_| AtomicU64::new(0)).collect(),
        over: AtomicBool::new(false),
    };
    (0..RACE_BLOCKS).for_each(|index| race.put(index, 1));
    std::thread::scope(|scope| {
        let race = &race;
        let writers = [0, 1, 2].map(|writer| scope.spawn(move || race.write(writer)));
        for reader in [0, 1] {
            scope.spawn(move || race.read(reader));
        }
        scope.spawn(|| race.edit());
        scope.spawn(|| race.take_space());
        for writer in writers {
            writer.join().unwrap();
        }
        race.over.store(true, Ordering::Relaxed);
    });
    volume.reopen(vec![file]);
}
