//! Long operations: each reports its progress, ends when its callback cancels it, and leaves a volume without errors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use spinney::btrfs::backup::{
    Backup, Directory, Error as BackupError, Name, Origin, Report, Restore, Stamp, VolumeDestination,
};
use spinney::btrfs::receive::{Error as ReceiveError, Options, Receiver};
use spinney::btrfs::{self, BalanceEnd, BalanceSpec, RescueOptions, ScrubOptions, SendError, SendOptions, Sending};
use spinney::{CheckOptions, Errno, MakeOptions, Progress, RepairOptions, SnapshotMode, VolumeOptions};

/// Larger than the buffers of a stream, so that an operation can be cancelled in its middle.
const FILE_BYTES: usize = 8 << 20;

/// The progress that an operation reported, and whether it is to be cancelled.
#[derive(Default)]
struct Watch {
    calls: Vec<Progress>,
    cancels: bool,
}

impl Watch {
    fn cancelling() -> Self {
        Self { cancels: true, ..Self::default() }
    }

    fn callback(&mut self) -> impl FnMut(&Progress) -> ControlFlow<()> + Send {
        |progress| {
            self.calls.push(*progress);
            if self.cancels { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// The last progress of an operation that ended by itself.
    fn last(&self) -> Progress {
        *self.calls.last().expect("the callback was never called")
    }
}

/// Bytes that cannot be compressed.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// An image with the subvolume `home`, and its snapshot `monday`.
fn image(dir: &Path, name: &str) -> PathBuf {
    let image = dir.join(name);
    let volume = spinney::make(&image, "btrfs", &MakeOptions::new().size(256 << 20)).unwrap();
    volume.create_subvolume("home").unwrap();
    volume.write("home/large", noise(FILE_BYTES)).unwrap();
    volume.write("home/small", "small").unwrap();
    volume.snapshot("home", "monday", SnapshotMode::ReadOnly).unwrap();
    volume.close().unwrap();
    image
}

fn open(image: &Path, read_only: bool) -> btrfs::Volume {
    let volume = spinney::open(image, &VolumeOptions::new().read_only(read_only)).unwrap();
    volume.btrfs().unwrap().clone()
}

fn assert_clean(image: &Path) {
    let report = spinney::check(image, &CheckOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.errors(), 0, "{report:?}");
}

#[test]
fn a_scrub() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "a");
    let volume = open(&image, false);
    let mut watch = Watch::cancelling();
    let report = btrfs::scrub(&volume, ScrubOptions::default(), &mut watch.callback()).unwrap();
    assert!(!report.is_whole);
    let mut watch = Watch::default();
    let report = btrfs::scrub(&volume, ScrubOptions::default(), &mut watch.callback()).unwrap();
    assert!(report.is_whole && report.progress.errors() == 0);
    assert_eq!((watch.last().bytes, watch.last().bytes_total), (report.progress.bytes, report.progress.bytes_total));
    volume.close().unwrap();
    assert_clean(&image);
}

#[test]
fn a_balance_that_is_cancelled_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "a");
    let volume = open(&image, false);
    let mut watch = Watch::cancelling();
    let end = btrfs::balance(&volume, BalanceSpec::all(), &mut watch.callback()).unwrap();
    assert!(matches!(end, BalanceEnd::Paused(_)) && watch.calls.len() == 1);
    volume.close().unwrap();
    assert_clean(&image);
    let volume = open(&image, false);
    let mut watch = Watch::default();
    let end = btrfs::resume_balance(&volume, &mut watch.callback()).unwrap();
    let BalanceEnd::Done(progress) = end else { panic!("{end:?}") };
    assert_eq!(watch.last().inodes, progress.completed);
    assert!(progress.completed > 0);
    volume.close().unwrap();
    assert_clean(&image);
}

fn sending(subvolume: &str) -> Sending<'_> {
    Sending { subvolume: Path::new(subvolume), parent: None, clones: &[], options: SendOptions::default() }
}

#[test]
fn a_stream_is_sent_and_received() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(&image(dir.path(), "a"), true);
    let (mut stream, mut watch) = (Vec::new(), Watch::default());
    btrfs::send(&source, &sending("monday"), &mut stream, &mut watch.callback()).unwrap();
    assert_eq!(watch.last().bytes, u64::try_from(stream.len()).unwrap());
    let (mut part, mut watch) = (Vec::new(), Watch::cancelling());
    let error = btrfs::send(&source, &sending("monday"), &mut part, &mut watch.callback()).unwrap_err();
    assert!(matches!(error, SendError::Volume(error) if error.errno() == Errno::ECANCELED));
    assert!(part.len() < stream.len() && stream.starts_with(&part));

    let target = dir.path().join("b");
    spinney::make(&target, "btrfs", &MakeOptions::new().size(256 << 20)).unwrap().close().unwrap();
    let volume = open(&target, false);
    let mut receiver = Receiver::new(&volume, Path::new("/"), Options::default()).unwrap();
    let mut watch = Watch::cancelling();
    let error = btrfs::receive(&mut receiver, &stream[..], &mut (), &mut watch.callback()).unwrap_err();
    assert!(matches!(error, ReceiveError::Cancelled), "{error}");
    receiver.discard().unwrap();
    drop(receiver);
    let mut receiver = Receiver::new(&volume, Path::new("/"), Options::default()).unwrap();
    let mut watch = Watch::default();
    btrfs::receive(&mut receiver, &stream[..], &mut (), &mut watch.callback()).unwrap();
    assert_eq!(receiver.report().subvolumes.len(), 1);
    assert_eq!((watch.last().inodes, watch.last().bytes > 8 << 20), (2, true));
    drop(receiver);
    assert_eq!(volume.read("monday/large").unwrap(), noise(FILE_BYTES));
    volume.close().unwrap();
    assert_clean(&target);
}

fn backup(seconds: i64) -> Backup {
    Backup {
        subvolume: "/home".into(),
        name: Name::new("home").unwrap(),
        snapshots: "/.backups".into(),
        time: Stamp::new(seconds).unwrap(),
        keep: None,
        adopt: false,
        full: false,
        dry_run: false,
    }
}

#[test]
fn a_backup_that_is_cancelled_is_finished_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (image(dir.path(), "a"), dir.path().join("b"));
    spinney::make(&to, "btrfs", &MakeOptions::new().size(256 << 20)).unwrap().close().unwrap();
    let open_to = |writes: bool| Ok(open(&to, !writes));
    let name = Name::new("home").unwrap();
    let source = open(&from, false);
    let mut dest = VolumeDestination::open(open_to, Path::new("/"), &name).unwrap();
    let (mut report, mut watch) = (Report::default(), Watch::cancelling());
    let done = btrfs::back_up(&backup(1), &source, &mut dest, &mut report, &mut watch.callback());
    assert!(matches!(done, Err(BackupError::Cancelled)), "{done:?}");
    assert_clean(&to);

    let mut dest = VolumeDestination::open(open_to, Path::new("/"), &name).unwrap();
    let (mut report, mut watch) = (Report::default(), Watch::default());
    btrfs::back_up(&backup(2), &source, &mut dest, &mut report, &mut watch.callback()).unwrap();
    let sent: Vec<&str> = report.actions.iter().filter(|one| one.bytes.is_some()).map(|one| &*one.state).collect();
    assert_eq!(sent, ["home.1970-01-01T000001Z", "home.1970-01-01T000002Z"]);
    // Each byte is sent and then read back.
    assert!(watch.last().bytes > 16 << 20, "{:?}", watch.last());
    source.close().unwrap();
    assert_clean(&from);
    assert_clean(&to);
}

#[test]
fn a_restore_that_is_cancelled_is_done_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (from, streams) = (image(dir.path(), "a"), dir.path().join("streams"));
    fs::create_dir(&streams).unwrap();
    let source = open(&from, false);
    {
        let mut dest = Directory::open(&streams, &Name::new("home").unwrap()).unwrap();
        let go_on = &mut |_: &Progress| ControlFlow::Continue(());
        btrfs::back_up(&backup(1), &source, &mut dest, &mut Report::default(), go_on).unwrap();
    }
    source.close().unwrap();
    let to = dir.path().join("b");
    spinney::make(&to, "btrfs", &MakeOptions::new().size(256 << 20)).unwrap().close().unwrap();
    let (target, origin) = (open(&to, false), Origin::directory(&streams).unwrap());
    let chosen = origin.choose(None, None).unwrap();
    let restore = Restore { path: Path::new("/back"), kept: None };
    let mut watch = Watch::cancelling();
    let done = btrfs::restore(&restore, &origin, chosen, &target, &mut watch.callback());
    assert!(matches!(done, Err(BackupError::Cancelled)), "{done:?}");
    assert!(!target.by_paths().exists("back").unwrap());
    let mut watch = Watch::default();
    btrfs::restore(&restore, &origin, chosen, &target, &mut watch.callback()).unwrap();
    assert_eq!(target.read("back/large").unwrap(), noise(FILE_BYTES));
    assert!(watch.last().bytes > 16 << 20 && watch.last().inodes == 2, "{:?}", watch.last());
    target.close().unwrap();
    assert_clean(&to);
}

#[test]
fn a_repair_is_planned_written_and_undone() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "a");
    // The second copy of the superblock.
    let mut bytes = fs::read(&image).unwrap();
    bytes[(64 << 20) + 200] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let mut watch = Watch::cancelling();
    let error = spinney::plan_repair(&image, &RepairOptions::default(), &mut watch.callback()).unwrap_err();
    assert_eq!(error.errno(), Errno::ECANCELED);
    assert_eq!(watch.calls.len(), 1);

    let mut watch = Watch::default();
    let repair = spinney::plan_repair(&image, &RepairOptions::default(), &mut watch.callback()).unwrap();
    assert!(watch.last().bytes > 0);
    assert!(!repair.plan().is_needless() && repair.plan().is_complete() && repair.plan().bytes() > 0);
    assert!(repair.own::<btrfs::repair::Plan>().is_some());
    assert_eq!(fs::read(&image).unwrap(), bytes, "a plan writes nothing");
    let undo = dir.path().join("undo");
    repair.apply(&undo).unwrap();
    assert_clean(&image);
    assert_eq!(repair.apply(&undo).unwrap_err().errno(), Errno::EEXIST);
    let mut file = fs::File::open(&undo).unwrap();
    let undo = btrfs::repair::Undo::open(&mut file).unwrap();
    let part = spinney::blockdev::Locator::parse(&image).unwrap();
    undo.apply(&*spinney::blockdev::open(&part, spinney::blockdev::Access::WRITE).unwrap()).unwrap();
    assert_eq!(fs::read(&image).unwrap(), bytes);
}

#[test]
fn f2fs_refuses_a_repair_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a");
    spinney::make(&image, "f2fs", &MakeOptions::new().size(128 << 20)).unwrap().close().unwrap();
    let mut watch = Watch::default();
    let error = spinney::plan_repair(&image, &RepairOptions::default(), &mut watch.callback()).unwrap_err();
    assert_eq!(error.errno(), Errno::EOPNOTSUPP);
    assert!(error.to_string().contains("f2fs volumes cannot be repaired"), "{error}");
}

#[test]
fn files_are_rescued_without_the_superblocks() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "a");
    let mut bytes = fs::read(&image).unwrap();
    for at in [64 << 10, 64 << 20] {
        bytes[at..at + 4096].fill(0);
    }
    fs::write(&image, &bytes).unwrap();
    let devices = || {
        let part = spinney::blockdev::Locator::parse(&image).unwrap();
        vec![spinney::blockdev::open(&part, spinney::blockdev::Access::READ).unwrap()]
    };
    let mut watch = Watch::cancelling();
    let to = dir.path().join("none");
    let done = btrfs::rescue(devices(), &to, RescueOptions::default(), &mut watch.callback());
    assert_eq!(done.unwrap_err().errno(), Errno::ECANCELED);
    let mut watch = Watch::default();
    let to = dir.path().join("out");
    let report = btrfs::rescue(devices(), &to, RescueOptions::default(), &mut watch.callback()).unwrap();
    assert_eq!(fs::read(to.join("home/large")).unwrap(), noise(FILE_BYTES));
    assert!(report.losses.is_empty(), "{:?}", report.losses);
    assert!(watch.last().bytes > 8 << 20, "{:?}", watch.last());
    assert_eq!(fs::read(&image).unwrap(), bytes, "a rescue writes nothing");
}

#[test]
fn a_copy_knows_how_much_there_is_to_copy() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "a");
    let volume = spinney::open(&image, &VolumeOptions::new().read_only(true)).unwrap();
    let mut watch = Watch::default();
    volume.export("home", dir.path().join("out"), &mut watch.callback()).unwrap();
    let Progress { bytes, bytes_total, inodes } = watch.last();
    assert_eq!((bytes, inodes), (u64::try_from(FILE_BYTES).unwrap() + 5, 2));
    assert!(bytes_total == 0 || bytes_total == bytes, "{bytes_total}");
    let mut watch = Watch::cancelling();
    let error = volume.export("home", dir.path().join("none"), &mut watch.callback()).unwrap_err();
    assert_eq!(error.errno(), Errno::ECANCELED);
}

#[test]
fn options_of_a_new_volume_are_given_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a");
    let make = MakeOptions::new().size(256 << 20).label("named").uuid([7; 16]);
    let own = make.clone().option("csum", "sha256").option("nodesize", "4K");
    let volume = spinney::make(&image, "btrfs", &own).unwrap();
    let info = volume.btrfs().unwrap().info().unwrap();
    assert_eq!((info.label.to_str(), info.uuid, info.node_bytes), (Some("named"), [7; 16], 4096));
    assert_eq!(info.csum, "sha256");
    volume.close().unwrap();
    assert_clean(&image);
    for (name, value, expected) in [
        ("csum", "md5", "crc32c"),
        ("nodesize", "5000", "power of two"),
        ("nodesize", "128K", "4.00 KiB to 64.0 KiB"),
        ("blocksize", "4K", "`blocksize`"),
    ] {
        let error = spinney::make(&image, "btrfs", &make.clone().option(name, value)).unwrap_err();
        assert_eq!(error.errno(), Errno::EINVAL);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = spinney::make(&image, "f2fs", &make.option("csum", "crc32c")).unwrap_err();
    assert!(error.errno() == Errno::EINVAL && error.to_string().contains("`csum`"), "{error}");
}

#[test]
fn unknown_bytes_have_no_format() {
    let device = spinney::MemoryDevice::new(1 << 20);
    assert!(spinney::recognise(&device).unwrap().is_none());
    // Opening says what is missing, as it did before.
    let error = spinney::open_devices(vec![std::sync::Arc::new(device)], &VolumeOptions::new()).unwrap_err();
    assert_eq!(error.errno(), Errno::EIO);
}
