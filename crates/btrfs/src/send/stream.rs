//! Sends a subvolume: puts the commands of a stream in order. Called by `volume/send`.

use std::collections::BTreeSet;
use std::io::Write;

use btrfs_stream::{Command, Encoder, Version};

use super::attributes::{self, Xattrs};
use super::changes::Changes;
use super::names;
use super::places::{Pair, Places};
use super::sender::{Clones, Contents, Result, SendError, SendOptions, Sender, Source};
use super::view::View;
use crate::error::{CallerError, Error, Result as VolumeResult};
use crate::inode::{Core, ROOT_DIR_INO};

/// Writes the stream that makes `to` from `from`, or from nothing. Data is also cloned from files of `sources`, which
/// the receiver must have. `name` is the name of the subvolume. `core` is of a state that does not change.
pub(crate) fn send<'a>(
    core: &'a Core,
    from: Option<&Source>,
    (to, name): (&Source, &[u8]),
    sources: &[Source],
    options: &SendOptions,
    output: &'a mut dyn Write,
) -> Result<()> {
    let version =
        Version::from_raw(options.version).filter(|version| *version >= Version::V2 || !options.compressed_data);
    let version = version.ok_or(Error::from(CallerError::InvalidArgument))?;
    let encoder = match options.rest_from {
        None => Encoder::new(output, version)?,
        Some(point) if (point.uuid, point.ctransid, point.version) == (to.uuid, to.ctransid, version) => {
            Encoder::rest(output, point)
        }
        Some(point) => {
            let (uuid, ctransid) = (to.uuid, to.ctransid);
            return Err(SendError::OtherPoint { point, uuid, ctransid, version: options.version });
        }
    };
    let tree = |source: &Source| -> VolumeResult<View> { Ok(View::new(core.store.tree(source.id)?)) };
    let pair = Pair { old: from.map(tree).transpose()?, new: tree(to)? };
    let clones = Clones::new(core, from, to, sources)?;
    let mut sender = Sender {
        core,
        pair,
        places: Places::default(),
        contents: Contents::new(version),
        clones,
        options: options.clone(),
        encoder,
        touched: BTreeSet::new(),
        inherited: None,
    };
    sender.begin(from, to, name)?;
    sender.clear()?;
    sender.place()?;
    sender.touch(ROOT_DIR_INO.0)?;
    sender.set_times_of_touched()?;
    sender.put(&Command::End)
}

impl Sender<'_> {
    fn begin(&mut self, from: Option<&Source>, to: &Source, path: &[u8]) -> Result<()> {
        let Source { uuid, ctransid, .. } = *to;
        self.put(&match from {
            None => Command::Subvol { path, uuid, ctransid },
            Some(from) => {
                let (parent_uuid, parent_ctransid) = (from.uuid, from.ctransid);
                Command::Snapshot { path, uuid, ctransid, parent_uuid, parent_ctransid }
            }
        })
    }

    fn changes(&self) -> Result<Changes> {
        Ok(Changes::new(&self.pair, self.core.store.sizes().sector)?)
    }

    /// Sets aside, or removes, inodes that lose their places.
    fn clear(&mut self) -> Result<()> {
        if self.pair.old.is_none() {
            return Ok(());
        }
        let mut changes = self.changes()?;
        while let Some(changed) = changes.step()? {
            self.places.cleared = changed.ino;
            if changed.item || changed.names {
                names::clear(self, changed.ino)?;
            }
        }
        Ok(())
    }

    /// Gives every inode that differs its names, contents and attributes.
    fn place(&mut self) -> Result<()> {
        let mut changes = self.changes()?;
        while let Some(changed) = changes.step()? {
            let ino = changed.ino;
            let old = self.pair.old_facts(ino)?;
            let new = self.pair.new.facts(ino)?;
            // The root directory exists with the subvolume, even if that is unrelated to the other.
            let is_root = ino == ROOT_DIR_INO.0;
            let same = old.filter(|old| is_root || new.is_some_and(|new| new.is_same_as(old)));
            if let Some(gone) = old.filter(|old| old.is_dir() && same.is_none()) {
                names::remove_aside(self, ino, &gone)?;
            }
            let Some(new) = new else { continue };
            let Some(path) = names::place(self, ino, &new, same.is_some())? else { continue };
            // An inode that got the number of another may have attributes that do not differ.
            let may_differ = changed.xattrs || (same.is_none() && self.pair.old.is_some());
            let xattrs = if may_differ { Xattrs::of(self, ino, same.is_some())? } else { Xattrs::default() };
            attributes::before_contents(self, &path, &xattrs)?;
            let is_written = self.send_contents(&changed, &path, (same.as_ref(), &new))?;
            attributes::after_contents(self, (ino, &path), (same.as_ref(), &new), (xattrs, is_written))?;
            if new.is_dir() {
                self.touch(ino)?;
            } else {
                self.set_times(&path, &new)?;
            }
        }
        Ok(())
    }
}
