//! Runs every read-only command of the `spinney` program on damaged images: an error is fine, a panic, a hang or memory
//! without bound is not. The images are never mounted.
//!
//! Makes some of the images that `mutate-images` tries, which gives them to the library only; or takes a folder of
//! `.img` and `.raw` files, plain or packed by xz or zstd, as the tests of btrfs-progs have them; those that
//! `btrfs-image` made are unpacked by it.

use crate::system;
use anyhow::{Context, Result, bail};
use blockdev::Device;
use clap::Args;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use testkit::hostile::{bases, mutated};

/// A command that runs longer hangs.
const SECONDS_MAX: u64 = 20;
/// Address space of a command: its caches are bounded well below.
const MEMORY_KIB_MAX: u64 = 2 << 20;
/// Largest file a command may write: what `get` takes out of an image that claims petabytes.
const FILE_BLOCKS_MAX: u64 = 2 << 20;
/// What a file of `btrfs-image` starts with.
const DUMP_MAGIC: u64 = 0xbd5c_25e2_7295_668b;
/// Exit codes of a command that says why it does not go on: the caller, the image, the program's
/// limits, or the host (which takes no second file of one name). A check ends with 4 where it found errors, and with 8
/// where it cannot begin.
const REFUSALS: &[i32] = &[1, 3, 4, 6, 8];
const SIGXFSZ: i32 = 25;

/// The commands, with `IMAGE` and `DEST` to be put in.
const COMMANDS: &[&[&str]] = &[
    &["info", "IMAGE"],
    &["info", "--json", "IMAGE"],
    &["ls", "-lR", "IMAGE"],
    &["ls", "-lR", "--subvolume-id", "5", "IMAGE"],
    &["tree", "--json", "IMAGE"],
    &["stat", "IMAGE", "/"],
    &["subvolume", "list", "IMAGE"],
    &["dump", "super", "--all", "IMAGE"],
    &["dump", "chunks", "IMAGE"],
    &["dump", "tree", "IMAGE", "root"],
    &["dump", "tree", "IMAGE", "fs"],
    &["dump", "tree", "IMAGE", "extent"],
    &["dump", "tree", "IMAGE", "chunk"],
    &["dump", "tree", "IMAGE", "csum"],
    &["check", "--quiet", "IMAGE"],
    &["check", "--quiet", "--data", "--json", "IMAGE"],
    &["repair", "--quiet", "IMAGE"],
    &["get", "IMAGE", "/.", "DEST"],
    &["rescue", "roots", "--quiet", "IMAGE"],
    &["rescue", "ls", "-lR", "IMAGE"],
    &["rescue", "get", "--quiet", "--force", "IMAGE", "DEST"],
    &["rescue", "undelete", "--quiet", "--json", "--force", "IMAGE", "*", "DEST"],
];

/// Which images.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A folder of images, packed or not.
    dir: Option<PathBuf>,
    /// So many images of those that `mutate-images` tries, made here.
    #[arg(long, default_value_t = 0)]
    mutated: u64,
    /// Which of them: the numbers follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program, if not target/release/spinney.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// What the commands came to.
#[derive(Debug, Default)]
struct Totals {
    images: usize,
    failures: usize,
    outcomes: BTreeMap<String, usize>,
}

/// Runs all commands on all images.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let program = options.program.clone().unwrap_or_else(|| root.join("target/release/spinney"));
    let scratch = std::env::temp_dir().join(format!("spinney-damaged-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let mut totals = Totals::default();
    for entry in options.dir.iter().flat_map(|dir| walkdir::WalkDir::new(dir).sort_by_file_name()) {
        let entry = entry?;
        if let Some(image) = unpack(entry.path(), &scratch)? {
            all(&program, (&image, &entry.path().display().to_string()), &scratch, &mut totals)?;
        }
    }
    let bases = if options.mutated > 0 { bases()? } else { Vec::new() };
    for number in 0..options.mutated {
        let image = scratch.join("image");
        write(&*mutated(&bases, options.seed, number)?, &image)?;
        let name = format!("image {number} of seed {}", options.seed);
        all(&program, (&image, &name), &scratch, &mut totals)?;
    }
    std::fs::remove_dir_all(&scratch)?;
    let Totals { images, failures, outcomes } = totals;
    println!("damaged: {images} images, {} commands each, {outcomes:?}, {failures} failures", COMMANDS.len());
    Ok(if failures == 0 && images > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all commands on an image, which is removed.
fn all(program: &Path, (image, name): (&Path, &str), scratch: &Path, totals: &mut Totals) -> Result<()> {
    totals.images = totals.images.saturating_add(1);
    for command in COMMANDS {
        let outcome = one(program, command, image, scratch)?;
        if let Err(problem) = &outcome {
            totals.failures = totals.failures.saturating_add(1);
            println!("{name}: {}: {problem}", command.join(" "));
        }
        let word = outcome.unwrap_or_else(|_| "FAILED".to_owned());
        let count = totals.outcomes.entry(word).or_default();
        *count = count.saturating_add(1);
    }
    Ok(std::fs::remove_file(image)?)
}

/// Writes a device to a file, without its zeros.
fn write(device: &dyn Device, path: &Path) -> Result<()> {
    const PIECE: usize = 64 << 10;
    let (file, mut piece, mut at) = (std::fs::File::create(path)?, vec![0; PIECE], 0);
    file.set_len(device.size_bytes())?;
    while at < device.size_bytes() {
        let len = usize::try_from(device.size_bytes() - at)?.min(PIECE);
        let part = piece.get_mut(..len).context("a piece")?;
        device.read_at(at, part)?;
        if part.iter().any(|byte| *byte != 0) {
            file.write_all_at(part, at)?;
        }
        at += u64::try_from(len)?;
    }
    Ok(())
}

/// The image behind `path` as a plain file, or none if it is none.
fn unpack(path: &Path, scratch: &Path) -> Result<Option<PathBuf>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plain = name.trim_end_matches(".xz").trim_end_matches(".zst");
    if !path.is_file() || !(plain.ends_with(".img") || plain.ends_with(".raw")) {
        return Ok(None);
    }
    let image = scratch.join("image");
    let unpacker = match name.rsplit_once('.').map(|(_, end)| end) {
        Some("xz") => Some("xz"),
        Some("zst") => Some("zstd"),
        _ => None,
    };
    match unpacker {
        Some(program) => {
            let output = std::fs::File::create(&image)?;
            let status = Command::new(program).arg("-dc").arg(path).stdout(output).status().context(program)?;
            if !status.success() {
                bail!("{program} cannot unpack {}", path.display());
            }
        }
        None => drop(std::fs::copy(path, &image)?),
    }
    let mut start = [0; 8];
    let is_dump = std::io::Read::read(&mut std::fs::File::open(&image)?, &mut start)? == start.len()
        && u64::from_le_bytes(start) == DUMP_MAGIC;
    if is_dump {
        let dump = scratch.join("dump");
        std::fs::rename(&image, &dump)?;
        let restored = system::run("btrfs-image", &["-r", &dump.to_string_lossy(), &image.to_string_lossy()]);
        std::fs::remove_file(&dump)?;
        if let Err(error) = restored {
            println!("{}: left out: {error:#}", path.display());
            let _ = std::fs::remove_file(&image);
            return Ok(None);
        }
    }
    Ok(Some(image))
}

/// Runs one command; how it ended, or what is wrong with it.
fn one(program: &Path, command: &[&str], image: &Path, scratch: &Path) -> Result<Result<String, String>> {
    let target = scratch.join("out");
    std::fs::create_dir_all(&target)?;
    let words = command.iter().map(|word| match *word {
        "IMAGE" => image.as_os_str(),
        "DEST" => target.as_os_str(),
        word => word.as_ref(),
    });
    let limits = format!("ulimit -v {MEMORY_KIB_MAX} -f {FILE_BLOCKS_MAX}; exec \"$@\"");
    let errors = scratch.join("errors");
    let mut child = Command::new("bash")
        .args(["-c", &limits, "bash"])
        .arg(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&errors)?)
        .spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > Duration::from_secs(SECONDS_MAX) {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let said = String::from_utf8_lossy(&std::fs::read(&errors)?).into_owned();
    std::fs::remove_dir_all(&target)?;
    Ok(judge(status, &said))
}

fn judge(status: Option<ExitStatus>, said: &str) -> Result<String, String> {
    let last = said.lines().last().unwrap_or_default();
    match status {
        None => Err(format!("hangs: more than {SECONDS_MAX} s")),
        Some(_) if said.contains("panicked at") => {
            Err(said.lines().filter(|line| !line.is_empty()).take(2).collect::<Vec<_>>().join(": "))
        }
        Some(status) => match (status.code(), status.signal()) {
            (Some(0), _) => Ok("read".to_owned()),
            (Some(code), _) if REFUSALS.contains(&code) && !last.is_empty() => Ok("refused with a reason".to_owned()),
            (_, Some(SIGXFSZ)) => Ok("stopped at the size limit".to_owned()),
            _ => Err(format!("{status}: {last}")),
        },
    }
}
