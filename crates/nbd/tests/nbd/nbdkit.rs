//! The client against nbdkit and qemu-nbd, and their clients against our server.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blockdev::backends::MemoryDevice;
use blockdev::{Device, Holes, Kind, Tag, Write, tagged};

use crate::harness::{Other, Own, has, open, pattern};

fn write_and_read(device: &dyn Device) {
    let size = device.size_bytes();
    for (seed, (at, len)) in [(0, 4096), (8192, 3 << 20), (size - 512, 512), (5 << 20, 65_536)].into_iter().enumerate()
    {
        let bytes = pattern(len, seed as u64);
        device.write_at(at, &[&bytes]).unwrap();
        device.flush().unwrap();
        let mut found = vec![0; len];
        device.read_at(at, &mut found).unwrap();
        assert!(found == bytes, "{len} bytes at {at}");
    }
}

#[test]
fn nbdkit_keeps_what_is_written() {
    if !has("nbdkit") {
        return;
    }
    let plain = Other::nbdkit(&["memory", "64M"]);
    write_and_read(&*open(&plain.locator("")));
    let device = open(&plain.locator(""));
    assert!(device.write_zeroes(0, 16 << 20, Holes::Allowed).unwrap());
    assert_eq!(device.next_data(0), 64 << 20 - 0);
    // Without structured replies, several connections, and with blocks of 4 KiB.
    for words in [
        ["--no-sr", "memory", "64M"].as_slice(),
        &["--filter=multi-conn", "memory", "64M", "multi-conn-mode=disable"],
        &["--filter=noextents", "--filter=nozero", "memory", "64M"],
        &["--filter=truncate", "memory", "50M", "truncate=64M"],
    ] {
        write_and_read(&*open(&Other::nbdkit(words).locator("")));
    }
}

#[test]
fn blocks_of_a_server_are_heeded() {
    if !has("nbdkit") {
        return;
    }
    let words = [
        "--filter=blocksize-policy",
        "memory",
        "16M",
        "blocksize-minimum=4K",
        "blocksize-maximum=64K",
        "blocksize-error-policy=error",
    ];
    let server = Other::nbdkit(&words);
    let device = open(&server.locator(""));
    write_and_read(&*device);
    device.write_at(5000, &[b"within", b" blocks"]).unwrap();
    let mut found = [0; 13];
    device.read_at(5000, &mut found).unwrap();
    assert_eq!(&found, b"within blocks");
    device.discard(5000, 100_000).unwrap();
    device.read_at(5000, &mut found).unwrap();
    assert_eq!(&found, b"within blocks", "the block is trimmed only in part");
}

#[test]
fn errors_of_a_server_reach_the_caller() {
    if !has("nbdkit") {
        return;
    }
    let server = Other::nbdkit(&["--filter=error", "memory", "1M", "error=ENOSPC", "error-pwrite-rate=1"]);
    let device = open(&server.locator(""));
    let error = device.write_at(0, &[&[1; 512]]).unwrap_err();
    assert!(error.is_no_space() && error.to_string().contains(&server.locator("")), "{error}");
    device.read_at(0, &mut [0; 512]).unwrap();
    let server = Other::nbdkit(&["--filter=error", "memory", "1M", "error-pread-rate=1"]);
    let device = open(&server.locator(""));
    let error = device.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("cannot read 512 bytes at 0"), "{error}");
}

#[test]
fn requests_are_under_way_together() {
    if !has("nbdkit") {
        return;
    }
    let server = Other::nbdkit(&["--filter=delay", "memory", "64M", "rdelay=20ms", "wdelay=20ms"]);
    let device = open(&server.locator(""));
    let bytes = pattern(4096, 1);
    let parts = [bytes.as_slice()];
    let writes: Vec<_> = (0..60).map(|at| Write { offset: at << 20, parts: &parts, tag: Tag::default() }).collect();
    let begun = Instant::now();
    assert!(device.submit(&writes).iter().all(Result::is_ok));
    assert!(begun.elapsed() < Duration::from_millis(400), "60 writes took {:?}", begun.elapsed());
    // Small blocks of metadata, one after the other: 2048 round trips would take 40 seconds.
    let begun = Instant::now();
    let mut block = vec![0; 16 << 10];
    for at in 0..2048_u64 {
        tagged(Tag { kind: Kind::Metadata, mirror: 0 }, || device.read_at(at << 14, &mut block)).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "2048 blocks took {:?}", begun.elapsed());
}

#[test]
fn a_killed_server_fails_writes_that_were_not_flushed_and_no_others() {
    if !has("nbdkit") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("image")).unwrap().set_len(16 << 20).unwrap();
    let words = ["file", "DIR/image"];
    let server = Other::start_in(dir, &words);
    let flushed = open(&server.locator("&timeout=10"));
    let unflushed = open(&server.locator("&timeout=10"));
    flushed.write_at(0, &[&[5; 4096]]).unwrap();
    flushed.flush().unwrap();
    unflushed.write_at(8192, &[&[6; 4096]]).unwrap();
    let _again = Other::start_in(server.kill(), &words);
    let mut found = [0; 4096];
    for device in [&flushed, &unflushed] {
        device.read_at(0, &mut found).unwrap();
        assert_eq!(found, [5; 4096]);
    }
    flushed.write_at(4096, &[&[7; 4096]]).unwrap();
    flushed.flush().unwrap();
    let error = unflushed.flush().unwrap_err().to_string();
    assert!(error.contains("may be lost"), "{error}");
}

#[test]
fn qemu_nbd_serves_images_of_its_formats() {
    if !has("qemu-nbd") || !has("qemu-img") {
        return;
    }
    for format in ["qcow2", "vmdk"] {
        let server = Other::start(|dir| {
            let image = dir.join("image");
            let made = Command::new("qemu-img").args(["create", "-q", "-f", format]).arg(&image).arg("64M").status();
            assert!(made.unwrap().success());
            let mut command = Command::new("qemu-nbd");
            command.args(["-t", "-e", "4", "-f", format, "-k"]).arg(dir.join("socket")).arg(image);
            command
        });
        let device = open(&server.locator(""));
        assert_eq!(device.next_data(0), 64 << 20, "{format}");
        write_and_read(&*device);
        device.discard(0, 4 << 20).unwrap();
    }
}

fn succeeds(command: &mut Command) -> String {
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn other_clients_use_our_server() {
    if !has("nbdinfo") || !has("nbdcopy") || !has("qemu-img") {
        return;
    }
    let bytes = [pattern(3 << 20, 1), vec![0; 9 << 20], pattern(4 << 20, 2)].concat();
    let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
    let own = Own::start(Arc::clone(&memory) as Arc<dyn Device>, false);
    let info = succeeds(Command::new("nbdinfo").arg(own.locator()));
    for said in ["structured", "can_multi_conn: true", "can_fua: true", "can_trim: true", "base:allocation"] {
        assert!(info.contains(said), "{said}: {info}");
    }
    assert!(succeeds(Command::new("nbdinfo").arg("--list").arg(own.locator())).contains("export=\"disk\""));
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    succeeds(Command::new("nbdcopy").arg(own.locator()).arg(&copy));
    assert!(std::fs::read(&copy).unwrap() == bytes);
    let changed = pattern(bytes.len(), 9);
    std::fs::write(&copy, &changed).unwrap();
    succeeds(Command::new("nbdcopy").arg("--flush").arg(&copy).arg(own.locator()));
    assert!(memory.to_bytes() == changed);
    succeeds(Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(&copy).arg(own.locator()));
    let output = succeeds(Command::new("qemu-img").args(["map", "-f", "raw", "--output=json"]).arg(own.locator()));
    assert!(output.contains("\"data\": true"), "{output}");
}
