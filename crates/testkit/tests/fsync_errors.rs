//! Reports of a failed write: every description of a file that was open then gets it once, whichever met the failure.
//! It used to be only the caller whose fsync met it; all others learned that the volume cannot be written, not why.

use std::sync::Arc;

use anyhow::Result;
use blockdev::Op;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use testkit::faults::{FailingDevice, Fault, FaultKind};
use vfs::{Blame, Error, File, FileOptions};

const IMAGE_BYTES: u64 = 128 << 20;

fn volume() -> Result<(Arc<FailingDevice>, Volume)> {
    let device = Arc::new(FailingDevice::new(Arc::new(MemoryDevice::new(IMAGE_BYTES))));
    let make = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
    let volume = Volume::options().make_device(Arc::<FailingDevice>::clone(&device), &make)?;
    Ok((device, volume))
}

fn open(volume: &Volume, path: &str) -> Result<File> {
    Ok(FileOptions::new().read(true).write(true).create(true).open(volume, path)?)
}

fn is_reported(result: Result<(), Error>) -> bool {
    result.is_err_and(|error| error.blame() == Blame::Device)
}

fn is_refused(result: Result<(), Error>) -> bool {
    result.is_err_and(|error| error.blame() == Blame::EarlierFailure)
}

fn every_description_is_told_once(op: Op) -> Result<()> {
    let (device, volume) = volume()?;
    let (first, second, other) = (open(&volume, "a")?, open(&volume, "a")?, open(&volume, "b")?);
    first.write_at(&[1; 9000], 0)?;
    first.sync_all()?;
    volume.sync()?;
    first.write_at(&[2; 9000], 0)?;
    device.plan(vec![Fault { op, after: 0, kind: FaultKind::Once }]);
    assert!(is_reported(first.sync_all()), "{op:?}: the one that met it");
    assert!(is_reported(second.sync_data()), "{op:?}: another description of the file");
    assert!(is_reported(other.sync_all()), "{op:?}: a file that was not written");
    for file in [&first, &second, &other] {
        assert!(is_refused(file.sync_all()), "{op:?}: once");
    }
    let late = FileOptions::new().read(true).open(&volume, "a")?;
    assert!(is_refused(late.sync_all()), "{op:?}: opened after the failure");
    let mut read = vec![0; 9000];
    assert_eq!(late.read_at(&mut read, 0)?, 9000, "{op:?}: reads go on");
    Ok(())
}

#[test]
fn a_failed_write_is_reported_once_to_every_description() -> Result<()> {
    every_description_is_told_once(Op::Write)
}

#[test]
fn a_failed_flush_is_reported_once_to_every_description() -> Result<()> {
    every_description_is_told_once(Op::Flush)
}

#[test]
fn a_failure_in_the_background_is_reported_to_who_syncs_later() -> Result<()> {
    let (device, volume) = volume()?;
    let file = open(&volume, "a")?;
    file.write_at(&[1; 9000], 0)?;
    device.plan(vec![Fault { op: Op::Write, after: 0, kind: FaultKind::Once }]);
    assert!(volume.sync().is_err());
    assert!(is_reported(file.sync_all()));
    assert!(is_refused(file.sync_all()));
    Ok(())
}
