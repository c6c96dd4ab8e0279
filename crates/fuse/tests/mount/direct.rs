//! Asynchronous direct writes, and the contents of the page cache afterwards.
//!
//! Two programs that read a file again and again saw old bytes for seconds after they had been overwritten.

use super::{Aligned, Mounted, Page, all_ways};
use fuse::Transport;
use io_uring::{IoUring, opcode, types};
use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

#[test]
fn what_is_read_after_an_asynchronous_direct_write_is_new() {
    for options in all_ways() {
        let Some(mounted) = Mounted::new(options.clone()) else {
            return;
        };
        let path = mounted.path("file");
        fs::write(&path, [1; 4096]).unwrap();
        let mut open = OpenOptions::new();
        open.write(true).custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
        let file = open.open(&path).unwrap();
        let page = Aligned(Box::new(Page([2; 65536])));
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), page.0.0.as_ptr(), 4096).build();
        let Ok(mut ring) = IoUring::new(8) else {
            return eprintln!("SKIPPED: no io_uring here");
        };
        // A program reads while the write is pending. A ring answers the requests of a processor one after the other.
        let has_others = options.workers != 1 && options.transport == Transport::Device;
        let held = has_others.then(|| mounted.fs.direct_writes.lock());
        #[allow(unsafe_code, reason = "the page and the file outlive the write")]
        // SAFETY: both live until the completion below.
        unsafe {
            ring.submission().push(&entry).unwrap();
        }
        ring.submit().unwrap();
        if held.is_some() {
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(fs::read(&path).unwrap(), [1; 4096], "{options:?}");
        }
        drop(held);
        ring.submit_and_wait(1).unwrap();
        assert_eq!(ring.completion().next().unwrap().result(), 4096, "{options:?}");
        assert_eq!(fs::read(&path).unwrap(), [2; 4096], "{options:?}");
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), [2; 4096], "{options:?}");
        mounted.unmount();
    }
}
