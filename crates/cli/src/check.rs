//! `spinney check` parses the arguments, opens the devices, and has the image's format check them. Called by `args`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Error, Result};
use clap::Args;
use spinney::blockdev::{self, Access, Device, Locator};
use spinney::btrfs::check::Error as Cause;
use spinney::{CheckOptions, Devices, Format, Meaning, PassRow};

use crate::btrfs;
use crate::check_report::{Checked, Ended, Wanted};
use crate::commands::failure::{Failure, Status, one_line};
use crate::commands::format;
use crate::commands::human;
use crate::commands::image::{explain, kernel_mount, locators, served_image};
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};

/// Name of the format whose checks can be resumed, and whose mounts can be checked.
const BTRFS: &str = btrfs::row::FACE.name;

/// Check an image or a mount without writing to it: metadata, space, files and names, checksums
///
/// Reads all metadata of a btrfs or f2fs image, of btrfs on every mirror, and compares all that has to agree. Errors
/// are collected, not thrown at the first; each has a code that does not change, and says where, what was expected and
/// what was found. Nothing is ever written to the image: `spinney repair` does that, for btrfs. --explain says for each
/// code what it means and what to do.
///
/// How far --data has come is kept in $XDG_STATE_HOME/spinney/check.UUID (~/.local/state/spinney without it), a file of
/// the user who checks; nothing of it is in the image.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney check site.img\n",
    "  spinney check --data /dev/sdb1              read all data as well, on every mirror\n",
    "  spinney check --data --resume /dev/sdb1     go on after one that was interrupted\n",
    "  spinney check ./mnt                         what the last commit has, while others write (btrfs)\n",
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
    /// Image file or unmounted block device, IMAGE?offset=N for a file system that starts at byte N; or a directory of
    /// a mount
    #[arg(value_name = "IMAGE", required_unless_present_any = ["list_passes", "explain"])]
    image: Option<PathBuf>,
    /// A further device of the same file system (btrfs); may be given several times
    #[arg(long, value_name = "PATH")]
    device: Vec<PathBuf>,
    /// Read all data as well and compare it with its checksums, on every mirror; of f2fs, the data protected by
    /// fs-verity
    #[arg(long)]
    data: bool,
    /// Continue reading the data where an earlier check of the same state was interrupted; the metadata is read again
    /// (btrfs)
    #[arg(long, requires = "data")]
    resume: bool,
    /// Run only this pass and those that it needs; may be given several times
    #[arg(long = "pass", value_name = "ID", value_parser = parse_pass)]
    passes: Vec<String>,
    /// Memory for records; more of them are sorted in a temporary file (btrfs)
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = human::parse_bytes)]
    memory: u64,
    /// Number of threads; 0 for one per processor (btrfs)
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Show every finding that was kept, not only the first of each code
    #[arg(long)]
    all: bool,
    /// List the passes of each format: what each looks at, and what it needs
    #[arg(long)]
    list_passes: bool,
    /// Say what a code means for the data and what to do; `all` for every code
    #[arg(long, value_name = "CODE", value_parser = parse_code)]
    explain: Option<Explained>,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {is_clean, passes, counts, findings: [{code, what, path, inode, ...}], notes}
    #[arg(long)]
    json: bool,
}

/// A code, or all.
#[derive(Clone, Debug)]
struct Explained(Option<String>);

fn parse_pass(id: &str) -> Result<String, String> {
    let all = all_passes();
    match all.iter().any(|row| row.id == id) {
        true => Ok(id.to_owned()),
        false => Err(format!("no such pass; there are {}", known(&all))),
    }
}

fn known(passes: &[PassRow]) -> String {
    let mut ids: Vec<&str> = Vec::new();
    for row in passes {
        if !ids.contains(&row.id) {
            ids.push(row.id);
        }
    }
    ids.join(", ")
}

fn parse_code(id: &str) -> Result<Explained, String> {
    match id {
        "all" => Ok(Explained(None)),
        id if all_codes().any(|meaning| meaning.code == id) => Ok(Explained(Some(id.to_owned()))),
        _ => Err("no such code; `--explain all` shows them".to_owned()),
    }
}

fn all_passes() -> Vec<PassRow> {
    spinney::formats().iter().flat_map(|format| format.passes()).collect()
}

fn all_codes() -> impl Iterator<Item = Meaning> {
    spinney::formats().into_iter().flat_map(|format| format.codes())
}

/// The devices, and the file or disk behind each.
type Opened = (Vec<Arc<dyn Device>>, Vec<btrfs::check::Holder>);

impl Check {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        out.outlive_reader();
        if self.list_passes {
            return self.list(out);
        }
        if let Some(explained) = &self.explain {
            return self.explain(explained, out);
        }
        let Some(image) = &self.image else { return Ok(()) };
        let wanted = Wanted { json: self.json, all: self.all };
        let failed = |error: Error| failed(image, error);
        refuse_kernel_mount(image).map_err(failed)?;
        if image.is_dir() {
            if !self.device.is_empty() {
                let text = "--device: a mount is on one device, which its server knows";
                return Err(Ended::with(Ended::USAGE, text.to_owned()));
            }
            refuse_plain_mount(image).map_err(failed)?;
            let checked = self.check_btrfs(btrfs::check::Source::Mount(image))?.map_err(failed)?;
            return checked.report(image, wanted, out);
        }
        let (devices, holders) = self.devices(image).map_err(failed)?;
        let first = devices.first().map(|device| format::of(&**device)).transpose().map_err(failed)?;
        if let Some(format) = first.filter(|format| !is_btrfs(format.name())) {
            return self.check_plain(format, devices)?.map_err(failed)?.report(image, wanted, out);
        }
        let checked = self.check_btrfs(btrfs::check::Source::Devices(&devices, &holders))?.map_err(failed)?;
        checked.report(image, wanted, out)
    }

    /// Checks a volume as the library does it for every format.
    fn check_plain(&self, format: &'static dyn Format, devices: Devices) -> Result<Result<Checked>> {
        let name = format.name();
        if !self.device.is_empty() {
            let text = format!("--device: {name} volumes on several devices are not supported");
            return Err(Ended::with(Ended::USAGE, text));
        }
        self.check_passes(name, format.passes())?;
        let options = CheckOptions { passes: self.passes.clone(), data: self.data, ..CheckOptions::default() };
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let report = format.check(devices, &options, &*progress);
        drop(bar);
        Ok(report.map(Checked).map_err(Error::from))
    }

    /// The outer error is a misuse of the arguments; the inner result is the outcome of the check.
    fn check_btrfs(&self, source: btrfs::check::Source<'_>) -> Result<Result<Checked>> {
        self.check_passes(BTRFS, spinney::format_named(BTRFS).map(Format::passes).unwrap_or_default())?;
        let how = btrfs::check::Wanted {
            source,
            passes: &self.passes,
            data: self.data,
            resumes: self.resume,
            memory: self.memory,
            threads: self.threads,
            quiet: self.quiet,
        };
        Ok(btrfs::check::run(&how))
    }

    /// Opens the devices, and notes the file or disk behind each.
    fn devices(&self, image: &Path) -> Result<Opened> {
        let (mut devices, mut holders) = Opened::default();
        for locator in locators(image, &self.device)? {
            let device = blockdev::open(&locator, Access::READ)?;
            holders.extend(device.host_metadata()?.as_ref().map(btrfs::check::Holder::of));
            devices.push(device);
        }
        Ok((devices, holders))
    }

    /// Refuses passes of another format.
    fn check_passes(&self, format: &str, passes: Vec<PassRow>) -> Result<()> {
        match self.passes.iter().find(|id| !passes.iter().any(|row| row.id == **id)) {
            None => Ok(()),
            Some(id) => {
                let text = format!("--pass {id}: {format} has none of that name; there are {}", known(&passes));
                Err(Ended::with(Ended::USAGE, text))
            }
        }
    }

    fn list(&self, out: &mut Output) -> Result<()> {
        let rows = all_passes();
        if self.json {
            return out.json(&rows);
        }
        let mut format = "";
        for row in rows {
            if row.format != format {
                format = row.format;
                writeln!(out, "{format}:")?;
            }
            let needs = if row.needs.is_empty() { String::new() } else { format!(" (after {})", row.needs.join(", ")) };
            writeln!(out, "  {:<10} {}{needs}", row.id, row.about)?;
        }
        Ok(())
    }

    fn explain(&self, explained: &Explained, out: &mut Output) -> Result<()> {
        let meanings = all_codes().filter(|meaning| explained.0.as_ref().is_none_or(|code| code == meaning.code));
        if self.json {
            return out.json(&meanings.collect::<Vec<_>>());
        }
        for (index, meaning) in meanings.enumerate() {
            let gap = if index > 0 { "\n" } else { "" };
            writeln!(out, "{gap}{} ({}, {}): {}", meaning.code, meaning.format, meaning.pass, meaning.what)?;
            writeln!(out, "  Meaning: {}\n  To do:   {}", meaning.means, meaning.advice)?;
        }
        Ok(())
    }
}

/// Why a check could not be done; without a superblock, what to run next.
fn failed(image: &Path, error: Error) -> Error {
    let has_none = error.downcast_ref::<Cause>().is_some_and(Cause::is_of_superblocks);
    let host = Locator::parse(image).ok().and_then(|image| image.path().map(Path::to_owned));
    if let Some(path) =
        host.filter(|path| std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0))
    {
        return Ended::failed(format!("{}: no {} image: it is empty", path.display(), format::format_names()));
    }
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

/// Refuses an image that the kernel has mounted: it would change under the check, and the kernel holds no state still.
fn refuse_kernel_mount(image: &Path) -> Result<()> {
    // A wrong path is reported when it is opened.
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

/// Refuses a mount of another format: only the server of btrfs holds a committed state for a checker.
fn refuse_plain_mount(dir: &Path) -> Result<()> {
    // A directory that is not a mount of ours is reported when it is checked.
    let Ok(image) = served_image(dir) else { return Ok(()) };
    let recognised = Locator::parse_list(&image).map(|list| list.first().map(format::recognise));
    let Ok(Some(Ok(Some(name)))) = recognised else { return Ok(()) };
    if is_btrfs(name) {
        return Ok(());
    }
    let (dir, image) = (dir.display(), image.display());
    let text = format!(
        "{dir}: {name} is not checked while others may change it: unmount it (`spinney umount {dir}`), then `spinney \
         check {image}`"
    );
    Err(Failure::new(Status::Busy, text).into())
}

fn is_btrfs(name: &str) -> bool {
    name == BTRFS
}
