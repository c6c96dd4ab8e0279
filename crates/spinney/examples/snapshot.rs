//! Snapshots and clones: `snapshot IMAGE`.
//!
//! Makes a subvolume, takes a snapshot, changes the subvolume, and shows that the snapshot kept the old contents while
//! both share the unchanged ones.

use std::error::Error;

use spinney::{File, OpenOptions, SnapshotMode, VolumeOptions};

const FILE_BYTES: usize = 8 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: snapshot IMAGE")?;
    let volume = spinney::open(image, &VolumeOptions::new())?;

    volume.create_subvolume("work")?;
    volume.write("work/large", vec![b'a'; FILE_BYTES])?;
    volume.snapshot("work", "work-monday", SnapshotMode::ReadOnly)?;

    let file = OpenOptions::new().write(true).open(&volume, "work/large")?;
    file.write_at(b"changed on tuesday", 0)?;
    drop(file);

    // A clone shares its extents with the original until one of them is changed.
    let original = File::open(&volume, "work-monday/large")?;
    let clone = OpenOptions::new().write(true).create(true).open(&volume, "work/clone")?;
    clone.reflink(&original, 0, 0, 0)?;

    let own = volume.btrfs().ok_or("not an image of btrfs")?;
    for subvolume in own.subvolumes()? {
        let kind = if subvolume.read_only { "read-only" } else { "read-write" };
        println!("{:>5} {kind:<10} {}", subvolume.id, subvolume.path.display());
    }
    let monday = volume.read("work-monday/large")?;
    println!("the snapshot starts with {:?}", char::from(monday[0]));
    println!("the clone is equal to it: {}", volume.read("work/clone")? == monday);

    volume.delete_subvolume("work-monday")?;
    volume.close()?;
    Ok(())
}
