//! `spinney generations` lists earlier states of an image that can still be read, from the backup roots of the
//! superblock. Called by `args`.

use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::Volume;

use super::format;
use crate::commands::failure::one_line;
use crate::commands::image::ImageArgs;
use crate::commands::output::Output;

/// List earlier states of an image that can still be read
///
/// A superblock points at the states of the last four commits. Later commits may overwrite their blocks at any time: an
/// earlier state is whole until then, and reading an overwritten block fails. With `-o discard` little of it is left.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Commands that only read take a state with --generation, a mount with `-o ro,generation=N`.\n\n",
    "Examples:\n",
    "  spinney generations site.img\n",
    "  spinney generations --check site.img       read all metadata of each\n",
    "  spinney ls --generation 41 site.img /home\n",
    "  spinney generations --json site.img | jq '.generations[] | select(.opens)'"
))]
pub(crate) struct Generations {
    #[command(flatten)]
    image: ImageArgs,
    /// Read and verify all metadata of each state, not only the blocks needed to open it
    #[arg(long)]
    check: bool,
    /// Report as JSON: {generations: [{generation, is_last, opens, is_whole, reason}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    generations: Vec<State>,
}

#[derive(Serialize)]
struct State {
    generation: u64,
    is_last: bool,
    opens: bool,
    /// Null without --check.
    is_whole: Option<bool>,
    /// Reason why it does not open, or is not whole.
    reason: Option<String>,
}

impl Generations {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let last = self.image.request().read_only(true).flag("nologreplay");
        let known = format::open_as(&self.image, &last)?.generations();
        let states = known.iter().map(|generation| {
            let request = last.clone().option("generation", generation.0.to_string());
            let opened = format::open_as(&self.image, &request);
            let opens = opened.is_ok();
            let seen = opened.and_then(|volume| self.look(&volume));
            State {
                generation: generation.0,
                is_last: known.first() == Some(generation),
                opens,
                is_whole: self.check.then_some(seen.is_ok()),
                reason: seen.err().map(|error| one_line(&error)),
            }
        });
        let report = Report { generations: states.collect() };
        if self.json { out.json(&report) } else { print(&report, out) }
    }

    fn look(&self, volume: &Volume) -> Result<()> {
        if self.check {
            volume.verify_trees()?;
        }
        Ok(())
    }
}

fn print(report: &Report, out: &mut Output) -> Result<()> {
    for state in &report.generations {
        let says = match (state.opens, state.is_whole) {
            (false, _) => "gone",
            (true, Some(false)) => "opens, not whole",
            (true, Some(true)) => "whole",
            (true, None) => "opens",
        };
        let last = if state.is_last { "  (the last)" } else { "" };
        let reason = state.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        writeln!(out, "{}  {says}{reason}{last}", state.generation)?;
    }
    Ok(())
}
