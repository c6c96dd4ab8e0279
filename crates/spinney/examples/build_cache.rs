//! A build cache in a btrfs image: `build_cache IMAGE SOURCES`.
//!
//! The cache keeps one read-only subvolume for each state of the sources, named by a hash of them. For a new state the
//! program forks the newest subvolume, which takes milliseconds whatever its size, and rebuilds only the changed files.
//! An interrupted build leaves an unfinished fork, which the next run deletes.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Instant;

use spinney::btrfs::{ChangeKind, MakeOptions, Volume};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Contents by name.
type Sources = BTreeMap<OsString, Vec<u8>>;

const IMAGE_BYTES: u64 = 256 << 20;
/// Where the subvolumes are.
const TREES: &str = "trees";
/// The one that is being built.
const UNFINISHED: &str = "trees/unfinished";
/// Suffix of a built file, after the name of its source.
const BUILT_SUFFIX: &str = ".built";

fn main() -> Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [image, dir] = &arguments[..] else { return Err("usage: build_cache IMAGE SOURCES".into()) };
    let volume = open(Path::new(image))?;
    let sources = read(Path::new(dir))?;
    let key = key(&sources);
    let tree = format!("{TREES}/{key}");
    if volume.exists(&tree)? {
        println!("{key}: known, nothing to do");
        return Ok(());
    }
    let newest = newest(&volume)?;
    let fork = begin(&volume, newest.as_deref())?;
    let count = build(&fork, &sources)?;
    drop(fork);
    volume.rename(UNFINISHED, &tree)?;
    volume.set_subvolume_read_only(&tree, true)?;
    println!("{key}: {count} of {} built", sources.len());
    if let Some(newest) = newest {
        show(&volume, &newest, &tree)?;
    }
    volume.close()?;
    Ok(())
}

fn open(image: &Path) -> Result<Volume> {
    if image.exists() {
        return Ok(Volume::open(image)?);
    }
    let volume = Volume::make(image, &MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() })?;
    volume.create_dir(TREES)?;
    Ok(volume)
}

fn read(dir: &Path) -> Result<Sources> {
    let mut sources = Sources::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            sources.insert(entry.file_name(), fs::read(entry.path())?);
        }
    }
    Ok(sources)
}

/// The inputs of a build. A cache that others may fill needs a cryptographic hash.
fn key(sources: &Sources) -> String {
    let mut hasher = DefaultHasher::new();
    sources.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The tree that was made last.
fn newest(volume: &Volume) -> Result<Option<String>> {
    let known = volume.subvolumes()?.into_iter().filter(|found| found.read_only);
    let newest = known.max_by_key(|found| found.created);
    Ok(newest.map(|found| found.path.to_string_lossy().into_owned()))
}

/// The subvolume that is built in, as a volume of its own.
fn begin(volume: &Volume, newest: Option<&str>) -> Result<Volume> {
    if volume.exists(UNFINISHED)? {
        volume.delete_subvolume(UNFINISHED)?;
    }
    let start = Instant::now();
    let Some(newest) = newest else {
        volume.create_subvolume(UNFINISHED)?;
        return Ok(volume.open_subvolume(UNFINISHED)?);
    };
    let fork = volume.fork(newest, UNFINISHED)?;
    println!("forked {newest} in {:.1} ms", start.elapsed().as_secs_f64() * 1000.0);
    Ok(fork)
}

/// Builds missing files, and removes those without a source; returns the number of built ones.
fn build(tree: &Volume, sources: &Sources) -> Result<usize> {
    let mut built = 0;
    for (name, contents) in sources {
        if tree.exists(name)? && tree.read(name)? == *contents {
            continue;
        }
        tree.write(name, contents)?;
        tree.write(with_suffix(name), compile(contents))?;
        built += 1;
    }
    let names = tree.read_dir("/")?.map(|entry| Ok(entry?.file_name().to_owned()));
    for name in names.collect::<Result<Vec<_>>>()? {
        let is_wanted = sources.keys().any(|source| *source == name || with_suffix(source) == name);
        if !is_wanted {
            tree.remove_file(name)?;
        }
    }
    Ok(built)
}

/// Stands for a compiler: counts words.
fn compile(source: &[u8]) -> String {
    let words = source.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    format!("{} words\n", words.count())
}

fn with_suffix(name: &OsString) -> OsString {
    let mut name = name.clone();
    name.push(BUILT_SUFFIX);
    name
}

/// Shows the differences, found from the trees without reading the shared parts.
fn show(volume: &Volume, old: &str, new: &str) -> Result<()> {
    for change in volume.diff(old, new)? {
        match change.what {
            ChangeKind::Changed { path, .. } => println!("changed: {}", path.display()),
            ChangeKind::Added => println!("added:   {:?}", change.names),
            ChangeKind::Removed => println!("removed: {:?}", change.names),
        }
    }
    Ok(())
}
