//! Tests the main use: a large tree is copied into an image and changed there, with checks at each stage. Called by
//! `cargo trials rework`.
//!
//! `spinney mkfs --rootdir` or `spinney put` copies the tree. Then, through the library, a snapshot is taken, a third
//! of the files is removed, a third renamed, a third rewritten in place, and the snapshot is deleted. After each stage
//! `btrfs check --check-data-csum` (each program given) must report nothing, and the kernel's walk of a mount must
//! equal a model of the tree. Needs root.

use crate::diff_walk::kernel;
use crate::system::{Mount, run as run_program};
use anyhow::{Context, Result, bail, ensure};
use btrfs::Volume;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vfs::{FileOptions, SnapshotMode};

/// How the tree is copied into the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum By {
    /// `spinney mkfs --rootdir`.
    Mkfs,
    /// `spinney mkfs`, then `spinney put`.
    Put,
}

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The tree.
    #[arg(long)]
    source: PathBuf,
    /// The image; written anew.
    #[arg(long)]
    image: PathBuf,
    /// How the tree is copied
    #[arg(long, default_value = "mkfs")]
    by: By,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// Programs that check the image, as `btrfs check`.
    #[arg(long, default_value = "btrfs")]
    btrfs: Vec<String>,
    /// Bytes of the image.
    #[arg(long, default_value_t = 4 << 30)]
    size: u64,
}

/// Expected properties of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    target: Option<Vec<u8>>,
    sha256: Option<[u8; 32]>,
    /// `None` if the change itself sets it.
    mtime: Option<(i64, u32)>,
}

/// The expected entry of each path.
type Model = BTreeMap<Vec<u8>, Entry>;

/// Runs all stages; fails with the first difference.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut model = model_of(&options.source)?;
    println!("{} names in {}", model.len(), options.source.display());
    fill(options)?;
    stage(options, "filled", &model)?;

    let volume = Volume::open(&options.image)?;
    volume.snapshot("/", "before", SnapshotMode::ReadOnly)?;
    let original = model.clone();
    let counts = change(&volume, &options.source, &mut model)?;
    volume.close()?;
    println!("removed {}, renamed {}, rewrote {}", counts[0], counts[1], counts[2]);
    let mut both = model.clone();
    both.extend(original.iter().map(|(path, entry)| {
        let path = if path.is_empty() { b"before".to_vec() } else { [b"before/", path.as_slice()].concat() };
        (path, entry.clone())
    }));
    stage(options, "changed, with the snapshot", &both)?;

    let volume = Volume::open(&options.image)?;
    volume.delete_subvolume("before")?;
    volume.close()?;
    stage(options, "changed, without the snapshot", &model)
}

fn fill(options: &Options) -> Result<()> {
    let program = options.program.to_string_lossy().into_owned();
    let (image, source) = (options.image.to_string_lossy(), options.source.to_string_lossy());
    let size = options.size.to_string();
    let _ = std::fs::remove_file(&options.image);
    let mut make = vec!["mkfs", "-q", "--size", &size];
    if options.by == By::Mkfs {
        make.extend(["--rootdir", &source]);
    }
    make.push(&image);
    run_program(&program, &make)?;
    if options.by == By::Put {
        // The contents of the folder, not the folder.
        let contents = format!("{source}/.");
        run_program(&program, &["put", &image, &contents, "/"])?;
    }
    Ok(())
}

/// Checks the image with the programs and the kernel.
fn stage(options: &Options, name: &str, model: &Model) -> Result<()> {
    let image = options.image.to_string_lossy().into_owned();
    for program in &options.btrfs {
        let output = run_program(program, &["check", "--check-data-csum", &image]);
        let said = output.with_context(|| format!("{name}: {program} check"))?;
        ensure!(said.contains("no error found"), "{name}: {program} check: {said}");
    }
    let mount = Mount::new(&options.image, "ro,subvolid=5")?;
    let found: Model = kernel::walk(mount.path())?
        .into_iter()
        .map(|(path, record)| {
            let wants_time = model.get(&path).is_some_and(|entry| entry.mtime.is_some());
            let entry = Entry {
                mode: record.mode,
                owner: (record.uid, record.gid),
                target: record.target,
                sha256: record.sha256,
                mtime: wants_time.then_some(record.mtime),
            };
            (path, entry)
        })
        .collect();
    mount.unmount()?;
    let mut differences = Vec::new();
    for (path, entry) in model {
        if found.get(path) != Some(entry) {
            differences.push(format!("/{}: {entry:?}, found {:?}", path.escape_ascii(), found.get(path)));
        }
    }
    let extra = found.keys().filter(|path| !model.contains_key(*path));
    differences.extend(extra.map(|path| format!("/{}: not expected", path.escape_ascii())));
    for difference in differences.iter().take(10) {
        println!("  {difference}");
    }
    if !differences.is_empty() {
        bail!("{name}: {} differences", differences.len());
    }
    println!("{name}: {} names, check clean ({}), kernel agrees", found.len(), options.btrfs.join(", "));
    Ok(())
}

fn model_of(source: &Path) -> Result<Model> {
    let mut model = Model::new();
    for item in walkdir::WalkDir::new(source) {
        let item = item?;
        let path = item.path().strip_prefix(source)?.as_os_str().as_bytes().to_vec();
        let found = item.metadata()?;
        let mut entry = Entry { mode: found.mode(), owner: (found.uid(), found.gid()), ..Entry::default() };
        if found.is_file() {
            entry.sha256 = Some(Sha256::digest(std::fs::read(item.path())?).into());
        } else if found.is_symlink() {
            entry.target = Some(std::fs::read_link(item.path())?.into_os_string().into_vec());
        }
        entry.mtime = (!found.is_dir()).then(|| (found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or(0)));
        model.insert(path, entry);
    }
    Ok(model)
}

/// Removes, renames or rewrites each file in turn; returns the number of each.
fn change(volume: &Volume, source: &Path, model: &mut Model) -> Result<[usize; 3]> {
    let is_file = |entry: &Entry| entry.sha256.is_some();
    let files: Vec<Vec<u8>> = model.iter().filter(|(_, e)| is_file(e)).map(|(p, _)| p.clone()).collect();
    let mut counts = [0; 3];
    for (index, path) in files.iter().enumerate() {
        let kind = index % 3;
        counts[kind] += 1;
        let name = Path::new(std::ffi::OsStr::from_bytes(path));
        match kind {
            0 => {
                volume.remove_file(name)?;
                model.remove(path);
            }
            1 => rename(volume, path, index, model)?,
            _ => {
                let contents = std::fs::read(source.join(name))?;
                rewrite(volume, name, contents, model.get_mut(path).context("a file of the model")?)?;
            }
        }
    }
    Ok(counts)
}

/// Every other file stays in its directory; the rest moves to the top.
fn rename(volume: &Volume, path: &[u8], index: usize, model: &mut Model) -> Result<()> {
    let to = if index.is_multiple_of(2) { [path, b".renamed"].concat() } else { format!("moved-{index}").into_bytes() };
    volume.rename(std::ffi::OsStr::from_bytes(path), std::ffi::OsStr::from_bytes(&to))?;
    let entry = model.remove(path).context("a file of the model")?;
    model.insert(to, entry);
    Ok(())
}

/// Overwrites up to three ranges of a file, one of them past its end.
fn rewrite(volume: &Volume, name: &Path, mut contents: Vec<u8>, entry: &mut Entry) -> Result<()> {
    let file = FileOptions::new().write(true).open(volume, name)?;
    let len = contents.len();
    for (start, count) in [(0, len.min(100)), (len / 2, (len - len / 2).min(9_000)), (len, 700)] {
        let piece: Vec<u8> = (0..count).map(|n| (n % 251).to_le_bytes()[0]).collect();
        file.write_at(&piece, u64::try_from(start)?)?;
        contents.resize(contents.len().max(start + count), 0);
        contents[start..start + count].copy_from_slice(&piece);
    }
    entry.sha256 = Some(Sha256::digest(&contents).into());
    // A write sets the time, which the model cannot know.
    entry.mtime = None;
    Ok(())
}
