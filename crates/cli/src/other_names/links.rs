//! `spinney install-links` makes the links by which this program is called under other names. Called by `args`.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;

use super::NAMES;
use crate::commands::failure::Failure;
use crate::commands::output::Output;

/// Make links such as mkfs.btrfs to this program, for programs that call it so
///
/// The link mkfs.btrfs takes the options of mkfs.btrfs 6.19; mkfs.f2fs and sload.f2fs take the common ones of version
/// 1.15. Options that are missing are refused by name. A name that exists already, and is no
/// link to this program, stays, and the command fails.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney install-links ~/bin                     all of them\n",
    "  spinney install-links ~/bin mkfs.btrfs          one\n",
    "  PATH=~/bin:$PATH systemd-repart ...             which uses it then"
))]
pub(crate) struct InstallLinks {
    /// Directory for the links
    dir: PathBuf,
    /// Names of links: mkfs.btrfs, mkfs.f2fs, sload.f2fs; all if none is given
    names: Vec<String>,
}

impl InstallLinks {
    /// Runs the command.
    ///
    /// # Errors
    /// `Usage` for an unknown name, `Refused` for one that is taken; the host's.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        std::fs::create_dir_all(&self.dir).with_context(|| self.dir.display().to_string())?;
        let program = std::env::current_exe().context("the path of this program")?;
        for name in &self.names {
            if !NAMES.iter().any(|(known, _)| known == name) {
                let known: Vec<&str> = NAMES.iter().map(|(known, _)| *known).collect();
                let text = format!("`{name}` is no name of this program; there are {}", known.join(", "));
                return Err(Failure::usage(text).into());
            }
        }
        let is_wanted = |name: &str| self.names.is_empty() || self.names.iter().any(|wanted| wanted == name);
        for (name, command) in NAMES.iter().filter(|(name, _)| is_wanted(name)) {
            let path = self.dir.join(name);
            link(&program, &path)?;
            writeln!(out, "{} = {} {command}", path.display(), program.display())?;
        }
        Ok(())
    }
}

fn link(program: &Path, path: &Path) -> Result<()> {
    match symlink(program, path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            if std::fs::read_link(path).is_ok_and(|target| target == program) {
                return Ok(());
            }
            Err(Failure::refused(format!("{}: exists already", path.display())).into())
        }
        made => made.with_context(|| path.display().to_string()),
    }
}
