//! Runs the commands that the server of an f2fs mount does for its clients, as for an image. `row` registers it, and
//! the server of a mount (`commands::mount::server`) gets it for an f2fs image.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args as _, FromArgMatches as _};
use spinney::f2fs::F2fs;
use spinney::remote::{JobFailure, JobKind, Jobs};

use super::info as shown;
use crate::commands::failure::{Failure, Status, one_line, status_of};
use crate::commands::info::{self, Info};
use crate::commands::on_mount::TERMINAL;
use crate::commands::output::Output;

/// Jobs on a mounted volume.
pub(crate) struct OfVolume(pub(crate) Arc<F2fs>);

impl OfVolume {
    fn carry_out(&self, words: &[String], stream: UnixStream) -> Result<()> {
        let is_terminal = words.get(1).is_some_and(|word| word == TERMINAL);
        let mut out = Output::to(stream, is_terminal);
        match words.first().map(String::as_str) {
            Some(info::NAME) => {
                let words = words.iter().filter(|word| *word != TERMINAL);
                let command = Info::augment_args(clap::Command::new("job"));
                let matches = command.try_get_matches_from(words).map_err(|error| Failure::usage(error.to_string()))?;
                let found = self.0.info().map_err(spinney::vfs::Error::from)?;
                match Info::from_arg_matches(&matches)?.is_json() {
                    true => out.json(&shown::report(&found, None))?,
                    false => shown::print(&mut out, &found, None)?,
                }
            }
            _ => {
                let text = "the server of the mount does not know this command: f2fs has none of its own but `info`";
                return Err(Failure::new(Status::Unsupported, text).into());
            }
        }
        out.finish()
    }
}

impl Jobs for OfVolume {
    fn kind(&self, words: &[String]) -> JobKind {
        match words.first().map(String::as_str) {
            Some(info::NAME) => JobKind::Tells,
            _ => JobKind::Changes,
        }
    }

    fn run(&self, words: &[String], stream: UnixStream, _changed: &mut Vec<Vec<u8>>) -> Result<String, JobFailure> {
        let done = self.carry_out(words, stream).map(|()| String::new());
        done.map_err(|error| JobFailure { status: status_of(&error).code(), text: one_line(&error) })
    }
}
