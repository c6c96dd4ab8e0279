//! Calls that are sent again because a connection was lost.

use std::net::SocketAddr;

use nfs::wire::{Arguments, DirOp, Program, SetAttributes};

use crate::client::Served;

#[test]
fn a_repeated_call_gets_the_first_reply() {
    let served = Served::new();
    let address = Some(SocketAddr::from(([10, 0, 0, 1], 700)));
    let mut client = served.connect_from(address);
    let root = client.mount("/").unwrap();
    let attributes = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    let arguments = Arguments::MkDir { at: DirOp { dir: &root, name: b"dir" }, attributes };
    let record = client.record(Program::Nfs, arguments.procedure(), &arguments.encode());
    client.send(&record);
    let first = client.receive();
    client.send(&record);
    assert_eq!(client.receive(), first, "on the same connection");
    let mut again = served.connect_from(address);
    again.send(&record);
    assert_eq!(again.receive(), first, "on a connection from the same address");
    // From elsewhere it is another call: the directory exists.
    for address in [None, Some(SocketAddr::from(([10, 0, 0, 1], 701)))] {
        let mut other = served.connect_from(address);
        other.send(&record);
        assert_ne!(other.receive(), first);
    }
    // Another number is another call.
    let record = client.record(Program::Nfs, arguments.procedure(), &arguments.encode());
    client.send(&record);
    let second = client.receive();
    assert_ne!(second[24..28], first[24..28]);
}

#[test]
fn calls_that_were_sent_together_are_all_answered() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let mut records = Vec::new();
    for number in 0..200_u32 {
        let name = format!("{number}");
        let arguments = match number % 4 {
            0 => Arguments::GetAttr { node: &root },
            1 => Arguments::FsStat { node: &root },
            _ => Arguments::MkDir {
                at: DirOp { dir: &root, name: name.as_bytes() },
                attributes: SetAttributes { mode: Some(0o700), ..SetAttributes::default() },
            },
        };
        records.push(client.record(Program::Nfs, arguments.procedure(), &arguments.encode()));
    }
    for record in &records {
        client.send(record);
    }
    let mut numbers: Vec<u32> = (0..200)
        .map(|_| {
            let reply = client.receive();
            assert_eq!(reply[20..28], [0; 8]);
            u32::from_be_bytes(reply[..4].try_into().unwrap())
        })
        .collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|two| two[0] + 1 == two[1]));
    assert_eq!(client.names(&root).len(), 100);
}
