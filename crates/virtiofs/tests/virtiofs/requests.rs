//! An honest guest: it mounts, works, unmounts, and is reset.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vfs::Volume;

use crate::vmm::{Vmm, u32_at, u64_at};

const LOOKUP: u32 = 1;
const MKDIR: u32 = 9;
const READ: u32 = 15;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const CREATE: u32 = 35;
const DESTROY: u32 = 38;
const EIO: i32 = 5;

#[test]
fn a_file_of_a_guest_is_there_after_it_unmounts() {
    let mut vmm = Vmm::new();
    vmm.mount();
    let create = [2_u32, 0o100_640, 0o022, 0].map(u32::to_ne_bytes).concat();
    let made = vmm.ask(CREATE, 1, &[&*create, b"file\0"].concat()).unwrap();
    let (node, handle) = (u64_at(&made, 0), u64_at(&made, 128));
    let data = vec![7; 300_000];
    // Handle, offset, length; then flags, owner of a lock, flags of open(2).
    let write = [&handle.to_ne_bytes()[..], &0_u64.to_ne_bytes(), &300_000_u32.to_ne_bytes(), &[0; 20]].concat();
    let written = vmm.ask(WRITE, node, &[&*write, &*data].concat()).unwrap();
    assert_eq!(u32_at(&written, 0), 300_000);
    // On a thread of its own.
    assert_eq!(vmm.ask(FSYNC, node, &[&handle.to_ne_bytes()[..], &[0; 8]].concat()).unwrap(), b"");
    assert_eq!(vmm.ask(READ, node, &write).unwrap(), data);
    assert_eq!(vmm.ask(DESTROY, 0, b"").unwrap(), b"");
    let volume = vmm.opened.last.lock().take().unwrap();
    assert_eq!(Arc::strong_count(&volume), 1, "the volume is closed before the reply");
    assert_eq!(Volume::new(volume).read("/file").unwrap(), data);
    assert_eq!(vmm.ask(LOOKUP, 1, b"file\0"), Err(EIO), "nothing is mounted");
    vmm.end().unwrap();
}

#[test]
fn a_guest_that_was_reset_mounts_again() {
    let mut vmm = Vmm::new();
    vmm.mount();
    let mkdir = [0o755_u32, 0].map(u32::to_ne_bytes).concat();
    vmm.ask(MKDIR, 1, &[&*mkdir, b"dir\0"].concat()).unwrap();
    let first = vmm.opened.last.lock().take().unwrap();
    vmm.mount();
    assert_eq!(Arc::strong_count(&first), 1, "the volume of the first mount is closed");
    assert_eq!(vmm.opened.count.load(Ordering::Relaxed), 2);
    vmm.end().unwrap();
}
