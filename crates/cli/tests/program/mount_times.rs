//! Access times. An access time that was the first change of a mount was lost: nothing was reserved for it, and it
//! stayed in memory only.

use std::fs::{self, File, FileTimes};
use std::time::{Duration, SystemTime};

use crate::mounted::{Mounted, can_mount};

fn accessed(mounted: &Mounted, name: &str) -> SystemTime {
    fs::metadata(mounted.dir().join(name)).unwrap().accessed().unwrap()
}

/// With strictatime each read sets the time. The second read was answered from the kernel's cache of the first.
#[test]
fn each_reader_sets_the_time_with_strictatime() {
    if !can_mount() {
        return;
    }
    for options in ["rw", "writeback", "io_uring"] {
        let mounted = Mounted::mount(&format!("-o strictatime,{options}"));
        let path = mounted.dir().join("file");
        fs::write(&path, "contents").unwrap();
        let mut before = accessed(&mounted, "file");
        for reading in ["first", "second", "third"] {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(fs::read(&path).unwrap(), b"contents");
            let now = accessed(&mounted, "file");
            assert!(now > before, "{options}: {reading}");
            before = now;
        }
        mounted.unmount();
    }
}

#[test]
fn times_of_access_are_there_after_the_next_mount() {
    if !can_mount() {
        return;
    }
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let earlier = long_ago - Duration::from_secs(1_000_000);
    for options in ["rw", "writeback", "zero_open", "io_uring"] {
        let options = &format!("-o {options}");
        let mounted = Mounted::mount(options);
        for name in ["read", "set"] {
            let path = mounted.dir().join(name);
            fs::write(&path, "contents").unwrap();
            let times = FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
            File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        }
        fs::create_dir(mounted.dir().join("dir")).unwrap();
        let again = || {
            mounted.unmount();
            mounted.bench.ok(&format!("mount {options} a.img mnt"));
        };
        again();
        assert_eq!(fs::read(mounted.dir().join("read")).unwrap(), b"contents");
        let read = accessed(&mounted, "read");
        assert!(read > long_ago, "{options}");
        again();
        assert_eq!(accessed(&mounted, "read"), read, "{options}: read");
        let set = FileTimes::new().set_accessed(earlier);
        File::open(mounted.dir().join("set")).unwrap().set_times(set).unwrap();
        again();
        assert_eq!(accessed(&mounted, "set"), earlier, "{options}: set");
        File::open(mounted.dir().join("dir")).unwrap().set_times(set).unwrap();
        again();
        assert_eq!(accessed(&mounted, "dir"), earlier, "{options}: set of a directory");
        mounted.unmount();
        mounted.bench.check("a.img");
    }
}

/// The birth time, which `statx(2)` has beyond `stat(2)` and FUSE passes on. FUSE does not pass on the number of the
/// subvolume, so an attribute has it.
#[test]
fn birth_and_subvolume_of_a_file_are_told() {
    let Some(mounted) = Mounted::if_possible() else { return };
    mounted.bench.ok("subvolume create a.img /sub");
    for options in ["rw", "writeback", "zero_open", "noatime"] {
        mounted.bench.ok(&format!("mount -o {options} a.img mnt"));
        let name = format!("sub/{options}");
        let before = SystemTime::now();
        fs::write(mounted.dir().join(&name), "one").unwrap();
        let born = |name: &str| fs::metadata(mounted.dir().join(name)).unwrap().created().unwrap();
        let first = born(&name);
        let slack = Duration::from_millis(100);
        assert!(first > before - slack && first < SystemTime::now() + slack, "{options}");
        std::thread::sleep(Duration::from_millis(20));
        fs::write(mounted.dir().join(&name), "again").unwrap();
        File::open(mounted.dir().join(&name)).unwrap();
        let number = |name: &str| {
            let mut bytes = [0; 32];
            let len = rustix::fs::getxattr(mounted.dir().join(name), "btrfs.subvolid", &mut bytes).unwrap();
            String::from_utf8(bytes[..len].to_vec()).unwrap()
        };
        assert_eq!([number("."), number("sub"), number(&name)], ["5", "256", "256"]);
        let listed = rustix::fs::listxattr(mounted.dir().join(&name), &mut [0_u8; 64]).unwrap();
        assert_eq!(listed, 0, "it is not listed, so that programs do not copy it");
        let set =
            rustix::fs::setxattr(mounted.dir().join(&name), "btrfs.subvolid", b"5", rustix::fs::XattrFlags::empty());
        assert!(set.is_err());
        mounted.unmount();
        mounted.bench.ok("mount -o ro a.img mnt");
        assert_eq!(born(&name), first, "{options}");
        mounted.unmount();
    }
}
