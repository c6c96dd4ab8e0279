//! Works with a kernel's source tree, through the mount and on tmpfs: the results must be the same. Called by
//! `cargo trials mount-tree`.
//!
//! The steps are those of a developer: copy the tree in, configure and build a part, make a git repository of it and
//! check that, remove half. They run first on tmpfs and then on the mount, under the same path, so that built files
//! have the same bytes. Afterwards the image is unmounted and checked, and the kernel's walk of it is compared with a
//! walk of the tmpfs: names, types, modes, owners, link counts, sizes, targets, xattrs, contents, and times of copied
//! files.

use super::fresh_mount::{Served, run};
use crate::diff_walk::kernel;
use crate::diff_walk::record::{Record, Walk};
use crate::system::{self, Mount};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The working directory, below a mount point that is first tmpfs, then ours.
const WORK: &str = "linux";
/// Most differences that are printed.
const SHOWN: usize = 20;
/// Bytes of the tmpfs.
const TMPFS_SIZE: &str = "6g";

/// Type bits of a mode, and their value for a directory.
const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials mount-tree --source /dev/shm/linux-6.1 --make lib/")]
pub(crate) struct Options {
    /// The source tree of a kernel.
    #[arg(long)]
    source: PathBuf,
    /// Targets of make
    #[arg(long, default_value = "lib/")]
    make: String,
    /// Directory for image and mounts
    #[arg(long, default_value = "/dev/shm/spinney-tree")]
    dir: PathBuf,
    /// Bytes of the image.
    #[arg(long, default_value_t = 6 << 30)]
    size: u64,
    /// Options of the mount.
    #[arg(long, short = 'o', default_value = "suid,dev")]
    options: String,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// A step: its name, and the command for the shell.
fn steps(source: &Path, make: &str) -> Vec<(&'static str, String)> {
    let source = source.display();
    let git = "git -c user.name=s -c user.email=s@s -c gc.auto=0 -c core.fsync=none";
    vec![
        ("cp -a", format!("cp -a '{source}' {WORK}")),
        ("make defconfig", format!("make -s -C {WORK} defconfig")),
        ("make", format!("make -s -C {WORK} -j2 prepare {make}")),
        ("make clean", format!("make -s -C {WORK} -j2 mrproper || rm -f {WORK}/.config")),
        ("git init", format!("cd {WORK} && {git} init -q . && {git} add -A -f && {git} commit -q -m x")),
        ("git fsck", format!("cd {WORK} && {git} fsck --full --strict --no-progress && {git} status -s")),
        (
            "rm -rf of half",
            format!("cd {WORK} && ls -A | grep -v '^.git$' | sort | sed -n 'n;p' | xargs -d '\\n' rm -rf"),
        ),
    ]
}

/// Runs all steps; fails with the first differences.
pub(crate) fn execute(options: &Options) -> Result<()> {
    let source = options.source.canonicalize().context("the source tree")?;
    let dir = options.dir.join("mnt");
    std::fs::create_dir_all(&dir)?;
    let tmpfs = Tmpfs::new(&dir)?;
    work(&dir, &source, &options.make, "tmpfs")?;
    let aside = options.dir.join("tmpfs");
    let tmpfs = tmpfs.move_to(&aside)?;

    let image = options.dir.join("tree.img");
    let served = Served::fresh(&options.program, &image, &dir, options.size, &options.options)?;
    work(served.dir(), &source, &options.make, "mount")?;
    println!("server: {} MiB at most", served.peak_mib().unwrap_or_default());
    let image = served.image().to_owned();
    served.unmount_and_check()?;
    println!("btrfs check --check-data-csum: clean");

    let expected = comparable(kernel::walk(&aside.join(WORK))?);
    let mount = Mount::new(&image, "ro")?;
    let found = comparable(kernel::walk(&mount.path().join(WORK))?);
    mount.unmount()?;
    drop(tmpfs);
    let differences = differences(&expected, &found);
    for difference in differences.iter().take(SHOWN) {
        println!("  {difference}");
    }
    if !differences.is_empty() {
        bail!("{} differences between tmpfs and the mount", differences.len());
    }
    println!("mount-tree: {} names, the kernel's walk is that of tmpfs", found.len());
    std::fs::remove_file(&image)?;
    Ok(())
}

fn work(dir: &Path, source: &Path, make: &str, place: &str) -> Result<()> {
    for (name, line) in steps(source, make) {
        let start = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-e", "-c", &line]).current_dir(dir);
        // These would differ from one run to the next.
        command.env("KBUILD_BUILD_TIMESTAMP", "2020-01-01");
        command.env("GIT_AUTHOR_DATE", "2020-01-01T00:00:00Z");
        command.env("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z");
        run(&mut command).with_context(|| format!("{name} on {place}"))?;
        println!("{place}: {name}: {:.1} s", start.elapsed().as_secs_f32());
    }
    Ok(())
}

/// The properties that must be equal. File systems differ in sizes and link counts of directories and in inode numbers;
/// times of new files differ from run to run; git's index holds both.
fn comparable(walk: Walk) -> Walk {
    let keep = |(path, record): (Vec<u8>, Record)| {
        let is_dir = record.mode & TYPE_MASK == DIRECTORY;
        let is_index = path.ends_with(b".git/index");
        let kept = Record {
            mode: record.mode,
            uid: record.uid,
            gid: record.gid,
            rdev: record.rdev,
            links: if is_dir { 0 } else { record.links },
            size: if is_dir { 0 } else { record.size },
            target: record.target,
            xattrs: record.xattrs,
            sha256: record.sha256.filter(|_| !is_index),
            // Copied files have times from before anything was made here.
            mtime: if is_copied(&path, is_dir) { record.mtime } else { (0, 0) },
            ..Record::default()
        };
        (path, kept)
    };
    walk.into_iter().map(keep).collect()
}

/// True for files of the source tree itself, not for built ones, which are removed except for git's.
fn is_copied(path: &[u8], is_dir: bool) -> bool {
    !is_dir && !path.starts_with(b".git/") && !path.is_empty()
}

fn differences(expected: &Walk, found: &Walk) -> Vec<String> {
    let mut all = Vec::new();
    for (path, wanted) in expected {
        match found.get(path) {
            Some(record) if record == wanted => {}
            Some(record) => {
                all.push(format!("/{}: {wanted:?}, found {record:?}", path.escape_ascii()));
            }
            None => all.push(format!("/{}: missing", path.escape_ascii())),
        }
    }
    let extra = found.keys().filter(|path| !expected.contains_key(*path));
    all.extend(extra.map(|path| format!("/{}: not expected", path.escape_ascii())));
    all
}

/// A tmpfs, unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(dir: &Path) -> Result<Self> {
        let dir_text = dir.to_string_lossy();
        let size = format!("size={TMPFS_SIZE}");
        system::run("mount", &["-t", "tmpfs", "-o", &size, "spinney-tree", &dir_text])?;
        // Moving needs a mount whose parent is not shared.
        Ok(Self(dir.to_owned()))
    }

    /// Moves it to another mount point.
    fn move_to(mut self, dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (from, to) = (self.0.to_string_lossy().into_owned(), dir.to_string_lossy());
        system::run("mount", &["--bind", &from, &to])?;
        system::run("umount", &[&from])?;
        self.0 = dir.to_owned();
        Ok(self)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg("-l").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}
