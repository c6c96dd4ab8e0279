//! Runs tests on one system: images, namespaces, and a clock for each test. Called by `xfstests`.

use super::outcome::{self, Outcome, Outcomes};
use crate::mount::fresh_mount::run;
use crate::system;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const NAMESPACE: &str = include_str!("namespace.sh");
const HELPER: &str = include_str!("mount_helper.sh");
const STAND_IN: &str = include_str!("stand_in.sh");
/// Polling interval of the clock.
const TICK: Duration = Duration::from_millis(500);
/// Longest time before the first test and after the last one.
const AROUND_MAX: Duration = Duration::from_secs(120);

/// The system that serves the tests' directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum System {
    /// A mount by the built program.
    Spinney,
    /// libfuse's example passthrough_ll over the kernel's btrfs.
    Passthrough,
    /// The kernel's btrfs on loop devices.
    Btrfs,
}

impl System {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Spinney => "spinney",
            Self::Passthrough => "passthrough",
            Self::Btrfs => "btrfs",
        }
    }
}

/// Settings common to all runs.
#[derive(Debug)]
pub(super) struct Setting<'a> {
    pub(super) suite: &'a Path,
    /// An empty directory.
    pub(super) work: &'a Path,
    pub(super) program: &'a Path,
    pub(super) passthrough: Option<&'a Path>,
    /// Options of Spinney's mounts.
    pub(super) options: &'a str,
    pub(super) image_bytes: u64,
    /// Time limit of one test.
    pub(super) limit: Duration,
    /// Directory for the files of failed tests.
    pub(super) results: Option<&'a Path>,
}

impl Setting<'_> {
    /// Runs the tests. If one hangs, its namespaces are killed, and a new batch continues with the next.
    pub(super) fn outcomes(&self, system: System, tests: &[String]) -> Result<Outcomes> {
        let mut all = Outcomes::new();
        let mut rest = tests.to_vec();
        while !rest.is_empty() {
            let ended = self.batch(system, &rest)?;
            let count = all.len();
            all.extend(ended.outcomes);
            rest.retain(|test| !all.contains_key(test));
            if all.len() == count && !rest.is_empty() {
                bail!("{}: no test ran: {}", system.name(), ended.said.trim());
            }
        }
        Ok(all)
    }

    /// Runs tests until all have ended or one hangs.
    fn batch(&self, system: System, tests: &[String]) -> Result<Ended> {
        let images = Images::make(self, system)?;
        let child = self.start(system, &images, tests)?;
        let ended = watch(child, self.limit);
        self.keep_results(system);
        drop(images);
        ended
    }

    fn start(&self, system: System, images: &Images, tests: &[String]) -> Result<Child> {
        let script = self.work.join("namespace.sh");
        std::fs::write(&script, NAMESPACE)?;
        std::fs::write(self.work.join("local.config"), self.config(system, images))?;
        self.write_helpers(system)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["--propagation", "private", "bash"]);
        command.arg(&script).arg(self.work).arg(self.suite);
        command.arg(system.name()).args(tests);
        let messages = File::create(self.work.join("messages"))?;
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(messages).spawn().context("unshare")
    }

    /// A copy of a program in the directory of the run. The tests' namespace has a `/tmp` of its own, and the program
    /// may be below the real one.
    fn copied(&self, program: &Path) -> Result<PathBuf> {
        let name = program.file_name().context("a program has a name")?;
        let copy = self.work.join(name);
        std::fs::copy(program, &copy).with_context(|| program.display().to_string())?;
        Ok(copy)
    }

    fn write_helpers(&self, system: System) -> Result<()> {
        let helper = self.work.join("helper");
        match system {
            System::Spinney => {
                let program = self.copied(self.program)?;
                let work = self.work.to_string_lossy();
                let text = HELPER.replace("@PROGRAM@", &program.to_string_lossy());
                std::fs::write(helper, text.replace("@WORK@", &work))?;
                std::fs::write(self.work.join("stand_in"), STAND_IN)?;
            }
            System::Passthrough => {
                let program = self.copied(self.passthrough.context("no passthrough_ll")?)?;
                let program = program.display();
                let text = format!("#!/bin/bash\nulimit -n 1048576\nexec '{program}' -ofsname=\"$@\"\n");
                std::fs::write(helper, text)?;
            }
            System::Btrfs => {}
        }
        Ok(())
    }

    /// The configuration file of the suite.
    fn config(&self, system: System, images: &Images) -> String {
        let work = self.work.display();
        let (kind, test, scratch) = match system {
            System::Spinney => {
                let options = format!("-o{}", self.options);
                ("fuse", options.clone(), options)
            }
            System::Passthrough => {
                let options = |name| format!("-osource={work}/backing/{name},allow_other,default_permissions,xattr");
                ("fuse", options("test"), options("scratch"))
            }
            System::Btrfs => ("btrfs", String::new(), String::new()),
        };
        format!(
            "export FSTYP={kind} FUSE_SUBTYP={subtype}\n\
            export TEST_DEV='{}' TEST_DIR='{work}/test'\n\
            export SCRATCH_DEV='{}' SCRATCH_MNT='{work}/scratch'\n\
            export TEST_FS_MOUNT_OPTS='{test}' MOUNT_OPTIONS='{scratch}'\n",
            images.test,
            images.scratch,
            subtype = match system {
                System::Btrfs => String::new(),
                other => format!(".{}", other.name()),
            },
        )
    }

    /// Keeps the files of the tests, which help to explain failures; errors here are ignored.
    fn keep_results(&self, system: System) {
        let Some(folder) = self.results else {
            return;
        };
        let folder = folder.join(system.name());
        let from = self.work.join("results").join(".");
        let kept = std::fs::create_dir_all(&folder)
            .map_err(anyhow::Error::from)
            .and_then(|()| run(Command::new("cp").arg("-r").arg(from).arg(&folder)));
        if let Err(error) = kept {
            eprintln!("{error:#}");
        }
    }
}

/// Images of one batch, with their names in the suite. Dropping them removes them.
#[derive(Debug)]
struct Images {
    work: PathBuf,
    test: String,
    scratch: String,
}

impl Images {
    fn make(setting: &Setting<'_>, system: System) -> Result<Self> {
        let work = setting.work.to_owned();
        clear(&work)?;
        let mut images = Self {
            work: work.clone(),
            // passthrough_ll mounts folders; these are only names
            test: "passthrough-test".to_owned(),
            scratch: "passthrough-scratch".to_owned(),
        };
        let bytes = setting.image_bytes;
        match system {
            System::Spinney => {
                images.test = served(setting.program, &work.join("test.img"), bytes)?;
                images.scratch = served(setting.program, &work.join("scratch.img"), bytes)?;
            }
            System::Btrfs => {
                images.test = on_loop(&work.join("test.img"), bytes)?;
                images.scratch = on_loop(&work.join("scratch.img"), bytes)?;
            }
            System::Passthrough => {
                let device = on_loop(&work.join("backing.img"), bytes)?;
                std::fs::write(work.join("backing.device"), device)?;
            }
        }
        Ok(images)
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.work) {
            eprintln!("{}: {error:#}", self.work.display());
        }
    }
}

fn served(program: &Path, image: &Path, bytes: u64) -> Result<String> {
    let size = bytes.to_string();
    run(Command::new(program).args(["mkfs", "-q", "--size", &size]).arg(image))?;
    Ok(image.to_string_lossy().into_owned())
}

fn on_loop(image: &Path, bytes: u64) -> Result<String> {
    File::create_new(image)?.set_len(bytes)?;
    let device = system::attach(image, false)?;
    system::run(&system::mkfs_program(), &["-q", "-f", &device])?;
    Ok(device)
}

/// Detaches the loop devices of files in `work` (tests make some, too), and empties it.
fn clear(work: &Path) -> Result<()> {
    let list = ["--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE"];
    for line in system::run("losetup", &list)?.lines() {
        if let Some((device, file)) = line.split_once(' ')
            && Path::new(file).starts_with(work)
        {
            system::run("losetup", &["--detach", device])?;
        }
    }
    if work.exists() {
        std::fs::remove_dir_all(work)?;
    }
    std::fs::create_dir_all(work)?;
    Ok(())
}

/// How a batch ended.
struct Ended {
    outcomes: Outcomes,
    said: String,
}

/// Follows `check` until it ends, or a test runs past `limit`.
fn watch(mut child: Child, limit: Duration) -> Result<Ended> {
    let mut clock = Clock::new(limit);
    let output = child.stdout.take().context("its output")?;
    let pieces = follow(output);
    let mut said = Vec::new();
    let mut is_hung = false;
    loop {
        match pieces.recv_timeout(TICK) {
            Ok(piece) => said.extend(piece),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let so_far = String::from_utf8_lossy(&said);
        if clock.is_over(outcome::running(&so_far), Instant::now()) {
            is_hung = true;
            break;
        }
    }
    give_up(&mut child)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let mut report = outcome::parse(&said)?;
    if let Some(test) = report.running {
        let outcome = if is_hung { Outcome::Hung } else { Outcome::Failed("`check` ended in this test".to_owned()) };
        report.outcomes.insert(test, outcome);
    }
    let outcomes = report.outcomes;
    Ok(Ended { outcomes, said })
}

/// Receives the output of a process as it comes.
fn follow(mut output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut buffer) {
            let piece = buffer.get(..count).unwrap_or_default().to_vec();
            if sender.send(piece).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Measures the time of the running test.
struct Clock {
    limit: Duration,
    running: Option<String>,
    since: Instant,
}

impl Clock {
    fn new(limit: Duration) -> Self {
        Self { limit, running: None, since: Instant::now() }
    }

    /// True if the running test has exceeded its limit.
    fn is_over(&mut self, running: Option<&str>, now: Instant) -> bool {
        if self.running.as_deref() != running {
            self.running = running.map(str::to_owned);
            self.since = now;
        }
        let limit = match running {
            Some(_) => self.limit,
            None => self.limit.max(AROUND_MAX),
        };
        now.saturating_duration_since(self.since) > limit
    }
}

/// Kills the namespaces with all processes. Requests to a server that does not answer are aborted first: a process that
/// waits for one cannot be killed.
fn give_up(child: &mut Child) -> Result<()> {
    if child.try_wait()?.is_some() {
        return Ok(());
    }
    let outer = child.id();
    let inner = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"))?;
    for first in inner.split_whitespace() {
        let table = std::fs::read_to_string(format!("/proc/{first}/mountinfo")).unwrap_or_default();
        for number in connections(&table) {
            let abort = format!("/proc/{first}/root/sys/fs/fuse/connections/{number}/abort");
            let _ = std::fs::write(abort, "1");
        }
        if let Some(first) = first.parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(first, Signal::KILL);
        }
    }
    child.wait()?;
    Ok(())
}

/// Numbers of the FUSE mounts of a mountinfo in /sys/fs/fuse/connections.
fn connections(mountinfo: &str) -> Vec<u64> {
    let numbers = mountinfo.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if !kind.starts_with("fuse") || kind.starts_with("fusectl") {
            return None;
        }
        let (major, minor) = mount.split_whitespace().nth(2)?.split_once(':')?;
        let major: u64 = major.parse().ok()?;
        // The kernel's own form of a device number has a minor number of 20 bits.
        Some((major << 20) | minor.parse::<u64>().ok()?)
    });
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_the_number_of_its_device() {
        let table = "47 30 7:3 / /x/test rw - fuseblk.spinney /dev/loop3 rw\n\
            48 30 0:44 / /x/scratch rw - fuse.spinney /x/scratch.img rw\n\
            49 30 0:21 / /sys/fs/fuse/connections rw - fusectl none rw\n\
            50 30 0:22 / /dev/shm rw - tmpfs tmpfs rw\n";
        assert_eq!(connections(table), [(7 << 20) | 3, 44]);
    }

    #[test]
    fn each_test_has_a_time_of_its_own() {
        let limit = Duration::from_secs(300);
        let mut clock = Clock::new(limit);
        let start = Instant::now();
        let after = |seconds| start.checked_add(Duration::from_secs(seconds)).unwrap();
        assert!(!clock.is_over(Some("generic/001"), start));
        assert!(!clock.is_over(Some("generic/001"), after(299)));
        assert!(!clock.is_over(Some("generic/002"), after(301)));
        assert!(!clock.is_over(Some("generic/002"), after(600)));
        assert!(clock.is_over(Some("generic/002"), after(602)));
        assert!(!clock.is_over(None, after(603)));
        assert!(clock.is_over(None, after(904)));
    }

    fn planted(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn a_test_that_hangs_is_given_up() {
        let child = planted("echo 'generic/001   1s'; printf 'generic/002   '; sleep 1000 & wait");
        let ended = watch(child, Duration::from_secs(1)).unwrap();
        assert_eq!(ended.outcomes["generic/001"], Outcome::Passed);
        assert_eq!(ended.outcomes["generic/002"], Outcome::Hung);
    }

    #[test]
    fn a_test_in_which_the_suite_ends_has_failed() {
        let child = planted("echo 'generic/001   1s'; printf 'generic/002   '");
        let ended = watch(child, Duration::from_secs(60)).unwrap();
        assert!(matches!(ended.outcomes["generic/002"], Outcome::Failed(_)));
    }

    #[test]
    fn a_summary_that_contradicts_is_an_error() {
        let script = "echo 'generic/001   1s'; echo 'Ran: generic/001'; echo 'Failures: generic/001'";
        assert!(watch(planted(script), Duration::from_secs(60)).is_err());
    }
}
