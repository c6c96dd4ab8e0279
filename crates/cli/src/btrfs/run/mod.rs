//! `spinney run` runs a command in a fork of a mounted subvolume, shows what it changed, and keeps, merges or drops the
//! fork. Called by `args`.
//!
//! Three processes take part. This one asks the FUSE server for a fork, starts the same program again, and waits for
//! it. The second one enters namespaces of its own, mounts the fork, and executes the command ([`inside`]). The FUSE
//! server makes the fork, as for the command `fork`.
//!
//! Failure: the exit status is that of the command; as with `env(1)` it is 125 if Spinney could not set the command up,
//! 126 if it is not executable, and 127 if it was not found. The fork is then kept if it has changes.

mod changes;
mod inside;

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result};
use clap::Args;

use super::fork;
use crate::commands::failure::{CommandEnded, Failure};
use crate::commands::interrupt::Interrupt;
use crate::commands::on_mount::OnMount;

/// The exit status of a command that could not be started.
const NOT_STARTED: u8 = 125;

/// Run a command in a fork, show its changes, and keep or drop the fork
///
/// The fork is the root directory of the command, or is at DIR with everything else read-only. This protects files from
/// mistakes: it is no jail against a program that attacks the kernel, and other programs can be reached through
/// sockets.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "The command runs as you are: with a user namespace unless you are root, and Landlock if the kernel has it.\n",
    "It begins where you are: in that directory of the fork where you are in the base.\n",
    "Exit status: that of the command; 125, 126 or 127 if it could not be started.\n\n",
    "Examples:\n",
    "  spinney run --base mnt/project --at ~/project -- make test\n",
    "  spinney run --base mnt/debian --discard -- apt-get install -y hello\n",
    "  spinney run --base mnt/project --at ~/project --no-network --hide ~/.ssh --merge -- ./agent"
))]
pub(crate) struct Run {
    /// The subvolume of a mount to fork; the current directory if not given
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// Keep the fork
    #[arg(long, group = "end")]
    keep: bool,
    /// Drop the fork
    #[arg(long, group = "end")]
    discard: bool,
    /// Merge the fork and drop it if the command succeeds; keep it otherwise
    #[arg(long, group = "end")]
    merge: bool,
    /// Ask whether to keep, merge or drop the fork; the default on a terminal, elsewhere a fork with changes is kept
    #[arg(long, group = "end")]
    ask: bool,
    /// Show the fork at DIR, and everything else read-only, instead of making the fork the root directory
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
    /// Show a file or directory of this machine, read-only; the fork needs one at the same path
    #[arg(long, value_name = "PATH", conflicts_with = "at")]
    ro_bind: Vec<PathBuf>,
    /// Show an empty directory, or an empty file, at PATH
    #[arg(long, value_name = "PATH")]
    hide: Vec<PathBuf>,
    /// Give the command an empty /tmp of its own
    #[arg(long)]
    tmp: bool,
    /// Run the command without a network
    #[arg(long)]
    no_network: bool,
    /// The fork, in the process that executes the command
    #[arg(long, hide = true, value_name = "FORK")]
    inside: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

/// The action on the fork after the command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Keep,
    Merge,
    Drop,
}

impl Run {
    /// Runs the command.
    ///
    /// # Errors
    /// [`CommandEnded`] if the command's status is not 0; errors of the server.
    pub(crate) fn run(&self) -> Result<()> {
        let status = match &self.inside {
            Some(fork) => inside::run(self, fork),
            None => self.run_in_fork()?,
        };
        if status == 0 { Ok(()) } else { Err(CommandEnded(status).into()) }
    }

    /// Forks, runs the command, and returns its exit status.
    fn run_in_fork(&self) -> Result<u8> {
        let base = self.base.clone().unwrap_or_else(|| PathBuf::from("."));
        let is_dir = base.is_dir();
        if !is_dir {
            return Err(Failure::usage(format!("{}: expected a directory of a mount", base.display())).into());
        }
        let mount = OnMount::connect(&base)?;
        let path = make_fork(&mount)?;
        let dir = mount.on_host(&base, &path).context("the path of the fork")?;
        // Survives the terminal's signals, which end the command: this process still has to keep or drop the fork.
        let interrupt = Interrupt::catch()?;
        let ended = self.execute(&base, &dir);
        let changes = changes::of(&mount, &path, &dir)?;
        changes.print();
        let is_done = ended.as_ref().is_ok_and(ExitStatus::success);
        let end = if changes.is_empty() { End::Drop } else { self.end(is_done, interrupt.is_asked())? };
        finish(&mount, &path, &dir, end)?;
        let ended = ended?;
        let signal = ended.signal().map(|signal| 128 + signal);
        Ok(ended.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_STARTED))
    }

    /// Starts this program again, with absolute paths, for the command.
    fn execute(&self, base: &Path, fork: &Path) -> Result<ExitStatus> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("spinney").arg("run").arg("--inside").arg(fork);
        command.arg("--base").arg(base.canonicalize().with_context(|| base.display().to_string())?);
        if let Some(at) = &self.at {
            let at = at.canonicalize().with_context(|| at.display().to_string())?;
            command.arg("--at").arg(at);
        }
        for (name, paths) in [("--ro-bind", &self.ro_bind), ("--hide", &self.hide)] {
            for path in paths {
                command.arg(name).arg(std::path::absolute(path)?);
            }
        }
        let flags = [(self.tmp, "--tmp"), (self.no_network, "--no-network")];
        command.args(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag));
        command.arg("--").args(&self.words);
        command.status().context("cannot start this program again")
    }

    fn end(&self, is_done: bool, is_interrupted: bool) -> Result<End> {
        if self.discard {
            return Ok(End::Drop);
        }
        if self.merge {
            return Ok(if is_done { End::Merge } else { End::Keep });
        }
        let asks = self.ask || (!self.keep && std::io::stdin().is_terminal());
        if asks && !is_interrupted { ask() } else { Ok(End::Keep) }
    }
}

/// Forks the directory of the connection to the server.
fn make_fork(mount: &OnMount) -> Result<PathBuf> {
    let base = mount.word(Path::new(""))?;
    let stem = Path::new(&base).file_name().map_or_else(|| "fork".into(), |name| name.to_string_lossy());
    let name = format!("{stem}-run-{}", std::process::id());
    let words = ["create", "--json", "--", fork::IMAGE, &base, &name].map(str::to_owned).to_vec();
    let report = mount.report(fork::JOB, words)?;
    fork::path_of(&report).context("the report of the server")
}

/// Asks the user what to do; at the end of the input, keeps the fork.
fn ask() -> Result<End> {
    let stdin = std::io::stdin();
    loop {
        eprint!("spinney: [k]eep the fork, [m]erge it into its base, or [d]rop it? ");
        std::io::stderr().flush()?;
        let mut line = String::new();
        if stdin.lock().read_line(&mut line)? == 0 {
            return Ok(End::Keep);
        }
        match line.trim() {
            "k" | "keep" => return Ok(End::Keep),
            "m" | "merge" => return Ok(End::Merge),
            "d" | "drop" => return Ok(End::Drop),
            _ => {}
        }
    }
}

fn finish(mount: &OnMount, path: &Path, dir: &Path, end: End) -> Result<()> {
    let path = mount.name(path)?;
    let words = |verb: &str, option: &str| [verb, option, "--", fork::IMAGE, &path].map(str::to_owned).to_vec();
    match end {
        End::Drop => mount.report(fork::JOB, words("drop", "--json")).map(drop),
        End::Keep => {
            eprintln!("spinney: kept as {}", dir.display());
            Ok(())
        }
        End::Merge => {
            let merged = mount.report(fork::JOB, words("merge", "--drop"));
            let merged = merged.with_context(|| format!("kept as {}", dir.display()))?;
            eprint!("spinney: {}", String::from_utf8_lossy(&merged));
            Ok(())
        }
    }
}
