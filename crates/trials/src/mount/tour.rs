//! The README's tours, followed word by word by an account without privileges.
//!
//! A tour is the first block of commands behind a `<!-- tour -->` in the README: lines that begin with four blanks and
//! are given to a shell, one tour after the other, which stops at the first failure. The account is made for it, has a
//! home with some files, and is removed again. It finds all programs of the system except btrfs-progs, which no tour
//! needs.

use super::served::run;
use crate::system;
use anyhow::{Context, Result, ensure};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The account.
const ACCOUNT: &str = "spinney-tour";
/// Contents of its home.
const HOME_FROM: &str = "/etc/skel /usr/share/doc/bash /usr/share/perl5";
/// Opens a tour in the README.
const MARK: &str = "<!-- tour -->";

/// Makes the device `$1` and gives the account `$2` the script `$3`.
const AS_ACCOUNT: &str = "mknod -m 666 \"$1\" c 10 229 && mount --bind \"$1\" /dev/fuse \\
    && exec setpriv --reuid \"$2\" --regid \"$2\" --clear-groups --reset-env \\
        -- sh -e -u -x -c \"$3\"";

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials mount-tour")]
pub(crate) struct Options {
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// Follows the tours.
pub(crate) fn follow(root: &Path, options: &Options) -> Result<()> {
    ensure!(system::is_root(), "making an account needs root");
    let program =
        options.program.canonicalize().with_context(|| format!("{}: build it first", options.program.display()))?;
    let readme = std::fs::read_to_string(root.join("README.md"))?;
    let lines = tours(&readme).context("the README has no tour")?;
    let account = Account::new()?;
    // Only root may be able to read the program's directory.
    let bin = account.home.join("bin");
    std::fs::create_dir(&bin)?;
    std::fs::copy(&program, bin.join("spinney"))?;
    account.own_all()?;
    let programs = link_programs()?;
    let script = format!(
        "export HOME='{home}' PATH='{bin}:{programs}'\nif command -v btrfs; then exit 1; fi\ncd /tmp\n{lines}",
        home = account.home.display(),
        bin = bin.display(),
        programs = programs.display(),
    );
    println!("{lines}");
    // A mount namespace of its own: nothing stays behind, and the FUSE device is open to all users in it, as in
    // distributions, whatever the settings of this machine.
    let device = std::env::temp_dir().join(format!("{ACCOUNT}-device"));
    let _ = std::fs::remove_file(&device);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--", "sh", "-c", AS_ACCOUNT, "sh"]);
    command.arg(&device).args([ACCOUNT, &script]);
    let result = run(&mut command);
    std::fs::remove_file(&device)?;
    std::fs::remove_dir_all(&programs)?;
    result?;
    println!("mount-tour: done, as {ACCOUNT}");
    Ok(())
}

/// Directories with programs of the system.
const PROGRAMS: [&str; 2] = ["/bin", "/usr/bin"];

/// A directory with links to all of them except btrfs-progs.
fn link_programs() -> Result<PathBuf> {
    let links = std::env::temp_dir().join(format!("{ACCOUNT}-programs"));
    // Left behind by a run that was killed.
    let _ = std::fs::remove_dir_all(&links);
    std::fs::create_dir(&links)?;
    for dir in PROGRAMS {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let link = links.join(entry.file_name());
            let is_of_btrfs = entry.file_name().to_string_lossy().contains("btrfs");
            if !is_of_btrfs && std::fs::symlink_metadata(&link).is_err() {
                std::os::unix::fs::symlink(entry.path(), link)?;
            }
        }
    }
    Ok(links)
}

/// The commands of all tours, a line each.
fn tours(readme: &str) -> Option<String> {
    let lines = readme.split(MARK).skip(1).flat_map(|rest| {
        let lines = rest.lines().skip_while(|line| !line.starts_with("    "));
        lines.take_while(|line| line.starts_with("    ")).filter_map(|line| line.strip_prefix("    "))
    });
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    (!lines.is_empty()).then_some(lines)
}

struct Account {
    home: PathBuf,
}

impl Account {
    fn new() -> Result<Self> {
        // Left behind by a run that was killed.
        let _ = system::run("userdel", &["-f", "-r", ACCOUNT]);
        system::run("useradd", &["-m", "-U", "-d", "/tmp/spinney-tour-home", ACCOUNT])?;
        let account = Self { home: PathBuf::from("/tmp/spinney-tour-home") };
        for part in HOME_FROM.split_whitespace() {
            let home = account.home.to_string_lossy();
            if Path::new(part).exists() {
                system::run("cp", &["-a", part, &home])?;
            }
        }
        // As agents of keys and editors leave them.
        system::run("mkfifo", &[&*account.home.join("pipe").to_string_lossy()])?;
        UnixListener::bind(account.home.join("socket"))?;
        Ok(account)
    }

    /// Gives the account all files in its home: it cannot copy files of other owners.
    fn own_all(&self) -> Result<()> {
        let owner = format!("{ACCOUNT}:{ACCOUNT}");
        system::run("chown", &["-R", &owner, &self.home.to_string_lossy()]).map(drop)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Err(error) = system::run("userdel", &["-f", "-r", ACCOUNT]) {
            // It also complains about a missing mailbox.
            if self.home.exists() {
                eprintln!("{error:#}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tour_is_the_first_block_behind_its_mark() {
        let first = "    no\n<!-- tour -->\nText.\n\n    one\n    two\n\n    three\n";
        assert_eq!(tours(first).unwrap(), "one\ntwo\n");
        assert_eq!(tours(&format!("{first}<!-- tour -->\n    four\n")).unwrap(), "one\ntwo\nfour\n");
        assert_eq!(tours("nothing"), None);
    }
}
