//! Rescues of images with random field changes and correct checksums: each ends quickly, without a panic, and writes
//! nothing. `SPINNEY_RESCUE_IMAGES` sets the number of images, `SPINNEY_SEED` the seed.

#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions, missing_docs, reason = "tests fail by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blockdev::Device;
use btrfs_disk::items::FileKind;
use btrfs_disk::key::item_type;
use btrfs_disk::{Key, TreeId};
use btrfs_rescue::Rescue;
use testkit::hostile::{bases, mutated};
use vfs::Volume;

const IMAGES: u64 = 120;
const SEED: u64 = 23;
/// Limit on time per image.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Limit on names per walk.
const NAMES_MAX: usize = 5000;
const READ_MAX: u64 = 1 << 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Reads everything reachable and returns the number of names.
fn walk(volume: &Volume) -> usize {
    let (mut todo, mut count) = (vec![PathBuf::from("/")], 0);
    let mut buffer = vec![0; READ_MAX as usize];
    while let Some(dir) = todo.pop() {
        let Ok(names) = volume.read_dir(&dir) else { continue };
        for name in names.flatten() {
            count += 1;
            if count > NAMES_MAX {
                return count;
            }
            let path = dir.join(name.file_name());
            let Ok(found) = volume.symlink_metadata(&path) else { continue };
            if found.is_dir() {
                todo.push(path);
            } else if found.is_symlink() {
                let _ = volume.read_link(&path);
            } else if found.is_file() {
                look(volume, &path, found.size, &mut buffer);
            }
        }
    }
    count
}

fn look(volume: &Volume, path: &Path, size: u64, buffer: &mut [u8]) {
    let Ok(file) = vfs::FileOptions::new().read(true).open(volume, path) else { return };
    let _ = file.read_at(buffer, 0);
    let _ = file.read_at(buffer, size.saturating_sub(READ_MAX));
    let _ = file.seek_data(0);
    let _ = file.seek_hole(0);
}

fn contents(device: &dyn Device) -> u64 {
    let (mut piece, mut sum) = (vec![0; 1 << 20], 0_u64);
    for at in (0..device.size_bytes()).step_by(1 << 20) {
        let len = (device.size_bytes() - at).min(1 << 20) as usize;
        device.read_at(at, &mut piece[..len]).unwrap();
        for word in piece[..len].chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            sum = sum.rotate_left(1) ^ u64::from_le_bytes(bytes);
        }
    }
    sum
}

fn rescue(device: &Arc<dyn Device>) -> usize {
    let Ok(found) = Rescue::open(&[Arc::clone(device)], 2, Arc::new(())) else { return 0 };
    let view = found.view(None).unwrap();
    let mut count = walk(&view.volume());
    let _ = (view.losses().len(), view.missing().len(), found.notes());
    for root in found.roots().iter().take(4) {
        count += walk(&found.view(Some(root.at)).unwrap().volume());
    }
    let undeleted = found.undelete(b"*");
    for view in undeleted.views().iter().take(4) {
        count += walk(&view.volume());
    }
    count
}

#[test]
fn a_rescue_of_any_image_ends_and_writes_nothing() {
    let bases = bases().unwrap();
    let (count, seed) = (number("SPINNEY_RESCUE_IMAGES").unwrap_or(IMAGES), number("SPINNEY_SEED").unwrap_or(SEED));
    let mut names = 0;
    for index in 0..count {
        let device = mutated(&bases, seed, index).unwrap();
        let (before, start) = (contents(&*device), Instant::now());
        names += rescue(&device);
        assert!(start.elapsed() < TIME_MAX, "image {index} of seed {seed} took {:?}", start.elapsed());
        assert_eq!(contents(&*device), before, "image {index} of seed {seed} was changed");
    }
    println!("{count} images, {names} names");
    assert!(names > 0);
}

#[test]
fn directories_that_lead_to_the_top_end() {
    const TYPE_AT: usize = 29;
    let mut changed = 0;
    for base in bases().unwrap() {
        let (device, editor) = base.copy();
        for (key, data) in editor.items(TreeId::FS, Key::MIN..=Key::MAX).unwrap() {
            let is_name = [item_type::DIR_INDEX, item_type::DIR_ITEM].contains(&key.item_type);
            let is_dir = data.get(TYPE_AT) == Some(&FileKind::Directory.dir_type());
            if is_name && is_dir && data.get(8) == Some(&item_type::INODE_ITEM) {
                let top = 256u64.to_le_bytes();
                editor.change_item(TreeId::FS, &key, |item| item[..8].copy_from_slice(&top)).unwrap();
                changed += 1;
            }
        }
        let found = Rescue::open(&[Arc::clone(&device)], 2, Arc::new(())).unwrap();
        let count = walk(&found.view(None).unwrap().volume());
        assert!(count < NAMES_MAX, "{}: {count} names", base.name);
    }
    assert!(changed > 0);
}
