//! Runs btrfs commands in the server of a mount for its clients; the client is `commands::on_mount`. `row` registers
//! it, and the server of a mount (`commands::mount::server`) gets it for a btrfs image.
//!
//! A job has the words of the command line, with paths from the root of the mount. The output of the command goes back
//! through the stream.

use std::io::{BufWriter, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use spinney::btrfs::Volume;
use spinney::btrfs::forks::Forks;
use spinney::remote::{JobFailure, JobKind, Jobs};

use super::check::mount as check;
use super::device::{self, Changing, Resyncing};
use super::diff::Diff;
use super::fork::{self, Fork};
use super::label::Label;
use super::map::Map;
use super::qgroup::Qgroup;
use super::quota::Quota;
use super::receive::Receive;
use super::scrub::{self, Scrubbing};
use super::send::Send;
use super::{backup, format, subvolume};
use crate::commands::failure::{Failure, Status, one_line, status_of};
use crate::commands::info::{self, Info};
use crate::commands::on_mount::TERMINAL;
use crate::commands::output::Output;

/// Jobs on a mounted volume.
pub(crate) struct OfVolume {
    volume: Arc<Volume>,
    forks: Forks,
    scrubbing: Scrubbing,
    changing: Arc<Changing>,
    _resyncing: Resyncing,
}

impl OfVolume {
    pub(crate) fn new(volume: Volume) -> Self {
        let volume = Arc::new(volume);
        let changing = Arc::default();
        let (forks, resyncing) = (fork::forks_of(&volume), Resyncing::begin(&volume, &changing));
        Self { forks, volume, scrubbing: Scrubbing::default(), changing, _resyncing: resyncing }
    }

    fn run(&self, words: &[String], stream: UnixStream, changed: &mut Vec<Vec<u8>>) -> Result<String> {
        match words.first().map(String::as_str) {
            Some("send") => parse::<Send>(words)?.send_to(&self.volume, stream),
            Some(check::JOB) => check::hold(&self.volume, &stream).map(|()| String::new()),
            Some("receive") => parse::<Receive>(words)?.receive_from(&self.volume, stream, changed),
            Some("backup") => {
                let mut out = BufWriter::new(stream);
                backup::serve(&self.volume, words, &mut out, changed)?;
                out.flush().context("the stream")?;
                Ok(String::new())
            }
            Some(fork::JOB) => {
                let mut out = Output::to(stream, words.get(1).is_some_and(|word| word == TERMINAL));
                parse::<Fork>(&without_terminal(words))?.run_on(&self.forks, &mut out, changed)?;
                out.finish().map(|()| String::new())
            }
            Some(_) if device::serve(&self.volume, &self.changing, words, &stream)? => Ok(String::new()),
            Some(name) => self.report(name, words, stream).map(|()| String::new()),
            None => Err(unknown()),
        }
    }

    /// Runs a command that prints a report.
    fn report(&self, name: &str, words: &[String], stream: UnixStream) -> Result<()> {
        let is_terminal = words.get(1).is_some_and(|word| word == TERMINAL);
        let words = without_terminal(words);
        let mut out = Output::to(stream, is_terminal);
        match name {
            info::NAME => format::report(&self.volume, parse::<Info>(&words)?.is_json(), &mut out)?,
            "label" => parse::<Label>(&words)?.run_on(&self.volume, &mut out)?,
            "diff" => parse::<Diff>(&words)?.run_on(&self.volume, &mut out)?,
            "map" => parse::<Map>(&words)?.run_on(&self.volume, &mut out)?,
            "qgroup" => parse::<Qgroup>(&words)?.run_on(&self.volume, &mut out)?,
            subvolume::JOB => subvolume::write(&self.volume, &words, &mut out)?,
            scrub::Start::JOB => parse::<scrub::Start>(&words)?.run_on(&self.volume, &self.scrubbing, &mut out)?,
            Scrubbing::STATUS => write!(out, "{}", self.scrubbing.tell(&self.volume)?)?,
            Scrubbing::PAUSE => self.scrubbing.pause()?,
            Scrubbing::CANCEL => self.scrubbing.cancel(),
            scrub::Stats::JOB => parse::<scrub::Stats>(&words)?.run_on(&self.volume, &mut out)?,
            "quota" => parse::<Quota>(&words)?.run_on(&self.volume, &mut out)?,
            _ => return Err(unknown()),
        }
        out.finish()
    }
}

fn unknown() -> anyhow::Error {
    Failure::new(Status::Unsupported, "the server of the mount does not know this command").into()
}

/// The words without the options that concern a terminal, as for an image.
fn without_terminal(words: &[String]) -> Vec<String> {
    let is_mark = |(at, word): &(usize, &String)| *at == 1 && *word == TERMINAL;
    words.iter().enumerate().filter(|pair| !is_mark(pair)).map(|(_, word)| word.clone()).collect()
}

impl Jobs for OfVolume {
    fn kind(&self, words: &[String]) -> JobKind {
        match words.first().map(String::as_str) {
            Some(info::NAME | Scrubbing::STATUS) => JobKind::Tells,
            Some("label") => match parse::<Label>(&without_terminal(words)) {
                Ok(label) if !label.changes() => JobKind::Tells,
                _ => JobKind::Changes,
            },
            Some(fork::JOB) => match parse::<Fork>(&without_terminal(words)) {
                Ok(fork) if fork.only_reads() => JobKind::Reads,
                _ => JobKind::Changes,
            },
            Some("send" | "diff" | "map" | check::JOB | subvolume::JOB) => JobKind::Reads,
            Some(_) if device::only_reads(words) => JobKind::Reads,
            _ => JobKind::Changes,
        }
    }

    fn run(&self, words: &[String], stream: UnixStream, changed: &mut Vec<Vec<u8>>) -> Result<String, JobFailure> {
        let done = self.run(words, stream, changed);
        done.map_err(|error| JobFailure { status: status_of(&error).code(), text: one_line(&error) })
    }
}

/// The arguments of a command, from words of which the first is its name.
fn parse<T: Args + clap::FromArgMatches>(words: &[String]) -> Result<T> {
    let command = T::augment_args(clap::Command::new("job"));
    let matches = command.try_get_matches_from(words).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(T::from_arg_matches(&matches)?)
}
