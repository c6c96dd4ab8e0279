//! Times of access. One that was the first change of a mount was lost: for it no room was at hand, and it was kept in
//! memory alone.

use std::fs::{self, File, FileTimes};
use std::time::{Duration, SystemTime};

use crate::mounted::{Mounted, can_mount};

fn accessed(mounted: &Mounted, name: &str) -> SystemTime {
    fs::metadata(mounted.dir().join(name)).unwrap().accessed().unwrap()
}

/// With strictatime each reading sets the time. The second one was answered by what the kernel had kept of the first.
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
