//! READDIR and READDIRPLUS.

use nfs::wire::{Arguments, DirOp, Status};

use crate::client::Served;

#[test]
fn every_name_comes_once_whatever_the_client_takes_at_a_time() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let mut expected: Vec<String> = (0..200).map(|number| format!("a name of number {number}")).collect();
    for name in &expected {
        client.create(&root, name, 0o600).unwrap();
    }
    expected.sort();
    for (count, plus) in [(200, false), (1000, false), (1 << 16, false), (400, true), (5000, true), (1 << 20, true)] {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let (more, is_end) = client.list(&root, cookie, count, plus).unwrap();
            for listed in &more {
                let is_dot = listed.name == "." || listed.name == "..";
                assert_eq!(listed.handle.is_some() && listed.attr.is_some(), plus && !is_dot);
                if let Some(attr) = &listed.attr {
                    assert_eq!(attr.fileid, listed.fileid);
                }
            }
            cookie = more.last().unwrap().cookie;
            names.extend(more.into_iter().map(|listed| listed.name));
            if is_end {
                break;
            }
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        assert_eq!(names, expected, "{count} {plus}");
    }
    assert_eq!(client.list(&root, 0, 60, false).unwrap_err(), Status::TOOSMALL);
    assert_eq!(client.list(&root, 0, 0, true).unwrap_err(), Status::TOOSMALL);
}

#[test]
fn a_listing_goes_on_while_names_go() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    for number in 0..100 {
        client.create(&root, &format!("{number:03}"), 0o600).unwrap();
    }
    let (first, is_end) = client.list(&root, 0, 1000, false).unwrap();
    assert!(!is_end);
    for listed in first.iter().skip(2) {
        client.change(&Arguments::Remove(DirOp { dir: &root, name: listed.name.as_bytes() })).unwrap();
    }
    let mut rest = Vec::new();
    let mut cookie = first.last().unwrap().cookie;
    loop {
        let (more, is_end) = client.list(&root, cookie, 1000, true).unwrap();
        cookie = more.last().map_or(cookie, |last| last.cookie);
        rest.extend(more.into_iter().map(|listed| listed.name));
        if is_end {
            break;
        }
    }
    assert_eq!(rest.len() + first.len() - 2, 100);
    assert_eq!(client.names(&root), {
        rest.sort();
        rest
    });
}
