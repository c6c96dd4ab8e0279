//! Goes back to an earlier commit, where the root of the root tree or of the chunk tree cannot be read: a superblock
//! has the roots of the last four commits.
//!
//! Invariants: only superblocks are written, so the undo file has everything. The caller accepts a state only when a
//! check of it finds nothing, its data included: freed blocks may have been overwritten since.
//!
//! Caller: the planner (`plan`), as the last resort.

use btrfs_check::{Code, CodeTable as _, Report};
use btrfs_disk::TreeId;
use btrfs_disk::flags::CompatRo;
use btrfs_disk::superblock::DiskSuperblock;

/// The generations of the last commit and of the earlier one that a repair goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Older {
    /// The last commit, which is lost.
    pub from: u64,
    /// The commit to go back to.
    pub to: u64,
}

/// True if the roots of the root tree or the chunk tree cannot be read, or are wrong.
pub(crate) fn is_needed(report: &Report, fields: &DiskSuperblock) -> bool {
    let tops = [(TreeId::ROOT.0, fields.root.get()), (TreeId::CHUNK.0, fields.chunk_root.get())];
    report.findings.iter().any(|finding| {
        let is_copy = matches!(finding.code, Code::BlockMirror | Code::BlockMirrorsDiffer);
        let place = finding.place.tree.zip(finding.place.logical);
        !is_copy && finding.code.id().starts_with("block-") && place.is_some_and(|place| tops.contains(&place))
    })
}

/// The superblocks of earlier commits in the backup roots of this one, newest first.
pub(crate) fn states(fields: &DiskSuperblock) -> Vec<Box<DiskSuperblock>> {
    let last = fields.generation.get();
    let mut backups: Vec<_> = fields.super_roots.iter().collect();
    backups.retain(|backup| (1..last).contains(&backup.tree_root_gen.get()));
    backups.sort_by_key(|backup| std::cmp::Reverse(backup.tree_root_gen.get()));
    let states = backups.into_iter().map(|backup| {
        let mut state = Box::new(*fields);
        let generation = backup.tree_root_gen;
        (state.generation, state.root, state.root_level) = (generation, backup.tree_root, backup.tree_root_level);
        (state.chunk_root, state.chunk_root_level) = (backup.chunk_root, backup.chunk_root_level);
        state.chunk_root_generation = backup.chunk_root_gen;
        (state.total_bytes, state.bytes_used) = (backup.total_bytes, backup.bytes_used);
        state.num_devices = backup.num_devices;
        // The log belongs to the lost commit.
        (state.log_root, state.log_root_level, state.log_root_transid) = (0.into(), 0, 0.into());
        if state.uuid_tree_generation.get() == last {
            state.uuid_tree_generation = generation;
        }
        if !state.compat_ro().contains(CompatRo::FREE_SPACE_TREE) && state.cache_generation.get() != 0 {
            // Caches of free space are overwritten in place: the kernel drops those of another generation.
            state.cache_generation = generation.get().saturating_sub(1).into();
        }
        // Roots of later commits would be taken for earlier ones after new commits.
        for later in state.super_roots.iter_mut().filter(|later| later.tree_root_gen.get() > generation.get()) {
            *later = zerocopy::FromZeros::new_zeroed();
        }
        state
    });
    states.collect()
}
