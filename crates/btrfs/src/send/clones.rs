//! Finds clone sources: files at the receiver that have some data already. Called by `content` for each range that is
//! not sent yet.
//!
//! References to an extent lead to files that use it. Each subvolume that may be cloned from is searched for such a
//! file, with this extent at this place, because the receiver has that file. Within the new subvolume, only ranges that
//! the stream has already written are cloned, and ranges of files that are still the parent's and will change later.
//!
//! The new subvolume is preferred to all others, even where they have longer ranges, because every receiver finds it.
//! `btrfs receive` before 6.10 looks up the others by their received UUID only, and a subvolume has none on the volume
//! where it was made.

use std::ops::Range;

use btrfs_disk::InodeNo;
use btrfs_disk::items::FileKind;
use btrfs_stream::{CloneRange, Uuid};

use super::content::{Target, is_same_data};
use super::sender::{Result, Sender, Source};
use super::view::View;
use crate::error::Result as VolumeResult;
use crate::extents::{ExtentMap, FileExtent, Kind, Stretch};

/// Extents with more references than these are written: to look for the best one would take longer.
const REFERENCES_MAX: u64 = 256;

/// A clone source.
#[derive(Debug)]
pub(super) struct Found {
    path: Vec<u8>,
    uuid: Uuid,
    ctransid: u64,
    offset: u64,
    pub(super) len: u64,
}

impl Found {
    pub(super) fn command<'a>(&'a self, path: &'a [u8], offset: u64) -> CloneRange<'a> {
        CloneRange {
            path,
            offset,
            len: self.len,
            from_uuid: self.uuid,
            from_ctransid: self.ctransid,
            from_path: &self.path,
            from_offset: self.offset,
        }
    }
}

/// A file that may have the data.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    ino: u64,
    offset: u64,
}

impl Sender<'_> {
    /// The clone source for the data at the start of a range, and its length.
    pub(super) fn find_clone(
        &self,
        target: &Target<'_>,
        range: Range<u64>,
        item: &FileExtent,
    ) -> Result<Option<Found>> {
        let references = self.core.store.data_reference_count(item.disk, item.disk_len)?;
        if references > REFERENCES_MAX || (references == 1 && self.clones.others.is_empty() && self.pair.old.is_none())
        {
            return Ok(None);
        }
        let within = item.offset.wrapping_add(range.start.wrapping_sub(item.start));
        let (mut own, mut other): (Option<Found>, Option<Found>) = (None, None);
        let mut candidates = vec![Candidate { ino: target.ino, offset: range.start }];
        if references > 1 {
            let places = self.core.store.data_places(item.disk)?;
            let elsewhere =
                |(ino, offset): (InodeNo, u64)| Candidate { ino: ino.0, offset: offset.wrapping_add(within) };
            candidates.extend(places.into_iter().map(elsewhere));
        }
        for candidate in candidates {
            for (view, source) in &self.clones.others {
                if own.is_none()
                    && let Some(len) = self.usable(view, candidate, (target, &range, item))?
                    && other.as_ref().is_none_or(|best| best.len < len)
                    && let Some(name) = view.names(candidate.ino)?.first()
                {
                    other = Some(found(view.path(name)?, source, candidate, len));
                }
            }
            let is_done = |len: u64| match candidate.ino == target.ino {
                true => candidate.offset.saturating_add(len) <= range.start,
                false => candidate.ino < target.ino,
            };
            if let Some(waiting) = self.waiting(candidate, (target, &range, item))?
                && own.as_ref().is_none_or(|best| best.len < waiting.len)
            {
                own = Some(waiting);
            }
            if let Some(len) = self.usable(&self.pair.new, candidate, (target, &range, item))?
                && is_done(len)
                && own.as_ref().is_none_or(|best| best.len < len)
                && let Some(name) = self.pair.new.names(candidate.ino)?.first()
            {
                own = Some(found(self.places.of(&self.pair, name)?, &self.clones.own, candidate, len));
            }
        }
        Ok(own.or(other))
    }

    /// A file of the parent that has the data and is still unchanged at the receiver; `None` if it was replaced or
    /// overwritten there.
    fn waiting(
        &self,
        candidate: Candidate,
        wanted: (&Target<'_>, &Range<u64>, &FileExtent),
    ) -> VolumeResult<Option<Found>> {
        let (target, range, _) = wanted;
        let ino = candidate.ino;
        let Some(old) = self.pair.old.as_ref().filter(|_| ino >= target.ino) else { return Ok(None) };
        let (Some(before), Some(now)) = (old.facts(ino)?, self.pair.new.facts(ino)?) else { return Ok(None) };
        if !now.is_same_as(&before) {
            return Ok(None);
        }
        let Some(len) = self.usable(old, candidate, wanted)? else { return Ok(None) };
        if ino == target.ino {
            // Files are written from start to end, so the part after the current offset is still the parent's.
            let is_behind = candidate.offset >= range.start.saturating_add(len);
            let is_there = candidate.offset.saturating_add(len) <= target.size_there;
            let own = || found(target.path.to_vec(), &self.clones.own, candidate, len);
            return Ok((is_behind && is_there).then(own));
        }
        let links = self.pair.links(ino)?;
        let path = match links.kept.first() {
            Some(name) => self.places.of(&self.pair, name)?,
            None => self.pair.aside(ino, before.generation)?,
        };
        Ok(Some(found(path, &self.clones.own, candidate, len)))
    }

    /// How much of a range a file has at a place, from the same extent; `None` where nothing of it can be cloned.
    fn usable(
        &self,
        view: &View,
        candidate: Candidate,
        (target, range, item): (&Target<'_>, &Range<u64>, &FileExtent),
    ) -> VolumeResult<Option<u64>> {
        let sector = self.core.store.sizes().sector;
        let unit = u64::from(sector);
        let Candidate { ino, offset } = candidate;
        if !offset.is_multiple_of(unit) || !range.start.is_multiple_of(unit) {
            return Ok(None);
        }
        let Some(facts) = view.facts(ino)?.filter(|facts| facts.kind == FileKind::File) else { return Ok(None) };
        if offset >= facts.size || facts.has_csums != target.has_csums {
            return Ok(None);
        }
        let map = ExtentMap::load(&view.tree, InodeNo(ino), offset..offset.saturating_add(unit), 1, sector)?;
        let (Stretch::Item(there), end) = map.at(offset, sector) else { return Ok(None) };
        // Moves the item to the place of the other, to compare them.
        let moved = FileExtent { start: there.start.wrapping_sub(offset).wrapping_add(range.start), ..there };
        if there.kind != Kind::Regular || !is_same_data(&moved, item, range.start) {
            return Ok(None);
        }
        let end = end.min(facts.size);
        let len = (end - offset).min(range.end - range.start);
        let (from_end, to_end) = (offset.saturating_add(len), range.start.saturating_add(len));
        // The last part of a sector can be cloned from the end of one file to that of another.
        let is_at_ends = from_end == facts.size && to_end == target.size;
        let len = if is_at_ends { len } else { len - len % unit };
        Ok((len > 0).then_some(len))
    }
}

fn found(path: Vec<u8>, source: &Source, candidate: Candidate, len: u64) -> Found {
    Found { path, uuid: source.uuid, ctransid: source.ctransid, offset: candidate.offset, len }
}
