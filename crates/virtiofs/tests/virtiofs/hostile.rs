//! A hostile guest: queues and requests that lie. The device answers errors or nothing, and serves on.

use crate::vmm::{Descriptor, INDIRECT, MEMORY_BYTES, NEXT, QUEUE_LEN, REPLY, REQUEST, Vmm, WRITABLE, message, u32_at};
use vm_memory::{Bytes as _, GuestAddress};

const GETATTR: u32 = 3;
const STATFS: u32 = 17;
const EIO: i32 = 5;

/// Bytes of the header of a request and of a request for attributes.
const HEADER: u32 = 40;

fn far() -> u64 {
    u64::try_from(MEMORY_BYTES).unwrap()
}

/// Chains that no driver makes.
fn chains() -> Vec<(&'static str, Vec<Descriptor>)> {
    vec![
        ("a descriptor that leads to itself", vec![(REQUEST, HEADER, NEXT, 0)]),
        ("a loop of two", vec![(REQUEST, HEADER, NEXT, 1), (REPLY, 64, NEXT | WRITABLE, 0)]),
        ("a next one behind the table", vec![(REQUEST, HEADER, NEXT, QUEUE_LEN)]),
        ("a next one far behind the table", vec![(REQUEST, HEADER, NEXT, u16::MAX)]),
        ("memory that is not there", vec![(far(), HEADER, NEXT, 1), (REPLY, 64, WRITABLE, 0)]),
        ("memory at the end of addresses", vec![(u64::MAX - 8, HEADER, NEXT, 1), (REPLY, 64, WRITABLE, 0)]),
        ("a reply where no memory is", vec![(REQUEST, HEADER, NEXT, 1), (far() - 8, 64, WRITABLE, 0)]),
        ("all of memory as request", vec![(0, u32::MAX, NEXT, 1), (REPLY, 64, WRITABLE, 0)]),
        ("a request longer than a message", vec![(REQUEST, 2 << 20, NEXT, 1), (REPLY, 64, WRITABLE, 0)]),
        ("no request", vec![(REPLY, 64, WRITABLE, 0)]),
        ("an empty request", vec![(REQUEST, 0, NEXT, 1), (REPLY, 64, WRITABLE, 0)]),
        ("half a header", vec![(REQUEST, 20, NEXT, 1), (REPLY, 64, WRITABLE, 0)]),
        ("no room for a reply", vec![(REQUEST, HEADER, 0, 0)]),
        ("the reply before the request", vec![(REPLY, 64, WRITABLE | NEXT, 1), (REQUEST, HEADER, 0, 0)]),
        ("an indirect table of no size", vec![(REQUEST, 0, INDIRECT, 0)]),
        ("an indirect table with a tail", vec![(REQUEST, 17, INDIRECT, 0)]),
        ("an indirect table that is the request", vec![(REQUEST, 48, INDIRECT, 0)]),
        ("an indirect table that goes on", vec![(REQUEST, 48, INDIRECT | NEXT, 1), (REPLY, 64, WRITABLE, 0)]),
    ]
}

#[test]
fn chains_that_lie_hurt_nothing() {
    for (name, chain) in chains() {
        let mut vmm = Vmm::new();
        vmm.mount();
        vmm.memory.write_slice(&message(STATFS, 99, 1, b""), GuestAddress(REQUEST)).unwrap();
        vmm.offer(&chain);
        // It may be taken without a reply, or not be taken.
        let _ = vmm.wait_shortly();
        let ended = match vmm.is_served() {
            true => vmm.ask(STATFS, 1, b"").map(|_| ()),
            // The queue has stopped: the guest's own loss.
            false => Ok(()),
        };
        assert_eq!(ended, Ok(()), "{name}");
        vmm.end().unwrap();
    }
}

#[test]
fn a_reply_that_does_not_fit_is_an_error() {
    let mut vmm = Vmm::new();
    vmm.mount();
    vmm.memory.write_slice(&message(STATFS, 99, 1, b""), GuestAddress(REQUEST)).unwrap();
    vmm.offer(&[(REQUEST, HEADER, NEXT, 1), (REPLY, 20, WRITABLE, 0)]);
    assert_eq!(vmm.wait(), Some(16));
    let mut reply = [0; 16];
    vmm.memory.read_slice(&mut reply, GuestAddress(REPLY)).unwrap();
    assert_eq!(-i32::from_ne_bytes(reply[4..8].try_into().unwrap()), EIO);
    vmm.offer(&[(REQUEST, HEADER, NEXT, 1), (REPLY, 3, WRITABLE, 0)]);
    assert_eq!(vmm.wait(), Some(0));
    assert!(vmm.ask(GETATTR, 1, &[0; 16]).is_ok());
    vmm.end().unwrap();
}

#[test]
fn requests_before_the_mount_and_made_up_ones_are_errors() {
    let mut vmm = Vmm::new();
    assert_eq!(vmm.ask(STATFS, 1, b""), Err(EIO));
    vmm.mount();
    for opcode in [0, 2000, u32::MAX] {
        assert!(vmm.ask(opcode, 1, &[0xff; 64]).is_err());
    }
    for node in [0, 77, u64::MAX] {
        assert!(vmm.ask(GETATTR, node, &[0; 16]).is_err());
    }
    let statfs = vmm.ask(STATFS, 1, b"").unwrap();
    assert!(u32_at(&statfs, 0) > 0);
    vmm.end().unwrap();
}

#[test]
fn a_queue_that_claims_more_than_it_has_ends_the_queue_alone() {
    let mut vmm = Vmm::new();
    vmm.mount();
    vmm.set_available(vmm.used.wrapping_add(QUEUE_LEN * 4));
    let _ = vmm.wait_shortly();
    vmm.end().unwrap();
}

/// The server was killed by a signal when it looked at such memory.
#[test]
fn memory_behind_the_end_of_its_file_ends_the_connection() {
    let mut vmm = Vmm::new();
    vmm.mount();
    assert!(!vmm.tell_too_much_memory());
    let error = vmm.end().unwrap_err().to_string();
    assert!(error.contains("of its file, which has 8388608 bytes"), "{error}");
}

/// A descriptor of each queue's thread was never closed: a server ended after some hundred connections.
#[test]
fn connections_leave_no_descriptors() {
    let descriptors = || {
        let dir = std::fs::read_dir("/proc/self/fd").unwrap();
        dir.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .filter(|target| target.as_os_str() == "anon_inode:[eventfd]")
            .count()
    };
    let connect = || {
        let mut vmm = Vmm::new();
        vmm.mount();
        vmm.end().unwrap();
    };
    connect();
    // Other tests have connections meanwhile.
    let least = || {
        (0..20)
            .map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                descriptors()
            })
            .min()
    };
    let before = least().unwrap();
    (0..40).for_each(|_| connect());
    let after = least().unwrap();
    assert!(after < before + 40, "{before} descriptors, and then {after}");
}
