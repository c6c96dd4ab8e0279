//! The property test and the crash explorer over a format that lives in memory and is kept on a device: neither knows
//! more of a format than it is told, and no format of disks is linked in.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions, MemoryDevice};
use crash_explorer::{Access, CLOCK, Config, Form, Format, Random, Step, explore_all};
use vfs::Volume;
use vfs::file_system::Time;
use vfs_conformance::model::Operation;
use vfs_conformance::property::{Settings, Subject, run, run_threads};
use vfs_conformance::{MemoryFs, MemoryOptions};

const IMAGE_BYTES: u64 = 16 << 20;
/// Most free bytes that an operation may leave unused of its request.
const SLACK_BYTES: u64 = 8192;

struct Memory;

/// An open volume, as the property test wants it.
#[derive(Clone)]
struct Opened(Volume);

impl AsRef<Volume> for Opened {
    fn as_ref(&self) -> &Volume {
        &self.0
    }
}

fn options(capacity_bytes: u64) -> MemoryOptions {
    let clock = Some(Time::new(CLOCK.0, CLOCK.1));
    MemoryOptions { capacity_bytes, atime: vfs::AtimeMode::No, clock, read_only: false }
}

fn volume(fs: MemoryFs) -> Volume {
    Volume::new(Arc::new(fs))
}

impl Format for Memory {
    fn make(&self, _form: Form) -> Result<Arc<dyn Device>> {
        let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        drop(MemoryFs::make_on(Arc::<MemoryDevice>::clone(&device), &options(IMAGE_BYTES))?);
        Ok(Arc::new(device.duplicate().into_read_only()))
    }

    fn open(&self, _form: Form, device: Arc<dyn Device>, access: Access) -> Result<Volume> {
        let options = MemoryOptions { read_only: access == Access::ReadOnly, ..options(IMAGE_BYTES) };
        Ok(volume(MemoryFs::open_on(device, &options)?))
    }

    fn can(&self, step: &Step) -> bool {
        use Step as S;
        let shares = matches!(step, S::Clone { how: crash_explorer::CloneHow::Reflink, .. });
        let has_none = matches!(step, S::Subvolume { .. } | S::Snapshot { .. } | S::DeleteSubvolume { .. } | S::Trim);
        !shares && !has_none
    }
}

/// A device of which a quarter can be filled by files: a sync has room for a second tree.
fn capacity(device: &dyn Device) -> u64 {
    device.size_bytes() / 4
}

impl Subject for Memory {
    type Opened = Opened;

    fn make(&self, path: &Path, size_bytes: u64, random: &mut Random) -> Result<(Opened, String)> {
        std::fs::File::create(path)?.set_len(size_bytes)?;
        let device = FileDevice::open(path, &FileOptions::default())?;
        let capacity = capacity(&device);
        drop(MemoryFs::make_on(Arc::new(device), &options(capacity))?);
        Ok((Subject::open(self, path, random)?, "memory".to_owned()))
    }

    fn open(&self, path: &Path, _random: &mut Random) -> Result<Opened> {
        let device = FileDevice::open(path, &FileOptions::default())?;
        let capacity = capacity(&device);
        Ok(Opened(volume(MemoryFs::open_on(Arc::new(device), &options(capacity))?)))
    }

    fn check_full(&self, opened: &Opened, operation: &Operation) -> Result<()> {
        let status = opened.0.status()?;
        let free = status.blocks_free * u64::from(status.block_bytes);
        let wanted = match operation {
            Operation::Write { len, .. } | Operation::Allocate { len, .. } => *len,
            _ => 0,
        };
        ensure!(free < wanted + SLACK_BYTES, "no room with {free} bytes free of {}", status.blocks);
        Ok(())
    }

    fn check(&self, _path: &Path) -> Result<bool> {
        Ok(false)
    }

    fn can(&self, operation: &Operation) -> bool {
        use Operation as O;
        !matches!(
            operation,
            O::CreateSubvolume { .. }
                | O::Snapshot { .. }
                | O::DeleteSubvolume { .. }
                | O::Reflink { .. }
                | O::Defragment { .. }
        )
    }
}

#[test]
fn random_operations_equal_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { operations: 2000, image_bytes: 256 << 20, ..Settings::default() };
    let (mut done, mut refused, mut full) = (0, 0, 0);
    for seed in 0..9 {
        let report = run(&Memory, seed, &settings, folder.path()).unwrap();
        (done, refused, full) = (done + report.done, refused + report.refused, full + report.no_space);
    }
    eprintln!("in memory: {done} operations done, {refused} refused alike, {full} without space");
    assert!(done > 10_000 && refused > 1000 && full > 0, "{done}, {refused}, {full}");
}

#[test]
fn four_threads_equal_their_models() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { operations: 800, image_bytes: 256 << 20, ..Settings::default() };
    let report = run_threads(&Memory, 1, 4, &settings, folder.path()).unwrap();
    assert!(report.done > 2000, "{report:?}");
}

#[test]
fn no_state_of_a_power_cut_breaks_a_promise() {
    let config = Config { states: 4000, ..Config::new(Arc::new(Memory)) };
    let report = explore_all(&config).unwrap();
    for failure in &report.failures {
        eprintln!("{}: {}\n{}", failure.state, failure.reason, failure.story);
    }
    assert_eq!(report.failure_count, 0);
    assert!(report.states >= 4000 && report.changed > 0 && report.replayed == 0, "{report:?}");
}

/// A format that forgets the flush between its tree and the header that names it.
struct Hasty;

/// A device on which nothing waits for anything.
#[derive(Debug)]
struct Unflushed(Arc<dyn Device>);

impl Device for Unflushed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        self.0.write_at(offset, parts)
    }

    fn flush(&self) -> blockdev::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.0.discard(offset, len)
    }

    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.0.grow(size_bytes)
    }
}

impl Format for Hasty {
    fn make(&self, form: Form) -> Result<Arc<dyn Device>> {
        Format::make(&Memory, form)
    }

    fn open(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<Volume> {
        Format::open(&Memory, form, Arc::new(Unflushed(device)), access)
    }

    fn can(&self, step: &Step) -> bool {
        Format::can(&Memory, step)
    }
}

#[test]
fn a_format_that_does_not_flush_is_found_out() {
    let config = Config { states: 2000, failures_max: 1, ..Config::new(Arc::new(Hasty)) };
    assert!(explore_all(&config).unwrap().failure_count > 0);
}

#[test]
fn no_format_of_disks_is_linked_in() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let has = |text: &[u8]| program.windows(text.len()).any(|window| window == text);
    // The magic number of a superblock is in every program that can open one.
    let magic: Vec<u8> = b"M_SfRHB_".iter().rev().copied().collect();
    assert!(!has(&magic), "the superblock's magic number is in the program");
    assert!(has(b"MemTree\x01"), "the search finds nothing, not even what is there");
}
