//! `spinney build` makes a disk from a description: a table of partitions, file systems with contents, swap areas and
//! files that are passed through. Called by `args`.
//!
//! The disk is made in a file without a name and delivered when it is finished. File systems are made by `mkfs`, whose
//! options the description gives by name: those whose size follows from the contents in a file of their own, which is
//! then copied to its place, the others in place.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Parser};
use spinney::disk::containers::{Form, Options};
use spinney::disk::spec::{Contents, FileSystem, Layout, Mode, OptionValue, Partition, Placed, Size, Spec, plan};
use spinney::disk::swap;
use spinney::transfer::{Contents as _, copy_data};

use crate::commands::failure::{Failure, Status};
use crate::commands::output::Output;
use crate::commands::unnamed::Unnamed;
use crate::delivery::Delivery;
use crate::mkfs::Mkfs;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// Make a disk with partitions and file systems from a description
///
/// SPEC.toml describes the disk, its partitions and what is in each; relative paths in it begin at its directory. The
/// same description and contents make the same disk, byte for byte, if SOURCE_DATE_EPOCH is set.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Example of a description:\n",
    "  [disk]\n",
    "  size = \"auto\"\n",
    "  [[partition]]\n",
    "  name = \"esp\"\n",
    "  type = \"esp\"\n",
    "  content = \"esp.img\"\n",
    "  [[partition]]\n",
    "  name = \"root\"\n",
    "  type = \"root-x86-64\"\n",
    "  format = \"btrfs\"\n",
    "  size = \"2G\"\n",
    "  sources = [\"rootfs.tar.zst\", \"overlay/\"]\n",
    "  subvolumes = [{ path = \"home\" }, { path = \"usr\", mode = \"ro\" }]\n",
    "  options = { compress = \"zstd:9\" }\n",
    "  [output]\n",
    "  file = \"disk.qcow2\"\n",
    "\n",
    "Examples:\n",
    "  spinney build disk.toml --check              print the plan\n",
    "  spinney build disk.toml\n",
    "  spinney build disk.toml -o - | zstd > disk.img.zst"
))]
pub(crate) struct Build {
    /// Description of the disk
    spec: PathBuf,
    /// Print what would be made, and write nothing
    #[arg(long)]
    check: bool,
    /// File to write, instead of that of the description; - for the standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Form of the file: raw, qcow2, simg or zstd; by default what the end of its name says
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// Overwrite an existing file
    #[arg(short, long)]
    force: bool,
    /// No summary and no progress bars
    #[arg(short, long)]
    quiet: bool,
    /// Report the plan as JSON: {disk-bytes, partitions: [{number, name, start-bytes, size-bytes, contents}]}
    #[arg(long)]
    json: bool,
}

/// Kinds of container images, before a path.
const CONTAINERS: [&str; 3] = ["oci:", "oci-archive:", "docker-archive:"];
/// Options of `mkfs` that mean nothing without contents.
const OF_CONTENTS: [&str; 14] = [
    "compress",
    "dedupe",
    "fakeroot-state",
    "inode-flags",
    "layers",
    "manifest",
    "map-groups",
    "map-users",
    "max-size",
    "platform",
    "reflink",
    "shrink",
    "verity-hash-alg",
    "verity-salt",
];

/// Parses words as `mkfs` does.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    mkfs: Mkfs,
}

/// File systems that were made to know their sizes, by the number of their partition.
type Made = HashMap<u32, Unnamed>;

impl Build {
    /// Runs the command.
    ///
    /// # Errors
    /// Those of the description (with the line), of its contents, and of writing.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let spec = Spec::read(&self.spec)?;
        self.check_contents(&spec)?;
        let delivery = if self.check { None } else { Some(self.delivery(&spec)?) };
        let mut made = Made::new();
        let mut layout = plan(&spec, |partition| self.least(&spec, partition, &mut made))?;
        for placed in &layout.partitions {
            let about = || format!("partition {} (`{}`)", placed.number, placed.name);
            self.check_room(&spec, placed).with_context(about)?;
        }
        if let Some(delivery) = &delivery {
            let disk = delivery.draft()?;
            self.write(&spec, &layout, &disk, &made)?;
            let compression = spec.output.as_ref().map_or_else(Default::default, |output| output.compression);
            delivery.deliver(&disk, &Options { compression, ..Options::default() })?;
        }
        if let (Some(file), Some(output)) = (&self.output, &mut layout.output) {
            output.file.clone_from(file);
            output.form = delivery.map_or_else(|| Form::of_name(file), |delivery| delivery.form);
        }
        match (self.json, self.quiet || self.output.as_ref().is_some_and(|path| path.as_os_str() == "-")) {
            (true, _) => out.json(&layout),
            (false, true) if !self.check => Ok(()),
            _ => Ok(writeln!(out, "{layout}")?),
        }
    }

    /// Where the disk goes: to the file of the options, or else to that of the description.
    fn delivery(&self, spec: &Spec) -> Result<Delivery> {
        if let Some(path) = &self.output {
            return Delivery::new(path, self.form, self.force);
        }
        let missing = || Failure::usage("no output: give --output FILE, or [output] in the description");
        let own = spec.output.as_ref().ok_or_else(missing)?;
        Delivery::new(&own.file, self.form.or(Some(own.form)), self.force)
    }

    /// Looks at the contents of all partitions before anything is made.
    ///
    /// # Errors
    /// `Usage` for formats and options that are not known, and for files that are not there.
    fn check_contents(&self, spec: &Spec) -> Result<()> {
        for partition in &spec.partitions {
            let about = || format!("partition {} (`{}`)", partition.number, partition.name);
            match &partition.contents {
                Contents::FileSystem(system) => {
                    self.line(spec, system, None, &OsString::from("none")).with_context(about)?;
                    system.sources.iter().try_for_each(|source| check_source(spec, source)).with_context(about)?;
                }
                Contents::File(path) if !path.is_file() => {
                    let text = format!("content: expected a file, found none at {}", path.display());
                    return Err(Failure::usage(text)).with_context(about);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses a partition that is too small for an empty file system, or for the contents. Whether these fit beside
    /// what the file system keeps of them is known when it is made; with compression, too, what they take.
    fn check_room(&self, spec: &Spec, placed: &Placed) -> Result<()> {
        let Contents::FileSystem(system) = &placed.contents else { return Ok(()) };
        if has_own_size(spec, placed) {
            return Ok(());
        }
        let mut empty =
            FileSystem { sources: Vec::new(), subvolumes: Vec::new(), verity: Vec::new(), ..system.clone() };
        empty.options.retain(|name, _| !OF_CONTENTS.contains(&name.as_str()));
        let draft = Unnamed::beside(&std::env::temp_dir().join("draft"))?;
        self.make(spec, &empty, Some(placed.size_bytes), &draft.path().into_os_string())?;
        if !self.check {
            return Ok(());
        }
        let totals = self.line(spec, system, None, &OsString::from("none"))?.mkfs.measure()?;
        match totals.map_or(0, |totals| totals.block_bytes) {
            found if found > placed.size_bytes && !system.options.contains_key("compress") => {
                let text =
                    format!("size: expected {found} bytes or more for the contents, found {}", placed.size_bytes);
                Err(Failure::new(Status::NoSpace, text).into())
            }
            _ => Ok(()),
        }
    }

    /// The fewest bytes that a partition needs. A file system is made for that.
    fn least(&self, spec: &Spec, partition: &Partition, made: &mut Made) -> Result<u64> {
        let Contents::FileSystem(system) = &partition.contents else {
            return Ok(partition.file_bytes()?.unwrap_or_default());
        };
        let draft = Unnamed::beside(&std::env::temp_dir().join("draft"))?;
        self.make(spec, system, None, &draft.path().into_os_string())?;
        let bytes = draft.file().metadata()?.len();
        made.insert(partition.number, draft);
        Ok(bytes)
    }

    fn write(&self, spec: &Spec, layout: &Layout, disk: &Unnamed, made: &Made) -> Result<()> {
        let mut file = disk.file();
        file.set_len(layout.disk_bytes)?;
        for placed in &layout.partitions {
            let about = || format!("partition {} (`{}`)", placed.number, placed.name);
            self.fill(spec, placed, disk, made).with_context(about)?;
        }
        if let Some(table) = layout.table()? {
            file.seek(SeekFrom::Start(0))?;
            table.write(&mut file)?;
        }
        Ok(())
    }

    fn fill(&self, spec: &Spec, placed: &Placed, disk: &Unnamed, made: &Made) -> Result<()> {
        let at = placed.start_bytes;
        match &placed.contents {
            Contents::Empty => Ok(()),
            Contents::File(path) => {
                let from = File::open(path).with_context(|| path.display().to_string())?;
                copy_into(from, disk.file(), at, placed.size_bytes)
            }
            Contents::Swap { label, id } => Ok(swap::write(&mut disk.file(), at, placed.size_bytes, *id, label)?),
            Contents::FileSystem(system) => match made.get(&placed.number).filter(|_| has_own_size(spec, placed)) {
                Some(draft) => copy_into(draft.file().try_clone()?, disk.file(), at, placed.size_bytes),
                None => {
                    let mut target = disk.path().into_os_string();
                    target.push(format!("?offset={at}&size={}", placed.size_bytes));
                    self.make(spec, system, Some(placed.size_bytes), &target)
                }
            },
        }
    }

    /// Makes a file system on `target`: as small as its contents, if it has no size.
    fn make(&self, spec: &Spec, system: &FileSystem, size: Option<u64>, target: &OsString) -> Result<()> {
        self.line(spec, system, size, target)?.mkfs.run(&mut Output::new())
    }

    /// The command that makes it.
    fn line(&self, spec: &Spec, system: &FileSystem, size: Option<u64>, target: &OsString) -> Result<Line> {
        let mut words: Vec<OsString> = ["mkfs", "--force"].map(OsString::from).to_vec();
        let mut option = |name: &str, value: &dyn std::fmt::Display| words.push(format!("--{name}={value}").into());
        option("type", &system.format);
        option("uuid", &system.id);
        if let Some(label) = &system.label {
            option("label", label);
        }
        if let Some(owner) = &system.owner {
            option("owner", &format_args!("{}:{}", owner.user, owner.group));
        }
        for (name, value) in &system.options {
            match value {
                OptionValue::Flag(true) => words.push(format!("--{name}").into()),
                OptionValue::Flag(false) => {}
                value => words.push(format!("--{name}={value}").into()),
            }
        }
        for subvolume in &system.subvolumes {
            let kind = match (subvolume.default, subvolume.mode) {
                (true, Mode::ReadOnly) => "default-ro",
                (true, _) => "default",
                (false, Mode::ReadOnly) => "ro",
                (false, _) => "rw",
            };
            words.push(format!("--subvol={kind}:{}", subvolume.path).into());
        }
        words.extend(system.verity.iter().map(|glob| format!("--verity={glob}").into()));
        for source in &system.sources {
            words.push(format!("--rootdir={}", source_of(spec, source)).into());
        }
        match size {
            Some(size) => words.push(format!("--size={size}").into()),
            None if !system.sources.is_empty() && system.format == "btrfs" => words.push("--shrink".into()),
            None => {}
        }
        words.extend(self.quiet.then(|| "--quiet".into()));
        words.extend(system.all_root.then(|| "--all-root".into()));
        words.push("--no-summary".into());
        words.push("--".into());
        words.push(target.clone());
        let wrong = |error: clap::Error| Failure::usage(first_line(&error.to_string()));
        Ok(Line::try_parse_from(&words).map_err(wrong)?)
    }
}

/// True for a file system that is made as small as its contents before it gets its place.
fn has_own_size(spec: &Spec, placed: &Placed) -> bool {
    let shrinks = matches!(&placed.contents, Contents::FileSystem(system) if system.shrink);
    let partition = spec.partitions.iter().find(|partition| partition.number == placed.number);
    partition.is_some_and(|partition| partition.size == Size::Auto || shrinks)
}

/// Refuses a source that is not there.
fn check_source(spec: &Spec, source: &str) -> Result<()> {
    let named = source_of(spec, source);
    let path = CONTAINERS.iter().find_map(|kind| named.strip_prefix(kind)).unwrap_or(&named);
    let is_there = |path: &str| std::path::Path::new(path).exists();
    // `DIR:TAG` of a container image, or `IMAGE:/PATH`.
    let is_found = source == "-" || is_there(path) || path.rsplit_once(':').is_some_and(|(file, _)| is_there(file));
    match is_found || path.split_once(":/").is_some_and(|(file, _)| is_there(file)) {
        true => Ok(()),
        false => Err(Failure::usage(format!("sources: expected a file or directory, found none at {path}")).into()),
    }
}

/// A source as the description means it: paths begin beside the description.
fn source_of(spec: &Spec, source: &str) -> String {
    let (kind, path) = match CONTAINERS.iter().find_map(|kind| Some((*kind, source.strip_prefix(kind)?))) {
        Some(found) => found,
        None if source == "-" => return source.to_owned(),
        None => ("", source),
    };
    format!("{kind}{}", spec.path_of(path).display())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Copies a file without its holes to byte `at` of another, at most `most` bytes.
fn copy_into(from: File, to: &File, at: u64, most: u64) -> Result<()> {
    let size = from.metadata()?.len();
    if size > most {
        return Err(Failure::new(Status::NoSpace, format!("expected at most {most} bytes, found {size}")).into());
    }
    let mut buffer = vec![0; PIECE_BYTES];
    let from = OwnedFd::from(from);
    copy_data(&from, from.size()?, &mut buffer, |offset, piece| -> Result<()> {
        Ok(to.write_all_at(piece, at.saturating_add(offset))?)
    })?;
    Ok(())
}
