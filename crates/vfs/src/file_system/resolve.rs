//! Resolves a path to a node, one name after the other. Called by `FileSystem::resolve`.

use std::borrow::Cow;

use super::{Answer, Entry, Errno, FileSystem, Follow, NodeId};

/// Symbolic links followed for one path, as Linux has it.
const SYMLINKS_MAX: u32 = 40;

/// A node on the way, which is given back when the walk goes on or fails.
struct Step<'a, F: FileSystem + ?Sized> {
    fs: &'a F,
    entry: Entry,
}

impl<'a, F: FileSystem + ?Sized> Step<'a, F> {
    fn look_up(fs: &'a F, dir: NodeId, name: &[u8]) -> Answer<Self> {
        fs.lookup(dir, name).map(|entry| Self { fs, entry })
    }

    fn is_dir(&self) -> bool {
        self.entry.attr.kind.is_dir()
    }

    fn keep(self) -> Entry {
        let entry = self.entry;
        std::mem::forget(self);
        entry
    }
}

impl<F: FileSystem + ?Sized> Drop for Step<'_, F> {
    fn drop(&mut self) {
        self.fs.forget(self.entry.node, 1);
    }
}

/// The node of `path`, by [`FileSystem::lookup`] and [`FileSystem::read_link`]; the answer counts as one reference. The
/// default of [`FileSystem::resolve`], for file systems without a shorter way.
///
/// # Errors
/// `ENOENT` (also for an empty path), `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`, and errors of the file system.
pub fn resolve<F: FileSystem + ?Sized>(fs: &F, path: &[u8], mut follow: Follow) -> Answer<Entry> {
    if path.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    let mut links_left = SYMLINKS_MAX;
    let mut path = Cow::Borrowed(path);
    let mut done = 0;
    let mut at = Step::look_up(fs, NodeId::ROOT, b".")?;
    loop {
        let rest = &path[done..];
        let begin = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
        if begin > 0 && !at.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let rest = &rest[begin..];
        if rest.is_empty() {
            return Ok(at.keep());
        }
        if !at.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let next = match name {
            b"." => None,
            name => Some(Step::look_up(fs, at.entry.node, name)?),
        };
        let follows = follow == Follow::Last || !behind.is_empty();
        match next {
            Some(link) if follows && link.entry.attr.kind.is_symlink() => {
                links_left = links_left.checked_sub(1).ok_or(Errno::ELOOP)?;
                let mut target = fs.read_link(link.entry.node)?;
                if behind.is_empty() {
                    follow = Follow::Last;
                }
                if target.first() == Some(&b'/') {
                    at = Step::look_up(fs, NodeId::ROOT, b".")?;
                }
                target.extend_from_slice(behind);
                (path, done) = (Cow::Owned(target), 0);
            }
            next => {
                at = next.unwrap_or(at);
                done += begin + end;
            }
        }
    }
}
