//! Power cuts during a repair and during an undo: every state that one can leave is the damaged one or the repaired
//! one, and the undo file leads from each of them back to every byte.
//!
//! A cut keeps flushed writes, and any part of later ones, torn between sectors of 512 bytes. A torn write of the
//! primary superblock leaves its mirrors, which a check reads and finds to differ: both findings are of the superblock
//! only, and are ignored. Bad copies of blocks may be repaired already.

use std::sync::Arc;
use std::sync::Mutex;

use blockdev::Device;
use blockdev::backends::OverlayDevice;
use btrfs_check::Code;
use crash_explorer::Random;
use crash_explorer::faults::{Event, crash_onto};

use super::plant::found;
use super::{images, options, over, planted, plants, undo, undo_file};

/// States of each repair and undo; `REPAIR_STATES` for another number in all.
const STATES: u64 = 600;

/// Remembers writes and flushes.
#[derive(Debug)]
struct Tape {
    below: Arc<OverlayDevice>,
    events: Mutex<Vec<Event>>,
}

impl Device for Tape {
    fn name(&self) -> &str {
        self.below.name()
    }

    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        self.events.lock().unwrap().push(Event::Write { offset, data: parts.concat() });
        self.below.write_at(offset, parts)
    }

    fn flush(&self) -> blockdev::Result<()> {
        self.events.lock().unwrap().push(Event::Flush);
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> blockdev::Result<()> {
        Ok(())
    }

    fn grow(&self, size: u64) -> blockdev::Result<()> {
        self.below.grow(size)
    }
}

/// A state that a cut leaves.
fn cut(start: &Arc<dyn Device>, events: &[Event], random: &mut Random) -> Arc<OverlayDevice> {
    let state = over(start);
    crash_onto(&*state, &events[..random.index(events.len() + 1)], random).unwrap();
    state
}

fn judged(device: &Arc<dyn Device>) -> Vec<(Code, u64)> {
    let aside = [Code::SuperCopy, Code::SuperMirror, Code::BlockMirror, Code::BlockMirrorsDiffer];
    found(device).into_iter().filter(|(code, _)| !aside.contains(code)).collect()
}

/// Cuts the power during a repair and during its undo, `count` times in all; returns how often the damaged state was
/// left, and how often the repaired one.
pub(super) fn power_cuts(
    name: &str,
    damaged: &Arc<dyn Device>,
    plan: &btrfs_repair::Plan,
    count: u64,
    random: &mut Random,
) -> (u64, u64) {
    let file = undo_file(plan);
    let tape = Tape { below: over(damaged), events: Mutex::default() };
    plan.apply(&tape).unwrap();
    let repaired: Arc<dyn Device> = Arc::<OverlayDevice>::clone(&tape.below);
    let ends = (judged(damaged), judged(&repaired));
    let back = Tape { below: over(&repaired), events: Mutex::default() };
    undo(&file, &back).unwrap();
    let runs = [(damaged, tape.events.into_inner().unwrap()), (&repaired, back.events.into_inner().unwrap())];
    let mut counts = (0, 0);
    for number in 0..count {
        let (start, events) = &runs[(number % 2) as usize];
        let state = cut(start, events, random);
        let device: Arc<dyn Device> = Arc::<OverlayDevice>::clone(&state);
        let now = judged(&device);
        counts.0 += u64::from(now == ends.0);
        counts.1 += u64::from(now == ends.1);
        assert!(now == ends.0 || now == ends.1, "{name}: {now:?}, neither {:?} nor {:?}", ends.0, ends.1);
        undo(&file, &*state).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut is_back = true;
        for (offset, page) in state.changes() {
            let mut old = vec![0; page.len()];
            damaged.read_at(offset, &mut old).unwrap();
            is_back &= old[..] == page[..];
        }
        assert!(is_back, "{name}: not as it was after an undo");
    }
    counts
}

#[test]
fn a_power_cut_leaves_one_of_two_states() {
    let seed = 11;
    let images = images::all();
    let mut random = Random::new(seed);
    let wanted: u64 = std::env::var("REPAIR_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(STATES);
    let all = plants();
    let mut subjects = 0;
    let (mut states, mut olds, mut news) = (0u64, 0u64, 0u64);
    let each = (wanted / 60).max(20);
    while states < wanted {
        let plant = &all[random.index(all.len())];
        let image = &images[random.index(images.len())];
        let Some(damaged) = planted(plant, image) else { continue };
        let name = format!("{} ({}) in {}, seed {seed}", plant.code, plant.name, image.base.name);
        let Ok(plan) = btrfs_repair::plan(&damaged, &options(), &()) else { continue };
        if !plan.has_changes() {
            continue;
        }
        subjects += 1;
        let counts = power_cuts(&name, &damaged, &plan, each, &mut random);
        states += each;
        olds += counts.0;
        news += counts.1;
    }
    println!("{states} states of {subjects} repairs and undos: {olds} old, {news} repaired, 0 failures");
}
