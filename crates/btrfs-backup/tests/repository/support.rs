//! A volume to back up, and the steps of tests.

use std::path::Path;
use std::sync::Arc;

use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use btrfs_backup::{
    Backup, Error, Identities, Inspection, Mark, Name, Origin, Recipients, Report, Repository, Restore, Stamp, Store,
    Writing,
};

/// Bytes of the large file: five parts and a bit.
pub(crate) const FILE_BYTES: usize = 340_000;
/// Bytes of the stream in a part.
const PART_BYTES: u64 = 64 << 10;

pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

pub(crate) fn empty() -> Volume {
    let device = Arc::new(MemoryDevice::new(128 << 20));
    Volume::options().make_device(device, &MakeOptions::default()).unwrap()
}

/// A volume with a subvolume `/home`.
pub(crate) fn source() -> Volume {
    let volume = empty();
    volume.create_subvolume("home").unwrap();
    volume.write("home/large", noise(1, FILE_BYTES)).unwrap();
    volume.write("home/small", "small").unwrap();
    volume
}

pub(crate) fn mark(run: u64) -> Mark {
    let text = |text: &str| text.to_owned();
    Mark {
        host: text("here"),
        boot: text("boot"),
        process: format!("{run}/1"),
        since: text("now"),
        run: format!("{run:016x}"),
    }
}

/// How the run with this number writes: all others have ended.
pub(crate) fn writing(run: u64) -> Writing {
    Writing {
        mark: mark(run),
        has_ended: Box::new(|_| true),
        takes_over: false,
        recipients: None,
        part_bytes: Some(PART_BYTES),
    }
}

pub(crate) fn sealed(run: u64, recipient: &str) -> Writing {
    Writing { recipients: Some(Recipients::parse([recipient]).unwrap()), ..writing(run) }
}

pub(crate) fn name() -> Name {
    Name::new("home").unwrap()
}

pub(crate) fn backup(seconds: i64) -> Backup {
    Backup {
        subvolume: "/home".into(),
        name: name(),
        snapshots: "/.backups".into(),
        time: Stamp::new(seconds).unwrap(),
        keep: None,
        adopt: false,
        full: false,
        dry_run: false,
    }
}

pub(crate) fn run(
    backup: &Backup,
    source: &Volume,
    store: impl Store + 'static,
    how: Writing,
) -> Result<Report, Error> {
    let mut report = Report::default();
    let mut dest = Repository::write(Box::new(store), &name(), how)?;
    backup.run(source, &mut dest, &(), &mut report)?;
    Ok(report)
}

pub(crate) fn origin(store: impl Store + 'static, identities: Option<Identities>) -> Origin {
    Origin::repository(Repository::read(Box::new(store)).unwrap(), identities)
}

/// The newest state, restored to a new volume at `/back`.
pub(crate) fn restore(store: impl Store + 'static, identities: Option<Identities>) -> Result<Volume, Error> {
    let (origin, target) = (origin(store, identities), empty());
    let to = Restore { path: Path::new("/back"), kept: None };
    to.run(&origin, origin.choose(None, None)?, &target, &())?;
    Ok(target)
}

pub(crate) fn inspect(store: impl Store + 'static) -> Inspection {
    Repository::read(Box::new(store)).unwrap().verify_objects(100, 0, &()).unwrap()
}

/// Asserts that the newest state in a store has the contents of the subvolume.
pub(crate) fn assert_restored(source: &Volume, store: impl Store + 'static) {
    let target = restore(store, None).unwrap();
    for file in ["large", "small"] {
        let (expected, found) = (source.read(format!("home/{file}")).unwrap(), target.read(format!("back/{file}")));
        assert!(expected == found.unwrap(), "{file}");
    }
}
