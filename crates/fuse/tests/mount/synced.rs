//! Syncs, which are answered together, and other requests meanwhile.

use super::common::{MAKE_DIRECTORY, Mounted, UNLUCKY_BYTES};
use super::on_all_ways;
use fuse::ServerOptions;
use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const THREADS: usize = 8;
const SYNCS: usize = 40;

#[test]
fn every_sync_that_was_begun_is_ended_and_answered() {
    on_all_ways(|mounted| {
        mounted.fs.take();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let mut file = File::create(mounted.path(&format!("{thread}"))).unwrap();
                scope.spawn(move || {
                    for number in 0..SYNCS {
                        file.write_all(&[7; 100]).unwrap();
                        match number % 2 {
                            0 => file.sync_all().unwrap(),
                            _ => file.sync_data().unwrap(),
                        }
                    }
                });
            }
        });
        let counts = mounted.fs.take();
        assert!(counts["begin_sync"] >= THREADS * SYNCS, "{counts:?}");
        assert_eq!(counts["begin_sync"], counts["end_sync"], "{counts:?}");
    });
}

#[test]
fn a_failure_at_the_end_reaches_the_caller_alone() {
    on_all_ways(|mounted| {
        let unlucky = usize::try_from(UNLUCKY_BYTES).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let mut file = File::create(mounted.path(&format!("{thread}"))).unwrap();
                let is_unlucky = thread.is_multiple_of(2);
                file.write_all(&vec![7; if is_unlucky { unlucky } else { unlucky + 1 }]).unwrap();
                scope.spawn(move || {
                    for _ in 0..SYNCS {
                        let synced = file.sync_all();
                        match is_unlucky {
                            true => assert_eq!(synced.unwrap_err().raw_os_error(), Some(28)),
                            false => synced.unwrap(),
                        }
                    }
                });
            }
        });
    });
}

/// A deferred sync must not wait as long as there are other requests.
#[test]
fn a_sync_is_answered_while_others_keep_the_server_busy() {
    on_all_ways(|mounted| {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (mounted, is_over) = (&mounted, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        assert!(!mounted.path(&format!("none-{thread}")).exists());
                        File::create(mounted.path(&format!("busy-{thread}"))).unwrap();
                        std::fs::remove_file(mounted.path(&format!("busy-{thread}"))).unwrap();
                    }
                });
            }
            let mut file = File::create(mounted.path("synced")).unwrap();
            let start = Instant::now();
            for _ in 0..SYNCS {
                file.write_all(&[7; 100]).unwrap();
                file.sync_all().unwrap();
            }
            is_over.store(true, Relaxed);
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        });
    });
}

/// The kernel keeps a directory locked while it is synced. A thread that invalidated a name in it would wait for that,
/// and nothing could end it: nor could the server end, whose answer the sync waits for.
#[test]
fn names_are_forgotten_while_their_directory_is_being_synced() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release.split('.').map_while(|part| part.parse().ok()).collect();
    if numbers.as_slice() < [6, 16].as_slice() {
        return eprintln!("skipped: before Linux 6.16 it cannot be told without waiting");
    }
    let workers = 4;
    let Some(mounted) = Mounted::new(ServerOptions { workers, ..ServerOptions::default() }) else {
        return;
    };
    let dir = mounted.path("dir");
    std::fs::create_dir(&dir).unwrap();
    assert!(!dir.join("made").exists());
    let held = mounted.fs.dir_syncs.lock();
    mounted.fs.take();
    std::thread::scope(|scope| {
        scope.spawn(|| File::open(&dir).unwrap().sync_all().unwrap());
        while !mounted.fs.take().contains_key("sync_file") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let program = "open(D, '<', $ARGV[0]) or die; $a = \"made\\0\\0\\0\\0\"; ioctl(D, $ARGV[1], $a) or die";
        let client = Command::new("perl").args(["-e", program]).arg(&dir).arg(MAKE_DIRECTORY.to_string()).status();
        let tellers = std::fs::read_dir("/proc/self/task").unwrap().filter(|task| {
            let name = std::fs::read_to_string(task.as_ref().unwrap().path().join("comm"));
            name.is_ok_and(|name| name.trim() == "fuse-tell")
        });
        let count = tellers.count();
        drop(held);
        match client {
            Ok(status) => assert!(status.success()),
            Err(error) => return eprintln!("skipped: no perl to ask with: {error}"),
        }
        assert_eq!(count, 0, "threads wait for the directory");
    });
    assert!(dir.join("made").is_dir());
    mounted.unmount();
}
