//! Explores power cuts of scripts: operations on subvolumes, interrupted at every moment.
//!
//! They choose the default subvolume (`default`), receive streams (`receipt`), delete in steps (`cleaning`), and
//! change devices (`devices`): the language of workloads lacks these, since not every format has them. The seed and its
//! number determine each script.
//!
//! Failure: a script that cannot be run. Wrong states are in the report. Called by `crash_explore`.

mod cleaning;
mod default;
mod devices;
mod receipt;

use anyhow::{Context as _, Result};
use blockdev::Device;
use btrfs::Volume;
use btrfs_crash::Several;
use crash_explorer::{Config, Form, Report, Script, explore_script};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Kinds of scripts, by the beginning of their names.
const KINDS: &[&str] = &["default-", "receipt-", "cleaning-"];
/// The name for all of them together.
pub(super) const ALL: &str = "scripts";
/// States of one script; more of the same bring little new.
const STATES_MAX: u64 = 1000;
/// Fewest states of a script, so that each kind has some.
const STATES_MIN: u64 = 100;

/// The kind that changes devices; it needs a layout of several.
const DEVICES: &str = "devices-";

/// Explores scripts that change the devices of volumes with this layout.
///
/// # Errors
/// As [`explore`].
pub(super) fn explore_devices(config: &Config, layout: Several) -> Result<Report> {
    let config = Config { format: Arc::new(devices::Blank(layout)), ..config.clone() };
    let wanted = config.workload.as_deref().unwrap_or_default();
    let number = wanted.strip_prefix(DEVICES).filter(|number| !number.is_empty());
    let run = |number: u64, states: u64| {
        let seed = config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
        let script = devices::Devices::new(format!("{DEVICES}{number}"), seed, number, layout);
        explore_script(&Config { states, ..config.clone() }, &script)
    };
    if let Some(number) = number {
        return run(number.parse().with_context(|| format!("{wanted}: not the name of a script"))?, config.states);
    }
    let mut total = Report::default();
    for number in 0.. {
        let left = config.states.saturating_sub(total.states);
        if left == 0 || total.failure_count >= config.failures_max {
            break;
        }
        add(&mut total, run(number, (config.states / 12).clamp(STATES_MIN, STATES_MAX).min(left))?);
    }
    Ok(total)
}

/// True for the name of a script about devices, or the beginning of one.
pub(super) fn is_about_devices(workload: &str) -> bool {
    workload.starts_with(DEVICES)
}

/// True for the name of a script, or the beginning of one.
pub(super) fn is_named(workload: &str) -> bool {
    KINDS.iter().any(|kind| workload.starts_with(kind)) || workload == ALL
}

/// Explores scripts until the wanted number of states is reached, or only the named one.
///
/// # Errors
/// If a script cannot be run. Wrong states are in the report.
pub(super) fn explore(config: &Config) -> Result<Report> {
    let wanted = config.workload.as_deref().unwrap_or_default();
    let kinds: Vec<&str> = KINDS.iter().copied().filter(|kind| wanted == ALL || wanted.starts_with(kind)).collect();
    let number = kinds.first().and_then(|kind| wanted.strip_prefix(kind)).filter(|number| !number.is_empty());
    let mut total = Report::default();
    if let Some(number) = number {
        let number = number.parse().with_context(|| format!("{wanted}: not the name of a script"))?;
        add(&mut total, one(config, kinds.first().copied().unwrap_or_default(), number, config.states)?);
        return Ok(total);
    }
    for number in 0.. {
        for kind in &kinds {
            let left = config.states.saturating_sub(total.states);
            if left == 0 || total.failure_count >= config.failures_max {
                return Ok(total);
            }
            let each = (config.states / 12).clamp(STATES_MIN, STATES_MAX).min(left);
            add(&mut total, one(config, kind, number, each)?);
        }
    }
    Ok(total)
}

fn one(config: &Config, kind: &str, number: u64, states: u64) -> Result<Report> {
    let seed = config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
    let name = format!("{kind}{number}");
    let script: Box<dyn Script> = match kind {
        "default-" => Box::new(default::Default::new(name, seed)),
        "receipt-" => Box::new(receipt::Receipt::new(name, seed)?),
        _ => Box::new(cleaning::Cleaning::new(name, seed)),
    };
    let report = explore_script(&Config { states, ..config.clone() }, &*script)?;
    if let Some(progress) = &config.progress {
        progress.workloads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(report)
}

/// Adds a report to another.
pub(super) fn add(total: &mut Report, one: Report) {
    total.workloads += one.workloads;
    total.states += one.states;
    total.again += one.again;
    total.replayed += one.replayed;
    total.changed += one.changed;
    total.replays_cut += one.replays_cut;
    total.judged += one.judged;
    total.skipped += one.skipped;
    total.failure_count += one.failure_count;
    total.failures.extend(one.failures);
}

/// Opens a volume.
fn open(form: Form, device: Arc<dyn Device>) -> Result<Volume> {
    Ok(btrfs_crash::volume_options(form).open_device(device)?)
}

/// Contents of a subvolume: kind, attributes and a digest of the bytes of each path.
type Contents = BTreeMap<PathBuf, String>;

fn contents(volume: &Volume, top: &Path) -> Result<Contents> {
    let mut found = Contents::new();
    let mut paths = vec![PathBuf::new()];
    while let Some(path) = paths.pop() {
        let full = top.join(&path);
        let node = volume.symlink_metadata(&full).with_context(|| full.display().to_string())?;
        let mut facts = format!("{:?} {:o} {}:{} {:?}", node.kind, node.mode(), node.uid, node.gid, node.mtime);
        for name in volume.list_xattrs(&full)? {
            facts.push_str(&format!(" {name:?}={:?}", volume.get_xattr(&full, name.as_encoded_bytes())?));
        }
        if node.is_file() {
            let bytes = volume.read(&full).with_context(|| full.display().to_string())?;
            facts.push_str(&format!(" {} bytes {:08x}", bytes.len(), codec::checksum::crc32c_raw(0, &bytes)));
        } else if node.is_dir() {
            for entry in volume.read_dir(&full)? {
                paths.push(path.join(entry?.file_name()));
            }
        } else if let Ok(target) = volume.read_link(&full) {
            facts.push_str(&format!(" to {}", target.display()));
        }
        found.insert(path, facts);
    }
    Ok(found)
}

/// The first difference between the found and the expected contents.
fn difference(found: &Contents, expected: &Contents) -> Option<String> {
    let paths: std::collections::BTreeSet<&PathBuf> = found.keys().chain(expected.keys()).collect();
    let path = paths.into_iter().find(|path| found.get(*path) != expected.get(*path))?;
    let shown = |facts: Option<&String>| facts.cloned().unwrap_or_else(|| "nothing".to_owned());
    Some(format!("{}: {}, not {}", path.display(), shown(found.get(path)), shown(expected.get(path))))
}
