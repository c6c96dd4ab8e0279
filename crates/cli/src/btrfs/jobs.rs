//! Streams of a mount: its server sends and receives them, whoever asks for that passes them on.
//!
//! The words of a job are those of the command line, with paths from the root of what is mounted.

use std::os::unix::net::UnixStream;

use anyhow::Result;
use clap::Args;
use remote::{JobFailure, Jobs};
use spinney::Volume;

use super::receive::Receive;
use super::send::Send;
use commands::failure::{Failure, Status, one_line, status_of};

/// Jobs on a volume that is mounted.
pub(crate) struct OfVolume(Volume);

impl OfVolume {
    pub(crate) const fn new(volume: Volume) -> Self {
        Self(volume)
    }

    fn run(&self, words: &[String], stream: UnixStream, changed: &mut Vec<Vec<u8>>) -> Result<String> {
        match words.first().map(String::as_str) {
            Some("send") => parse::<Send>(words)?.send_to(&self.0, stream).map(|()| String::new()),
            Some("receive") => parse::<Receive>(words)?.receive_from(&self.0, stream, changed),
            _ => Err(Failure::new(Status::Unsupported, "the server of the mount does not know this command").into()),
        }
    }
}

impl Jobs for OfVolume {
    fn changes(&self, words: &[String]) -> bool {
        words.first().is_none_or(|name| name != "send")
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
