//! Commands that only a format knows.

use std::os::unix::net::UnixStream;

use crate::who::JobKind;

/// What only a format can do: commands on the whole, and streams that go in and out.
pub trait Jobs: Send + Sync {
    /// What kind of job it is.
    fn kind(&self, words: &[String]) -> JobKind;

    /// Does what the words of a command line say, reads from `stream` or writes to it, and returns what the command
    /// reports. Names that changed are added to `changed`, with their paths from the root of the file system.
    ///
    /// # Errors
    /// What the command ends with.
    fn run(&self, words: &[String], stream: UnixStream, changed: &mut Vec<Vec<u8>>) -> Result<String, JobFailure>;
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct JobFailure {
    /// The exit status of the command.
    pub status: u8,
    /// For people.
    pub text: String,
}
