//! Enumerates, draws and names the states that a power cut can leave of a recorded workload. `explore` chooses states
//! here, `recording` makes their images.
//!
//! Between two flushes (an epoch) everything that the first one covered is durable, and of the writes that began since
//! any part may be there, in units of 512 bytes. The names of cuts:
//!
//! ```text
//! E:first-K             the first K writes of epoch E are whole, the others missing
//! E:last-K              the last K are whole, the others missing
//! E:only-I E:without-I  write I alone; all but write I
//! E:set-M               the writes whose bits are set in M (all sets, where there are few writes)
//! E:head-I-S E:tail-I-S all writes before I, and of write I the first (last) S sectors of 512 bytes
//! E:hole-I-S            all writes, but of write I sector S is missing
//! E:torn-I-S            all writes, but of write I only the first S sectors
//! E:swapped-I           all writes, but number I came before the one in front of it
//! drawn-N               everything drawn: the epoch, where in it, which writes, torn how, in which order
//! ```

use super::tape::{Tape, Time};
use crate::Random;
use crate::number::to_u64;
use std::fmt;

/// Unit that a crash does not tear.
pub(super) const SECTOR_BYTES: usize = 512;
/// All sets of so few writes are tried.
const SET_WRITES_MAX: usize = 5;
/// So many sectors of a write are torn at each place.
const TORN_EACH_MAX: usize = 8;

/// From the return of one flush to the return of the next.
#[derive(Debug, Clone)]
pub(super) struct Epoch {
    pub(super) from: Time,
    /// When the next flush returned.
    pub(super) to: Time,
    /// Numbers of the writes that the flush before made durable, since the epoch before.
    pub(super) settled: Vec<usize>,
    /// Numbers of the writes that began before its end and are not durable, in their order.
    pub(super) pending: Vec<usize>,
}

/// The epochs of a tape.
pub(super) fn epochs(tape: &Tape) -> Vec<Epoch> {
    let mut flushes = tape.flushes.clone();
    flushes.sort_by_key(|flush| flush.returned);
    let mut is_durable = vec![false; tape.writes.len()];
    let mut epochs = Vec::new();
    let mut from = 0;
    let mut covered: Time = 0;
    for next in flushes.iter().map(Some).chain([None]) {
        let to = next.map_or(Time::MAX, |flush| flush.returned);
        let mut epoch = Epoch { from, to, settled: Vec::new(), pending: Vec::new() };
        for (index, write) in tape.writes.iter().enumerate() {
            let Some(is_durable) = is_durable.get_mut(index).filter(|is_durable| !**is_durable) else {
                continue;
            };
            if write.returned < covered {
                *is_durable = true;
                epoch.settled.push(index);
            } else if write.began < to {
                epoch.pending.push(index);
            }
        }
        epochs.push(epoch);
        if let Some(flush) = next {
            (from, covered) = (flush.returned, covered.max(flush.began));
        }
    }
    epochs
}

/// A state's name: the epoch, and the surviving writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    In(usize, Choice),
    Drawn(u64),
}

/// The surviving writes of an epoch; they are numbered within the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    First(usize),
    Last(usize),
    Only(usize),
    Without(usize),
    Set(u64),
    Head(usize, usize),
    Tail(usize, usize),
    Hole(usize, usize),
    Torn(usize, usize),
    Swapped(usize),
}

/// Which sectors of a write are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    /// From one sector up to before another.
    Range(usize, usize),
    /// All but one.
    Without(usize),
    /// Those that are true.
    Mask(Vec<bool>),
}

impl Part {
    pub(super) fn has(&self, sector: usize) -> bool {
        match self {
            Self::Whole => true,
            Self::Range(from, to) => (*from..*to).contains(&sector),
            Self::Without(missing) => sector != *missing,
            Self::Mask(there) => there.get(sector).copied().unwrap_or(false),
        }
    }
}

/// A state: the writes that are there in the order in which they came, over those that are durable.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) epoch: usize,
    /// Number of the write on the tape, and the surviving part.
    pub(super) parts: Vec<(usize, Part)>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epoch, choice) = match self {
            Self::Drawn(number) => return write!(f, "drawn-{number}"),
            Self::In(epoch, choice) => (epoch, choice),
        };
        write!(f, "{epoch}:")?;
        match choice {
            Choice::First(count) => write!(f, "first-{count}"),
            Choice::Last(count) => write!(f, "last-{count}"),
            Choice::Only(index) => write!(f, "only-{index}"),
            Choice::Without(index) => write!(f, "without-{index}"),
            Choice::Set(set) => write!(f, "set-{set}"),
            Choice::Head(index, sectors) => write!(f, "head-{index}-{sectors}"),
            Choice::Tail(index, sectors) => write!(f, "tail-{index}-{sectors}"),
            Choice::Hole(index, sector) => write!(f, "hole-{index}-{sector}"),
            Choice::Torn(index, sectors) => write!(f, "torn-{index}-{sectors}"),
            Choice::Swapped(index) => write!(f, "swapped-{index}"),
        }
    }
}

/// All states after `start` that have a name of their own, those that matter most first.
pub(super) fn systematic(tape: &Tape, epochs: &[Epoch], start: Time) -> (Vec<Cut>, Vec<Cut>) {
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for (number, epoch) in epochs.iter().enumerate().filter(|(_, epoch)| epoch.to > start) {
        let count = epoch.pending.len();
        first.push(Cut::In(number, Choice::First(0)));
        if count > 0 {
            first.push(Cut::In(number, Choice::First(count)));
        }
        let mut add = |choice| others.push(Cut::In(number, choice));
        (1..count).for_each(|index| add(Choice::First(index)));
        if count <= SET_WRITES_MAX {
            (1..(1u64 << count)).for_each(|set| add(Choice::Set(set)));
        } else {
            for index in 0..count {
                add(Choice::Only(index));
                add(Choice::Without(index));
                add(Choice::Last(index));
            }
        }
        for (index, write) in epoch.pending.iter().enumerate() {
            let sectors = tape.writes.get(*write).map_or(0, |write| write.data.len().div_ceil(SECTOR_BYTES));
            let step = sectors.div_ceil(TORN_EACH_MAX).max(1);
            for sector in (1..sectors).step_by(step) {
                add(Choice::Head(index, sector));
                add(Choice::Tail(index, sector));
                add(Choice::Torn(index, sector));
                add(Choice::Hole(index, sector));
            }
            if sectors > 1 {
                add(Choice::Hole(index, 0));
            }
            if index > 0 && overlaps(tape, epoch, index) {
                add(Choice::Swapped(index));
            }
        }
    }
    (first, others)
}

/// Only writes of the same place can be told to have come in another order.
fn overlaps(tape: &Tape, epoch: &Epoch, index: usize) -> bool {
    let range = |index: usize| {
        let write = tape.writes.get(*epoch.pending.get(index)?)?;
        Some(write.offset..write.offset.saturating_add(to_u64(write.data.len())))
    };
    match (range(index - 1), range(index)) {
        (Some(a), Some(b)) => a.start < b.end && b.start < a.end,
        _ => false,
    }
}

/// The surviving writes of a cut.
pub(super) fn choose(tape: &Tape, epochs: &[Epoch], start: Time, cut: Cut, seed: u64) -> Option<Chosen> {
    let (number, choice) = match cut {
        Cut::Drawn(draw) => return draw_one(tape, epochs, start, seed ^ draw.wrapping_mul(0x2545_f491_4f6c_dd1d)),
        Cut::In(number, choice) => (number, choice),
    };
    let pending = &epochs.get(number)?.pending;
    let whole = |indexes: &[usize]| indexes.iter().map(|index| (*index, Part::Whole)).collect::<Vec<_>>();
    let before = |index: usize| whole(pending.get(..index).unwrap_or_default());
    let instead = |index: usize, part: Part| {
        let mut parts = whole(pending);
        if let Some(entry) = parts.get_mut(index) {
            entry.1 = part;
        }
        parts
    };
    let parts = match choice {
        Choice::First(count) => before(count),
        Choice::Last(count) => whole(pending.get(pending.len().saturating_sub(count)..)?),
        Choice::Only(index) => whole(&[*pending.get(index)?]),
        Choice::Without(index) => {
            let mut parts = whole(pending);
            parts.remove(index);
            parts
        }
        Choice::Set(set) => {
            let shifted = |index| set.checked_shr(u32::try_from(index).unwrap_or(64));
            let is_there = |index: usize| shifted(index).unwrap_or(0) & 1 == 1;
            let there = pending.iter().enumerate().filter(|(index, _)| is_there(*index));
            there.map(|(_, write)| (*write, Part::Whole)).collect()
        }
        Choice::Head(index, sectors) => {
            let mut parts = before(index);
            parts.push((*pending.get(index)?, Part::Range(0, sectors)));
            parts
        }
        Choice::Tail(index, sectors) => {
            let mut parts = before(index);
            let write = *pending.get(index)?;
            let all = tape.writes.get(write)?.data.len().div_ceil(SECTOR_BYTES);
            parts.push((write, Part::Range(all.saturating_sub(sectors), all)));
            parts
        }
        Choice::Hole(index, sector) => instead(index, Part::Without(sector)),
        Choice::Torn(index, sectors) => instead(index, Part::Range(0, sectors)),
        Choice::Swapped(index) => {
            let mut parts = whole(pending);
            parts.swap(index.checked_sub(1)?, index);
            parts
        }
    };
    Some(Chosen { epoch: number, parts })
}

fn draw_one(tape: &Tape, epochs: &[Epoch], start: Time, seed: u64) -> Option<Chosen> {
    let mut random = Random::new(seed);
    let busy = epochs.iter().enumerate().filter(|(_, epoch)| is_busy(epoch, start));
    let busy: Vec<usize> = busy.map(|(index, _)| index).collect();
    let epoch = *random.pick(&busy)?;
    let pending = &epochs.get(epoch)?.pending;
    let count = random.index(pending.len()) + 1;
    let mut writes = pending.get(..count)?.to_vec();
    if random.one_in(2) {
        for index in (1..writes.len()).rev() {
            writes.swap(index, random.index(index + 1));
        }
    }
    let missing = random.between(2, 6);
    let mut parts = Vec::new();
    for write in writes {
        if random.one_in(missing) {
            continue;
        }
        let sectors = tape.writes.get(write)?.data.len().div_ceil(SECTOR_BYTES);
        let part = match random.below(6) {
            0 => Part::Mask((0..sectors).map(|_| random.one_in(2)).collect()),
            1 => Part::Range(0, random.index(sectors + 1)),
            _ => Part::Whole,
        };
        parts.push((write, part));
    }
    Some(Chosen { epoch, parts })
}

fn is_busy(epoch: &Epoch, start: Time) -> bool {
    epoch.to > start && !epoch.pending.is_empty()
}

/// The cut of a name.
pub(super) fn named(tape: &Tape, epochs: &[Epoch], start: Time, name: &str) -> Option<Cut> {
    if let Some(number) = name.strip_prefix("drawn-") {
        return number.parse().ok().map(Cut::Drawn);
    }
    let (first, others) = systematic(tape, epochs, start);
    first.into_iter().chain(others).find(|cut| cut.to_string() == name)
}

/// When the crash that leaves a state came at the earliest and at the latest.
pub(super) fn moments(tape: &Tape, epochs: &[Epoch], chosen: &Chosen) -> Option<(Time, Time)> {
    let epoch = epochs.get(chosen.epoch)?;
    let began = |part: &(usize, Part)| tape.writes.get(part.0).map_or(0, |write| write.began + 1);
    let earliest = chosen.parts.iter().map(began).max().unwrap_or(0).max(epoch.from + 1);
    let end = if epoch.to == Time::MAX { tape.now.saturating_add(1) } else { epoch.to };
    Some((earliest.min(end), end))
}

/// Number of a write's sector on the device.
pub(super) fn sector_of(offset: u64, index: usize) -> u64 {
    offset / to_u64(SECTOR_BYTES) + to_u64(index)
}

/// The bytes of a sector within those of a write.
pub(super) fn sector_range(len: usize, index: usize) -> std::ops::Range<usize> {
    let start = (index * SECTOR_BYTES).min(len);
    start..(start + SECTOR_BYTES).min(len)
}

#[cfg(test)]
mod tests {
    use super::super::tape::{Flush, Write};
    use super::*;

    fn tape() -> Tape {
        let write = |began, returned, offset| Write { began, returned, offset, data: vec![1; 1024].into() };
        let flush = |began, returned| Flush { began, returned };
        Tape {
            now: 20,
            // The second write runs while the first flush does: it is not durable after it.
            writes: vec![write(0, 1, 0), write(3, 5, 1024), write(8, 9, 1024), write(12, 13, 0)],
            flushes: vec![flush(2, 4), flush(10, 11), flush(14, 15)],
        }
    }

    #[test]
    fn a_flush_covers_what_returned_before_it_began() {
        let epochs = epochs(&tape());
        let shape: Vec<_> = epochs.iter().map(|epoch| (epoch.settled.clone(), epoch.pending.clone())).collect();
        let expected: [(Vec<usize>, Vec<usize>); 4] =
            [(vec![], vec![0, 1]), (vec![0], vec![1, 2]), (vec![1, 2], vec![3]), (vec![3], vec![])];
        assert_eq!(shape, expected);
    }

    #[test]
    fn names_lead_back_to_their_cuts() {
        let (tape, epochs) = (tape(), epochs(&tape()));
        let (first, others) = systematic(&tape, &epochs, 0);
        for cut in first.iter().chain(&others) {
            assert_eq!(named(&tape, &epochs, 0, &cut.to_string()), Some(*cut));
            let chosen = choose(&tape, &epochs, 0, *cut, 1).unwrap();
            let (earliest, latest) = moments(&tape, &epochs, &chosen).unwrap();
            assert!(earliest <= latest);
        }
        assert!(others.contains(&Cut::In(1, Choice::Swapped(1))), "{others:?}");
        assert_eq!(named(&tape, &epochs, 0, "drawn-7"), Some(Cut::Drawn(7)));
        assert_eq!(named(&tape, &epochs, 0, "9:first-0"), None);
    }

    #[test]
    fn drawn_states_repeat_and_differ() {
        let (tape, epochs) = (tape(), epochs(&tape()));
        let draw = |number| format!("{:?}", choose(&tape, &epochs, 0, Cut::Drawn(number), 5));
        assert_eq!(draw(3), draw(3));
        let all: std::collections::BTreeSet<String> = (0..100).map(draw).collect();
        assert!(all.len() > 20, "{}", all.len());
    }
}
