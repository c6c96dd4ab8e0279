//! Rot on one copy is repaired from the other; rot on both names exactly the affected files.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use btrfs::{BalanceSpec, Env, Fate, MakeOptions, ScrubOptions, ScrubReport, ScrubbedKind, Volume};
use btrfs_disk::flags::BlockGroupFlags;
use common::check;
use common::whole::{all, contents, populate};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 4096;

fn count_of(len: usize) -> u64 {
    u64::try_from(len).unwrap()
}

/// A volume of which everything has two copies, with files of all kinds.
fn make() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let make = MakeOptions { size: Some(512 * MIB), data_profile: BlockGroupFlags::DUP, ..MakeOptions::default() };
    let volume = Volume::make(file.path(), &make).unwrap();
    populate(&volume);
    volume.close().unwrap();
    file
}

/// A unit of rot: its first byte, length, and the places of its two copies on the device.
struct Unit {
    logical: u64,
    len: u64,
    copies: [u64; 2],
    is_data: bool,
}

/// All tree blocks, and all sectors of data.
fn units(image: &Path) -> Vec<Unit> {
    let volume = Volume::options().read_only(true).open(image).unwrap();
    let chunks = volume.chunks();
    let mut units = Vec::new();
    volume
        .for_each_extent(|logical, len| {
            let chunk = chunks.iter().find(|chunk| chunk.logical <= logical && logical < chunk.logical + chunk.bytes);
            let chunk = chunk.unwrap();
            let is_data = chunk.flags.contains(BlockGroupFlags::DATA);
            let step = if is_data { SECTOR } else { len };
            for at in (logical..logical + len).step_by(usize::try_from(step).unwrap()) {
                let copies = [0, 1].map(|copy: usize| chunk.stripes[copy].1 + (at - chunk.logical));
                units.push(Unit { logical: at, len: step, copies, is_data });
            }
        })
        .unwrap();
    units
}

/// Changes one sector of a unit's copy.
fn rot(file: &File, env: &Env, unit: &Unit, copy: usize) {
    let at = unit.copies[copy] + env.random_u64() % (unit.len / SECTOR) * SECTOR;
    let mut bytes = vec![0; usize::try_from(SECTOR).unwrap()];
    file.read_exact_at(&mut bytes, at).unwrap();
    let place = usize::try_from(env.random_u64() % SECTOR).unwrap();
    bytes[place] ^= 1 << (env.random_u64() % 8);
    file.write_all_at(&bytes, at).unwrap();
}

fn open_raw(image: &Path) -> File {
    File::options().read(true).write(true).open(image).unwrap()
}

fn scrub(image: &Path, options: ScrubOptions) -> ScrubReport {
    let volume = Volume::options().read_only(options.read_only).open(image).unwrap();
    let report = volume.scrub(options, &mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    assert!(report.is_whole);
    report
}

#[test]
fn rot_on_one_copy_is_mended_and_none_is_misjudged() {
    let image = make();
    let before = all(&Volume::options().read_only(true).open(image.path()).unwrap());
    let sound = scrub(image.path(), ScrubOptions::default());
    assert_eq!(sound.progress.errors(), 0, "{sound:?}");
    assert_eq!(sound.progress.bytes, sound.progress.bytes_total);

    let env = Env::seeded(19, (0, 0));
    let (file, mut broken, mut trees) = (open_raw(image.path()), BTreeSet::new(), 0);
    let units = units(image.path());
    while broken.len() < 1000 {
        let unit = &units[usize::try_from(env.random_u64()).unwrap() % units.len()];
        // Ordinary reads repair damage in the copy they read, the first.
        if broken.insert(unit.logical) {
            rot(&file, &env, unit, 1);
            trees += u64::from(!unit.is_data);
        }
    }
    assert!(trees > 5, "{trees} of {}", broken.len());

    let bytes = std::fs::read(image.path()).unwrap();
    let counted = scrub(image.path(), ScrubOptions { read_only: true, ..ScrubOptions::default() });
    assert_eq!(std::fs::read(image.path()).unwrap(), bytes, "only counting writes nothing");
    let mended = scrub(image.path(), ScrubOptions::default());
    // Space that was reserved and not written has no checksum, so its damage cannot be seen.
    let found: BTreeSet<u64> = mended.faults.iter().map(|fault| fault.logical).collect();
    assert!(found.is_subset(&broken), "misjudged: {:?}", found.difference(&broken));
    let missed = broken.difference(&found).count();
    let bare = mended.progress.unchecked_bytes / 2 / SECTOR;
    assert!(count_of(missed) <= bare, "{missed} were missed, {bare} have no checksums");
    assert_eq!(mended.progress.mended, count_of(found.len()));
    assert_eq!((mended.progress.left, mended.progress.lost), (0, 0));
    assert_eq!(counted.progress.left, mended.progress.mended);
    assert_eq!(mended.progress.tree_errors, trees);
    assert!(
        mended.faults.iter().all(|fault| fault.fate == Fate::Mended && fault.copy == 1 && !fault.problem.is_empty())
    );
    assert_eq!(scrub(image.path(), ScrubOptions::default()).progress.errors(), 0);

    check(image.path());
    let volume = Volume::open(image.path()).unwrap();
    assert_eq!(all(&volume), before);
    let errors = volume.reset_device_errors().unwrap()[0];
    assert_eq!(errors.corruption + errors.generation, mended.progress.mended);
    assert_eq!(volume.device_errors().unwrap()[0].corruption, 0);
    volume.close().unwrap();
    check(image.path());
}

#[test]
fn rot_on_all_copies_names_exactly_the_files() {
    let image = make();
    // The sectors of the files, from their extents.
    let volume = Volume::options().read_only(true).open(image.path()).unwrap();
    let before = all(&volume);
    volume.close().unwrap();
    let env = Env::seeded(20, (0, 0));
    let file = open_raw(image.path());
    let data: Vec<Unit> = units(image.path()).into_iter().filter(|unit| unit.is_data).collect();
    for _ in 0..40 {
        let unit = &data[usize::try_from(env.random_u64()).unwrap() % data.len()];
        rot(&file, &env, unit, 0);
        rot(&file, &env, unit, 1);
    }
    let report = scrub(image.path(), ScrubOptions::default());
    assert!(report.progress.lost >= 20 && report.progress.mended == 0, "{:?}", report.progress);
    assert!(report.unreadable.is_empty());

    // A file is lost where reading it fails.
    let volume = Volume::options().read_only(true).open(image.path()).unwrap();
    let unreadable: BTreeSet<PathBuf> = before
        .keys()
        .filter(|path| volume.read(path).is_err())
        .map(|path| path.strip_prefix("/").unwrap().into())
        .collect();
    let named: BTreeSet<PathBuf> = report.lost.iter().map(|lost| lost.path.clone().unwrap()).collect();
    assert_eq!(named, unreadable);
    assert!(named.iter().any(|path| path.starts_with("snap-1")) && named.iter().any(|path| path.starts_with("sub")));
    // Around the named ranges the files can be read.
    let mut ranges: BTreeMap<&Path, Vec<(u64, u64)>> = BTreeMap::new();
    for lost in &report.lost {
        ranges.entry(lost.path.as_deref().unwrap()).or_default().push((lost.offset, lost.offset + lost.len));
    }
    for (path, ranges) in ranges {
        let whole = &before[&Path::new("/").join(path)];
        let file = vfs::File::open(&volume, path).unwrap();
        for at in (0..count_of(whole.len())).step_by(usize::try_from(SECTOR).unwrap()) {
            let mut bytes = vec![0; (count_of(whole.len()) - at).min(SECTOR).try_into().unwrap()];
            let is_lost = ranges.iter().any(|(from, to)| *from < at + count_of(bytes.len()) && at < *to);
            let read = file.read_at(&mut bytes, at);
            assert_eq!(read.is_err(), is_lost, "{} at {at}", path.display());
        }
    }
}

#[test]
fn a_copy_of_the_superblock_is_written_anew() {
    let image = make();
    let file = open_raw(image.path());
    file.write_all_at(&[0x55; 100], (64 << 20) + 500).unwrap();
    let report = scrub(image.path(), ScrubOptions { read_only: true, ..ScrubOptions::default() });
    assert_eq!((report.progress.superblock_errors, report.progress.left), (1, 1));
    // Opening it for writing commits nothing, as nothing changes.
    let report = scrub(image.path(), ScrubOptions::default());
    assert_eq!((report.progress.superblock_errors, report.progress.mended), (1, 1));
    assert_eq!(report.faults[0].kind, ScrubbedKind::Superblock);
    assert_eq!(scrub(image.path(), ScrubOptions::default()).progress.errors(), 0);
    check(image.path());
}

/// A device that is larger than its volume has room for copies that the volume does not write.
#[test]
fn what_lies_behind_the_volume_is_no_copy_of_the_superblock() {
    let image = make();
    image.as_file().set_len(300 << 30).unwrap();
    assert_eq!(scrub(image.path(), ScrubOptions::default()).progress.errors(), 0);
}

#[test]
fn a_scrub_that_is_stopped_goes_on_where_it_was() {
    let image = make();
    let file = open_raw(image.path());
    let units = units(image.path());
    let env = Env::seeded(21, (0, 0));
    let last = units.iter().rfind(|unit| !unit.is_data).unwrap();
    rot(&file, &env, last, 1);
    let volume = Volume::open(image.path()).unwrap();
    let mut steps = 0;
    let first = volume.scrub(ScrubOptions::default(), &mut |_| {
        steps += 1;
        if steps > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let first = first.unwrap();
    assert!(!first.is_whole && first.progress.place > 0);
    let options = ScrubOptions { from: first.progress.place, ..ScrubOptions::default() };
    let rest = volume.scrub(options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(rest.is_whole);
    assert_eq!(first.progress.mended + rest.progress.mended, 1);
    assert_eq!(
        first.progress.tree_bytes + rest.progress.tree_bytes + first.progress.data_bytes + rest.progress.data_bytes,
        first.progress.bytes + rest.progress.bytes - 2 * SECTOR
    );
    volume.close().unwrap();
}

/// A scrub that repairs while blocks it reads are freed and reused must not write old bytes over new ones.
#[test]
fn a_scrub_mends_while_everything_changes() {
    let image = make();
    let file = open_raw(image.path());
    let env = Env::seeded(22, (0, 0));
    let units = units(image.path());
    for unit in units.iter().step_by(7) {
        rot(&file, &env, unit, 1);
    }
    let volume = Volume::open(image.path()).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (volume, is_over) = (&volume, &is_over);
        scope.spawn(move || {
            for round in 0..200 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                for number in 0..12 {
                    volume.write(format!("/sub/large-{number}"), contents(number + round, 400_000)).unwrap();
                }
                let _ = volume.remove_file(format!("/snap-1/small-{round}"));
                volume.sync().unwrap();
                if round % 5 == 0 {
                    volume.balance(BalanceSpec::all(), &mut |_| ControlFlow::Continue(())).unwrap();
                }
            }
        });
        let mut mended = 0;
        for _ in 0..4 {
            let report = volume.scrub(ScrubOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(report.progress.lost, 0, "{:?}", report.faults);
            mended += report.progress.mended;
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(mended > 100, "{mended}");
    });
    let now = all(&volume);
    volume.close().unwrap();
    check(image.path());
    let volume = Volume::options().read_only(true).open(image.path()).unwrap();
    assert_eq!(all(&volume), now);
    volume.close().unwrap();
    let report = scrub(image.path(), ScrubOptions::default());
    assert_eq!(report.progress.lost, 0);
}
