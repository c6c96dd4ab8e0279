//! Runs a check: reads and compares, pass by pass. Called by `btrfs-repair`, and by the `spinney` library for the
//! command line.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{io, thread};

use blockdev::Device;
use btrfs_disk::TreeId;
use checking::Watch;

use crate::collect::{Collected, Collector};
use crate::context::{Context, Counted, Lost};
use crate::error::Error;
use crate::finding::{Findings, Report};
use crate::marks::Marks;
use crate::pass::Pass;
use crate::pointer::{Class, Pointer};
use crate::sort::lock;
use crate::supers::{Held, Opened};
use crate::walk::Walk;
use crate::{chunks, compressed_extents, csums, data, files, log, names, quota, roots, supers, sweep};

/// The part of the memory that one sorter may use: this many are in use at once.
const SORTERS: usize = 11;
/// Most threads: more would only begin and end.
const THREADS_MAX: usize = 256;
/// Least memory, bytes.
const MEMORY_MIN: usize = 16 << 20;

/// The part that is not checked of a volume in use.
const IN_USE: &str = "the log of fsyncs, and all but the generations of the superblock's copies: the volume is in use";

/// The options of a check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Passes, to which those that they need are added; all but [`Pass::Data`] if empty.
    pub passes: Vec<Pass>,
    /// Bytes that records may take in memory; at least 16 MiB are used.
    pub memory_bytes: usize,
    /// Folder for temporary files.
    pub folder: PathBuf,
    /// Threads; 0 for one per processor.
    pub threads: usize,
    /// Storage for the progress in the data; not kept if `None`.
    pub marks: Option<Arc<dyn Marks>>,
}

impl Default for Options {
    fn default() -> Self {
        let folder = std::env::temp_dir();
        Self { passes: Vec::new(), memory_bytes: 0, folder, threads: 1, marks: None }
    }
}

/// Checks the file system on these devices. Nothing is written to them.
///
/// # Errors
/// When there is no superblock, or a temporary file cannot be written; defects of the file system are in the report.
pub fn check(devices: &[Arc<dyn Device>], options: &Options, watch: &dyn Watch) -> Result<Report, Error> {
    let findings = Findings::default();
    let opened = supers::open(devices, &findings)?;
    check_opened(opened, findings, options, watch)
}

/// Checks a committed state on a device with concurrent writes. At the end the caller has to make sure that the state
/// was held for so long: the report is invalid otherwise.
///
/// # Errors
/// As [`check`].
pub fn check_held(
    device: &Arc<dyn Device>,
    held: &Held,
    options: &Options,
    watch: &dyn Watch,
) -> Result<Report, Error> {
    let findings = Findings::default();
    let opened = supers::open_held(device, held, &findings)?;
    let mut report = check_opened(opened, findings, options, watch)?;
    report.notes.push(IN_USE.to_owned());
    Ok(report)
}

fn check_opened(opened: Opened, findings: Findings, options: &Options, watch: &dyn Watch) -> Result<Report, Error> {
    let threads = match options.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        count => count.min(THREADS_MAX),
    };
    let mut cx = Context {
        media: opened.media,
        fields: opened.fields,
        findings,
        watch: Counted::new(watch),
        threads,
        passes: Pass::with_needs(&options.passes),
        notes: Mutex::default(),
        lost: Lost::default(),
        log: Mutex::default(),
        sorter_bytes: options.memory_bytes.max(MEMORY_MIN) / SORTERS,
        folder: options.folder.clone(),
        marks: options.marks.clone(),
    };
    if cx.wants(Pass::Chunks) {
        read_and_compare(&mut cx)?;
    }
    Ok(report(cx))
}

fn read_and_compare(cx: &mut Context<'_>) -> io::Result<()> {
    let mut collector = Collector::new(cx);
    let fields = &cx.fields;
    let chunk_root = Pointer::root(
        TreeId::CHUNK.0,
        fields.chunk_root.get(),
        fields.chunk_root_level,
        fields.chunk_root_generation.get(),
    );
    walk(cx, &collector, Class::System, &[chunk_root])?;
    chunks::load(cx, &collector);
    let fields = &cx.fields;
    let root = Pointer::root(TreeId::ROOT.0, fields.root.get(), fields.root_level, fields.generation.get());
    walk(cx, &collector, Class::System, &[root])?;
    walk(cx, &collector, Class::System, &roots_of(&collector, Class::System))?;
    chunks::announce(cx, &collector);
    collector.prepare_files();
    if cx.wants(Pass::Trees) {
        walk(cx, &collector, Class::Files, &roots_of(&collector, Class::Files))?;
        if cx.wants(Pass::Log) {
            log::walk(cx, &collector)?;
        }
    }
    compare(cx, collector.finish()?)
}

fn walk(cx: &Context<'_>, collector: &Collector, class: Class, roots: &[Pointer]) -> io::Result<()> {
    let walk = Walk::new(cx, collector, class);
    for root in roots {
        walk.push(root);
        collector.add_root(root);
    }
    walk.run()
}

/// Pointers to the roots of trees of one class that the root tree lists.
fn roots_of(collector: &Collector, class: Class) -> Vec<Pointer> {
    let facts = lock(&collector.facts);
    let roots = facts.roots.iter().filter(|(key, _)| is_of_files(key.objectid) == (class == Class::Files));
    let pointers = roots.map(|(key, item)| {
        let (at, generation) = item.root_block();
        Pointer { set: collector.set_of(key.objectid), ..Pointer::root(key.objectid, at.0, item.level, generation.0) }
    });
    pointers.collect()
}

/// True for trees that hold inodes.
fn is_of_files(tree: u64) -> bool {
    let tree = TreeId(tree);
    tree.is_subvolume() || tree == TreeId::DATA_RELOC || tree == TreeId::TREE_RELOC
}

fn compare(cx: &Context<'_>, mut collected: Collected) -> io::Result<()> {
    chunks::compare(cx, &collected.facts);
    let bad_data = if cx.wants(Pass::Data) { data::check(cx, &collected.csum_leaves) } else { Vec::new() };
    let unread: Vec<(u64, u64)> = bad_data.iter().filter_map(data::BadData::unread).collect();
    if cx.wants(Pass::Extents) {
        sweep::run(cx, &collected, bad_data);
    }
    if cx.wants(Pass::Files) {
        let found = files::check(cx, &collected.facts)?;
        if cx.wants(Pass::Csums) {
            csums::coverage(cx, found.needs, &collected.csums)?;
        }
        if cx.wants(Pass::Data) {
            compressed_extents::check(cx, found.streams, &unread)?;
        }
        if cx.wants(Pass::Roots) {
            roots::check(cx, &collected.facts, &found.subvolume_entries);
        }
    }
    if cx.wants(Pass::Quota) {
        quota::check(cx, &mut collected);
    }
    Ok(())
}

fn report(cx: Context<'_>) -> Report {
    let report = cx.findings.report(cx.passes);
    let (bytes, inodes) = cx.watch.so_far();
    let mut report = Report { notes: cx.notes.into_inner().unwrap_or_default(), inodes, bytes, ..report };
    names::add_paths(&cx.media, &cx.fields, &mut report.findings);
    report
}
