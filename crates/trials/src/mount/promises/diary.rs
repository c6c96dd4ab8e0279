//! Records the operations and promises of a writer in their order, each with its position in the record of a disk.
//! `writer` notes them; `kill` and `power_cut` replay them.

use super::event::Event;
use super::ledger::Ledger;
use std::fs::File;
use std::io;

/// The present position in the record of a disk.
#[derive(Debug)]
pub(in crate::mount) enum Clock {
    /// Nothing is recorded: only the last moment is checked.
    None,
    /// The file to which a recording disk appends: its length in bytes only grows.
    Record(File),
}

impl Clock {
    fn now(&self) -> io::Result<u64> {
        match self {
            Self::None => Ok(0),
            Self::Record(file) => Ok(file.metadata()?.len()),
        }
    }
}

/// A ledger with its history.
#[derive(Debug)]
pub(in crate::mount) struct Diary {
    clock: Clock,
    events: Vec<(u64, Event)>,
    pub(in crate::mount) ledger: Ledger,
}

impl Diary {
    pub(in crate::mount) fn new(clock: Clock) -> Self {
        Self { clock, events: Vec::new(), ledger: Ledger::default() }
    }

    /// Notes an operation before it begins, and a promise after it was made.
    ///
    /// # Errors
    /// The record's length cannot be read.
    pub(in crate::mount) fn note(&mut self, event: Event) -> io::Result<()> {
        self.ledger.apply(&event);
        if !matches!(self.clock, Clock::None) {
            self.events.push((self.clock.now()?, event));
        }
        Ok(())
    }

    /// Replays the diary from the beginning.
    pub(in crate::mount) fn replay(&self) -> Replay<'_> {
        Replay { rest: &self.events, ledger: Ledger::default() }
    }
}

/// The ledger at an earlier moment.
#[derive(Debug)]
pub(in crate::mount) struct Replay<'a> {
    rest: &'a [(u64, Event)],
    ledger: Ledger,
}

impl Replay<'_> {
    /// The ledger when the record had `position` bytes: changes begun by then may be on the disk, and promises made by
    /// then must be kept. Positions have to be ascending.
    pub(in crate::mount) fn at(&mut self, position: u64) -> &Ledger {
        while let Some(((when, event), rest)) = self.rest.split_first() {
            if *when > position {
                break;
            }
            self.ledger.apply(event);
            self.rest = rest;
        }
        &self.ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_promise_counts_from_where_the_record_was_when_it_was_made() {
        let path = std::env::temp_dir().join(format!("spinney-diary-{}", std::process::id()));
        let mut record = File::create(&path).unwrap();
        let mut diary = Diary::new(Clock::Record(File::open(&path).unwrap()));
        diary.note(Event::New("a".to_owned())).unwrap();
        record.write_all(&[0; 100]).unwrap();
        diary.note(Event::DataSynced(0)).unwrap();
        let mut replay = diary.replay();
        assert_eq!((replay.at(0).files.len(), replay.at(0).syncs), (1, 0));
        assert_eq!(replay.at(99).syncs, 0);
        assert_eq!(replay.at(100).syncs, 1);
        std::fs::remove_file(path).unwrap();
    }
}
