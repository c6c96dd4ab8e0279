//! What `info` reports of an f2fs image.

use std::io::Write as _;

use anyhow::Result;
use f2fs::Info;
use serde::Serialize;

use commands::output::Output;
use commands::{human, names};

/// A volume in JSON.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    label: &'a str,
    uuid: String,
    format: String,
    features: &'a [String],
    total_bytes: u64,
    /// Bytes that files and their metadata may take.
    user_bytes: u64,
    used_bytes: u64,
    /// The checkpoint that is shown.
    checkpoint: u64,
    is_clean: bool,
    needs_check: bool,
    /// Files with fsynced changes behind the checkpoint, which are shown.
    recovered_files: u64,
    orphans: u64,
    segments: u32,
    free_segments: u32,
    section_segments: u32,
    ssr_logs: u32,
    nodes: u32,
    inodes: u32,
}

/// The report for JSON.
pub(super) fn report(info: &Info) -> Report<'_> {
    Report {
        label: &info.label,
        uuid: names::uuid(&info.uuid),
        format: format!("{}.{}", info.format.0, info.format.1),
        features: &info.features,
        total_bytes: info.total_bytes,
        user_bytes: info.user_bytes,
        used_bytes: info.used_bytes,
        checkpoint: info.checkpoint,
        is_clean: info.is_clean,
        needs_check: info.needs_check,
        recovered_files: info.recovered_files,
        orphans: info.orphans,
        segments: info.segments,
        free_segments: info.free_segments,
        section_segments: info.section_segments,
        ssr_logs: info.ssr_logs,
        nodes: info.nodes,
        inodes: info.inodes,
    }
}

/// The report for people.
pub(super) fn print(out: &mut Output, info: &Info) -> Result<()> {
    let label = names::escaped(info.label.as_bytes());
    let label = if label.is_empty() { "(none)".into() } else { label };
    let features = if info.features.is_empty() { "(none)".to_owned() } else { info.features.join(", ") };
    writeln!(out, "Format:      f2fs {}.{}", info.format.0, info.format.1)?;
    writeln!(out, "Label:       {label}")?;
    writeln!(out, "UUID:        {}", names::uuid(&info.uuid))?;
    writeln!(out, "Features:    {features}")?;
    writeln!(out, "Size:        {}", human::bytes(info.total_bytes))?;
    let (used, user) = (info.used_bytes, info.user_bytes);
    let share = human::percent(used, user);
    writeln!(out, "Used:        {} of {} ({share})", human::bytes(used), human::bytes(user))?;
    let (free, all) = (info.free_segments, info.segments);
    writeln!(out, "Segments:    {all} of 2 MiB, {free} free, {} in a section", info.section_segments)?;
    if info.ssr_logs > 0 {
        writeln!(out, "Logs:        {} of 6 fill holes of segments", info.ssr_logs)?;
    }
    writeln!(out, "Inodes:      {} with {} nodes", info.inodes, info.nodes)?;
    let state = if info.is_clean { "unmounted cleanly" } else { "not unmounted" };
    writeln!(out, "Checkpoint:  {}, {state}", info.checkpoint)?;
    if info.recovered_files > 0 {
        writeln!(out, "Recovered:   {} files with fsynced changes behind the checkpoint", info.recovered_files)?;
    }
    if info.orphans > 0 {
        writeln!(out, "Orphans:     {} files without a name", info.orphans)?;
    }
    if info.needs_check {
        writeln!(out, "Warning:     the kernel met an error, or asks for fsck.f2fs")?;
    }
    Ok(())
}
