//! Requests of every kind with bytes of every kind: there is always an answer, and never a panic.

use super::service::{Service, ServiceOptions};
use super::state::Answer;
use crate::protocol::requests::InHeader;
use crate::protocol::{Request, opcode};
use crate::shutdown::{Done, Ending};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use vfs::file_system::Errno;
use vfs_conformance::{MemoryFs, MemoryOptions};
use zerocopy::IntoBytes;

fn session() -> Service {
    session_with(Arc::default())
}

fn session_with(writer: Arc<AtomicU32>) -> Service {
    let options = ServiceOptions {
        has_epochs: false,
        has_idmaps: false,
        entry_timeout: Duration::from_secs(1),
        attr_timeout: Duration::from_secs(1),
        zero_open: false,
        tells_each_reader: false,
        writeback: false,
        write_back: None,
        writer,
        socket: None,
        served: None,
    };
    // Little space, so that no request for space makes the test slow.
    let memory = MemoryOptions { capacity_bytes: 1 << 20, ..MemoryOptions::default() };
    let ending = Arc::new(Ending::default());
    // There is no server to end.
    drop(Done(Arc::clone(&ending)));
    Service::new(Arc::new(MemoryFs::new(&memory)), ending, options)
}

fn serve(session: &Service, opcode: u32, node: u64, body: &[u8], out: &mut [u8]) -> Answer {
    let header = InHeader {
        len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
        opcode,
        unique: 2,
        nodeid: node,
        ..InHeader::default()
    };
    let bytes = [header.as_bytes(), body].concat();
    match Request::parse(header, &bytes) {
        Ok(request) => session.serve(&request, out),
        Err(error) => Answer::Failed(error),
    }
}

#[test]
fn every_request_survives_bodies_of_every_length() {
    let session = session();
    let mut out = vec![0; 8192];
    for opcode in 0..64 {
        for len in 0..160 {
            for fill in [0, 1, b'a', 0x7f, 0xff] {
                let mut body = vec![fill; len];
                serve(&session, opcode, 1, &body, &mut out);
                if let Some(last) = body.last_mut() {
                    *last = 0;
                }
                let answer = serve(&session, opcode, 1, &body, &mut out);
                if let Answer::Done(len) | Answer::DoneStale(len, _) = answer {
                    assert!(len <= out.len(), "{}", opcode::name(opcode));
                }
            }
        }
    }
}

#[test]
fn random_requests_are_answered() {
    let session = session();
    let mut out = vec![0; 8192];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut done = 0;
    for _ in 0..100_000 {
        let opcode = u32::try_from(random() % 56).unwrap();
        let fixed = opcode::fixed_bytes(opcode).unwrap_or(0);
        let len = fixed + usize::try_from(random() % 24).unwrap();
        let mut body = vec![0; len];
        for byte in &mut body {
            // Mostly small numbers, which are valid in fields and names.
            *byte = match random() % 8 {
                0 => random().to_le_bytes()[0],
                1..4 => b'a' + random().to_le_bytes()[0] % 3,
                _ => 0,
            };
        }
        let answer = serve(&session, opcode, random() % 6, &body, &mut out);
        done += usize::from(matches!(answer, Answer::Done(_)));
    }
    assert!(done > 1000, "{done}");
}

#[test]
fn replies_that_do_not_fit_are_errors() {
    let session = session();
    for opcode in [opcode::GETATTR, opcode::STATFS, opcode::STATX] {
        let body = vec![0; opcode::fixed_bytes(opcode).unwrap()];
        let answer = serve(&session, opcode, 1, &body, &mut [0; 8]);
        assert_eq!(answer, Answer::Failed(Errno::EIO));
    }
}

#[test]
fn what_is_left_to_the_kernel_is_refused_once() {
    let session = session();
    for (number, len) in [(opcode::OPENDIR, 8), (opcode::FLUSH, 24), (34, 8), (31, 48), (40, 24)] {
        let answer = serve(&session, number, 1, &vec![0; len], &mut [0; 64]);
        assert_eq!(answer, Answer::Failed(Errno::ENOSYS), "{number}");
    }
}

#[test]
fn nothing_is_made_that_would_belong_to_nobody() {
    let session = session();
    let mut out = vec![0; 8192];
    for id in [0, 7, u32::MAX] {
        for opcode in [opcode::MKDIR, opcode::MKNOD, opcode::CREATE, opcode::SYMLINK, opcode::TMPFILE] {
            let args = match opcode {
                opcode::MKDIR => 8,
                opcode::SYMLINK => 0,
                _ => 16,
            };
            let mut body = vec![0; args];
            if opcode == opcode::MKNOD {
                body[..4].copy_from_slice(&0o010_644_u32.to_ne_bytes());
            }
            body.extend_from_slice(format!("{id}-{opcode}\0").as_bytes());
            if opcode == opcode::SYMLINK {
                body.extend_from_slice(b"target\0");
            }
            let header = InHeader {
                len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
                opcode,
                unique: 2,
                nodeid: 1,
                uid: id,
                gid: id,
                ..InHeader::default()
            };
            let bytes = [header.as_bytes(), &body].concat();
            let answer = session.serve(&Request::parse(header, &bytes).unwrap(), &mut out);
            match id {
                u32::MAX => assert_eq!(answer, Answer::Failed(Errno::EOVERFLOW), "{opcode}"),
                _ => assert!(matches!(answer, Answer::Done(_)), "{opcode}: {answer:?}"),
            }
        }
    }
}

#[test]
fn some_syncs_of_everything_have_threads_of_their_own_and_those_of_the_writer_sync_nothing() {
    let writer = Arc::<AtomicU32>::default();
    let session = session_with(Arc::clone(&writer));
    let sync = |pid: u32| {
        let len = u32::try_from(size_of::<InHeader>() + 8).unwrap();
        let header = InHeader { len, opcode: opcode::SYNCFS, unique: 2, nodeid: 1, pid, ..InHeader::default() };
        let bytes = [header.as_bytes(), &[0; 8]].concat();
        session.serve(&Request::parse(header, &bytes).unwrap(), &mut [0; 64])
    };
    // No thread is the writer yet, nor is a caller without a number here.
    let mut apart = vec![sync(7), sync(0), sync(7), sync(8)];
    assert!(apart.iter().all(|answer| matches!(answer, Answer::Apart(_))), "{apart:?}");
    assert_eq!(sync(7), Answer::Done(0), "the worker does it, where there are many");
    apart.pop();
    let Answer::Apart(request) = sync(7) else { panic!("one has ended") };
    assert_eq!(session.serve_with_data(&request).reply, Ok(Vec::new()));
    drop((request, apart));
    writer.store(7, Ordering::Relaxed);
    assert!(matches!(sync(8), Answer::Apart(_)));
    assert_eq!(sync(7), Answer::Done(0));
}
