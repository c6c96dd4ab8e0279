//! Backs up a subvolume to a second image and restores it there under another name: `backup IMAGE SUBVOLUME DEST PATH`.
//!
//! A second run sends only the difference to the first. The image DEST is made if there is none.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use spinney::btrfs::backup::{self, Backup, Name, Origin, Report, Restore, Stamp, VolumeDestination};
use spinney::btrfs::{Volume, back_up, restore};
use spinney::{MakeOptions, Progress, VolumeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [image, subvolume, dest, path] = &words[..] else {
        return Err("usage: backup IMAGE SUBVOLUME DEST PATH".into());
    };
    if !dest.exists() {
        spinney::make(dest, "btrfs", &MakeOptions::new().size(256 << 20))?.close()?;
    }
    let name = Name::of_path(subvolume)?;
    let seconds = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    let backup = Backup {
        subvolume: subvolume.clone(),
        name: name.clone(),
        snapshots: "/.backups".into(),
        time: Stamp::new(seconds).ok_or("the clock is wrong")?,
        keep: Some("last=7,monthly=12".parse()?),
        adopt: false,
        full: false,
        dry_run: false,
    };
    let source = open(image, false)?;
    let mut states = VolumeDestination::open(|writes| open(dest, !writes), Path::new("/"), &name)?;
    let (mut report, mut bytes) = (Report::default(), 0);
    let mut watch = |progress: &Progress| {
        bytes = progress.bytes;
        ControlFlow::Continue(())
    };
    back_up(&backup, &source, &mut states, &mut report, &mut watch)?;
    source.close()?;
    for action in &report.actions {
        println!("{} {} ({})", action.kind, action.state, action.side);
    }
    println!("{bytes} bytes sent and read back");

    // The target has the state already, so that a snapshot of it is enough.
    let target = open(dest, false)?;
    let origin = Origin::volume(target.clone(), Path::new("/"))?;
    let newest = origin.choose(None, Some(&name))?;
    let to = Restore { path, kept: None };
    restore(&to, &origin, newest, &target, &mut |_| ControlFlow::Continue(()))?;
    println!("{} restored to {}", newest.state(), path.display());
    target.sync()?;
    Ok(())
}

fn open(image: &Path, read_only: bool) -> backup::Result<Volume> {
    let volume = spinney::open(image, &VolumeOptions::new().read_only(read_only))?;
    volume.btrfs().cloned().ok_or_else(|| backup::Error::Side("not an image of btrfs".into()))
}
