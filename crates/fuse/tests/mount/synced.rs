//! Syncs, which are answered together.

use super::common::UNLUCKY_BYTES;
use super::on_all_ways;
use std::fs::File;
use std::io::Write as _;
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

/// What is put off while there are other requests must not wait as long as there are any.
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
