//! Quota files count the usage of users, groups and projects, as `fsck.f2fs` and a walk of the tree count it.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use f2fs::{F2fs, MakeOptions, OpenOptions, QuotaKind};
use f2fs_disk::flags::Features;
use tempfile::NamedTempFile;
use vfs::{FileOptions, Volume};

use crate::{WITH_EXTRA, check, device, is_checked, make, open};

/// Inodes and bytes by number.
type Uses = BTreeMap<u32, (u64, u64)>;

fn volume_of(fs: &Arc<F2fs>) -> Volume {
    Volume::new(Arc::<F2fs>::clone(fs))
}

/// Usage of users and groups, by a walk: without inodes' own blocks and inline contents.
fn walked(volume: &Volume) -> [Uses; 2] {
    let mut uses: [Uses; 2] = Default::default();
    let mut waiting = vec!["/".to_owned()];
    let mut seen = std::collections::HashSet::new();
    while let Some(path) = waiting.pop() {
        let found = volume.symlink_metadata(&path).unwrap();
        if !seen.insert(found.ino) {
            continue;
        }
        for (uses, id) in uses.iter_mut().zip([found.uid, found.gid]) {
            let (inodes, bytes) = uses.entry(id).or_default();
            (*inodes, *bytes) = (*inodes + 1, *bytes + found.blocks / 8 * 4096);
        }
        if found.is_dir() {
            let names =
                volume.read_dir(&path).unwrap().map(|name| name.unwrap().file_name().to_str().unwrap().to_owned());
            waiting.extend(names.filter(|name| name != "." && name != "..").map(|name| format!("{path}/{name}")));
        }
    }
    uses
}

/// Usage in the files, without empty entries.
fn counted(fs: &F2fs, kind: QuotaKind) -> Uses {
    let quotas = fs.quotas().unwrap();
    assert!(!quotas.need_repair);
    let (_, entries) = quotas.files.into_iter().find(|(found, _)| *found == kind).unwrap();
    let uses = entries.iter().map(|entry| (entry.dqb_id.get(), (entry.dqb_curinodes.get(), entry.dqb_curspace.get())));
    uses.filter(|(_, uses)| *uses != (0, 0)).collect()
}

#[track_caller]
fn compare(path: &Path) {
    check(path);
    let fs = Arc::new(OpenOptions::new().open(device(path)).unwrap());
    let [users, groups] = walked(&volume_of(&fs));
    assert_eq!(counted(&fs, QuotaKind::User), users);
    assert_eq!(counted(&fs, QuotaKind::Group), groups);
}

/// Compares after a power cut now.
#[track_caller]
fn compare_cut(path: &Path) {
    let copy = NamedTempFile::new().unwrap();
    std::fs::copy(path, copy.path()).unwrap();
    drop(open(copy.path()));
    compare(copy.path());
}

/// Files of many owners are made, changed, given to other owners and removed.
fn change(path: &Path) {
    let fs = open(path);
    let volume = volume_of(&fs);
    for number in 0..300_u32 {
        let name = format!("{number}");
        let (uid, gid) = (number * 7, number % 5 + 70_000);
        volume.write(&name, vec![b'x'; usize::try_from(number).unwrap() * 200]).unwrap();
        volume.set_owner(&name, Some(uid), Some(gid)).unwrap();
    }
    volume.create_dir("dir").unwrap();
    volume.set_owner("dir", Some(u32::MAX - 1), Some(3)).unwrap();
    volume.sync().unwrap();
    compare_cut(path);
    for number in 0..300_u32 {
        let name = format!("{number}");
        match number % 4 {
            0 => volume.remove_file(&name).unwrap(),
            1 => volume.set_owner(&name, Some(12), None).unwrap(),
            2 => volume.rename(&name, format!("dir/{name}")).unwrap(),
            _ => FileOptions::new().write(true).open(&volume, &name).unwrap().write_at(&[1; 9000], 5 << 20).unwrap(),
        }
    }
    volume.hard_link("1", "another").unwrap();
    let file = FileOptions::new().write(true).create(true).open(&volume, "synced").unwrap();
    file.write_at(&[7; 50_000], 0).unwrap();
    file.sync_all().unwrap();
    compare_cut(path);
    file.set_len(0).unwrap();
    volume.remove_file("synced").unwrap();
    volume.set_xattr("1", "user.large", [5; 3000], vfs::file_system::XattrMode::Either).unwrap();
    drop((file, volume, fs));
    compare(path);
}

#[test]
fn usage_is_counted() {
    for features in [Features::QUOTA_INO, WITH_EXTRA] {
        for owner in [(0, 0), (1000, 70_001)] {
            let image = NamedTempFile::new().unwrap();
            make(image.path(), 256 << 20, &MakeOptions { features, owner, ..MakeOptions::default() });
            change(image.path());
        }
    }
}

fn mkfs(path: &Path, words: &[&str]) -> bool {
    std::fs::File::create(path).unwrap().set_len(128 << 20).unwrap();
    let made = Command::new("mkfs.f2fs").arg("-q").args(words).arg(path).output();
    made.is_ok_and(|made| made.status.success())
}

#[test]
fn usage_is_counted_in_files_of_mkfs() {
    for words in [&["-O", "quota"][..], &["-O", "quota", "-R", "1000:70001"]] {
        let image = NamedTempFile::new().unwrap();
        if mkfs(image.path(), words) {
            change(image.path());
        }
    }
}

/// A damaged quota file is not used; files can still be changed, and the checkpoint asks for a repair.
#[test]
fn a_damaged_file_asks_for_a_repair() {
    let image = NamedTempFile::new().unwrap();
    make(image.path(), 128 << 20, &MakeOptions { features: Features::QUOTA_INO, ..MakeOptions::default() });
    let bytes = std::fs::read(image.path()).unwrap();
    let magic = 0xd9c0_1f11_u32.to_le_bytes();
    let at = bytes.chunks_exact(4096).position(|block| block.starts_with(&magic)).unwrap() * 4096;
    // The header's number of blocks.
    image.as_file().write_at(&[0xff; 4], u64::try_from(at + 20).unwrap()).unwrap();
    {
        let fs = open(image.path());
        assert!(fs.quotas().is_err());
        volume_of(&fs).write("file", "contents").unwrap();
        volume_of(&fs).sync().unwrap();
    }
    for _ in 0..2 {
        let fs = open(image.path());
        assert_eq!(volume_of(&fs).read("file").unwrap(), b"contents");
        volume_of(&fs).write("other", "more").unwrap();
    }
    let fs = OpenOptions::new().open(device(image.path())).unwrap();
    assert!(fs.info().unwrap().needs_check);
    drop(fs);
    let Ok(repaired) = Command::new("fsck.f2fs").args(["-f", "-a"]).arg(image.path()).output() else { return };
    assert!(is_checked(image.path()).unwrap(), "{}", String::from_utf8_lossy(&repaired.stdout));
    change(image.path());
}
