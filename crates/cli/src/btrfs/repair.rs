//! `spinney repair` shows the plan of a repair of an unmounted btrfs image, carries it out with `--apply`, or undoes
//! it; `btrfs-repair` does the work. Called by `args`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error, Result};
use clap::Args;
use serde::Serialize;
use spinney::blockdev::{self, Access, Locator};
use spinney::btrfs::check::{Code, CodeTable as _, Report};
use spinney::btrfs::repair::{Older, Plan, Step, Undo};
use spinney::{RepairOptions, plan_repair};

use crate::commands::failure::one_line;
use crate::commands::human;
use crate::commands::image::explain;
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};

use crate::check_report::Ended;

/// Repair an image that is not mounted: shows the plan, and carries it out with --apply
///
/// Checks the image, computes the repair in memory, and checks its result: the plan lists the repairs, the data that
/// may be lost by them, and the errors that would remain, before anything is written. --apply first saves every byte
/// that will change in an undo file, then writes the repair beside the present state, and switches to it by the
/// superblock. --undo restores every byte.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney repair site.img                          show what a repair would do\n",
    "  spinney repair --apply site.img                  do it; the undo file is site.img.undo\n",
    "  spinney repair --apply --undo-file u site.img\n",
    "  spinney repair --undo site.img.undo site.img     take it back\n",
    "  spinney repair --step free-space site.img        this step only\n",
    "  spinney repair --list-steps\n\n",
    "Exit status, as fsck(8) has it:\n",
    "  0   no errors, or an undo that was done\n",
    "  1   errors were repaired: a check finds none any more\n",
    "  4   errors are left: nothing was written without --apply, or some cannot be repaired\n",
    "  8   the repair itself failed: no superblock, an I/O error, a busy image\n",
    "  16  the arguments make no sense"
))]
pub(crate) struct Repair {
    /// Image file or unmounted block device, or IMAGE?offset=N for a file system that starts at byte N
    #[arg(value_name = "IMAGE", required_unless_present = "list_steps")]
    image: Option<PathBuf>,
    /// Carry the plan out; without it nothing is written
    #[arg(long)]
    apply: bool,
    /// Only show the plan (what happens without --apply)
    #[arg(long, conflicts_with = "apply")]
    dry_run: bool,
    /// Carry the plan out even if it leaves errors, or goes back to an earlier commit
    #[arg(long, requires = "apply")]
    partial: bool,
    /// Undo file to create (default: IMAGE.undo); must not exist
    #[arg(long, value_name = "FILE", requires = "apply")]
    undo_file: Option<PathBuf>,
    /// Take a repair back with its undo file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["apply", "dry_run", "steps"])]
    undo: Option<PathBuf>,
    /// Take only this step; may be given several times
    #[arg(long = "step", value_name = "ID", value_parser = parse_step)]
    steps: Vec<Step>,
    /// List the steps: what each does, which data may be lost by it, and which codes of `spinney check` it repairs
    #[arg(long)]
    list_steps: bool,
    /// Memory for the changes, which are kept until they are written
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = human::parse_bytes)]
    memory: u64,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {is_clean, is_complete, applied, undo_file, bytes, steps: [{id, codes, ...}], left, refusals}
    #[arg(long)]
    json: bool,
}

fn parse_step(id: &str) -> Result<Step, String> {
    let known = || Step::all().iter().map(|info| info.id).collect::<Vec<_>>().join(", ");
    Step::from_id(id).ok_or_else(|| format!("no such step; there are {}", known()))
}

impl Repair {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        out.outlive_reader();
        if self.list_steps {
            return self.list(out);
        }
        let Some(image) = &self.image else { return Ok(()) };
        let failed = |error: Error| Ended::failed(one_line(&explain(image, error)));
        if let Some(file) = &self.undo {
            let bytes = take_back(image, file).map_err(failed)?;
            if self.json {
                return out.json(&BTreeMap::from([("restored_bytes", bytes)]));
            }
            writeln!(out, "{}: as it was before the repair ({} restored)", image.display(), human::bytes(bytes))?;
            return Ok(());
        }
        let repair = self.plan(image).map_err(failed)?;
        let no_plan = || Ended::failed(format!("{}: no repair of btrfs", image.display()));
        let plan: &Plan = repair.own().ok_or_else(no_plan)?;
        let is_whole = plan.is_complete() && plan.older.is_none();
        let is_applied = self.apply && plan.has_changes() && (is_whole || self.partial);
        if !self.json {
            print(out, image, plan)?;
            out.finish()?;
        }
        let file = if is_applied { Some(self.carry_out(image, &repair).map_err(failed)?) } else { None };
        if self.json {
            out.json(&json(plan, file.as_deref()))?;
        } else if let Some(file) = &file {
            let (file, image) = (file.display(), image.display());
            writeln!(out, "Done, and durable. `spinney repair --undo {file} {image}` takes it back.")?;
        }
        out.finish()?;
        self.status(image, plan, is_applied)
    }

    fn status(&self, image: &Path, plan: &Plan, is_applied: bool) -> Result<()> {
        let image = image.display();
        let left: u64 = plan.after.counts.iter().map(|(_, count)| count).sum();
        match (plan.is_needless(), is_applied, plan.is_complete()) {
            (true, ..) => Ok(()),
            (_, true, true) => Err(Ended::with(Ended::REPAIRED, format!("{image}: repaired; a check finds no errors"))),
            (_, true, false) => {
                Err(Ended::with(Ended::ERRORS, format!("{image}: repaired in part; {left} errors left")))
            }
            (_, false, true) if self.apply => Err(Ended::with(
                Ended::ERRORS,
                format!("{image}: only an earlier commit can be read; --partial goes back to it; nothing was written"),
            )),
            (_, false, _) if self.apply => {
                let text = if plan.has_changes() { "; --partial mends the others" } else { "" };
                Err(Ended::with(
                    Ended::ERRORS,
                    format!("{image}: {left} errors cannot be repaired{text}; nothing was written"),
                ))
            }
            _ => Err(Ended::with(Ended::ERRORS, format!("{image}: errors were found; nothing was written"))),
        }
    }

    fn plan(&self, image: &Path) -> Result<spinney::Repair> {
        if image.is_dir() {
            let text = "a directory: the image itself is repaired, and must not be mounted";
            return Err(anyhow::anyhow!("{}: {text}", image.display()));
        }
        let options = RepairOptions {
            steps: self.steps.iter().map(|step| step.id().to_owned()).collect(),
            memory: Some(self.memory),
            ..RepairOptions::default()
        };
        let progress = Arc::new(Progress::default());
        let _bar = Bar::new(&progress, !self.quiet);
        Ok(plan_repair(image, &options, &mut progress.follow())?)
    }

    /// Writes the undo file, and then the image.
    fn carry_out(&self, image: &Path, repair: &spinney::Repair) -> Result<PathBuf> {
        let is_file = std::fs::metadata(image).is_ok_and(|about| about.is_file());
        if self.undo_file.is_none() && !is_file {
            // A device has no directory beside it for an undo file on disk.
            return Err(anyhow::anyhow!("{} is no file: name an undo file with --undo-file", image.display()));
        }
        let path = self.undo_file.clone().unwrap_or_else(|| {
            let mut name = OsString::from(image);
            name.push(".undo");
            PathBuf::from(name)
        });
        repair.apply(&path)?;
        Ok(path)
    }

    fn list(&self, out: &mut Output) -> Result<()> {
        let rows = Step::all().iter().map(|info| Row {
            id: info.id,
            about: info.about,
            loses: info.loses,
            codes: info.codes.iter().map(|code| (code.id(), None)).collect(),
        });
        if self.json {
            return out.json(&rows.collect::<Vec<_>>());
        }
        for row in rows {
            let codes: Vec<&str> = row.codes.iter().map(|(code, _)| *code).collect();
            writeln!(out, "{}: {}", row.id, row.about)?;
            if !row.loses.is_empty() {
                writeln!(out, "  May lose: {}", row.loses)?;
            }
            writeln!(out, "  Mends:    {}", codes.join(", "))?;
        }
        Ok(())
    }
}

fn take_back(image: &Path, path: &Path) -> Result<u64> {
    let named = || format!("the undo file {}", path.display());
    // Only regular files are opened: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).with_context(named)?.is_file() {
        return Err(anyhow::anyhow!("{}: not a file", named()));
    }
    let mut file = File::open(path).with_context(named)?;
    let undo = Undo::open(&mut file)?;
    let bytes = undo.bytes();
    undo.apply(&*blockdev::open(&Locator::parse(image)?, Access::WRITE)?)?;
    Ok(bytes)
}

#[derive(Serialize)]
struct Row {
    id: &'static str,
    about: &'static str,
    loses: &'static str,
    /// Codes, in a plan with their counts.
    codes: Vec<(&'static str, Option<u64>)>,
}

#[derive(Serialize)]
struct JsonPlan<'a> {
    /// There is nothing to repair.
    is_clean: bool,
    /// A check would find nothing after the repair.
    is_complete: bool,
    applied: bool,
    undo_file: Option<&'a Path>,
    /// Bytes that the repair writes.
    bytes: u64,
    steps: Vec<Row>,
    /// Where it goes back to an earlier commit: the generation that is lost, and the earlier one.
    older: Option<[u64; 2]>,
    /// Errors that would remain: codes and counts.
    left: BTreeMap<&'static str, u64>,
    refusals: &'a [String],
}

fn json<'a>(plan: &'a Plan, undo_file: Option<&'a Path>) -> JsonPlan<'a> {
    JsonPlan {
        is_clean: plan.is_needless(),
        is_complete: plan.is_complete(),
        applied: undo_file.is_some(),
        undo_file,
        bytes: plan.bytes(),
        steps: plan.steps.iter().map(|(step, codes)| row(*step, codes)).collect(),
        older: plan.older.map(|older| [older.from, older.to]),
        left: plan.after.counts.iter().map(|(code, count)| (code.id(), *count)).collect(),
        refusals: &plan.refusals,
    }
}

fn row(step: Step, codes: &[(Code, u64)]) -> Row {
    let info = step.info();
    Row {
        id: step.id(),
        about: info.map_or("", |info| info.about),
        loses: info.map_or("", |info| info.loses),
        codes: codes.iter().map(|(code, count)| (code.id(), Some(*count))).collect(),
    }
}

fn print(out: &mut Output, image: &Path, plan: &Plan) -> Result<()> {
    if plan.is_needless() {
        writeln!(out, "{}: no errors found; there is nothing to repair.", image.display())?;
        return Ok(());
    }
    print_left(out, &plan.after, &plan.refusals)?;
    if !plan.has_changes() {
        writeln!(out, "Nothing can be repaired. `spinney get` reads files past damage.")?;
        return Ok(());
    }
    writeln!(out, "Steps:")?;
    for (step, codes) in &plan.steps {
        let row = row(*step, codes);
        let codes: Vec<String> = codes.iter().map(|(code, count)| format!("{code} ({count})")).collect();
        writeln!(out, "  {}: {}", row.id, row.about)?;
        writeln!(out, "    For:      {}", codes.join(", "))?;
        let loses = if row.loses.is_empty() { "nothing" } else { row.loses };
        writeln!(out, "    May lose: {loses}")?;
    }
    if let Some(Older { from, to }) = plan.older {
        let lost = from.saturating_sub(to);
        writeln!(
            out,
            "This goes back from generation {from} to {to}: the changes of the last {lost} commits are lost. It takes \
             --partial. To save files of generation {from} first: `spinney rescue get {} DIRECTORY`.",
            image.display()
        )?;
    }
    let end = if plan.is_complete() { "a check finds no errors afterwards" } else { "errors are left afterwards" };
    writeln!(out, "{} are written; {end}.", human::bytes(plan.bytes()))?;
    Ok(())
}

fn print_left(out: &mut Output, left: &Report, refusals: &[String]) -> Result<()> {
    if left.counts.is_empty() {
        return Ok(());
    }
    writeln!(out, "Cannot be repaired:")?;
    for (code, count) in &left.counts {
        let Some(info) = code.info() else { continue };
        writeln!(out, "  {} ({count}): {}\n    Meaning: {}", info.id, info.what, info.means)?;
    }
    for refusal in refusals {
        writeln!(out, "  Why: {refusal}")?;
    }
    Ok(())
}
