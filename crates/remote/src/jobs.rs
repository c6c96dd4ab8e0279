//! Defines the jobs of a server: commands that belong to one format. The program implements them for each format;
//! `serve` runs them.

use std::os::unix::net::UnixStream;

/// The effect of a job, which decides who may run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Reports facts about a mounted file system that every user may know.
    Tells,
    /// Reads files independent of permissions: for root and the user of the server.
    Reads,
    /// Changes something: for the same users, where the mount is writable.
    Changes,
}

/// Commands of one format that the server of a mount executes: those on the whole volume, and streams in and out.
pub trait Jobs: Send + Sync {
    /// The kind of a job, which decides who may run it.
    fn kind(&self, words: &[String]) -> JobKind;

    /// Executes a command line, reads from `stream` or writes to it, and returns the report. Paths of changed names are
    /// added to `changed`, from the root of the file system.
    ///
    /// # Errors
    /// The failure and exit status of the command.
    fn run(&self, words: &[String], stream: UnixStream, changed: &mut Vec<Vec<u8>>) -> Result<String, JobFailure>;
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct JobFailure {
    /// The exit status of the command.
    pub status: u8,
    /// The message.
    pub text: String,
}
