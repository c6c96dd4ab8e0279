//! Compares fs-verity on btrfs with a kernel that has it, in a guest. Called by `cargo trials verity`.
//!
//! Files that `spinney mkfs --verity` protects have the digests of `fsverity digest`; the guest reads them, measures
//! the
//! same digests and may not write; it removes one. Files that the guest protects on another image are read and measured
//! here, `spinney check` and `btrfs check` find nothing, and what the guest removed has left nothing. Needs the
//! programs
//! that `suites/f2fs-guest/run.sh` needs.

use crate::system::run as run_program;
use anyhow::{Context as _, Result, ensure};
use btrfs::Volume;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use testkit::Random;

/// Sizes of the files: at the limits of blocks and of levels of trees.
const SIZES: [usize; 9] = [0, 1, 2000, 4096, 4097, 70_000, 128 * 4096, 128 * 4096 + 1, 20_000_000];
/// Names that `btrfs inspect-internal dump-tree` has for the items.
const ITEMS: &str = "VERITY_";

/// The guest's part: measures `ours`, and protects the files of `theirs`.
const GUEST: &str = r#"
mkdir -p ours theirs
mount -t btrfs /dev/vdb ours && mount -t btrfs /dev/vdc theirs || exit 1
for file in ours/*; do
  cat "$file" > /dev/null || echo "not read: $file"
  (echo x >> "$file") 2> /dev/null && echo "written: $file"
  fsverity measure "$file" >> measured
done
rm ours/20000000 ours/4097
for file in theirs/*; do fsverity enable "$file" || exit 1; done
rm theirs/70000
umount ours && umount theirs
rmdir ours theirs
"#;

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory for the guest's kernel
    #[arg(long, default_value = "target/f2fs-guest")]
    cache: PathBuf,
    /// Directory for the images
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Longest time of the guest, in seconds.
    #[arg(long, default_value_t = 400)]
    seconds: u64,
    /// Seed of the contents
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The `spinney` program, if not target/release/spinney.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Digests by the names of files.
type Digests = BTreeMap<String, String>;

/// Makes both images, and compares.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("spinney-verity-").tempdir_in(&options.dir)?;
    let dir = folder.path();
    let program = options.program.clone().unwrap_or_else(|| root.join("target/release/spinney"));
    let spinney = |line: &str| {
        let words: Vec<String> = line.split(' ').map(|word| word.replace("DIR", &dir.to_string_lossy())).collect();
        run_program(&program.to_string_lossy(), &words)
    };
    let source = dir.join("files");
    std::fs::create_dir(&source)?;
    let (mut random, mut expected) = (Random::new(options.seed), Digests::new());
    for size in SIZES {
        let path = source.join(size.to_string());
        std::fs::write(&path, random.content(size))?;
        expected.extend(digests(&run_program("fsverity", &[Path::new("digest"), &path])?)?);
    }
    spinney("mkfs -q --size 300M --rootdir DIR/files --verity ** DIR/ours.img")?;
    spinney("mkfs -q --size 300M --rootdir DIR/files DIR/theirs.img")?;
    measured_here(&dir.join("ours.img"), &source, &expected).context("ours, before the guest")?;
    guest(root, options, dir)?;
    let measured = std::fs::read_to_string(dir.join("results/measured")).context("the guest measured nothing")?;
    ensure!(digests(&measured)? == expected, "the guest measured other digests:\n{measured}");
    let console = std::fs::read_to_string(dir.join("results/console")).unwrap_or_default();
    ensure!(!console.contains("not read: ") && !console.contains("written: "), "the guest:\n{console}");

    let without = |names: &[&str]| -> Digests {
        expected
            .iter()
            .filter(|(name, _)| !names.contains(&name.as_str()))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect()
    };
    for (image, removed) in [("ours.img", &["20000000", "4097"][..]), ("theirs.img", &["70000"])] {
        measured_here(&dir.join(image), &source, &without(removed)).with_context(|| image.to_owned())?;
        spinney(&format!("check --data DIR/{image}")).with_context(|| image.to_owned())?;
        run_program("btrfs", &[Path::new("check"), Path::new("--check-data-csum"), &dir.join(image)])?;
    }
    for name in without(&["70000"]).keys() {
        spinney(&format!("rm DIR/theirs.img /{name}"))?;
    }
    let words = ["inspect-internal", "dump-tree", "-t", "5"].map(PathBuf::from);
    let tree = run_program("btrfs", &[&words[..], &[dir.join("theirs.img")]].concat())?;
    ensure!(!tree.contains(ITEMS), "items of removed files are left");
    println!("verity: {} files of ours read by a kernel, and as many of the kernel's read here", SIZES.len());
    Ok(ExitCode::SUCCESS)
}

/// `ALGORITHM:DIGEST PATH` a line.
fn digests(text: &str) -> Result<Digests> {
    let pair = |line: &str| {
        let (digest, path) = line.split_once(' ').with_context(|| line.to_owned())?;
        let name = Path::new(path).file_name().context("a name")?.to_string_lossy().into_owned();
        Ok((name, digest.to_owned()))
    };
    text.lines().map(pair).collect()
}

/// Reads the files of an image, and compares them and their digests.
fn measured_here(image: &Path, source: &Path, expected: &Digests) -> Result<()> {
    let volume = Volume::open(image)?;
    for (name, digest) in expected {
        ensure!(volume.read(name)? == std::fs::read(source.join(name))?, "{name}: other contents");
        let found = volume.verity_digest(name)?.map(|digest| digest.to_string());
        ensure!(found.as_ref() == Some(digest), "{name}: expected {digest}, found {found:?}");
    }
    let count = volume.read_dir("/")?.count();
    ensure!(count == expected.len(), "expected {} files, found {count}", expected.len());
    Ok(volume.close()?)
}

fn guest(root: &Path, options: &Options, dir: &Path) -> Result<()> {
    let mut command = Command::new(root.join("crates/trials/suites/f2fs-guest/run.sh"));
    command.args(["--seconds", &options.seconds.to_string(), "--cache"]).arg(&options.cache);
    for image in ["ours.img", "theirs.img"] {
        command.arg("--disk").arg(dir.join(image));
    }
    command.arg("--results").arg(dir.join("results")).args(["--", "sh", "-c", GUEST]);
    let status = command.stdin(Stdio::null()).status()?;
    ensure!(status.success(), "the guest: {status}");
    Ok(())
}
