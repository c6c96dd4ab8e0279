//! Power cuts on a volume with quotas: after each, and the replay of its log, the counts equal those of a recount.
//! `SPINNEY_POWER_CUTS` states (default 300).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{Env, MakeOptions, QuotaChange, QuotaKind, Volume};
use crash_explorer::{Access, CLOCK, Config, Form, Format, explore_given, parse};
use vfs::SnapshotMode;

const IMAGE_BYTES: u64 = 128 << 20;

const WORKLOAD: &str = "\
creat a\nwrite a 0 3000000\nfsync a\ncreat b\nwrite b 0 200000\nsync\n\
reflink a 0 b 0 65536\nfsync b\nwrite a 1000000 5000\nfsync a\nunlink b\nsync\n\
mkdir d\ncreat d/c\nwrite d/c 0 9000\nfsync d/c\norder btrfs.balance start data metadata\n\
write large 0 500000\nfsync large\nunlink a\ncreat e\nwrite e 0 70000\nfsync e\nsync\nwrite e 100 70000\nfsync e\n";

/// btrfs, with a check of quotas whenever a state is opened for writing.
struct Counted {
    format: btrfs_crash::Btrfs,
    looked_at: AtomicU64,
}

impl Format for Counted {
    fn make(&self, form: Form) -> Result<Arc<dyn Device>> {
        self.format.make(form)
    }

    fn open(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        if access == Access::ReadOnly {
            return self.format.open(form, device, access);
        }
        let volume = Volume::options().workers(1).env(Env::seeded(1, CLOCK)).open_device(device)?;
        let by_changes = volume.quotas()?.context("quotas are on")?;
        ensure!(!by_changes.is_inconsistent(), "the numbers are inconsistent");
        volume.change_quotas(QuotaChange::Rescan)?;
        let anew = volume.quotas()?.context("quotas are on")?;
        ensure!(by_changes == anew, "counted by changes: {by_changes:?}\ncounted anew: {anew:?}");
        self.looked_at.fetch_add(1, Ordering::Relaxed);
        Ok(volume.by_paths().clone())
    }

    fn has_log(&self, device: &dyn Device) -> bool {
        self.format.has_log(device)
    }
}

/// A volume with files that a snapshot shares.
fn shared() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let make = MakeOptions { nodesize: 4096, ..MakeOptions::default() };
    let volume = Volume::options().make_device(Arc::clone(&device), &make).unwrap();
    volume.enable_quotas(QuotaKind::Shared).unwrap();
    for number in 0..150u8 {
        volume.write(format!("/{number}"), vec![number; usize::from(number) * 40]).unwrap();
    }
    volume.write("/large", vec![3; 2_000_000]).unwrap();
    volume.snapshot("/", "/one", SnapshotMode::ReadWrite).unwrap();
    volume.write("/one/large", vec![4; 300_000]).unwrap();
    volume.close().unwrap();
    device
}

#[test]
fn what_is_counted_is_right_after_a_power_cut() {
    let states = std::env::var("SPINNEY_POWER_CUTS").ok().and_then(|states| states.parse().ok()).unwrap_or(300);
    let format = Arc::new(Counted { format: btrfs_crash::Btrfs, looked_at: AtomicU64::new(0) });
    let config = Config { states, ..Config::new(Arc::<Counted>::clone(&format)) };
    let report = explore_given(&config, &shared(), &parse(WORKLOAD.as_bytes()).unwrap()).unwrap();
    let looked_at = format.looked_at.load(Ordering::Relaxed);
    eprintln!("{} states, {} with a log, quotas looked at {looked_at} times", report.states, report.replayed);
    for failure in report.failures.iter().take(3) {
        eprintln!("{}: {}\n{}", failure.state, failure.reason, failure.story);
    }
    assert_eq!(report.failure_count, 0);
    assert!(looked_at >= states / 2 && report.replayed > 0, "{looked_at} of {} states", report.states);
}
