//! Has `spinney`, called as `mkfs.btrfs`, do what the tests of btrfs-progs ask of mkfs: a case of our own for each of
//! these tests, by its number, and the reason where one does not apply; and what builders of images ask for. Called by
//! `cargo trials mkfs-cases`.
//!
//! `btrfs check` reads each image, and the kernel mounts it where the case looks at files. Needs root, btrfs-progs and
//! a kernel with btrfs; skipped without the first.

mod callers;
mod cases;
mod contents;
mod layout;

use crate::system::{Mount, btrfs_program, is_root, run as run_program};
use anyhow::{Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cases::CASES;

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only cases with this in their number or name
    #[arg(long)]
    only: Option<String>,
    /// Directory for the images
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The `spinney` program, if not target/release/spinney.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// One test of btrfs-progs.
struct Case {
    /// Its number there, and a name.
    name: &'static str,
    does: Does,
}

/// The treatment of a test.
enum Does {
    Run(fn(&Bench) -> Result<()>),
    /// The reason for which it does not apply.
    Not(&'static str),
}

/// Runs the cases, and prints a table.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    if !is_root() {
        println!("mkfs-cases: skipped, mounting needs root");
        return Ok(ExitCode::SUCCESS);
    }
    let program = options.program.clone().unwrap_or_else(|| root.join("target/release/spinney"));
    let (mut passed, mut failed, mut left) = (0, 0, 0);
    let is_wanted = |case: &&Case| options.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()));
    for case in CASES.iter().filter(is_wanted) {
        let result = match case.does {
            Does::Not(reason) => {
                left += 1;
                println!("{:<40} does not apply: {reason}", case.name);
                continue;
            }
            Does::Run(body) => Bench::new(&options.dir, &program).and_then(|bench| body(&bench)),
        };
        match result {
            Ok(()) => {
                passed += 1;
                println!("{:<40} passed", case.name);
            }
            Err(error) => {
                failed += 1;
                println!("{:<40} FAILED: {error:#}", case.name);
            }
        }
    }
    println!("mkfs-cases: {passed} passed, {failed} failed, {left} do not apply");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A directory for one case, and the program under its other name.
struct Bench {
    folder: tempfile::TempDir,
    mkfs: PathBuf,
}

impl Bench {
    fn new(dir: &Path, program: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("spinney-mkfs-").tempdir_in(dir)?;
        let links = folder.path().join("bin");
        std::fs::create_dir(&links)?;
        run_program(&program.to_string_lossy(), &["install-links", &links.to_string_lossy()])?;
        let mkfs = links.join("mkfs.btrfs");
        ensure!(mkfs.exists(), "install-links makes no mkfs.btrfs");
        Ok(Self { folder, mkfs })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of this size, with holes only.
    fn image(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::File::create(&path)?.set_len(bytes)?;
        Ok(path)
    }

    /// Runs mkfs; returns its success, and what it wrote to both outputs.
    fn try_mkfs(&self, line: &str) -> Result<(bool, String)> {
        let output = Command::new(&self.mkfs).args(line.split_whitespace()).current_dir(self.folder.path()).output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }

    /// Runs mkfs, which must succeed; returns its report.
    fn mkfs(&self, line: &str) -> Result<String> {
        match self.try_mkfs(line)? {
            (true, report) => Ok(report),
            (false, text) => bail!("mkfs.btrfs {line}: {text}"),
        }
    }

    /// Runs mkfs, which must fail; returns its message.
    fn refused(&self, line: &str) -> Result<String> {
        match self.try_mkfs(line)? {
            (false, text) => Ok(text),
            (true, _) => bail!("mkfs.btrfs {line} succeeds"),
        }
    }

    /// Makes a file system on an image of this size, and has it checked.
    fn made(&self, options: &str, bytes: u64) -> Result<PathBuf> {
        let image = self.image("a.img", bytes)?;
        self.mkfs(&format!("-q -f {options} a.img"))?;
        self.check(&image)?;
        Ok(image)
    }

    fn check(&self, image: &Path) -> Result<()> {
        run_program(&btrfs_program(), &["check", "--readonly", &image.to_string_lossy()]).map(drop)
    }

    /// The output of `btrfs inspect-internal WORDS IMAGE`.
    fn inspect(&self, words: &[&str], image: &Path) -> Result<String> {
        let image = image.to_string_lossy();
        let mut arguments = vec!["inspect-internal"];
        arguments.extend(words);
        arguments.push(&image);
        run_program(&btrfs_program(), &arguments)
    }

    fn mount(&self, image: &Path) -> Result<Mount> {
        Mount::new(image, "ro")
    }
}
