//! Implements a script of received streams: a whole subvolume, and the difference to a later state of it. A subvolume
//! that looks complete must be complete, and an interrupted receive can be repeated. `scripts` passes it to
//! `crash_explorer`, which tries power cuts.

use super::{Contents, contents, difference, open};
use anyhow::{Context as _, Result, ensure};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::SendOptions;
use btrfs::{MakeOptions, Volume};
use btrfs_receive::{Options, Receiver};
use crash_explorer::{Form, Promises, Random, Script};
use std::path::Path;
use std::sync::Arc;
use vfs::SnapshotMode;

const SOURCE_BYTES: u64 = 128 << 20;
/// Interval of the points from which a receive can resume, in bytes of the stream.
const KEEP_BYTES: u64 = 6 << 10;

/// The script.
pub(super) struct Receipt {
    name: String,
    form: Form,
    options: Options,
    streams: Vec<(&'static str, Vec<u8>, Contents)>,
}

impl Receipt {
    pub(super) fn new(name: String, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        let form = random.pick(&[Form::Small, Form::Small, Form::NoInline, Form::Usual]).copied();
        let resumable = !random.one_in(4);
        let keep_interval_bytes = if random.one_in(2) { KEEP_BYTES } else { Options::default().keep_interval_bytes };
        let options = Options { resumable, keep_interval_bytes, ..Options::default() };
        Ok(Self { name, form: form.unwrap_or(Form::Small), options, streams: streams(&mut random)? })
    }

    fn receive(&self, volume: &Volume, stream: &[u8]) -> Result<()> {
        let mut receiver = Receiver::new(volume, Path::new("/"), self.options)?;
        Ok(receiver.receive(stream, &(), &mut ())?)
    }

    /// Asserts that subvolumes that look complete are complete; returns the others.
    fn unfinished(&self, volume: &Volume) -> Result<Vec<String>> {
        let mut unfinished = Vec::new();
        for found in volume.subvolumes()? {
            let path = found.path.to_string_lossy().into_owned();
            // It is marked as received before it gets its own name, then or by the next receive of the same stream.
            let own_name = path.strip_suffix(".receiving").unwrap_or(&path);
            let stream = self.streams.iter().find(|(name, ..)| *name == own_name);
            if !found.read_only && found.received_uuid == [0; 16] {
                unfinished.push(path);
                continue;
            }
            let (_, _, expected) =
                stream.with_context(|| format!("{path} looks complete, but is not in the script"))?;
            if let Some(difference) = difference(&contents(volume, Path::new(&path))?, expected) {
                anyhow::bail!("{path} looks whole: {difference}");
            }
            ensure!(found.read_only && found.received_uuid != [0; 16], "{path} is marked by half: {found:?}");
            if own_name != path {
                unfinished.push(path);
            }
        }
        Ok(unfinished)
    }
}

/// A subvolume, changed at random between two snapshots, as two streams.
fn streams(random: &mut Random) -> Result<Vec<(&'static str, Vec<u8>, Contents)>> {
    let device = Arc::new(MemoryDevice::new(SOURCE_BYTES));
    let make = MakeOptions { size: Some(SOURCE_BYTES), ..MakeOptions::default() };
    let volume = btrfs_crash::volume_options(Form::Small).make_device(device, &make)?;
    volume.create_subvolume("home")?;
    let mut streams = Vec::new();
    for (name, parent) in [("one", None), ("two", Some(Path::new("one")))] {
        for _ in 0..random.between(6, 20) {
            // A failed change is left out: the streams have the successful ones.
            let _ = change(&volume, random);
        }
        volume.snapshot("home", name, SnapshotMode::ReadOnly)?;
        volume.sync()?;
        let mut stream = Vec::new();
        volume.send(name, parent, &[], &SendOptions::default(), &mut stream)?;
        streams.push((name, stream, contents(&volume, Path::new(name))?));
    }
    volume.close()?;
    Ok(streams)
}

fn change(volume: &Volume, random: &mut Random) -> Result<()> {
    const PATHS: &[&str] = &["home/a", "home/b", "home/d/a", "home/d/e/b", "home/d/c", "home/f"];
    let mut path = || random.pick(PATHS).copied().unwrap_or("home/a");
    let (path, other) = (path(), path());
    match random.below(9) {
        0 => volume.create_dir_all("home/d/e")?,
        1 => volume.rename(path, other)?,
        2 => volume.remove_file(path)?,
        3 => volume.hard_link(path, other)?,
        4 => volume.symlink("a/b", path)?,
        5 => volume.set_permissions(path, 0o640)?,
        6 => volume.set_xattr(path, "user.note", random.text(40), vfs::file_system::XattrMode::Either)?,
        _ => {
            let len = usize::try_from(random.skewed(60_000))?;
            volume.write(path, random.content(len))?;
        }
    }
    Ok(())
}

impl Script for Receipt {
    fn name(&self) -> &str {
        &self.name
    }

    fn form(&self) -> Form {
        self.form
    }

    fn prepare(&self, device: Arc<dyn Device>) -> Result<()> {
        let volume = open(self.form, device)?;
        volume.write("/beside", vec![7; 9000])?;
        Ok(volume.close()?)
    }

    fn run(&self, device: Arc<dyn Device>, promises: &Promises<'_>) -> Result<()> {
        let volume = open(self.form, device)?;
        for (_, stream, _) in &self.streams {
            self.receive(&volume, stream)?;
            volume.sync()?;
            promises.made();
        }
        Ok(volume.close()?)
    }

    fn judge(&self, device: Arc<dyn Device>, promised: usize) -> Result<()> {
        let volume = open(self.form, device)?;
        ensure!(volume.read("/beside")? == vec![7; 9000], "a file beside the received subvolume has changed");
        let unfinished = self.unfinished(&volume)?;
        for (name, ..) in self.streams.iter().take(promised) {
            let is_whole = volume.exists(name)? && !unfinished.iter().any(|path| path == name);
            ensure!(is_whole, "{name} was received, and is not there or not marked");
        }
        if !self.options.resumable {
            unfinished.iter().try_for_each(|path| volume.delete_subvolume(path))?;
        }
        for (name, stream, _) in &self.streams {
            if self.options.resumable || !volume.exists(name)? {
                self.receive(&volume, stream).with_context(|| format!("receiving {name} after the crash"))?;
            }
        }
        let unfinished = self.unfinished(&volume)?;
        ensure!(unfinished.is_empty(), "after everything was received, {unfinished:?} is left");
        let names = volume.subvolumes()?.len();
        ensure!(names == self.streams.len(), "there are {names} subvolumes");
        Ok(volume.close()?)
    }
}
