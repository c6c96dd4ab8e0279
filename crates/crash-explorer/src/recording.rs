//! Holds a workload that was run: its tape, its oracle, and the images and hashes that states begin with. `workload`
//! makes it, `explore` makes states of it.

use super::cuts::{Chosen, Epoch, Part, SECTOR_BYTES, epochs, sector_of, sector_range};
use super::history::Floors;
use super::image::Image;
use super::oracle::Oracle;
use super::tape::{Tape, Time};
use crate::number::to_u64;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

/// A step, and when it ran.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    pub(super) began: Time,
    pub(super) returned: Time,
    pub(super) text: String,
}

/// The durable state of one epoch.
#[derive(Debug)]
struct Ground {
    image: Image,
    /// Contribution to the hash of each sector that differs from the base.
    sectors: HashMap<u64, u64>,
    hash: u64,
    floors: Floors,
}

/// A workload that was run.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) tape: Tape,
    pub(super) oracle: Oracle,
    pub(super) ran: Vec<Ran>,
    pub(super) epochs: Vec<Epoch>,
    /// Begin of the workload; earlier writes are durable.
    pub(super) first: Time,
    grounds: Vec<Ground>,
    /// Contributions to a hash of each sector of each write.
    hashes: Vec<Vec<u64>>,
}

impl Recording {
    /// `salt` is one number for all recordings that begin with the same base; states are those after `first`.
    pub(super) fn new(start: Image, tape: Tape, oracle: Oracle, ran: Vec<Ran>, salt: u64, first: Time) -> Result<Self> {
        let epochs = epochs(&tape);
        let mut hashes = Vec::with_capacity(tape.writes.len());
        for write in &tape.writes {
            let sectors = write.data.len().div_ceil(SECTOR_BYTES);
            let mut own = Vec::with_capacity(sectors);
            for index in 0..sectors {
                let bytes = write.data.get(sector_range(write.data.len(), index)).unwrap_or_default();
                own.push(contribution(&start, sector_of(write.offset, index), bytes)?);
            }
            hashes.push(own);
        }
        let sectors = changed_sectors(&start)?;
        let hash = sectors.values().fold(salt, |hash, part| hash.wrapping_add(*part));
        let mut ground = Ground { image: start, sectors, hash, floors: Floors::default() };
        let mut grounds = Vec::with_capacity(epochs.len());
        for epoch in &epochs {
            let parts: Vec<_> = epoch.settled.iter().map(|write| (*write, Part::Whole)).collect();
            let mut changed = HashMap::new();
            ground.hash = hash_with(&ground, &tape, &hashes, &parts, &mut changed);
            ground.sectors.extend(changed);
            apply(&mut ground.image, &tape, &parts)?;
            let floors = oracle.promised(epoch.from + 1);
            let (image, sectors, hash) = (ground.image.clone(), ground.sectors.clone(), ground.hash);
            grounds.push(Ground { image, sectors, hash, floors });
        }
        Ok(Self { tape, oracle, ran, epochs, first, grounds, hashes })
    }

    /// A number that differs between states that differ.
    pub(super) fn hash(&self, chosen: &Chosen) -> u64 {
        let Some(ground) = self.grounds.get(chosen.epoch) else { return 0 };
        hash_with(ground, &self.tape, &self.hashes, &chosen.parts, &mut HashMap::new())
    }

    /// The image of a state.
    pub(super) fn image(&self, chosen: &Chosen) -> Result<Image> {
        let ground = self.grounds.get(chosen.epoch).context("no such epoch")?;
        let mut image = ground.image.clone();
        apply(&mut image, &self.tape, &chosen.parts)?;
        Ok(image)
    }

    /// The promises at a moment.
    pub(super) fn promised(&self, chosen: &Chosen, now: Time) -> Floors {
        match (self.epochs.get(chosen.epoch), self.grounds.get(chosen.epoch)) {
            (Some(epoch), Some(ground)) if now <= epoch.from + 1 => ground.floors.clone(),
            _ => self.oracle.promised(now),
        }
    }
}

fn apply(image: &mut Image, tape: &Tape, parts: &[(usize, Part)]) -> Result<()> {
    for (index, part) in parts {
        let write = tape.writes.get(*index).context("no such write")?;
        if *part == Part::Whole {
            image.write(write.offset, &write.data)?;
            continue;
        }
        let sectors = write.data.len().div_ceil(SECTOR_BYTES);
        for sector in (0..sectors).filter(|sector| part.has(*sector)) {
            let range = sector_range(write.data.len(), sector);
            let offset = write.offset + to_u64(range.start);
            image.write(offset, write.data.get(range).unwrap_or_default())?;
        }
    }
    Ok(())
}

fn hash_with(
    ground: &Ground,
    tape: &Tape,
    hashes: &[Vec<u64>],
    parts: &[(usize, Part)],
    changed: &mut HashMap<u64, u64>,
) -> u64 {
    let mut hash = ground.hash;
    for (index, part) in parts {
        let (Some(write), Some(own)) = (tape.writes.get(*index), hashes.get(*index)) else { continue };
        for (at, new) in own.iter().enumerate().filter(|(at, _)| part.has(*at)) {
            let sector = sector_of(write.offset, at);
            let durable = ground.sectors.get(&sector).copied().unwrap_or(0);
            let old = changed.insert(sector, *new).unwrap_or(durable);
            hash = hash.wrapping_sub(old).wrapping_add(*new);
        }
    }
    hash
}

/// Contribution of a sector to the hash of an image: zero if it equals the base.
fn contribution(image: &Image, sector: u64, bytes: &[u8]) -> Result<u64> {
    let mut base = [0; SECTOR_BYTES];
    let base = base.get_mut(..bytes.len()).unwrap_or_default();
    image.read_base(sector * to_u64(SECTOR_BYTES), base)?;
    if base == bytes {
        return Ok(0);
    }
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(sector);
    hasher.write(bytes);
    Ok(hasher.finish())
}

fn changed_sectors(image: &Image) -> Result<HashMap<u64, u64>> {
    let mut sectors = HashMap::new();
    for (offset, bytes) in image.changed_pages() {
        for (index, bytes) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let sector = sector_of(offset, index);
            let added = contribution(image, sector, bytes)?;
            if added != 0 {
                sectors.insert(sector, added);
            }
        }
    }
    Ok(sectors)
}
