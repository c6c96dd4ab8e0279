//! A mount in the background held an inherited pipe open: a script that read its output to the end (`$(...)` with
//! `3>&1`, a job server, a test runner) waited for the unmount.

use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use crate::harness::pattern;
use crate::mounted::{END_MAX, Mounted, can_mount, kill};
use rustix::process::Signal;

/// Starts the program by a shell that opens descriptors before.
fn start_with(redirections: &str, words: &str, mounted: &Mounted) -> Child {
    let line = format!("exec {redirections}; exec \"$0\" {words}");
    Command::new("sh")
        .args(["-c", &line, env!("CARGO_BIN_EXE_spinney")])
        .current_dir(&mounted.bench.dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until the pipe of a program reaches its end.
fn assert_ends(child: &mut Child, what: &str) {
    let mut pipe = child.stdout.take().unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(pipe.read_to_end(&mut Vec::new())));
    let read = told.recv_timeout(END_MAX);
    assert!(read.is_ok_and(|read| read.is_ok()), "{what}: the pipe is still open");
}

#[test]
fn a_mount_keeps_no_descriptor_that_it_inherited() {
    if !can_mount() {
        return;
    }
    for place in ["", "--foreground"] {
        let mounted = Mounted::new();
        let words = format!("mount {place} a.img mnt");
        let mut child = start_with("5>&1 9>&1 >/dev/null", &words, &mounted);
        assert_ends(&mut child, place);
        mounted.wait_until_mounted();
        fs::write(mounted.dir().join("file"), pattern(5000)).unwrap();
        assert_eq!(mounted.processes("server").len(), 1);
        if place.is_empty() {
            mounted.bench.ok("umount mnt");
        } else {
            kill(i32::try_from(child.id()).unwrap(), Signal::TERM);
        }
        assert!(child.wait().unwrap().success(), "{place}");
        mounted.wait_until_gone();
        assert_eq!(mounted.bench.run("cat a.img /file").out, pattern(5000));
    }
}

#[test]
fn an_image_and_a_log_can_be_given_as_descriptors() {
    let Some(mounted) = Mounted::if_possible() else {
        return;
    };
    let redirections = "5<>a.img 6>log 7<mnt 8>&1 >/dev/null";
    let words = "mount -v --log /dev/fd/6 /dev/fd/5 /proc/self/fd/7";
    let mut child = start_with(redirections, words, &mounted);
    assert_ends(&mut child, words);
    assert!(child.wait().unwrap().success());
    assert!(mounted.is_mounted());
    fs::write(mounted.dir().join("file"), pattern(5000)).unwrap();
    mounted.unmount();
    let log = fs::read_to_string(mounted.bench.path("log")).unwrap();
    assert!(log.contains("is mounted on"), "{log}");
    assert_eq!(mounted.bench.run("cat a.img /file").out, pattern(5000));
}
