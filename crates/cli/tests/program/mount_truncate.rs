//! Mounts: truncation of files, and files that refuse it.
//!
//! If nothing can be mounted these tests say so and pass.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::mounted::Mounted;

/// Mount options that change the requests of a truncation.
const WAYS: [&str; 4] = ["", "-o writeback", "-o zero_open", "-o io_uring"];

fn empty(path: &Path, write: bool) -> io::Result<File> {
    let truncate = i32::try_from(OFlags::TRUNC.bits()).unwrap();
    OpenOptions::new().read(true).write(write).custom_flags(truncate).open(path)
}

/// The program was empty when the kernel refused to open it.
#[test]
fn a_program_that_runs_is_not_emptied() {
    for way in WAYS {
        let Some(mounted) = Mounted::mount_if_possible(way) else {
            return;
        };
        let program = PathBuf::from("/bin/sleep").canonicalize().unwrap();
        let copy = mounted.dir().join("sleep");
        // Not copied by this process: a child that another test is starting would have the copy open for writing.
        let copied = Command::new("cp").args([&program, &copy]).status();
        assert!(copied.unwrap().success());
        let mut running = Command::new(&copy).arg("100").spawn().unwrap();
        for write in [false, true] {
            let refused = empty(&copy, write).unwrap_err();
            assert_eq!(Errno::from_io_error(&refused), Some(Errno::TXTBSY), "{way}");
        }
        assert!(running.try_wait().unwrap().is_none(), "{way}");
        running.kill().unwrap();
        running.wait().unwrap();
        mounted.unmount();
        let found = mounted.bench.run("cat a.img /sleep").out;
        assert!(found == fs::read(&program).unwrap(), "{way}: {} bytes", found.len());
    }
}

/// A kernel with writeback sent the times; without, `ftruncate` to the same size changed none.
#[test]
fn emptying_what_is_empty_changes_its_times() {
    for way in WAYS {
        let Some(mounted) = Mounted::mount_if_possible(way) else {
            return;
        };
        let path = mounted.dir().join("file");
        let file = File::create(&path).unwrap();
        let is_touched_by = |what: &dyn Fn()| {
            let times = || {
                let found = fs::metadata(&path).unwrap();
                [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())]
            };
            let [mtime, ctime] = times();
            std::thread::sleep(Duration::from_millis(20));
            what();
            let [new_mtime, new_ctime] = times();
            assert_eq!(mtime == new_mtime, ctime == new_ctime, "{way}");
            mtime != new_mtime
        };
        for write in [true, false] {
            assert!(is_touched_by(&|| drop(empty(&path, write).unwrap())), "{way}");
        }
        assert!(is_touched_by(&|| file.set_len(0).unwrap()), "{way}");
        assert!(is_touched_by(&|| file.set_len(100).unwrap()), "{way}");
        assert!(is_touched_by(&|| file.set_len(100).unwrap()), "{way}");
        let truncate = || match Command::new("perl").args(["-e", "truncate($ARGV[0], 100) or die"]).arg(&path).status()
        {
            Ok(status) => assert!(status.success()),
            Err(error) => eprintln!("SKIPPED: perl, which can truncate by name: {error}"),
        };
        assert!(!is_touched_by(&truncate), "{way}");
        drop(file);
        mounted.unmount();
    }
}
