//! `spinney mount` and `spinney umount`: an image as a directory that all programs can use.
//!
//! ```text
//!  front part      checks the command line, starts the supervisor, ends when the mount is usable
//!  supervisor      mounts, watches, unmounts; has privileges, and reads nothing of the image
//!  server          reads the image and answers the kernel; has no privileges, in a sandbox
//! ```
//!
//! Each is this program again, started with a hidden `--role`; in the foreground the supervisor is the front part. They
//! exchange messages over `channel`. `settings` parses `-o`; options of a format are passed to its implementation.
//! `sandbox` has the restrictions of the server, `spinney::mounts` the kernel's table of mounts; `watchdog`, `signals`
//! and `log` do as they are named, and `helper` rewrites the command lines of `mount(8)`.
//!
//! Invariants: no mount stays without a server; the server has entered its sandbox before it reads the first byte of
//! the image; only the supervisor mounts and unmounts.
//!
//! Failure: until the mount is usable, a failure undoes all steps, and the front part ends with its reason and status.
//! Later failures are logged. Caller: `args`.

pub(crate) mod attendant;
pub(crate) mod channel;
mod client_socket;
mod ending_server;
pub(crate) mod helper;
mod holders;
#[cfg(feature = "lock-statistics")]
mod locks;
mod log;
pub(crate) mod sandbox;
mod second_mount;
mod server;
mod settings;
pub(crate) mod signals;
mod supervisor;
mod umount;
mod watchdog;
mod write_back;

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use spinney::blockdev::Locator;

use super::failure::Failure;
use super::format;
use super::image;
use super::output::{self, Output};
pub(crate) use settings::Settings;
pub(crate) use umount::Umount;

/// The role of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Supervisor,
    Server,
}

/// Mount an image, so that all programs can use it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help())]
pub(crate) struct Mount {
    /// Image file or unmounted block device; IMAGE?offset=N for a file system that starts at byte N;
    /// nbd://HOST/EXPORT for a disk elsewhere
    image: PathBuf,
    /// Directory to mount it on
    dir: PathBuf,
    /// Options, separated by commas; --help lists them
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground and log to the standard error; SIGINT and SIGTERM unmount
    #[arg(long)]
    foreground: bool,
    /// Log more; twice for every request. RUST_LOG selects levels in more detail
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Log to FILE, instead of the standard error or the system's log
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Do not restrict the server, to debug it
    #[arg(long)]
    no_sandbox: bool,
    /// Check the command line only, as mount(8) -f
    #[arg(long, hide = true)]
    fake: bool,
    /// Ignore unknown options, as mount(8) -s
    #[arg(long, hide = true)]
    sloppy: bool,
    /// Internal use
    #[arg(long, hide = true)]
    role: Option<Role>,
    /// Try to escape from the sandbox, on every thread; IMAGE is at risk
    #[arg(long, hide = true)]
    sandbox_self_test: bool,
}

const EXAMPLES: &str = "\
Examples:
  spinney mount site.img /mnt/site
  spinney mount -o ro,subvol=/before site.img /mnt/before
  spinney umount /mnt/site";

/// Options of builds that measure locks.
const LOCKS_HELP: &str = if cfg!(feature = "lock-statistics") {
    "  lock_statistics=FILE  write counts and times of lock acquisitions, waits and hand-overs to FILE at the end: a
                      table, or JSON if FILE ends in .json
  lock_class=A:B      measure only locks of these classes
"
} else {
    ""
};

/// The end of the `--help` text.
pub(crate) fn long_help() -> String {
    let own: Vec<&str> = spinney::formats().iter().map(|format| format.options_help()).collect();
    let own = own.join("\n");
    format!(
        "\
Returns when the mount is usable; a server stays in the background until it is unmounted. Root
is not needed if fusermount3 is installed. Only the user who made a mount may use it, unless
allow_other is given.

Options for -o:
  ro, rw              mount read-only; the default is to read and write. A mount made with ro stays so:
                      remount,rw works only if it was writable before, otherwise unmount and mount again
  allow_other         let other users access the mount; permissions still apply
  noatime, relatime, strictatime
                      update the access time on reads: never; if it is older than the last
                      change or a day (the default); always
  commit=SECONDS      interval of the periodic commit; default 30
  dirty=SIZE          most dirty file data in memory, for instance 64M
  cache=SIZE          metadata kept in memory (96M)
  writeback           let the kernel collect small writes: many times faster for programs that
                      write a few bytes at a time, somewhat slower for streams
  zero_open           open files without asking the server: faster for trees of small files
  io_uring            receive requests over a ring, if the kernel has it and its administrator enabled
                      it: faster for removing files, for repeated reads and for syncs by several
                      processes; slower for new files and for reads from the image
  near, nonear        while requests follow each other closely, one thread answers them on the processor
                      of the program that makes them, as long as no other program wants that (the
                      default): faster for programs that make one call after the other
  idmap               allow idmapped mounts of it (from Linux 6.12 on). The kernel then tells the server the
                      calling user only when a file is created: when a write clears a set-group bit,
                      members of the file's group are treated as other users
  synced, nosynced    root's mounts show up as fuseblk on a loop device, so that sync(2) reaches
                      the image and umount(8) waits for it; with nosynced like mounts of other users
  watchdog=SECONDS    abort the mount if the server does not answer for SECONDS: pending requests fail and
                      the mount disappears; without this option the silence is only logged
  workers=N           threads that answer requests; twice as many as processors, at most 8 more
  device=DEVICE       a further device of a volume on several devices (IMAGE,DEVICE says the same)
  trace=FILE          record each request to the device in FILE; `spinney trace plot` draws it
{LOCKS_HELP}{own}
  nosuid, nodev, noexec, sync, dirsync, nodiratime, nosymfollow and their opposites
                      as in mount(8)
  defaults, auto, noauto, user, users, nofail, _netdev, lazytime, iversion, x-...
                      accepted, for fstab
Of contradicting options the last one counts. An unknown name is refused.

In fstab, with a link /sbin/mount.fuse.spinney to this program:
  /srv/site.img  /mnt/site  fuse.spinney  allow_other,nofail  0  0

A second mount:
  Root can mount an image that root has mounted at a further directory, or a subvolume of it
  (subvol=PATH): both show the same files. ro and rw, nosuid, nodev, noexec and nodiratime belong to each
  mount; any other option must be the same. The image is free when the last one is unmounted.

Sandbox:
  The server opens the image, then gives up all capabilities and, where the kernel has Landlock
  and seccomp, the right to open any file or socket or to run a program, and only then reads.

Log:
  Warnings and errors go to the standard error in the foreground, to the system's log (/dev/log)
  in the background, or to the file of --log. A machine without /dev/log has /run/spinney.log (root)
  or $XDG_RUNTIME_DIR/spinney.log. The reason why a server ended is always logged.

A server that hangs or was stopped:
  Programs that use the mount wait. With root's mounts (fuseblk) others may wait too: sync(2), ps if
  programs of the mount run, umount(8). This is logged after half a minute. To end it, use one of
    umount -f DIR
    echo 1 > /sys/fs/fuse/connections/N/abort    N is the minor number of the device that stat shows
                                                 (mount -t fusectl none /sys/fs/fuse/connections first)
    kill -9 PID                                  of the process spinney-server
  Synced data is in the image; later data is lost.

Signals:
  SIGTERM, SIGINT and SIGHUP unmount. Written data is made durable first; programs that still
  have files open are cut off. If the server is killed, the mount disappears.

{EXAMPLES}
  spinney mount --foreground -v -o writeback,dirty=128M site.img ~/site"
    )
}

/// Time in milliseconds for which the server's allocator keeps freed memory: each commit needs the memory of the one
/// before. With mimalloc's default of 10 ms, memory was returned and zeroed again each time, 33,000 pages a second on a
/// busy volume, and single commits waited tens of milliseconds for it; with 10 s this happened once in ten seconds.
const KEEPS_MEMORY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "3600000");

impl Mount {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        // A caller that waits for the end of a pipe must not wait for the end of the mount.
        let withheld = spinney::fuse::withhold_inherited(&self.named_descriptors()).context("inherited descriptors")?;
        if withheld > 0 && self.foreground {
            // Closed by `exec`: the process starts the same program anew.
            let mut words = std::env::args_os();
            let name = words.next().unwrap_or_default();
            let error = Command::new("/proc/self/exe").arg0(name).args(words).exec();
            return Err(error).context("this program, once more");
        }
        if self.sandbox_self_test {
            return self.try_the_sandbox(out);
        }
        match self.role {
            Some(Role::Server) => server::run(self),
            Some(Role::Supervisor) => supervisor::run(self, self.settings()?),
            None => self.front_part(),
        }
    }

    fn front_part(&self) -> Result<()> {
        let settings = self.settings()?;
        format::check_options(&settings.request)?;
        let mut options = self.options.clone();
        if let Some(path) = &settings.trace {
            // Of several the last one counts.
            options.push(format!("trace={}", std::path::absolute(path)?.display()));
        }
        if let Some(path) = &settings.lock_statistics {
            options.push(format!("lock_statistics={}", std::path::absolute(path)?.display()));
        }
        let whole = Self {
            image: absolute_image(&self.image, &settings.devices)?,
            dir: self.mount_point()?,
            log: self.log.as_deref().map(std::path::absolute).transpose()?,
            options,
            ..*self
        };
        if self.fake {
            return Ok(());
        }
        if second_mount::mount(&whole, &settings)? {
            return Ok(());
        }
        if self.foreground { supervisor::run(&whole, settings) } else { supervisor::start_in_background(&whole) }
    }

    /// Descriptors that the command line names, as a shell writes `/dev/fd/N`.
    fn named_descriptors(&self) -> Vec<RawFd> {
        let devices = Locator::parse_list(&self.image).unwrap_or_default();
        let paths = [Some(self.dir.as_path()), self.log.as_deref()].into_iter().flatten();
        devices.iter().filter_map(Locator::path).chain(paths).filter_map(descriptor).collect()
    }

    fn mount_point(&self) -> Result<PathBuf> {
        let shown = || self.dir.display().to_string();
        let dir = self.dir.canonicalize().with_context(shown)?;
        if !dir.is_dir() {
            return Err(Failure::refused(format!("{}: not a directory", shown())).into());
        }
        Ok(dir)
    }

    fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::parse(&self.options)?;
        let devices = Locator::parse_list(&self.image).unwrap_or_default();
        // As mount(8) does with a disk that refuses writes.
        settings.request.read_only |= devices.iter().any(is_read_only);
        if self.sloppy {
            let known = |name: &str| {
                let known = format::is_option(name);
                if !known {
                    output::warn(&format!("unknown option `{name}` is ignored"));
                }
                known
            };
            settings.request.own.retain(|(name, _)| known(name));
        }
        Ok(settings)
    }

    /// The command that starts another process of this mount. Its paths must be absolute.
    fn as_role(&self, role: Role) -> Command {
        // This link leads to the running program, even if its file was replaced.
        let mut command = Command::new("/proc/self/exe");
        let name = match role {
            Role::Supervisor => "supervisor",
            Role::Server => "server",
        };
        command.arg0("spinney").args(["mount", "--role", name]);
        let (delay, millis) = KEEPS_MEMORY;
        if role == Role::Server && std::env::var_os(delay).is_none() {
            command.env(delay, millis);
        }
        for options in &self.options {
            command.arg("-o").arg(options);
        }
        if let Some(log) = &self.log {
            command.arg("--log").arg(log);
        }
        let flags = [(self.foreground, "--foreground"), (self.no_sandbox, "--no-sandbox"), (self.sloppy, "--sloppy")];
        command.args(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag));
        command.args((0..self.verbose).map(|_| "-v"));
        command.arg("--").arg(&self.image).arg(&self.dir);
        command
    }

    fn try_the_sandbox(&self, out: &mut Output) -> Result<()> {
        use std::io::Write as _;
        let settings = self.settings()?;
        let devices = server::open_devices(self, &settings)?;
        let parent = rustix::process::getppid();
        let _prepared = spinney::fuse::Prepared::new(&server::server_options(&settings));
        for missing in sandbox::enter(settings.io_uring || server::use_rings(&devices), &self.dir)?.missing {
            writeln!(out, "missing: {missing}")?;
        }
        let file_system = server::open_file_system(self, &settings, devices)?.file_system;
        sandbox::probe::run(&self.image, parent, out)?;
        // Checks that the file system works inside the sandbox.
        file_system.sync_fs().context("the file system in the sandbox")
    }
}

/// True for a device that can only be read.
fn is_read_only(device: &Locator) -> bool {
    device.scheme().is_some_and(|scheme| spinney::web::SCHEMES.contains(&scheme))
}

/// Number of the descriptor that a path refers to.
fn descriptor(path: &Path) -> Option<RawFd> {
    let mut rest = ["/dev/fd", "/proc/self/fd"].iter().filter_map(|dir| path.strip_prefix(dir).ok());
    let first = rest.next()?.iter().next()?;
    first.to_str()?.parse().ok()
}

/// The list of all devices, by their paths from the root, each with its `?offset=N`.
fn absolute_image(list: &Path, further: &[PathBuf]) -> Result<PathBuf> {
    let devices = image::locators(list, further)?.into_iter().map(absolute).collect::<Result<Vec<_>>>()?;
    Ok(devices.join(OsStr::new(",")).into())
}

fn absolute(part: Locator) -> Result<OsString> {
    let Some(path) = part.path() else { return Ok(part.words()) };
    // Links are resolved now, so that `umount` need not follow any.
    let real = match descriptor(path) {
        Some(_) => std::path::absolute(path)?,
        None => path.canonicalize().with_context(|| path.display().to_string())?,
    };
    Ok(part.at_path(real).words())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_the_options_about_locks_where_they_are_built_in() {
        let help = long_help();
        for option in ["\n  lock_statistics=FILE  ", "\n  lock_class=A:B      "] {
            assert_eq!(help.contains(option), cfg!(feature = "lock-statistics"), "{help}");
        }
        assert!(help.contains("draws it\n") && !help.contains("\n\n  lock"), "{help}");
    }
}
