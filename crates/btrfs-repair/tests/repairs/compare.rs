//! Comparison with `btrfs check --repair`: of the damage that `btrfs check` sees, our repair handles all that it
//! repairs. Some kinds are tried; all of them, for a table, where `REPAIR_COMPARED` is set.

use btrfs_check::CodeTable as _;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use blockdev::Device;
use testkit::reference::{self, Checked};

use super::{images, look, options, over, planted, plants};

/// The result for a damage: clean to `btrfs check`, and clean to ours.
fn by_the_tool(path: &Path) -> bool {
    let mut command = Command::new("timeout");
    command.args(["60", &reference::btrfs_program(), "check", "--repair", "--force"]).arg(path);
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok() && matches!(reference::check(path), Ok(Checked::Clean))
}

/// One kind of this many is tried.
const KINDS_STEP: usize = 8;

#[test]
fn what_the_tool_repairs_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let step = if std::env::var_os("REPAIR_COMPARED").is_some() { 1 } else { KINDS_STEP };
    let mut rows: BTreeMap<(bool, bool), Vec<String>> = BTreeMap::new();
    let mut behind = Vec::new();
    for plant in plants().iter().step_by(step) {
        let Some((image, device)) =
            images::all().iter().find_map(|image| planted(plant, image).map(|device| (image, device)))
        else {
            continue;
        };
        let Ok(plan) = btrfs_repair::plan(&device, &options(), &()) else { continue };
        if plan.is_needless() {
            continue;
        }
        let name = format!("{} ({}) in {}", plant.code, plant.name, image.base.name);
        look::store(&*device, &path);
        let before = reference::check(&path);
        if matches!(before, Ok(Checked::NotInstalled)) {
            println!("skipped: no btrfs program");
            return;
        }
        let is_seen = before.is_err();
        let theirs = by_the_tool(&path);
        let repaired = over(&device);
        plan.apply(&*repaired).unwrap();
        let repaired: Arc<dyn Device> = repaired;
        look::store(&*repaired, &path);
        let ours = plan.is_complete() && matches!(reference::check(&path), Ok(Checked::Clean));
        // The numbers of quotas are left to a rescan, as the plan has it.
        if theirs && !ours && is_seen && !plant.code.id().starts_with("quota-") {
            behind.push(name.clone());
        }
        rows.entry((ours, theirs)).or_default().push(name);
    }
    for ((ours, theirs), names) in &rows {
        println!("ours {ours}, theirs {theirs}: {}", names.len());
        if ours != theirs {
            names.iter().for_each(|name| println!("    {name}"));
        }
    }
    assert!(behind.is_empty(), "repaired by btrfs check alone: {behind:#?}");
    assert!(rows.keys().any(|(ours, _)| *ours), "nothing was repaired");
}
