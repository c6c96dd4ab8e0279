//! Tests that the mount options active_logs, fsync_mode and inline_* change how a volume is written.

use std::sync::Arc;

use f2fs::{ActiveLogs, F2fs, FsyncMode, MakeOptions, OpenOptions};
use f2fs_disk::flags::Features;
use tempfile::NamedTempFile;
use vfs::file_system::{ExtentKind, XattrMode};
use vfs::{FileOptions, FileSystem, Volume};

use crate::{Traced as Bench, WITH_EXTRA, check, device, make};

impl Bench {
    fn new(features: Features, options: OpenOptions) -> Self {
        let image = NamedTempFile::new().unwrap();
        make(image.path(), 128 << 20, &MakeOptions { features, ..MakeOptions::default() });
        Self::open(image, options)
    }

    /// Writes a file and syncs it; true if the sync made no checkpoint.
    fn put_synced(&self, name: &str) -> bool {
        let file = FileOptions::new().write(true).create(true).open(&self.volume, name).unwrap();
        file.write_at(name.repeat(3000).as_bytes(), 0).unwrap();
        let before = self.fs.info().unwrap().checkpoint;
        file.sync_all().unwrap();
        self.fs.info().unwrap().checkpoint == before
    }

    fn assert_has(volume: &Volume, names: &[String]) {
        for name in names {
            assert!(volume.read(name).unwrap() == name.repeat(3000).into_bytes(), "{name}");
        }
    }

    /// Opens a copy of the present image: the state that a kill of the program would leave.
    fn open_copy(&self) -> Volume {
        let copy = NamedTempFile::new().unwrap();
        std::fs::copy(self.image.path(), copy.path()).unwrap();
        Volume::new(Arc::new(OpenOptions::new().open(device(copy.path())).unwrap()))
    }

    fn close(self) {
        let Self { image, device, fs, volume } = self;
        volume.close().unwrap();
        drop((fs, device));
        check(image.path());
    }
}

#[test]
fn blocks_go_to_fewer_logs_and_are_found() {
    for (active_logs, by_nodes) in [(ActiveLogs::Two, false), (ActiveLogs::Four, true), (ActiveLogs::Six, true)] {
        let bench = Bench::new(WITH_EXTRA, OpenOptions::new().active_logs(active_logs));
        bench.volume.create_dir("d").unwrap();
        let mut names: Vec<String> = (0..900).map(|number| format!("d/{number}.jpg")).collect();
        for name in &names {
            bench.volume.write(name, name.repeat(3000)).unwrap();
        }
        bench.volume.sync().unwrap();
        for name in ["new-1", "new-2.db", "d/new-3"] {
            assert_eq!(bench.put_synced(name), by_nodes, "{active_logs:?}, {name}");
            names.push(name.to_owned());
        }
        let copy = NamedTempFile::new().unwrap();
        std::fs::copy(bench.image.path(), copy.path()).unwrap();
        check(copy.path());
        // The next mount may have another number of logs.
        let fs = Arc::new(OpenOptions::new().writable(true).open(device(copy.path())).unwrap());
        let volume = Volume::new(Arc::<F2fs>::clone(&fs));
        Bench::assert_has(&volume, &names);
        volume.remove_dir_all("d").unwrap();
        volume.close().unwrap();
        drop(fs);
        check(copy.path());
        bench.close();
    }
}

#[test]
fn a_strict_fsync_makes_a_checkpoint_after_a_rename() {
    for (fsync_mode, by_nodes) in [(FsyncMode::Posix, true), (FsyncMode::Strict, false)] {
        let bench = Bench::new(WITH_EXTRA, OpenOptions::new().fsync_mode(fsync_mode));
        bench.volume.create_dir("d").unwrap();
        bench.volume.write("d/old", "old").unwrap();
        bench.volume.sync().unwrap();
        assert!(bench.put_synced("d/first"), "no name was removed yet");
        bench.volume.rename("d/old", "d/older").unwrap();
        assert_eq!(bench.put_synced("d/second"), by_nodes, "{fsync_mode:?}");
        let shown = bench.open_copy();
        assert_eq!(shown.read("d/older").is_ok(), !by_nodes);
        Bench::assert_has(&shown, &["d/first".to_owned(), "d/second".to_owned()]);
        bench.close();
    }
}

#[test]
fn without_barriers_an_fsync_does_not_wait_for_the_disk() {
    for (fsync_mode, flushes) in [(FsyncMode::Posix, 2), (FsyncMode::Nobarrier, 0)] {
        let bench = Bench::new(WITH_EXTRA, OpenOptions::new().fsync_mode(fsync_mode));
        bench.volume.write("first", "some").unwrap();
        bench.volume.sync().unwrap();
        let before = bench.device.counts().flushes;
        assert!(bench.put_synced("second"));
        assert_eq!(bench.device.counts().flushes - before, flushes, "{fsync_mode:?}");
        // A kill of the program loses nothing: the kernel has the data.
        let shown = bench.open_copy();
        Bench::assert_has(&shown, &["second".to_owned()]);
        let before = bench.device.counts().flushes;
        bench.volume.sync().unwrap();
        assert_eq!(bench.device.counts().flushes - before, 2, "a checkpoint waits");
        bench.close();
    }
}

#[test]
fn inline_options_apply_to_new_inodes() {
    for features in [WITH_EXTRA, Features::empty()] {
        for is_inline in [true, false] {
            let options = OpenOptions::new().inline_data(is_inline).inline_dentry(is_inline).inline_xattr(is_inline);
            let bench = Bench::new(features, options);
            bench.volume.create_dir("d").unwrap();
            bench.volume.write("d/short", "short").unwrap();
            bench.volume.symlink("short", "d/link").unwrap();
            bench.volume.set_xattr("d/short", "user.name", b"value", XattrMode::Either).unwrap();
            bench.volume.sync().unwrap();
            let node = |name: &str| vfs::file_system::NodeId(bench.volume.symlink_metadata(name).unwrap().ino);
            let kind = bench.fs.extents(node("d/short"), 0).unwrap()[0].kind;
            assert_eq!(kind, if is_inline { ExtentKind::Inline } else { ExtentKind::Data });
            assert_eq!(bench.volume.symlink_metadata("d").unwrap().size == 4096, !is_inline);
            let nodes = bench.fs.info().unwrap().nodes - bench.fs.info().unwrap().inodes;
            assert_eq!(nodes, u32::from(!is_inline), "a node with attributes");
            assert_eq!(bench.volume.read("d/short").unwrap(), b"short");
            assert_eq!(bench.volume.get_xattr("d/short", "user.name").unwrap().unwrap(), b"value");
            assert_eq!(bench.volume.read_link("d/link").unwrap().as_os_str(), "short");
            for number in 0..200 {
                bench.volume.write(format!("d/{number}"), "x").unwrap();
            }
            assert_eq!(bench.volume.read_dir("d").unwrap().count(), 202);
            bench.close();
        }
    }
}
