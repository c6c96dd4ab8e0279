//! Makes and mounts the two volumes of the attempts, ours and the kernel's, and runs the scripts there. Called by
//! `attack`.

use super::super::checks::Mode;
use super::super::fresh_mount::Served;
use super::Options;
use super::outcome::{self, Difference, Outcome, State};
use crate::system::{self, Mount};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Bytes of an image.
const IMAGE_BYTES: u64 = 2 << 30;
/// Time limit of the attempts in seconds, after which the mount is aborted; they take some ten seconds.
const SECONDS_MAX: u64 = 300;

/// The scripts, and their names.
const SCRIPTS: [(&str, &str); 7] = [
    ("main.py", include_str!("script/main.py")),
    ("frame.py", include_str!("script/frame.py")),
    ("calls.py", include_str!("script/calls.py")),
    ("contents.py", include_str!("script/contents.py")),
    ("names.py", include_str!("script/names.py")),
    ("attributes.py", include_str!("script/attributes.py")),
    ("places.py", include_str!("script/places.py")),
];

/// Group of attempts; the second needs options on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// With the usual options.
    Always,
    /// Users may make and delete subvolumes.
    Subvolumes,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Subvolumes => "subvolumes",
        }
    }
}

/// A deliberate weakness.
#[derive(Debug)]
pub(super) struct Weakness {
    pub(super) name: &'static str,
    /// Further options of our mount, and of the kernel's.
    ours: &'static str,
    kernels: &'static str,
    /// The attempts that should find it.
    only: &'static [&'static str],
}

pub(super) const WEAKNESSES: &[Weakness] = &[
    Weakness {
        name: "users delete subvolumes without having been allowed to",
        ours: ",user_subvol_ioctls",
        kernels: "",
        only: &["control-operations"],
    },
    Weakness {
        name: "set-user programs run as their owner, on the other side they do not",
        ours: "",
        kernels: ",nosuid",
        only: &["set-user-program"],
    },
    Weakness {
        name: "programs lose their set-user bits",
        ours: ",nosuid",
        kernels: "",
        only: &["set-user-program", "capability-program"],
    },
];

/// The attempts, and the volumes.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    options: &'a Options,
    phase: Phase,
    our_options: String,
    kernel_options: String,
    words: Vec<String>,
}

/// Outcomes of the attempts on our side.
#[derive(Debug)]
pub(super) struct Ours {
    pub(super) outcomes: Vec<Outcome>,
    /// Differences between the kernel's view of the image and that of the mount.
    pub(super) on_disk: Vec<OnDisk>,
}

/// A difference between the image and the mount.
#[derive(Debug)]
pub(super) struct OnDisk {
    pub(super) attempt: String,
    pub(super) folder: String,
    pub(super) difference: Difference,
}

impl<'a> Plan<'a> {
    pub(super) fn new(options: &'a Options, mode: Mode, phase: Phase) -> Self {
        let mut our_options = mode.options();
        let mut kernel_options = "noatime".to_owned();
        our_options.push_str(",noatime");
        if mode == Mode::Nodatacow {
            kernel_options.push_str(",nodatacow");
        }
        let mut words = options.only.clone();
        if mode == Mode::Writeback {
            // The kernel takes such a write before the server can refuse it, and unmounting reports the loss.
            words.push("--without=append-only-file-by-older-handle".to_owned());
        }
        if phase == Phase::Subvolumes {
            our_options.push_str(",user_subvol_ioctls");
            kernel_options.push_str(",user_subvol_rm_allowed");
        }
        if options.ci {
            words.push("--short".to_owned());
        }
        Self { options, phase, our_options, kernel_options, words }
    }

    pub(super) fn weakened(options: &'a Options, weakness: &Weakness) -> Self {
        let mut plan = Self::new(options, Mode::Default, Phase::Always);
        plan.our_options.push_str(weakness.ours);
        plan.kernel_options.push_str(weakness.kernels);
        plan.words = weakness.only.iter().map(|word| (*word).to_owned()).collect();
        plan
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// The outcomes on the kernel's volume and on ours.
    pub(super) fn run(&self) -> Result<(Vec<Outcome>, Ours)> {
        let scripts = self.options.dir.join("script");
        std::fs::create_dir_all(&scripts)?;
        for (name, text) in SCRIPTS {
            std::fs::write(scripts.join(name), text)?;
        }
        let kernel = self.on_kernel(&scripts).context("on the kernel's btrfs")?;
        let ours = self.on_ours(&scripts).context("on a mount of ours")?;
        Ok((kernel, ours))
    }

    fn on_kernel(&self, scripts: &Path) -> Result<Vec<Outcome>> {
        let image = self.options.dir.join("kernel.img");
        system::make_image(&image, IMAGE_BYTES, &[])?;
        let mount = Mount::new(&image, &self.kernel_options)?;
        let outcomes = self.attempts(scripts, mount.path(), "kernel")?;
        mount.unmount()?;
        std::fs::remove_file(image)?;
        Ok(outcomes)
    }

    fn on_ours(&self, scripts: &Path) -> Result<Ours> {
        let image = self.options.dir.join("ours.img");
        let dir = self.options.dir.join("mnt");
        let program = &self.options.program;
        let served = Served::fresh(program, &image, &dir, IMAGE_BYTES, &self.our_options)?;
        std::fs::set_permissions(served.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let outcomes = match self.attempts(scripts, served.dir(), "spinney") {
            Ok(outcomes) => outcomes,
            Err(error) => {
                let aborted = abort(served.dir());
                return Err(error.context(format!("the mount was aborted: {aborted:?}")));
            }
        };
        served.unmount_and_check()?;
        // Our own image, just checked; the kernel shows its real contents.
        let mount = Mount::new(&image, "noatime")?;
        let on_disk = look(scripts, mount.path(), &outcomes)?;
        mount.unmount()?;
        std::fs::remove_file(image)?;
        Ok(Ours { outcomes, on_disk })
    }

    /// Runs the script on a mount; fails if it takes too long.
    fn attempts(&self, scripts: &Path, dir: &Path, side: &str) -> Result<Vec<Outcome>> {
        let mut command = python(scripts);
        command.arg(dir).args([side, self.phase.name()]).args(&self.words);
        let mut child = command.stdin(Stdio::null()).spawn().context("python3")?;
        let lines = lines_of(&mut child)?;
        let mut outcomes = Vec::new();
        loop {
            match lines.recv_timeout(Duration::from_secs(SECONDS_MAX)) {
                Ok(line) => outcomes.push(Outcome::parse(&line?)?),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    child.kill()?;
                    bail!("an attempt after {} took too long", outcomes.len());
                }
            }
        }
        let status = child.wait()?;
        ensure!(status.success(), "the script: {status}");
        Ok(outcomes)
    }
}

fn python(scripts: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg("-B").arg(scripts.join("main.py")).stdout(Stdio::piped());
    command
}

/// The output of a process by lines, read by a thread so that waiting can be limited.
fn lines_of(child: &mut Child) -> Result<mpsc::Receiver<std::io::Result<String>>> {
    let output = child.stdout.take().context("the script has no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        for line in BufReader::new(output).lines() {
            if sender.send(line).is_err() {
                break;
            }
        }
    })?;
    Ok(receiver)
}

/// Differences between the present files in `dir` and the outcomes of the attempts.
fn look(scripts: &Path, dir: &Path, outcomes: &[Outcome]) -> Result<Vec<OnDisk>> {
    let mut command = python(scripts);
    let mut child = command.arg("--look").arg(dir).stdin(Stdio::piped()).spawn().context("python3")?;
    let mut input = child.stdin.take().context("the script has no input")?;
    let folders: Vec<String> = outcomes.iter().map(|each| format!("{} {}\n", each.folder, each.since)).collect();
    let writer = thread::Builder::new().spawn(move || input.write_all(folders.concat().as_bytes()))?;
    let mut differences = Vec::new();
    for (line, outcome) in lines_of(&mut child)?.iter().zip(outcomes) {
        let mut line: Value = serde_json::from_str(&line?)?;
        let found: State = outcome::state(&mut line, "after")?;
        let differing = outcome::states("now", &found, &outcome.after, None);
        differences.extend(differing.into_iter().map(|difference| OnDisk {
            attempt: outcome.attempt.clone(),
            folder: outcome.folder.clone(),
            difference,
        }));
    }
    ensure!(child.wait()?.success(), "the script could not look at the image");
    writer.join().ok().context("a thread failed")??;
    Ok(differences)
}

/// Aborts the connection of a mount whose server does not answer, without a request to the mount.
fn abort(dir: &Path) -> Result<()> {
    const CONNECTIONS: &str = "/sys/fs/fuse/connections";
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let at = dir.to_string_lossy();
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(&at)).context("it is not mounted")?;
    let (major, minor) = line.split(' ').nth(2).and_then(|word| word.split_once(':')).context("it has no number")?;
    let number = (major.parse::<u32>()? << 20) | minor.parse::<u32>()?;
    let path = PathBuf::from(CONNECTIONS).join(number.to_string()).join("abort");
    if !path.exists() {
        system::run("mount", &["-t", "fusectl", "none", CONNECTIONS])?;
    }
    Ok(std::fs::write(path, "1")?)
}
