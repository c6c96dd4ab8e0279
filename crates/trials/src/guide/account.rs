//! Makes the account without privileges that follows the guide, and removes it with its home. Called by `guide`.
//!
//! Its home has some files, a pipe and a socket. It finds every program of the system but those of btrfs-progs, which
//! the guide does not need. Making it needs root.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::system;

/// Its name.
const NAME: &str = "spinney-guide";
/// Directories that are copied into its home.
const HOME_FROM: &str = "/etc/skel /usr/share/doc/bash /usr/share/perl5";
/// Directories with programs of the system.
const PROGRAMS: [&str; 2] = ["/bin", "/usr/bin"];

/// An account; dropping it removes it.
pub(super) struct Account {
    pub(super) home: PathBuf,
    /// Links to the programs that it may use.
    pub(super) programs: PathBuf,
}

impl Account {
    /// Makes the account, with a copy of `program` that it can reach.
    pub(super) fn new(program: &Path) -> Result<Self> {
        // Left behind by a run that was killed.
        let _ = system::run("userdel", &["-f", "-r", NAME]);
        let home = std::env::temp_dir().join(format!("{NAME}-home"));
        system::run("useradd", &["-m", "-U", "-s", "/bin/bash", "-d", &home.to_string_lossy(), NAME])?;
        let account = Self { programs: home.join("programs"), home };
        for part in HOME_FROM.split_whitespace().filter(|part| Path::new(part).exists()) {
            system::run("cp", &["-a", part, &account.home.to_string_lossy()])?;
        }
        // As agents of keys and editors leave them.
        system::run("mkfifo", &[&*account.home.join("pipe").to_string_lossy()])?;
        UnixListener::bind(account.home.join("socket"))?;
        account.link_programs()?;
        std::fs::copy(program, account.programs.join("spinney"))?;
        account.own_all()?;
        Ok(account)
    }

    pub(super) fn name() -> &'static str {
        NAME
    }

    /// Gives the account all that is in its home: it cannot copy what belongs to others as theirs.
    fn own_all(&self) -> Result<()> {
        system::run("chown", &["-hR", &format!("{NAME}:{NAME}"), &self.home.to_string_lossy()]).map(drop)
    }

    fn link_programs(&self) -> Result<()> {
        std::fs::create_dir(&self.programs)?;
        for entry in PROGRAMS.iter().map(std::fs::read_dir).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            let entry = entry?;
            let link = self.programs.join(entry.file_name());
            let is_left_out = entry.file_name().to_string_lossy().contains("btrfs");
            if !is_left_out && std::fs::symlink_metadata(&link).is_err() {
                std::os::unix::fs::symlink(entry.path(), link)?;
            }
        }
        Ok(())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = system::run("pkill", &["-KILL", "-u", NAME]);
        if let Err(error) = system::run("userdel", &["-f", "-r", NAME]) {
            // It also complains about a mailbox that never was.
            if self.home.exists() {
                eprintln!("{error:#}");
            }
        }
    }
}
