//! `spinney check`: the report of `btrfs-check` for people and for programs. An image is opened here, a mount is
//! checked in `mounted`; what the kernel has mounted is refused.
//!
//! Nothing is ever written. Failure: errors of the file system end with a status of fsck(8) ([`Ended`]), and so does
//! what keeps the check from being done. Caller: the command line.

pub(super) mod mounted;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Error, Result};
use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions};
use btrfs_check::{Code, CodeInfo, Finding, Options, Pass, Report, Watch, check};
use clap::Args;
use serde::Serialize;

use commands::failure::{Failure, Status, one_line};
use commands::human;
use commands::image::{explain, kernel_mount};
use commands::names::escaped_text;
use commands::output::Output;
use commands::progress::{Bar, Progress};

/// Findings of one code that are shown unless all are asked for.
const SHOWN_PER_CODE: usize = 8;

/// Check an image or a mount without writing to it: trees, extents, space, files, subvolumes, checksums
///
/// Reads every tree block on every mirror and compares all that has to agree. Errors are collected, not thrown at the
/// first; each has a code that does not change, and says where, what was expected and what was found. Nothing is ever
/// written to the image: `spinney repair` does that. --explain says for each code what it means and what to do.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney check site.img\n",
    "  spinney check --data /dev/sdb1              read all data as well, on every mirror\n",
    "  spinney check ./mnt                         what the last commit has, while others write\n",
    "  spinney check --device b.img a.img          a file system on two devices\n",
    "  spinney check --pass super --pass chunks site.img\n",
    "  spinney check --explain extent-missing\n",
    "  spinney check --json site.img | jq '.findings[].code'\n\n",
    "Exit status, as fsck(8) has it:\n",
    "  0   no errors\n",
    "  4   errors were found, and left as they are\n",
    "  8   the check itself failed: no superblock, an I/O error, a busy image\n",
    "  16  the arguments make no sense"
))]
pub(crate) struct Check {
    /// Image file or unmounted block device, IMAGE?offset=N for what starts at byte N of it; or a directory of a mount
    #[arg(value_name = "IMAGE", required_unless_present_any = ["list_passes", "explain"])]
    image: Option<PathBuf>,
    /// A further device of the same file system; may be given several times
    #[arg(long, value_name = "PATH")]
    device: Vec<PathBuf>,
    /// Read all data as well and compare it with its checksums, on every mirror
    #[arg(long)]
    data: bool,
    /// Run only this pass and those that it needs; may be given several times
    #[arg(long = "pass", value_name = "ID", value_parser = parse_pass)]
    passes: Vec<Pass>,
    /// Memory for records; what does not fit is sorted in a temporary file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = human::parse_bytes)]
    memory: u64,
    /// Threads; 0 for one a processor
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Show every finding that was kept, not only the first of each code
    #[arg(long)]
    all: bool,
    /// List the passes: what each looks at, and what it needs
    #[arg(long)]
    list_passes: bool,
    /// Say what a code means for the data and what to do; `all` for every code
    #[arg(long, value_name = "CODE", value_parser = parse_code)]
    explain: Option<Explained>,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {is_clean, passes, counts, findings: [{code, what, path, tree, inode, ...}], notes}
    #[arg(long)]
    json: bool,
}

/// A code, or all.
#[derive(Clone, Debug)]
struct Explained(Option<Code>);

fn parse_pass(id: &str) -> Result<Pass, String> {
    let known = || Pass::all().iter().map(|info| info.id).collect::<Vec<_>>().join(", ");
    Pass::from_id(id).ok_or_else(|| format!("no such pass; there are {}", known()))
}

fn parse_code(id: &str) -> Result<Explained, String> {
    match Code::from_id(id) {
        Some(code) => Ok(Explained(Some(code))),
        None if id == "all" => Ok(Explained(None)),
        None => Err("no such code; `--explain all` shows them".to_owned()),
    }
}

/// A check that ended with a status of fsck(8).
#[derive(Debug)]
pub(crate) struct Ended {
    status: u8,
    text: String,
}

impl Ended {
    /// Errors were found, and repaired.
    pub(crate) const REPAIRED: u8 = 1;
    /// Errors were found, and are left.
    pub(crate) const ERRORS: u8 = 4;
    /// The check could not be done.
    const FAILED: u8 = 8;
    /// The arguments make no sense.
    pub(crate) const USAGE: u8 = 16;

    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    pub(crate) fn with(status: u8, text: String) -> Error {
        Error::new(Self { status, text })
    }

    /// The check, or the repair, could not be done.
    pub(crate) fn failed(text: String) -> Error {
        Self::with(Self::FAILED, text)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Ended {}

impl Check {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        if self.list_passes {
            return self.list(out);
        }
        if let Some(explained) = &self.explain {
            return self.explain(explained, out);
        }
        let Some(image) = &self.image else { return Ok(()) };
        let report = self.check(image).map_err(|error| failed(image, error))?;
        if self.json {
            out.json(&json(&report))?;
        } else {
            print(out, image, &report, self.all)?;
        }
        out.finish()?;
        let errors: u64 = report.counts.iter().map(|(_, count)| count).sum();
        if errors == 0 {
            return Ok(());
        }
        let text = format!("{}: {errors} errors; nothing was changed", image.display());
        Err(Ended::with(Ended::ERRORS, text))
    }

    fn check(&self, image: &Path) -> Result<Report> {
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let (options, watch) = (self.options(), Shown(Arc::clone(&progress)));
        refuse_kernel_mount(image)?;
        let report = match image.is_dir() {
            true if self.device.is_empty() => mounted::check_mount(image, &options, &watch),
            true => Err(Failure::usage("--device: a mount is on one device, which its server knows").into()),
            false => self.devices(image).and_then(|devices| Ok(check(&devices, &options, &watch)?)),
        };
        drop(bar);
        report
    }

    fn devices(&self, image: &Path) -> Result<Vec<Arc<dyn Device>>> {
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        for path in std::iter::once(image).chain(self.device.iter().map(PathBuf::as_path)) {
            let options = FileOptions { read_only: true, ..FileOptions::default() };
            devices.push(Arc::new(FileDevice::open(path, &options)?));
        }
        Ok(devices)
    }

    fn options(&self) -> Options {
        let mut passes = self.passes.clone();
        if self.data {
            if passes.is_empty() {
                passes = Pass::all().iter().map(|info| info.pass).collect();
            }
            passes.push(Pass::Data);
        }
        Options {
            passes,
            memory_bytes: usize::try_from(self.memory).unwrap_or(usize::MAX),
            folder: std::env::temp_dir(),
            threads: self.threads,
        }
    }

    fn list(&self, out: &mut Output) -> Result<()> {
        #[derive(Serialize)]
        struct Row {
            id: &'static str,
            about: &'static str,
            needs: Vec<&'static str>,
        }
        let rows = Pass::all().iter().map(|info| Row {
            id: info.id,
            about: info.about,
            needs: info.needs.iter().map(|pass| pass.id()).collect(),
        });
        if self.json {
            return out.json(&rows.collect::<Vec<_>>());
        }
        for row in rows {
            let needs = if row.needs.is_empty() { String::new() } else { format!(" (after {})", row.needs.join(", ")) };
            writeln!(out, "{:<8} {}{needs}", row.id, row.about)?;
        }
        Ok(())
    }

    fn explain(&self, explained: &Explained, out: &mut Output) -> Result<()> {
        let wanted = |info: &&CodeInfo| explained.0.is_none_or(|code| code == info.code);
        let infos = Code::all().iter().filter(wanted);
        if self.json {
            return out.json(&infos.map(Meaning::of).collect::<Vec<_>>());
        }
        for (index, info) in infos.enumerate() {
            let gap = if index > 0 { "\n" } else { "" };
            writeln!(out, "{gap}{} ({}): {}", info.id, info.pass.id(), info.what)?;
            writeln!(out, "  Meaning: {}\n  To do:   {}", info.means, info.advice)?;
        }
        Ok(())
    }
}

/// Why a check could not be done; without a superblock, what to run next.
fn failed(image: &Path, error: Error) -> Error {
    let has_none = error.downcast_ref::<btrfs_check::Error>().is_some_and(btrfs_check::Error::is_of_superblocks);
    let text = one_line(&explain(image, error));
    if !has_none {
        return Ended::failed(text);
    }
    let image = image.display();
    Ended::failed(format!(
        "{text}; if it was btrfs, `spinney rescue get {image} DIRECTORY` copies what can be read without one \
         (`spinney repair` needs one whole copy)"
    ))
}

/// A kernel that writes meanwhile holds no state for a checker.
fn refuse_kernel_mount(image: &Path) -> Result<()> {
    // What is wrong with the path, the opening of it says.
    let Ok(Some(dir)) = kernel_mount(image, "btrfs") else { return Ok(()) };
    let (image, dir) = (image.display(), dir.display());
    Err(Failure::new(
        Status::Busy,
        format!(
            "{image}: the kernel has it mounted at {dir}, and changes it meanwhile: unmount it to check it (`umount \
             {dir}`), or have the kernel verify its checksums (`btrfs scrub start -B {dir}`)"
        ),
    )
    .into())
}

#[derive(Serialize)]
struct Meaning {
    code: &'static str,
    pass: &'static str,
    what: &'static str,
    means: &'static str,
    advice: &'static str,
}

impl Meaning {
    fn of(info: &CodeInfo) -> Self {
        let CodeInfo { id, pass, what, means, advice, .. } = *info;
        Self { code: id, pass: pass.id(), what, means, advice }
    }
}

/// Tells the bar what the check tells.
pub(crate) struct Shown(pub(crate) Arc<Progress>);

impl Watch for Shown {
    fn add_bytes(&self, bytes: u64) {
        self.0.add_bytes(bytes);
    }

    fn add_inodes(&self, count: u64) {
        self.0.names.fetch_add(count, Ordering::Relaxed);
    }

    fn set_total(&self, bytes: u64) {
        self.0.bytes_total.store(bytes, Ordering::Relaxed);
    }
}

#[derive(Serialize)]
struct JsonReport {
    is_clean: bool,
    passes: Vec<&'static str>,
    /// How many there were of each code; of each the first 200 are in `findings`.
    counts: BTreeMap<&'static str, u64>,
    findings: Vec<JsonFinding>,
    /// What was not looked at, and why.
    notes: Vec<String>,
    inodes: u64,
    bytes_read: u64,
}

#[derive(Serialize)]
struct JsonFinding {
    code: &'static str,
    pass: &'static str,
    what: String,
    path: Option<String>,
    tree: Option<u64>,
    inode: Option<u64>,
    key: Option<[u64; 3]>,
    logical: Option<u64>,
    device: Option<u64>,
    device_offset: Option<u64>,
    expected: String,
    found: String,
}

fn json(report: &Report) -> JsonReport {
    let findings = report.findings.iter().map(|finding| {
        let place = &finding.place;
        JsonFinding {
            code: finding.code.id(),
            pass: finding.code.info().map_or("", |info| info.pass.id()),
            what: what(finding),
            path: place.path.clone(),
            tree: place.tree,
            inode: place.inode,
            key: place.key.map(|key| [key.objectid, key.item_type.into(), key.offset]),
            logical: place.logical,
            device: place.device.map(|(device, _)| device),
            device_offset: place.device.map(|(_, offset)| offset),
            expected: finding.expected.clone(),
            found: finding.found.clone(),
        }
    });
    JsonReport {
        is_clean: report.counts.is_empty(),
        passes: report.passes.iter().map(|pass| pass.id()).collect(),
        counts: report.counts.iter().map(|(code, count)| (code.id(), *count)).collect(),
        findings: findings.collect(),
        notes: report.notes.clone(),
        inodes: report.inodes,
        bytes_read: report.bytes,
    }
}

fn what(finding: &Finding) -> String {
    let about = finding.code.info().map_or("", |info| info.what);
    if finding.what.is_empty() { about.to_owned() } else { format!("{about}: {}", finding.what) }
}

fn print(out: &mut Output, image: &Path, report: &Report, shows_all: bool) -> Result<()> {
    for (code, count) in &report.counts {
        let Some(info) = code.info() else { continue };
        writeln!(out, "{} ({count}): {}", info.id, info.what)?;
        let findings = report.findings.iter().filter(|finding| finding.code == *code);
        let limit = if shows_all { usize::MAX } else { SHOWN_PER_CODE };
        let mut shown = 0u64;
        for finding in findings.take(limit) {
            shown += 1;
            print_finding(out, finding)?;
        }
        if *count > shown {
            writeln!(out, "  and {} more", count - shown)?;
        }
        writeln!(out, "  Meaning: {}\n  To do:   {}\n", info.means, info.advice)?;
    }
    for note in &report.notes {
        writeln!(out, "Not looked at: {note}")?;
    }
    let passes: Vec<&str> = report.passes.iter().map(|pass| pass.id()).collect();
    let errors: u64 = report.counts.iter().map(|(_, count)| count).sum();
    let (bytes, inodes) = (human::bytes(report.bytes), report.inodes);
    writeln!(out, "{}: read {bytes}, {inodes} inodes; passes: {}", image.display(), passes.join(", "))?;
    if errors == 0 {
        writeln!(out, "No errors found.")?;
    } else {
        let kinds = report.counts.len();
        writeln!(out, "{errors} errors of {kinds} kinds found. Nothing was changed.")?;
    }
    Ok(())
}

fn print_finding(out: &mut Output, finding: &Finding) -> Result<()> {
    let place = &finding.place;
    let mut words: Vec<String> = Vec::new();
    words.extend(place.path.as_ref().map(|path| escaped_text(path).into_owned()));
    words.extend(place.tree.map(|tree| format!("tree {}", tree_name(tree))));
    words.extend(place.inode.map(|inode| format!("inode {inode}")));
    words.extend(place.key.map(|key| format!("key {key}")));
    words.extend(place.logical.map(|at| format!("address {at}")));
    words.extend(place.device.map(|(device, at)| format!("device {device} byte {at}")));
    let place = if words.is_empty() { "the file system".to_owned() } else { words.join(", ") };
    let what = if finding.what.is_empty() { String::new() } else { format!("{}: ", finding.what) };
    let (expected, found) = (escaped_text(&finding.expected), escaped_text(&finding.found));
    writeln!(out, "  {place}\n    {what}expected {expected}; found {found}")?;
    Ok(())
}

/// Trees with negative numbers are known by those.
fn tree_name(tree: u64) -> String {
    match i64::from_le_bytes(tree.to_le_bytes()) {
        number if number < 0 => number.to_string(),
        _ => tree.to_string(),
    }
}
