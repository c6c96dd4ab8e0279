//! The process that becomes the command. It enters namespaces, mounts the fork, makes all other mounts read-only,
//! restricts itself with Landlock, and executes the command. Called by `run` in a process started for this purpose.
//!
//! Invariant: when the command starts, no mount but the fork, and the empty `/tmp` of `--tmp`, is writable. Every step
//! that fails therefore ends the process.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use landlock::{ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, path_beneath_rules};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount};

use super::{NOT_STARTED, Run};
use crate::commands::failure::{Failure, one_line};
use crate::commands::output;

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Landlock ABI that the rules are written for; an older kernel applies the rules that it supports.
const RULES: ABI = ABI::V5;
/// Directories of this machine that every program needs.
const SYSTEM: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Executes the command; returns only if that fails.
pub(super) fn run(run: &Run, fork: &Path) -> u8 {
    let prepared = prepare(run, fork);
    if let Err(error) = prepared {
        output::warn(&one_line(&error));
        return NOT_STARTED;
    }
    let Some((name, words)) = run.words.split_first() else { return NOT_STARTED };
    let error = Command::new(name).args(words).exec();
    let advice = match (&run.at, error.kind()) {
        (None, io::ErrorKind::NotFound) => "; the fork is the root directory, --at DIR shows it at a directory",
        _ => "",
    };
    output::warn(&format!("{}: {error}{advice}", name.display()));
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

fn prepare(run: &Run, fork: &Path) -> Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let here = std::env::current_dir().context("the present directory")?;
    let is_root = uid.is_root();
    let entered = spinney::fuse::enter_namespaces(!is_root, run.no_network);
    entered.context("namespaces (the kernel may forbid them to users: kernel.unprivileged_userns_clone, AppArmor)")?;
    if !is_root {
        // Maps only the caller's user and group into the namespace.
        std::fs::write("/proc/self/setgroups", "deny").context("/proc/self/setgroups")?;
        let (uid, gid) = (uid.as_raw(), gid.as_raw());
        std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).context("/proc/self/uid_map")?;
        std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).context("/proc/self/gid_map")?;
    }
    let writable = match &run.at {
        Some(at) => {
            mount_bind(fork, at).with_context(|| at.display().to_string())?;
            at.clone()
        }
        None => {
            become_root(run, fork)?;
            PathBuf::from("/")
        }
    };
    protect_others(&writable)?;
    run.hide.iter().try_for_each(|path| hide(path))?;
    if run.tmp {
        own_tmp(run)?;
    }
    restrict(&writable, run.tmp)?;
    enter(run.at.as_deref(), &here, run.base.as_deref())
}

/// Makes the fork the root directory. Binds the system directories of this machine into it where it has directories of
/// the same name.
fn become_root(run: &Run, fork: &Path) -> Result<()> {
    mount_bind(fork, fork).context("the fork")?;
    for dir in SYSTEM {
        let place = below(fork, Path::new(dir));
        if is_plain(fork, &place)? && place.is_dir() {
            mount_bind_recursive(dir, &place).context(dir)?;
        }
    }
    for path in &run.ro_bind {
        let place = below(fork, path);
        if !is_plain(fork, &place)? || !place.exists() {
            let text = format!("--ro-bind {}: the fork has nothing at this path to mount it on", path.display());
            return Err(Failure::refused(text).into());
        }
        mount_bind_recursive(path, &place).with_context(|| path.display().to_string())?;
    }
    std::env::set_current_dir(fork).context("the fork")?;
    // This stacks the old root on top of the new one; the next line unmounts it.
    rustix::process::pivot_root(".", ".").context("the root directory")?;
    unmount(".", UnmountFlags::DETACH).context("the old root directory")?;
    std::env::set_current_dir("/").context("the root directory")
}

fn below(fork: &Path, path: &Path) -> PathBuf {
    fork.join(path.strip_prefix("/").unwrap_or(path))
}

/// True if no component of the path is a symbolic link: a link could lead out of the fork, and we would mount there.
fn is_plain(fork: &Path, place: &Path) -> Result<bool> {
    let real = match place.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        real => real?,
    };
    let fork = fork.canonicalize()?;
    Ok(place.strip_prefix(&fork).ok() == real.strip_prefix(&fork).ok() && real.starts_with(&fork))
}

/// Makes all mounts but the one at `writable` read-only.
fn protect_others(writable: &Path) -> Result<()> {
    let table = std::fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    for (dir, flags) in mounts_in(&table) {
        if dir == writable {
            continue;
        }
        match mount_remount(&dir, MountFlags::BIND | MountFlags::RDONLY | flags, c"") {
            // Another mount covers it, or the caller may not enter it. The command then cannot reach it either.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => {}
            Err(error) => return Err(error).with_context(|| format!("{}: read-only", dir.display())),
        }
    }
    Ok(())
}

/// Mount points with the flags to keep; where several mounts are stacked, only the last.
fn mounts_in(table: &[u8]) -> Vec<(PathBuf, MountFlags)> {
    let mut mounts: Vec<(PathBuf, MountFlags)> = Vec::new();
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ').skip(4);
        let (Some(dir), Some(options)) = (fields.next(), fields.next()) else { continue };
        let dir = PathBuf::from(unescaped(dir));
        let flags = options.split(|byte| *byte == b',').map(|option| match option {
            b"nosuid" => MountFlags::NOSUID,
            b"nodev" => MountFlags::NODEV,
            b"noexec" => MountFlags::NOEXEC,
            b"noatime" => MountFlags::NOATIME,
            b"nodiratime" => MountFlags::NODIRATIME,
            b"relatime" => MountFlags::RELATIME,
            _ => MountFlags::empty(),
        });
        let flags = flags.fold(MountFlags::empty(), |all, one| all | one);
        mounts.retain(|(other, _)| *other != dir);
        mounts.push((dir, flags));
    }
    mounts
}

/// Decodes the octal escapes in a field of the table.
fn unescaped(field: &[u8]) -> OsString {
    let mut text = Vec::new();
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        text.push(number.unwrap_or(*first));
        rest = if number.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    OsString::from_vec(text)
}

/// Hides a directory under an empty one, or a file under an empty file.
fn hide(path: &Path) -> Result<()> {
    let shown = || format!("--hide {}", path.display());
    let found = std::fs::metadata(path).with_context(shown)?;
    if found.is_dir() {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        return mount("none", path, "tmpfs", flags, Some(c"mode=555,size=4k")).with_context(shown);
    }
    mount_bind("/dev/null", path).with_context(shown)
}

fn own_tmp(run: &Run) -> Result<()> {
    if run.at.as_ref().is_some_and(|at| at.starts_with("/tmp")) {
        return Err(Failure::usage("--tmp would cover the directory of --at, which is in /tmp").into());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("none", "/tmp", "tmpfs", flags, Some(c"mode=1777")).context("--tmp: /tmp")
}

/// Second line of defence: with Landlock the command can write only to the fork, `/dev`, `/proc` and its own `/tmp`,
/// even if a mount is writable by mistake. A kernel without Landlock has only the read-only mounts.
fn restrict(writable: &Path, has_tmp: bool) -> Result<()> {
    let all = AccessFs::from_all(RULES);
    let mut places: Vec<&Path> = vec![writable, Path::new("/dev"), Path::new("/proc")];
    if has_tmp {
        places.push(Path::new("/tmp"));
    }
    Ruleset::default()
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(RULES)))?
        .add_rules(path_beneath_rules(places, all))?
        .restrict_self()?;
    Ok(())
}

/// Changes to the directory in which the command begins: that of the fork where the caller's is in the base; otherwise,
/// with `--at`, the caller's by its path, which may lead into the fork now. A command that removes everything in its
/// directory must not begin in another one.
fn enter(at: Option<&Path>, here: &Path, base: Option<&Path>) -> Result<()> {
    let top = at.unwrap_or(Path::new("/"));
    let place = match (base.and_then(|base| here.strip_prefix(base).ok()), at) {
        (Some(inner), _) => top.join(inner),
        (None, Some(_)) => here.to_owned(),
        (None, None) => top.to_owned(),
    };
    std::env::set_current_dir(&place).with_context(|| format!("{}: the directory to begin in", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_of_a_place_counts_with_its_flags() {
        let table = b"1 0 0:1 / / rw,relatime - ext4 /dev/a rw\n\
                      2 1 0:2 / /a\\040b rw,nosuid,nodev - tmpfs none rw\n\
                      3 1 0:3 / / ro,noexec shared:1 - ext4 /dev/b ro\n";
        let found = mounts_in(table);
        assert_eq!(
            found,
            [(PathBuf::from("/a b"), MountFlags::NOSUID | MountFlags::NODEV), (PathBuf::from("/"), MountFlags::NOEXEC),]
        );
        assert_eq!(unescaped(b"a\\134\\011\\9"), OsString::from("a\\\t\\9"));
    }
}
