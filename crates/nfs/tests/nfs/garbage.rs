//! The fuzz targets, with messages that were changed a little. `fuzz/` does the same for longer.

use nfs::wire::{Access, Arguments, Call, Credential, DirOp, How, Program, SetAttributes, Stability, UserCredential};

use crate::fuzzed::{nfs_calls, nfs_wire};

/// The bytes with some changed, removed, or repeated.
fn changed(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(state >> 40).unwrap()
    };
    for _ in 0..=seed % 3 {
        let (at, value) = (next() % bytes.len(), u8::try_from(next() % 256).unwrap());
        match next() % 5 {
            0 => bytes.truncate(at + 1),
            1 => bytes[at] = value,
            2 => bytes[at] ^= 1 << (value % 8),
            3 => bytes.insert(at, value),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

fn messages() -> Vec<Arguments<'static>> {
    let (node, dir) = ([7; 60].as_slice(), [8; 60].as_slice());
    let at = DirOp { dir, name: b"name" };
    let attributes = SetAttributes { mode: Some(0o644), size: Some(5), ..SetAttributes::default() };
    vec![
        Arguments::GetAttr { node },
        Arguments::SetAttr { node, changes: attributes, guard: Some(nfs::wire::NfsTime::default()) },
        Arguments::Lookup(at),
        Arguments::Access { node, wanted: Access::all() },
        Arguments::Read { node, offset: 5, count: 100 },
        Arguments::Write { node, offset: 5, stability: Stability::Unstable, data: b"some data" },
        Arguments::Create { at, how: How::Guarded(attributes) },
        Arguments::Create { at, how: How::Exclusive([5; 8]) },
        Arguments::MkDir { at, attributes },
        Arguments::SymLink { at, attributes, target: b"target" },
        Arguments::MkNod { at, kind: Some(vfs::file_system::NodeKind::CharDevice), attributes, device: (1, 3) },
        Arguments::Rename { from: at, to: at },
        Arguments::Link { node, at },
        Arguments::ReadDir { dir, cookie: 3, verifier: 0, count: 4096 },
        Arguments::ReadDirPlus { dir, cookie: 3, verifier: 0, dir_count: 512, max_count: 4096 },
        Arguments::Commit { node, offset: 0, count: 0 },
    ]
}

#[test]
fn calls_that_were_changed_are_decoded_or_refused() {
    let user = UserCredential { uid: 1, gid: 2, groups: vec![3, 4] };
    for message in messages() {
        let arguments = message.encode();
        assert_eq!(Arguments::decode(message.procedure(), &arguments), Ok(Some(message.clone())));
        let call = Call {
            xid: 1,
            rpc_version: 2,
            program: Program::Nfs.number(),
            version: 3,
            procedure: message.procedure(),
            credential: Credential::Sys(user.clone()),
            arguments: &arguments,
        };
        let record = call.encode();
        assert_eq!(Call::decode(&record), Ok(call));
        for seed in 0..1000 {
            nfs_wire(&if seed == 0 { record.clone() } else { changed(&record, seed) });
        }
    }
}

#[test]
fn connections_that_were_changed_end() {
    // Behind the handle of the exported directory, which comes with each call.
    let calls: Vec<u8> = messages()
        .iter()
        .flat_map(|message| {
            let arguments = message.encode().split_off(64);
            [vec![message.procedure() as u8, arguments.len() as u8], arguments].concat()
        })
        .collect();
    for seed in 0..400_u64 {
        let bytes = [vec![2 | (seed % 2) as u8], calls.clone()].concat();
        nfs_calls(&if seed == 0 { bytes } else { changed(&bytes, seed) });
    }
}
