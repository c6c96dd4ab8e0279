//! Clients that break the protocol lose their own connection, or get a refusal; others are served.

use std::io::Write as _;

use nfs::wire::{Call, Credential, Mark, Program, Reader, UserCredential, procedure};

use crate::client::{Client, Served};

fn mark(is_last: bool, len: u32) -> [u8; 4] {
    Mark { is_last, len }.encode()
}

/// A call of procedure 0.
fn null() -> Vec<u8> {
    let (program, version) = (Program::Nfs.number(), Program::VERSION);
    let call =
        Call { xid: 9, rpc_version: 2, program, version, procedure: 0, credential: Credential::None, arguments: b"" };
    call.encode()
}

fn is_served(served: &Served) {
    let (mut client, root) = served.mounted();
    client.attr(&root).unwrap();
}

#[test]
fn records_that_lie_end_the_connection() {
    let served = Served::new();
    let huge = mark(true, 0x7fff_ffff).to_vec();
    let long = [mark(false, 1 << 20).as_slice(), &vec![0; 1 << 20], &mark(true, 1 << 20)].concat();
    let endless: Vec<u8> = (0..300).flat_map(|_| mark(false, 0)).collect();
    let short = [mark(true, 12).as_slice(), &[0; 12]].concat();
    let reply = [mark(true, 44).as_slice(), &[0, 0, 0, 1, 0, 0, 0, 1], &[0; 36]].concat();
    // A credential that is longer than any.
    let mut credential = null();
    credential[28..32].copy_from_slice(&u32::MAX.to_be_bytes());
    let credential = [mark(true, u32::try_from(credential.len()).unwrap()).as_slice(), &credential].concat();
    for bytes in [huge, long, endless, short, reply, credential, b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut client = served.connect();
        // The server may have closed it before all was sent.
        let _ = client.stream.write_all(&bytes);
        assert!(client.is_closed(), "{:?}", &bytes[..4]);
    }
    // One that ends in the middle.
    let mut client = served.connect();
    client.stream.write_all(&mark(true, 100)).unwrap();
    client.stream.write_all(&[0; 50]).unwrap();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.is_closed());
    is_served(&served);
}

#[test]
fn fragments_are_put_together() {
    let served = Served::new();
    let mut client = served.connect();
    let record = null();
    for (at, byte) in record.iter().enumerate() {
        client.stream.write_all(&[mark(at + 1 == record.len(), 1).as_slice(), &[*byte]].concat()).unwrap();
    }
    assert_eq!(client.receive(), [0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

/// The numbers of the reply to a call, without its own.
fn numbers(client: &mut Client, call: &Call<'_>) -> Vec<u32> {
    client.send(&call.encode());
    let reply = client.receive();
    let mut read = Reader::new("reply", &reply);
    assert_eq!((read.u32(), read.u32()), (Ok(call.xid), Ok(1)));
    read.rest().chunks(4).map(|four| u32::from_be_bytes(four.try_into().unwrap())).collect()
}

#[test]
fn calls_that_do_not_exist_are_refused_as_rpc_says() {
    let served = Served::new();
    let mut client = served.connect();
    let good = Call {
        xid: 5,
        rpc_version: 2,
        program: Program::Nfs.number(),
        version: 3,
        procedure: 0,
        credential: Credential::None,
        arguments: b"",
    };
    let root = Credential::Sys(UserCredential { uid: 0, gid: 0, groups: Vec::new() });
    let many = Credential::Sys(UserCredential { uid: 0, gid: 0, groups: vec![0; 17] });
    let of = |procedure, credential: &Credential| Call { procedure, credential: credential.clone(), ..good.clone() };
    let mount = Program::Mount.number();
    for (call, expected) in [
        (good.clone(), [0, 0, 0, 0].as_slice()),
        (Call { rpc_version: 3, ..good.clone() }, &[1, 0, 2, 2]),
        (Call { program: 100_227, ..good.clone() }, &[0, 0, 0, 1]),
        (Call { version: 4, ..good.clone() }, &[0, 0, 0, 2, 3, 3]),
        (Call { program: mount, version: 1, ..good.clone() }, &[0, 0, 0, 2, 3, 3]),
        (of(22, &root), &[0, 0, 0, 3]),
        (of(u32::MAX, &root), &[0, 0, 0, 3]),
        (Call { program: mount, procedure: 6, ..good.clone() }, &[0, 0, 0, 3]),
        (of(procedure::GETATTR, &root), &[0, 0, 0, 4]),
        (of(procedure::GETATTR, &Credential::Other(6)), &[1, 1, 5]),
        (of(procedure::GETATTR, &Credential::Malformed), &[1, 1, 1]),
        (of(procedure::GETATTR, &many), &[1, 1, 1]),
        // Everybody may ask whether the server is there.
        (of(procedure::NULL, &Credential::Other(6)), &[0, 0, 0, 0]),
    ] {
        assert_eq!(numbers(&mut client, &call), expected, "{call:?}");
    }
    // Lengths in arguments that lie.
    for arguments in [[0xff; 4].as_slice(), &[0, 0, 0, 65], &[0, 0, 0, 60, 0]] {
        for number in [1, 3, 6, 7, 8, 14, 16, 17] {
            let call = Call { procedure: number, arguments, credential: root.clone(), ..good.clone() };
            assert_eq!(numbers(&mut client, &call), [0, 0, 0, 4], "{number} {arguments:?}");
        }
    }
    is_served(&served);
}

#[test]
fn a_client_that_takes_no_replies_delays_no_other() {
    let served = Served::new();
    let (mut greedy, root) = served.mounted();
    let file = greedy.create(&root, "file", 0o600).unwrap().handle;
    let data = vec![1; 1 << 20];
    greedy.write(&file, 0, &data, nfs::wire::Stability::Unstable).unwrap();
    let read = nfs::wire::Arguments::Read { node: &file, offset: 0, count: 1 << 20 };
    let record = greedy.record(Program::Nfs, procedure::READ, &read.encode());
    let record = [mark(true, u32::try_from(record.len()).unwrap()).as_slice(), &record].concat();
    greedy.stream.set_write_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    while greedy.stream.write_all(&record).is_ok() {}
    let mut other = served.connect();
    for _ in 0..20 {
        assert_eq!(other.read(&file, 0, 1 << 20).unwrap().0.len(), 1 << 20);
    }
}
