//! Goes once over all sorted records of extents, in the order of addresses, and gives each to the passes that compare
//! them (extents, space, checksums). Called by `run`.

use std::collections::BTreeMap;

use crate::code::Code;
use crate::collect::Collected;
use crate::context::Context;
use crate::csums::Orphans;
use crate::data::BadData;
use crate::extents::{Extent, Extents};
use crate::finding::Place;
use crate::pass::Pass;
use crate::sort::lock;
use crate::space::Space;

/// Compares references, space, checksums and the log; finds the files with bad data.
pub(crate) fn run(cx: &Context<'_>, collected: &Collected, bad: Vec<BadData>) {
    if cx.lost.has_extents() {
        cx.note("extents, space: not compared, as blocks of the extent tree are lost");
    }
    let mut bad: BTreeMap<u64, BadData> = bad.into_iter().map(|bad| (bad.run.at, bad)).collect();
    let mut space = Space::new(cx, &collected.facts, &collected.free);
    let mut orphans = Orphans::new(cx, &collected.csums);
    let mut log = LogBlocks::new(cx);
    let compares_space = cx.wants(Pass::Space) && !cx.lost.has_extents();
    let mut each = |extent: &Extent| {
        log.extent(extent);
        if compares_space {
            space.extent(extent);
        }
        if extent.is_data {
            orphans.data(extent.at, extent.end());
        }
        let wrong = bad.range_mut(extent.at..extent.end());
        for (_, bad) in wrong {
            bad.holder = extent.holder;
        }
    };
    let mut extents = Extents::new(cx, &collected.facts);
    for record in collected.refs.iter() {
        extents.record(&record, &mut each);
    }
    extents.end(&mut each);
    if compares_space {
        space.end();
    }
    if cx.wants(Pass::Csums) && !cx.lost.has_extents() && !cx.lost.has_system() {
        orphans.end();
    }
    for bad in bad.into_values() {
        bad.report(cx);
    }
}

/// Blocks of the log, which no extent item may cover: they are free in the commit.
struct LogBlocks<'a> {
    cx: &'a Context<'a>,
    blocks: Vec<u64>,
}

impl<'a> LogBlocks<'a> {
    fn new(cx: &'a Context<'a>) -> Self {
        let mut blocks = std::mem::take(&mut lock(&cx.log).blocks);
        blocks.sort_unstable();
        Self { cx, blocks }
    }

    fn extent(&mut self, extent: &Extent) {
        let first = self.blocks.partition_point(|block| block.saturating_add(self.cx.media.node_len()) <= extent.at);
        for block in self.blocks.iter().skip(first).take_while(|block| **block < extent.end()) {
            let found = format!("an extent at {} of {} bytes", extent.at, extent.len);
            self.cx.findings.add(Code::LogOverlap, Place::logical(*block), "free space", found);
        }
    }
}
