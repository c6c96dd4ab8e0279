//! Counts the requests of a recording, by kind and size. Called by `trace` and `plot`.

use std::collections::BTreeMap;

use serde::Serialize;
use spinney::blockdev::Kind;

use super::read::{Asked, Request};

/// Requests and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Count {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Numbers of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    /// From the first request to the end of the last.
    pub(super) duration_us: u64,
    pub(super) reads: Count,
    pub(super) writes: Count,
    pub(super) flushes: u64,
    pub(super) discards: Count,
    /// Writes by purpose, each copy counted.
    pub(super) writes_by_kind: BTreeMap<&'static str, Count>,
    /// Reads and writes that do not begin where the previous one ended.
    pub(super) seeks: u64,
    /// Writes of data by one thread, each where its last one ended, count as one run.
    pub(super) data_runs: u64,
}

impl Summary {
    pub(super) fn of(requests: &[Request]) -> Self {
        let mut summary = Self::default();
        let mut head = None;
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        let first = requests.first().map_or(0, |request| request.begin);
        for request in requests {
            let end = request.offset.saturating_add(request.len);
            let last = request.begin.saturating_add(request.took).saturating_sub(first);
            summary.duration_us = summary.duration_us.max(last);
            match request.asked {
                Asked::Flush => summary.flushes = summary.flushes.saturating_add(1),
                Asked::Discard => summary.discards.add(request.len),
                Asked::Read => summary.reads.add(request.len),
                Asked::Write => {
                    summary.writes.add(request.len);
                    summary.writes_by_kind.entry(request.kind.name()).or_default().add(request.len);
                }
            }
            if request.is_transfer() {
                summary.seeks = summary.seeks.saturating_add(u64::from(head != Some(request.offset)));
                head = Some(end);
            }
            if request.asked == Asked::Write && request.kind == Kind::Data && request.mirror == 0 {
                let before = ends.insert(request.thread, end);
                summary.data_runs = summary.data_runs.saturating_add(u64::from(before != Some(request.offset)));
            }
        }
        summary
    }

    /// Bytes of an average run of data.
    pub(super) fn data_run_bytes(&self) -> u64 {
        let data = self.writes_by_kind.get(Kind::Data.name()).copied().unwrap_or_default();
        data.bytes.checked_div(self.data_runs).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeks_and_runs_are_counted() {
        let write = |begin, offset, kind, thread| Request {
            begin,
            took: 10,
            asked: Asked::Write,
            offset,
            len: 4096,
            kind,
            mirror: 0,
            thread,
        };
        // Two threads alternate: each continues its own run, but the device seeks.
        let requests = [
            write(100, 0, Kind::Data, 1),
            write(110, 1 << 20, Kind::Data, 2),
            write(120, 4096, Kind::Data, 1),
            write(130, (1 << 20) + 4096, Kind::Data, 2),
            write(140, (1 << 20) + 8192, Kind::Metadata, 2),
            write(150, 99 << 20, Kind::Data, 1),
        ];
        let summary = Summary::of(&requests);
        assert_eq!((summary.seeks, summary.data_runs, summary.duration_us), (5, 3, 60));
        assert_eq!(summary.writes, Count { requests: 6, bytes: 6 * 4096 });
        assert_eq!(summary.writes_by_kind["data"].requests, 5);
        assert_eq!(summary.data_run_bytes(), 5 * 4096 / 3);
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
