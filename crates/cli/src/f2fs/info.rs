//! Prints the report of `info` for an f2fs image, with the usage counted by its quota files. `open` calls it for
//! `info`, `mkfs` of f2fs for its report.

use std::io::Write as _;

use anyhow::Result;
use serde::Serialize;
use spinney::f2fs::{F2fs, Info, QuotaEntry, QuotaKind, Quotas};

use crate::commands::output::Output;
use crate::commands::{human, names};

/// A volume in JSON.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    label: &'a str,
    uuid: String,
    format: String,
    features: &'a [String],
    total_bytes: u64,
    /// Bytes available to files and their metadata.
    user_bytes: u64,
    used_bytes: u64,
    /// Version of the checkpoint.
    checkpoint: u64,
    is_clean: bool,
    needs_check: bool,
    /// Files recovered from fsyncs after the checkpoint.
    recovered_files: u64,
    orphans: u64,
    segments: u32,
    free_segments: u32,
    section_segments: u32,
    ssr_logs: u32,
    nodes: u32,
    inodes: u32,
    /// Usage counted by quota files; `None` of a mount, whose users need not see each other's.
    quotas: Option<Vec<Quota>>,
}

/// Usage and limits of a user, group or project; a limit of 0 is none.
#[derive(Serialize)]
struct Quota {
    kind: &'static str,
    id: u32,
    inodes: u64,
    bytes: u64,
    inodes_soft_limit: u64,
    inodes_hard_limit: u64,
    bytes_soft_limit: u64,
    bytes_hard_limit: u64,
}

/// The report for JSON.
pub(super) fn report<'a>(info: &'a Info, quotas: Option<&spinney::f2fs::Result<Quotas>>) -> Report<'a> {
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
        quotas: quotas.and_then(|found| found.as_ref().ok()).map(listed),
    }
}

/// The report for people.
pub(super) fn print(out: &mut Output, info: &Info, quotas: Option<&spinney::f2fs::Result<Quotas>>) -> Result<()> {
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
    if let Some(quotas) = quotas {
        print_quotas(out, quotas)?;
    }
    if info.needs_check {
        writeln!(out, "Warning:     the kernel met an error, or asks for fsck.f2fs")?;
    }
    Ok(())
}

/// The usage that the quota files of a volume count.
pub(super) fn quotas(fs: &F2fs) -> spinney::f2fs::Result<Quotas> {
    fs.quotas()
}

const fn name_of(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::User => "user",
        QuotaKind::Group => "group",
        QuotaKind::Project => "project",
    }
}

fn listed(quotas: &Quotas) -> Vec<Quota> {
    let of = |kind: QuotaKind, entry: &QuotaEntry| {
        // Limits of space are in KiB.
        let bytes = |limit: u64| limit.saturating_mul(1024);
        Quota {
            kind: name_of(kind),
            id: entry.dqb_id.get(),
            inodes: entry.dqb_curinodes.get(),
            bytes: entry.dqb_curspace.get(),
            inodes_soft_limit: entry.dqb_isoftlimit.get(),
            inodes_hard_limit: entry.dqb_ihardlimit.get(),
            bytes_soft_limit: bytes(entry.dqb_bsoftlimit.get()),
            bytes_hard_limit: bytes(entry.dqb_bhardlimit.get()),
        }
    };
    quotas.files.iter().flat_map(|(kind, entries)| entries.iter().map(move |entry| of(*kind, entry))).collect()
}

/// Most lines of quotas in text; JSON has all.
const QUOTA_LINES_MAX: usize = 20;

fn print_quotas(out: &mut Output, quotas: &spinney::f2fs::Result<Quotas>) -> Result<()> {
    let quotas = match quotas {
        Ok(quotas) if quotas.files.is_empty() => return Ok(()),
        Ok(quotas) => quotas,
        Err(error) => {
            writeln!(out, "Quotas:      cannot be read: {error}")?;
            return Ok(());
        }
    };
    let state = if quotas.need_repair { ", to be counted anew by fsck.f2fs" } else { "" };
    let all = listed(quotas);
    writeln!(out, "Quotas:      {} entries{state}", all.len())?;
    for quota in all.iter().take(QUOTA_LINES_MAX) {
        let limit = |limit: u64, shown: String| if limit == 0 { String::new() } else { format!(" of {shown}") };
        let space = limit(quota.bytes_hard_limit, human::bytes(quota.bytes_hard_limit));
        let inodes = limit(quota.inodes_hard_limit, quota.inodes_hard_limit.to_string());
        let owner = format!("{} {}", quota.kind, quota.id);
        writeln!(out, "  {owner:<20} {}{space}, {} inodes{inodes}", human::bytes(quota.bytes), quota.inodes)?;
    }
    if all.len() > QUOTA_LINES_MAX {
        writeln!(out, "  ... (--json has all)")?;
    }
    Ok(())
}
