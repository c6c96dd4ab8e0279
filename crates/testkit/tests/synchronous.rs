//! `chattr +S` and `+D`: a power cut right after any change of such a file, or of a name in such a directory, keeps it.
//! The flags were stored and ignored.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use blockdev::backends::MemoryDevice;
use btrfs::{FsOptions, MakeOptions, Volume};
use testkit::Random;
use testkit::faults::RecordingDevice;
use vfs::FileSystem;
use vfs::file_system::{
    Caller, Handle, NewNode, NodeFlags, NodeId, NodeKind, RenameFlags, SetAttr, WriteFlags, XattrMode,
};

const IMAGE_BYTES: u64 = 128 << 20;
const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1 };
/// Changes of one run, and power cuts after each.
const CHANGES: usize = 120;
const CUTS: usize = 2;
/// Names that there can be.
const NAMES: u64 = 6;

/// The expected node of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thing {
    kind: NodeKind,
    node: NodeId,
    permissions: u32,
    contents: Vec<u8>,
    xattr: Option<Vec<u8>>,
}

type Things = BTreeMap<String, Thing>;

struct Run {
    device: Arc<RecordingDevice>,
    fs: Arc<dyn FileSystem>,
    dir: NodeId,
    random: Random,
    things: Things,
}

impl Run {
    fn new(seed: u64, flag: NodeFlags) -> Result<Self> {
        let image = MemoryDevice::new(IMAGE_BYTES);
        let make = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
        let device = Arc::new(RecordingDevice::new(image));
        let volume = Volume::options().make_device(Arc::<RecordingDevice>::clone(&device), &make)?;
        let fs = volume.serve(FsOptions::default())?;
        let new = NewNode { kind: NodeKind::Directory, permissions: 0o755, ..NewNode::default() };
        let dir = fs.create(&CALLER, NodeId::ROOT, b"dir", &new)?.node;
        fs.set_flags(&CALLER, dir, flag)?;
        fs.sync_fs()?;
        Ok(Self { device, fs, dir, random: Random::new(seed), things: Things::new() })
    }

    fn name(&mut self) -> String {
        format!("name{}", self.random.below(NAMES))
    }

    /// One change; false when it was not possible.
    fn change(&mut self) -> Result<bool> {
        let (name, other) = (self.name(), self.name());
        let thing = self.things.get(&name).cloned();
        match (self.random.below(9), thing) {
            (0 | 1, None) => self.make(&name)?,
            (2, Some(thing)) => {
                match thing.kind {
                    NodeKind::Directory => self.fs.remove_dir(self.dir, name.as_bytes())?,
                    _ => self.fs.unlink(self.dir, name.as_bytes())?,
                }
                self.things.remove(&name);
            }
            (3, Some(thing)) if name != other => return self.rename(&name, thing, &other),
            (4, Some(thing)) if thing.kind == NodeKind::File && !self.things.contains_key(&other) => {
                self.fs.link(thing.node, self.dir, other.as_bytes())?;
                self.things.insert(other, thing);
            }
            (number, Some(thing)) if thing.kind == NodeKind::File => self.change_file(number, &thing)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn make(&mut self, name: &str) -> Result<()> {
        let kind = match self.random.below(4) {
            0 => NodeKind::Directory,
            1 => NodeKind::Symlink,
            _ => NodeKind::File,
        };
        let target: &[u8] = if kind == NodeKind::Symlink { b"somewhere" } else { b"" };
        let permissions = if kind == NodeKind::Symlink { 0o777 } else { 0o640 };
        let new = NewNode { kind, permissions, target, ..NewNode::default() };
        let node = self.fs.create(&CALLER, self.dir, name.as_bytes(), &new)?.node;
        if kind == NodeKind::File {
            self.fs.set_flags(&CALLER, node, NodeFlags::SYNC)?;
        }
        let contents = target.to_vec();
        self.things.insert(name.to_owned(), Thing { kind, node, permissions, contents, xattr: None });
        Ok(())
    }

    fn rename(&mut self, name: &str, thing: Thing, other: &str) -> Result<bool> {
        let target = self.things.get(other).map(|target| (target.kind, target.node));
        let is_dir = |kind| kind == NodeKind::Directory;
        match target {
            Some((_, node)) if node == thing.node => return Ok(false),
            Some((kind, _)) if is_dir(kind) != is_dir(thing.kind) => return Ok(false),
            _ => {}
        }
        let (from, to) = ((self.dir, name.as_bytes()), (self.dir, other.as_bytes()));
        self.fs.rename(&CALLER, from, to, RenameFlags::empty())?;
        self.things.remove(name);
        self.things.insert(other.to_owned(), thing);
        Ok(true)
    }

    fn change_file(&mut self, number: u64, old: &Thing) -> Result<()> {
        let mut new = old.clone();
        match number {
            5 => {
                new.permissions = 0o600 + u32::try_from(self.random.below(64))?;
                let changes = SetAttr { permissions: Some(new.permissions), ..SetAttr::default() };
                self.fs.set_attr(&CALLER, old.node, &changes)?;
            }
            6 => {
                let value = self.random.noise(30);
                self.fs.set_xattr(old.node, b"user.a", &value, XattrMode::Either, false)?;
                new.xattr = Some(value);
            }
            7 => {
                let size = self.random.below(100_000);
                new.contents.resize(usize::try_from(size)?, 0);
                let changes = SetAttr { size: Some(size), ..SetAttr::default() };
                self.fs.set_attr(&CALLER, old.node, &changes)?;
            }
            _ => {
                let (at, len) = (self.random.below(60_000), self.random.below(90_000) + 1);
                let (at, data) = (usize::try_from(at)?, self.random.noise(usize::try_from(len)?));
                self.fs.write(old.node, Handle(0), at.try_into()?, &data, WriteFlags::empty())?;
                let end = at + data.len();
                new.contents.resize(new.contents.len().max(end), 0);
                new.contents[at..end].copy_from_slice(&data);
            }
        }
        // Each of its names shows it.
        self.things.values_mut().filter(|thing| thing.node == old.node).for_each(|thing| *thing = new.clone());
        Ok(())
    }

    /// Checks that a power cut now loses nothing.
    fn cut(&mut self) -> Result<()> {
        let image = self.device.crash_after(self.device.event_count(), &mut self.random)?;
        let volume = Volume::options().open_device(Arc::new(image))?;
        let mut names: Vec<String> = Vec::new();
        for entry in volume.read_dir("/dir")? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        ensure!(names.iter().eq(self.things.keys()), "{names:?}, not {:?}", self.things.keys());
        for (name, thing) in &self.things {
            let path = format!("/dir/{name}");
            let context = || format!("{name}, {:?}", thing.kind);
            let metadata = volume.symlink_metadata(&path)?;
            ensure!(metadata.permissions == thing.permissions, "{}: mode {:o}", context(), metadata.permissions);
            match thing.kind {
                NodeKind::Symlink => ensure!(volume.read_link(&path)?.as_os_str() == "somewhere", context()),
                NodeKind::File => {
                    ensure!(volume.read(&path)? == thing.contents, "{}: contents", context());
                    ensure!(volume.get_xattr(&path, "user.a")? == thing.xattr, "{}: attribute", context());
                }
                _ => {}
            }
        }
        volume.close()?;
        Ok(())
    }
}

#[test]
fn a_power_cut_after_any_change_keeps_it() -> Result<()> {
    for (seed, flag) in [(1, NodeFlags::DIRSYNC), (2, NodeFlags::SYNC), (3, NodeFlags::DIRSYNC | NodeFlags::SYNC)] {
        let context = |what: &str, number| format!("seed {seed}, {flag:?}: {what} {number}");
        let mut run = Run::new(seed, flag)?;
        let mut done = 0;
        while done < CHANGES {
            if run.change().with_context(|| context("change", done))? {
                done += 1;
                for _ in 0..CUTS {
                    run.cut().with_context(|| context("a power cut after change", done))?;
                }
            }
        }
    }
    Ok(())
}
