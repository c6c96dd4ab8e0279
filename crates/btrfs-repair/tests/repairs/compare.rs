//! What `btrfs check --repair` makes of the same damage, for a table; run by hand, as the tool may change its mind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use blockdev::Device;
use testkit::reference::{self, Checked};

use super::{images, look, options, over, planted, plants};

/// How a damage ends: clean to `btrfs check`, and clean to ours.
fn by_the_tool(path: &Path) -> bool {
    let mut command = Command::new("timeout");
    command.args(["60", &reference::btrfs_program(), "check", "--repair", "--force"]).arg(path);
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok() && matches!(reference::check(path), Ok(Checked::Clean))
}

#[test]
#[ignore = "a table that is made by hand"]
fn as_many_as_the_tool_repairs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut rows: BTreeMap<(bool, bool), Vec<String>> = BTreeMap::new();
    for plant in plants() {
        let Some((image, device)) =
            images::all().iter().find_map(|image| planted(&plant, image).map(|device| (image, device)))
        else {
            continue;
        };
        let Ok(plan) = btrfs_repair::plan(&device, &options(), &()) else { continue };
        if plan.is_needless() {
            continue;
        }
        let name = format!("{} ({}) in {}", plant.code, plant.name, image.base.name);
        look::store(&*device, &path);
        if matches!(reference::check(&path), Ok(Checked::Clean)) {
            println!("clean to btrfs check before: {name}");
        }
        let theirs = by_the_tool(&path);
        let repaired = over(&device);
        plan.apply(&*repaired).unwrap();
        let repaired: Arc<dyn Device> = repaired;
        look::store(&*repaired, &path);
        let ours = plan.is_complete() && matches!(reference::check(&path), Ok(Checked::Clean));
        rows.entry((ours, theirs)).or_default().push(name);
    }
    for ((ours, theirs), names) in &rows {
        println!("ours {ours}, theirs {theirs}: {}", names.len());
        if ours != theirs {
            names.iter().for_each(|name| println!("    {name}"));
        }
    }
}
