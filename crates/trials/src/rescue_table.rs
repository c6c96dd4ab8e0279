//! Compares the files that `spinney rescue` and the tools of btrfs-progs save from the same damaged images: the share
//! of files saved whole, as a table. Called by `cargo trials rescue-table`.
//!
//! The kernel makes the image: plain and compressed files, large ones, snapshots, deletions in between. Copies of it
//! are damaged in several ways and never mounted. Of btrfs-progs each promising tool is tried on a copy of its own
//! (`super-recover`, `chunk-recover`, `btrfs-find-root`), with a time limit, and the best result counts. Needs root.

use crate::system::{self, Mount, run as run_program};
use anyhow::{Context as _, Result, ensure};
use blockdev::Device as _;
use blockdev::backends::{FileDevice, FileOptions};
use btrfs_disk::TreeId;
use btrfs_disk::node::header;
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_SIZE, mirror_offsets};
use clap::Args;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use testkit::Random;

const BLOCK: usize = 4096;
/// Bytes at the start that one of the rows overwrites.
const HEAD_BYTES: u64 = 100 << 20;
const SEED: u64 = 20;
/// One of the rows overwrites one block in so many.
const ONE_IN: u64 = 100;

/// Options of the trial.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sudo cargo trials rescue-table --dir /var/tmp/table")]
pub(crate) struct Options {
    /// Directory for images and saved files: about four times the size of the image
    #[arg(long, default_value = "/var/tmp/spinney-rescue-table")]
    dir: PathBuf,
    /// Size of the image in MiB
    #[arg(long, default_value_t = 1536)]
    mebibytes: u64,
    /// Time limit of a program in seconds
    #[arg(long, default_value_t = 240)]
    seconds: u64,
    /// Only rows with this in their name
    #[arg(long)]
    only: Option<String>,
    /// The program, if not target/release/spinney.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A way to damage an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Supers,
    RootTree,
    ChunkTree,
    Head,
    Random,
}

impl Damage {
    const ALL: [Self; 5] = [Self::Supers, Self::RootTree, Self::ChunkTree, Self::Head, Self::Random];

    fn name(self) -> &'static str {
        match self {
            Self::Supers => "all superblocks wiped",
            Self::RootTree => "root of the root tree wiped",
            Self::ChunkTree => "chunk tree wiped",
            Self::Head => "first 100 MiB overwritten",
            Self::Random => "1 % of all blocks overwritten",
        }
    }

    fn apply(self, path: &Path) -> Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, 64 << 10)?;
        let fields = *<DiskSuperblock as btrfs_disk::items::OnDisk>::parse(&bytes)?;
        let mut random = Random::new(SEED);
        match self {
            Self::Supers => {
                for offset in mirror_offsets(size) {
                    file.write_all_at(&[0; BLOCK], offset)?;
                }
            }
            Self::RootTree => wipe(&file, &fields, |_, at| at == fields.root.get())?,
            Self::ChunkTree => wipe(&file, &fields, |owner, _| owner == TreeId::CHUNK.0)?,
            Self::Head => {
                for at in (0..HEAD_BYTES.min(size)).step_by(BLOCK) {
                    file.write_all_at(&random.noise(BLOCK), at)?;
                }
            }
            Self::Random => {
                let blocks = size / u64::try_from(BLOCK)?;
                for _ in 0..blocks / ONE_IN {
                    let at = random.below(blocks) * u64::try_from(BLOCK)?;
                    file.write_all_at(&random.noise(BLOCK), at)?;
                }
            }
        }
        Ok(file.sync_all()?)
    }
}

/// Overwrites the tree blocks selected by owner and address with zeros.
fn wipe(file: &File, fields: &DiskSuperblock, is_wanted: impl Fn(u64, u64) -> bool) -> Result<()> {
    let size = file.metadata()?.len();
    let mut block = vec![0; BLOCK];
    for at in (0..size).step_by(BLOCK) {
        file.read_exact_at(&mut block, at)?;
        let Some(head) = header(&block) else { continue };
        if head.fsid == fields.tree_fsid() && is_wanted(head.owner.get(), head.bytenr.get()) {
            file.write_all_at(&vec![0; usize::try_from(fields.nodesize.get())?], at)?;
        }
    }
    Ok(())
}

/// Makes the image, and mounts it with the kernel to read the expected files.
fn make(image: &Path, mebibytes: u64) -> Result<()> {
    system::make_image(image, mebibytes << 20, &[])?;
    let mount = Mount::new(image, "rw")?;
    let at = |name: &str| mount.path().join(name).to_string_lossy().into_owned();
    run_program("btrfs", &["subvolume", "create", &at("docs")])?;
    run_program("btrfs", &["property", "set", &at("docs"), "compression", "zstd"])?;
    run_program("cp", &["-a", "/usr/include", &at("include")])?;
    run_program("cp", &["-a", "/usr/share/doc/.", &at("docs")])?;
    run_program("btrfs", &["subvolume", "snapshot", "-r", &at("docs"), &at("docs-before")])?;
    run_program("sync", &["-f", &at("")])?;
    let mut random = Random::new(1);
    std::fs::create_dir_all(at("large"))?;
    for index in 0..6 {
        std::fs::write(at(&format!("large/{index}")), random.noise(32 << 20))?;
        run_program("sync", &["-f", &at("")])?;
    }
    // Deletions leave old blocks behind, which a rescue must not mistake for current ones.
    for entry in walkdir::WalkDir::new(at("docs")).sort_by_file_name().into_iter().flatten().skip(1).step_by(7) {
        if entry.file_type().is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    run_program("sync", &["-f", &at("")])?;
    run_program("btrfs", &["subvolume", "snapshot", &at("docs"), &at("docs-after")])?;
    mount.unmount()
}

/// Number of regular files below `truth` with equal contents below `saved`, and of all.
fn share(truth: &Path, saved: &Path) -> Result<(u64, u64)> {
    let (mut whole, mut all) = (0, 0);
    for entry in walkdir::WalkDir::new(truth) {
        let entry = entry?;
        if entry.file_type().is_file() {
            all += 1;
            let path = saved.join(entry.path().strip_prefix(truth)?);
            let is_file = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
            if is_file && std::fs::read(path)? == std::fs::read(entry.path())? {
                whole += 1;
            }
        }
    }
    Ok((whole, all))
}

/// Runs a program with the time limit; its exit status is ignored, only saved files count.
fn limited(seconds: u64, words: &[&str]) -> Result<String> {
    let mut command = Command::new("timeout");
    command.arg(seconds.to_string()).args(words).stdin(Stdio::null());
    let output = command.output().context("timeout")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

struct Row {
    damage: Damage,
    ours: (u64, u64),
    our_seconds: u64,
    theirs: u64,
    how: String,
}

struct Table<'a> {
    options: &'a Options,
    program: PathBuf,
    truth: PathBuf,
    image: PathBuf,
    copy: PathBuf,
    saved: PathBuf,
}

impl Table<'_> {
    fn fresh(&self, damage: Damage) -> Result<()> {
        system::copy_sparse(&self.image, &self.copy)?;
        damage.apply(&self.copy)
    }

    fn clear(&self) -> Result<()> {
        if self.saved.exists() {
            std::fs::remove_dir_all(&self.saved)?;
        }
        Ok(())
    }

    fn ours(&self, damage: Damage) -> Result<((u64, u64), u64)> {
        self.fresh(damage)?;
        self.clear()?;
        let (start, digest) = (Instant::now(), digest(&self.copy)?);
        let (program, copy, saved) =
            (self.program.to_string_lossy(), self.copy.to_string_lossy(), self.saved.to_string_lossy());
        limited(self.options.seconds, &[&program, "rescue", "get", "--quiet", &copy, &saved])?;
        let seconds = start.elapsed().as_secs();
        ensure!(digest == self::digest(&self.copy)?, "{}: rescue changed the image", damage.name());
        Ok((share(&self.truth, &self.saved)?, seconds))
    }

    /// The best result of btrfs-progs, and the tool.
    fn theirs(&self, damage: Damage) -> Result<(u64, String)> {
        let copy = self.copy.to_string_lossy().into_owned();
        let saved = self.saved.to_string_lossy().into_owned();
        let btrfs = system::btrfs_program();
        let mut best = (0, "-".to_owned());
        let preparations: [&[&str]; 3] = [&[], &["super-recover", "-y"], &["chunk-recover", "-y"]];
        for preparation in &preparations {
            self.fresh(damage)?;
            if !preparation.is_empty() {
                let words = [&[&*btrfs, "rescue"], *preparation, &[&*copy]].concat();
                limited(self.options.seconds, &words)?;
            }
            let mut roots: Vec<Option<String>> = vec![None];
            let found = limited(self.options.seconds, &["btrfs-find-root", &copy])?;
            let numbers = found
                .lines()
                .filter_map(|line| line.split("block at ").nth(1).or_else(|| line.split("Well block ").nth(1)));
            let numbers =
                numbers.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().map(str::to_owned));
            roots.extend(numbers.filter(|number| !number.is_empty()).take(3).map(Some));
            for root in roots {
                self.clear()?;
                std::fs::create_dir_all(&self.saved)?;
                let mut words = vec![&*btrfs, "restore", "-s", "-i"];
                if let Some(root) = &root {
                    words.extend(["-t", root]);
                }
                words.extend([&*copy, &*saved]);
                limited(self.options.seconds, &words)?;
                let (whole, _) = share(&self.truth, &self.saved)?;
                if whole > best.0 {
                    let with = if root.is_some() { " -t ROOT" } else { "" };
                    let first = preparation.first().map_or(String::new(), |first| format!("rescue {first}, "));
                    best = (whole, format!("{first}restore{with}"));
                }
            }
        }
        Ok(best)
    }
}

/// Digest of all bytes of an image.
fn digest(path: &Path) -> Result<u64> {
    let device = FileDevice::open(path, &FileOptions { read_only: true, ..FileOptions::default() })?;
    let (mut piece, mut sum) = (vec![0; 1 << 20], 0_u64);
    for at in (0..device.size_bytes()).step_by(1 << 20) {
        let len = usize::try_from(device.size_bytes() - at)?.min(piece.len());
        let part = piece.get_mut(..len).context("a piece")?;
        device.read_at(at, part)?;
        let found = codec::checksum::checksum(codec::ChecksumType::Xxhash64, part);
        let found = found.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        sum = sum.rotate_left(7) ^ found;
    }
    Ok(sum)
}

/// Makes the table.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    ensure!(system::is_root(), "mounting the image needs root");
    std::fs::create_dir_all(&options.dir)?;
    let image = options.dir.join("whole.img");
    make(&image, options.mebibytes)?;
    let mount = Mount::new(&image, "ro,subvolid=5")?;
    let program = options.program.clone().unwrap_or_else(|| root.join("target/release/spinney"));
    let (copy, saved) = (options.dir.join("copy.img"), options.dir.join("saved"));
    let table = Table { options, program, truth: mount.path().to_owned(), image, copy, saved };
    let mut rows = Vec::new();
    for damage in Damage::ALL {
        if options.only.as_ref().is_some_and(|only| !damage.name().contains(only)) {
            continue;
        }
        let (ours, our_seconds) = table.ours(damage)?;
        println!("{}: spinney {} of {} in {our_seconds} s", damage.name(), ours.0, ours.1);
        let (theirs, how) = table.theirs(damage)?;
        println!("{}: btrfs-progs {theirs} ({how})", damage.name());
        rows.push(Row { damage, ours, our_seconds, theirs, how });
    }
    mount.unmount()?;
    println!("\n| damage | spinney rescue | btrfs-progs | how the latter |\n|---|---|---|---|");
    for row in &rows {
        let (whole, all) = row.ours;
        let percent = |part: u64| format!("{}.{:02} %", part * 100 / all.max(1), part * 10_000 / all.max(1) % 100);
        let (name, how, seconds) = (row.damage.name(), &row.how, row.our_seconds);
        println!(
            "| {name} | {} ({whole} of {all}, {seconds} s) | {} ({}) | {how} |",
            percent(whole),
            percent(row.theirs),
            row.theirs
        );
    }
    std::fs::remove_dir_all(&options.dir)?;
    let is_behind = rows.iter().any(|row| row.ours.0 < row.theirs);
    Ok(if is_behind { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
