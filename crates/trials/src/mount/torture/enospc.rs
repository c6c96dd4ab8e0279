//! Tests full volumes: filled in ten ways until nothing fits, and emptied again, several times in a row. Called by
//! `torture`.
//!
//! A cycle fills (with syncs in between, until they gain nothing), writes to preallocated and NOCOW files, reads all
//! data back, deletes everything, syncs once, and reads `df`. It fails if a step does not end in time; if an operation
//! fails with another error than ENOSPC, or a deletion with ENOSPC; if less than 95 % of the available space is back
//! after the one sync, or after a while if subvolumes were deleted; if the volume does not take a file then, or has
//! another server than before. After the last cycle the image is unmounted and must pass `btrfs check`; then the kernel
//! mounts it, fills and empties it once, and it must pass again.
//!
//! The kernel's btrfs does the same on an image of its own `mkfs`, and only its figures count: a mount that takes more
//! than two per cent less, or has less space back, fails as well; so does one that, with `writeback`, takes more data
//! than fits.
//!
//! Fails at the end, with all faults. The seed is printed, and repeats the written data, not the interleaving of
//! threads.

use super::filling::Filling;
use super::stand::{Side, Stand, sync_of};
use super::table::{HEAD, Row, share};
use super::ways::{Way, is_subvolume};
use crate::formats::Kind;
use crate::mount::promises::Maker;
use crate::system;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Most rounds of syncing and filling further.
const ROUNDS_MAX: u32 = 5;
/// A further round needs a gain of one part in so many.
const GAIN: u64 = 100;
/// Fewest returned bytes, and fewest bytes compared to the kernel, per thousand.
const BACK_MIN: u64 = 950;
const OF_KERNEL_MIN: u64 = 980;
/// Most bytes that writers may take of the available ones, if errors are reported by the write after the failing one.
const BEYOND_PERCENT_MAX: u64 = 105;
/// Polling interval for space that is freed in the background.
const LOOK: Duration = Duration::from_millis(250);
/// Space that has not grown for so long is final: deleted subvolumes are cleaned every five seconds.
const QUIET: Duration = Duration::from_secs(12);

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo trials torture enospc\n  \
    cargo trials torture enospc --way directories --sizes 128 --cycles 20\n  \
    cargo trials torture enospc --way large,small --sizes 128,512,4096 --side kernel,plain")]
pub(super) struct Options {
    /// Only these ways to fill; all if none is given
    #[arg(long, value_delimiter = ',')]
    way: Vec<Way>,
    /// Sizes of the images in MiB, up to 4096.
    #[arg(long, value_delimiter = ',', default_values_t = [128, 512])]
    sizes: Vec<u64>,
    /// Systems to fill on. Without the kernel there is nothing to compare with
    #[arg(long, value_delimiter = ',', default_values = ["kernel", "plain"])]
    side: Vec<Side>,
    /// Mount with `-o writeback` as well.
    #[arg(long)]
    writeback: bool,
    /// Number of cycles per image
    #[arg(long, default_value_t = 3)]
    cycles: u32,
    /// Most cycles on the kernel's own image: its figures are for comparison only, and on a small one it frees deleted
    /// space slowly
    #[arg(long, default_value_t = 3)]
    kernel_cycles: u32,
    /// Seed of the written data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds after which a step hangs.
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Seconds for deleted space to be freed in the background
    #[arg(long, default_value_t = 40)]
    wait: u64,
    /// Directory for images and mounts
    #[arg(long, default_value = "/dev/shm/spinney-enospc")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// Figures of one cycle.
#[derive(Debug, Clone, Copy, Default)]
struct Cycle {
    first: u64,
    all: u64,
    filling: Duration,
    emptying: Duration,
    available_after: u64,
    available_later: u64,
    waited: Duration,
}

/// Fills and empties.
pub(super) fn run(options: &Options) -> Result<ExitCode> {
    ensure!(system::is_root(), "mounting as the kernel does needs root");
    std::fs::create_dir_all(&options.dir)?;
    let ways = if options.way.is_empty() { Way::value_variants().to_vec() } else { options.way.clone() };
    let mut sides = options.side.clone();
    if options.writeback && !sides.contains(&Side::Writeback) {
        sides.push(Side::Writeback);
    }
    println!("seed {}\n{HEAD}", options.seed);
    let mut failures = Vec::new();
    let start = Instant::now();
    for way in ways {
        for size in &options.sizes {
            let mut kernel: Option<Row> = None;
            for side in &sides {
                let row = one(options, way, size << 20, *side, kernel.as_ref());
                println!("{row}");
                let name = format!("{} {size} MiB {}", way.name(), side.name());
                row.failures.iter().for_each(|failure| println!("    {failure}"));
                match side {
                    Side::Kernel => kernel = Some(row),
                    _ => failures.extend(row.failures.iter().map(|failure| format!("{name}: {failure}"))),
                }
            }
        }
    }
    println!("torture enospc: {} wrong, seed {}, {} s", failures.len(), options.seed, start.elapsed().as_secs());
    if failures.is_empty() {
        std::fs::remove_dir_all(&options.dir)?;
        return Ok(ExitCode::SUCCESS);
    }
    failures.iter().for_each(|failure| println!("WRONG: {failure}"));
    Ok(ExitCode::FAILURE)
}

/// All cycles of one side, followed by the kernel's.
fn one(options: &Options, way: Way, bytes: u64, side: Side, kernel: Option<&Row>) -> Row {
    let mut row = Row {
        way,
        bytes,
        side,
        cycles: 0,
        available: 0,
        first: u64::MAX,
        all: u64::MAX,
        kernel: kernel.map(|row| row.all),
        filling: Duration::ZERO,
        emptying: Duration::ZERO,
        back: u64::MAX,
        back_later: u64::MAX,
        waited: Duration::ZERO,
        next: None,
        failures: Vec::new(),
    };
    if let Err(error) = try_one(options, &mut row) {
        row.failures.push(format!("{error:#}"));
    }
    judge(&mut row, kernel);
    row
}

fn try_one(options: &Options, row: &mut Row) -> Result<()> {
    let image = options.dir.join("full.img");
    let dir = options.dir.join("mnt");
    Stand::make(&options.program, row.side, &image, row.bytes)?;
    let stand = Stand::mount(&options.program, row.side, &image, &dir, row.way.options())?;
    stand.sync()?;
    row.available = stand.available()?;
    let server = stand.server();
    let cycles = match row.side {
        Side::Kernel => options.cycles.min(options.kernel_cycles),
        Side::Plain | Side::Writeback => options.cycles,
    };
    for index in 0..cycles {
        let cycle = cycle(options, &stand, row.way, row.available, index).with_context(|| format!("cycle {index}"))?;
        ensure!(stand.server() == server, "cycle {index}: the server is not the one that was mounted");
        row.add(&cycle);
    }
    stand.within(Duration::from_secs(options.limit), "remaining data", || {
        stand.sync().context("syncing the emptied volume")
    })?;
    stand.unmount()?;
    if let Some(problem) = Kind::Btrfs.check(&image)? {
        bail!("btrfs check: {problem}");
    }
    if row.side != Side::Kernel {
        row.next = Some(kernel_next(options, row, &image).context("the kernel afterwards")?);
    }
    std::fs::remove_file(&image)?;
    Ok(())
}

/// One cycle by the kernel; returns the bytes taken and returned.
fn kernel_next(options: &Options, row: &Row, image: &Path) -> Result<(u64, u64)> {
    let stand = Stand::mount(&options.program, Side::Kernel, image, image, row.way.options())?;
    let available = stand.available()?;
    let cycle = cycle(options, &stand, row.way, available, 0)?;
    stand.unmount()?;
    if let Some(problem) = Kind::Btrfs.check(image)? {
        bail!("btrfs check: {problem}");
    }
    Ok((cycle.all, share(cycle.available_later, row.available).unwrap_or_default()))
}

impl Row {
    fn add(&mut self, cycle: &Cycle) {
        self.cycles = self.cycles.saturating_add(1);
        self.first = self.first.min(cycle.first);
        self.all = self.all.min(cycle.all);
        self.filling = self.filling.max(cycle.filling);
        self.emptying = self.emptying.max(cycle.emptying);
        self.back = self.back.min(share(cycle.available_after, self.available).unwrap_or_default());
        self.back_later = self.back_later.min(share(cycle.available_later, self.available).unwrap_or_default());
        self.waited = self.waited.max(cycle.waited);
    }
}

/// Judges the figures.
fn judge(row: &mut Row, kernel: Option<&Row>) {
    if row.cycles == 0 {
        (row.first, row.all, row.back, row.back_later) = (0, 0, 0, 0);
        return;
    }
    let back = if row.way == Way::Snapshots { row.back_later } else { row.back };
    if back < BACK_MIN {
        let wanted = BACK_MIN / 10;
        row.failures.push(format!("less than {wanted} % back: {}.{} %", back / 10, back % 10));
    }
    // The kernel's background work is slower than its sync: its final space counts.
    if let Some(kernel) = kernel.filter(|kernel| kernel.cycles > 0)
        && row.back_later < kernel.back_later.min(1000) * OF_KERNEL_MIN / 1000
    {
        row.failures.push("less back than in the kernel's".to_owned());
    }
    let is_over = row.all > row.available / 100 * BEYOND_PERCENT_MAX;
    if row.side.tells_late() && row.way.takes_bytes_as_they_are() && is_over {
        row.failures.push("writes went on when there was no room".to_owned());
    }
    // With late errors, taken data may be lost already, so its amount says nothing.
    if !row.side.tells_late() && row.of_kernel(row.all).is_some_and(|share| share < OF_KERNEL_MIN) {
        row.failures.push("less written than the kernel takes".to_owned());
    }
}

fn cycle(options: &Options, stand: &Stand, way: Way, available: u64, index: u32) -> Result<Cycle> {
    let limit = Duration::from_secs(options.limit);
    let seed = options.seed.wrapping_add(u64::from(index) << 32);
    let filling = Filling::new(stand.dir(), seed, available, stand.side().tells_late());
    let measure = || {
        let taken = filling.taken();
        if way.counts_things() { taken.count } else { taken.bytes }
    };
    let mut cycle = Cycle::default();
    let start = Instant::now();
    for round in 0..ROUNDS_MAX {
        let before = measure();
        stand.within(limit, "filling", || way.fill(&filling))?;
        if round == 0 {
            (cycle.first, cycle.filling) = (measure(), start.elapsed());
        }
        stand.within(limit, "syncing", || filling.sync())?;
        if filling.is_endless() || measure().saturating_sub(before) < before / GAIN {
            break;
        }
    }
    cycle.all = measure();
    stand.within(limit, "writing into promised space", || way.use_promised(&filling))?;
    stand.within(limit, "reading back", || filling.verify())?;
    let start = Instant::now();
    stand.within(limit, "deleting", || empty(stand.dir()))?;
    stand.within(limit, "syncing", || match stand.sync() {
        // Data was taken without space for it.
        Err(rustix::io::Errno::NOSPC) if stand.side().tells_late() => Ok(()),
        synced => synced.context("syncing the emptied volume"),
    })?;
    cycle.emptying = start.elapsed();
    cycle.available_after = stand.available()?;
    let start = Instant::now();
    let wait = Duration::from_secs(options.wait);
    let mut last = (cycle.available_after, start);
    loop {
        cycle.available_later = stand.available()?;
        cycle.waited = start.elapsed();
        let is_back = share(cycle.available_later, available).is_none_or(|share| share >= BACK_MIN);
        if last.0 != cycle.available_later {
            last = (cycle.available_later, Instant::now());
        }
        if is_back || cycle.waited >= wait || last.1.elapsed() >= QUIET {
            break;
        }
        thread::sleep(LOOK);
        stand.within(limit, "syncing", || stand.sync().context("while space comes back"))?;
    }
    stand.within(limit, "a last file", || works_at_last(stand, wait))?;
    Ok(cycle)
}

/// Deletes everything, subvolumes first.
fn empty(dir: &Path) -> Result<()> {
    let mut maker: Option<Maker> = None;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let metadata = std::fs::symlink_metadata(&path)?;
        if !metadata.is_dir() {
            std::fs::remove_file(&path).with_context(|| format!("deleting {}", path.display()))?;
        } else if is_subvolume(&path) {
            let maker = match &mut maker {
                Some(maker) => maker,
                none => none.insert(Maker::start()?),
            };
            maker.remove(&path).with_context(|| format!("deleting the subvolume {}", path.display()))?;
        } else {
            std::fs::remove_dir_all(&path).with_context(|| format!("deleting {}", path.display()))?;
        }
    }
    Ok(())
}

/// As [`still_works`]. The kernel frees block groups in the background, and may need time until it has space for
/// metadata.
fn works_at_last(stand: &Stand, wait: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        let done = still_works(stand.dir());
        let has_no_room = done.as_ref().is_err_and(|error| {
            error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::StorageFull)
        });
        if !has_no_room || stand.side() != Side::Kernel || start.elapsed() >= wait {
            return done;
        }
        thread::sleep(LOOK);
        let _ = std::fs::remove_file(stand.dir().join("last"));
        stand.sync()?;
    }
}

/// A file is written, synced, read and removed.
fn still_works(dir: &Path) -> Result<()> {
    let path = dir.join("last");
    let wanted = vec![0x5a; 300_000];
    let mut file = File::create_new(&path)?;
    file.write_all(&wanted)?;
    file.sync_all()?;
    ensure!(std::fs::read(&path)? == wanted, "the last write reads back wrong");
    std::fs::remove_file(&path)?;
    Ok(sync_of(dir)?)
}
