//! `spinney receive`: streams become subvolumes, or are refused with the reason.

use spinney::btrfs::stream::{Command, Encoder, Version};
use std::process::Stdio;

use crate::harness::Bench;

const UUID: [u8; 16] = *b"0123456789abcdef";
const UUID_TEXT: &str = "30313233-3435-3637-3839-616263646566";

/// A stream with a subvolume `home`, and these commands between its beginning and its end.
fn stream(commands: &[Command<'_>]) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), Version::V1).unwrap();
    encoder.command(&Command::Subvol { path: b"home", uuid: UUID, ctransid: 7 }).unwrap();
    for command in commands {
        encoder.command(command).unwrap();
    }
    encoder.command(&Command::End).unwrap();
    encoder.into_inner()
}

/// A directory for a test, with an image and a stream.
fn bench(commands: &[Command<'_>]) -> Bench {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 128M a.img");
    bench.ok("mkdir a.img /backups");
    std::fs::write(bench.path("a.stream"), stream(commands)).unwrap();
    bench
}

const NOTES: [Command<'_>; 3] = [
    Command::Mkfile { path: b"o257-7-0", ino: Some(257) },
    Command::Rename { path: b"o257-7-0", to: b"notes" },
    Command::Write { path: b"notes", offset: 0, data: b"hello\n" },
];

#[test]
fn a_stream_becomes_a_subvolume() {
    let bench = bench(&NOTES);
    let report = bench.json("receive --json -f a.stream a.img /backups");
    assert_eq!(report["subvolumes"][0]["path"], "/backups/home");
    assert_eq!(report["subvolumes"][0]["received_uuid"], UUID_TEXT);
    assert_eq!(report["commands"], 5);
    assert_eq!(bench.ok("cat a.img /backups/home/notes"), "hello\n");
    let list = bench.json("subvolume list --json a.img");
    assert_eq!(list["subvolumes"][0]["received_uuid"], UUID_TEXT);
    assert_eq!(list["subvolumes"][0]["read_only"], true);

    // A second receive finds the subvolume in its place, which stays.
    let run = bench.run("receive -f a.stream --delete-partial a.img /backups");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("already exists"), "{}", run.err);
    assert_eq!(bench.ok("cat a.img /backups/home/notes"), "hello\n");
}

#[test]
fn the_standard_input_is_the_default() {
    let bench = bench(&NOTES);
    let input = std::fs::File::open(bench.path("a.stream")).unwrap();
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_spinney"));
    let status = program.args(["receive", "a.img"]).current_dir(&bench.dir).stdin(Stdio::from(input)).status().unwrap();
    assert!(status.success());
    assert_eq!(bench.ok("cat a.img /home/notes"), "hello\n");
}

#[test]
fn what_a_failure_leaves_does_not_look_whole() {
    let commands = [&NOTES[..], &[Command::Unlink { path: b"nothing" }, Command::Mkdir { path: b"later", ino: None }]];
    let bench = bench(&commands.concat());
    let run = bench.run("receive -f a.stream a.img");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("unlink nothing (byte "), "{}", run.err);
    assert!(run.err.contains("the unfinished subvolume /home stays"), "{}", run.err);
    let list = bench.json("subvolume list --json a.img");
    assert!(list["subvolumes"][0]["received_uuid"].is_null());
    assert_eq!(list["subvolumes"][0]["read_only"], false);
    bench.ok("subvolume delete a.img /home");

    let run = bench.run("receive -f a.stream --delete-partial a.img");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("/home was deleted"), "{}", run.err);
    assert_eq!(bench.json("subvolume list --json a.img")["subvolumes"].as_array().unwrap().len(), 0);

    // With failures allowed, the other commands are run; the subvolume does not count as received.
    let run = bench.run("receive -f a.stream -E 0 a.img");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(bench.ok("ls a.img /home").contains("later"));
    assert!(bench.json("subvolume list --json a.img")["subvolumes"][0]["received_uuid"].is_null());
}

#[test]
fn a_stream_that_was_cut_short_is_not_received() {
    let bench = bench(&NOTES);
    let whole = std::fs::read(bench.path("a.stream")).unwrap();
    std::fs::write(bench.path("cut.stream"), &whole[..whole.len() - 10]).unwrap();
    let run = bench.run("receive -f cut.stream --delete-partial a.img");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("without its end command"), "{}", run.err);
    assert_eq!(bench.run("receive --dump -f cut.stream").status, 1);
}

#[test]
fn dump_needs_no_image() {
    let bench = bench(&NOTES);
    let expected = format!(
        "subvol          ./home                          uuid={UUID_TEXT} transid=7\n\
         mkfile          ./home/o257-7-0\n\
         rename          ./home/o257-7-0                 dest=./home/notes\n\
         write           ./home/notes                    offset=0 len=6\n"
    );
    assert_eq!(bench.ok("receive --dump -f a.stream"), expected);
}

#[test]
fn arguments_that_make_no_sense_are_told() {
    let bench = bench(&NOTES);
    assert_eq!(bench.run("receive -f a.stream").status, 2);
    let run = bench.run("receive -f a.stream .");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("in no mount"), "{}", run.err);
    assert_eq!(bench.run("receive -f a.stream a.img /nowhere").status, 1);
    assert_eq!(bench.run("receive -f missing a.img").status, 1);
}

#[test]
fn a_receipt_that_was_cut_short_goes_on() {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 128M a.img");
    bench.ok("mkfs -q --size 128M b.img");
    bench.ok("subvolume create a.img /home");
    bench.ok("put a.img src/sub src/a.txt /home");
    bench.ok("subvolume snapshot -r a.img /home /one");
    bench.ok("send -f whole a.img /one");
    let whole = std::fs::read(bench.path("whole")).unwrap();
    std::fs::write(bench.path("cut"), &whole[..whole.len() / 2]).unwrap();
    let run = bench.run("receive --json --resume -f cut b.img");
    assert_eq!(run.status, 1, "{}", run.err);
    let report: serde_json::Value = serde_json::from_slice(&run.out).unwrap();
    let token = report["left"]["token"].as_str().unwrap();
    assert!(run.err.contains(&format!("spinney send --resume {token}")), "{}", run.err);
    assert!(report["left"]["path"].as_str().unwrap().starts_with("/one.resume-"), "{report}");
    let list = bench.json("subvolume list --json b.img");
    assert_eq!(list["subvolumes"][0]["read_only"], false);
    // Of another subvolume, with other options.
    bench.ok("subvolume snapshot -r a.img /home /two");
    for (line, said) in [
        (format!("send -f rest --resume {token} a.img /two"), "the token is of subvolume"),
        (format!("send -f rest --proto 2 --resume {token} a.img /one"), "version 2"),
    ] {
        let run = bench.run(&line);
        assert_eq!(run.status, 1, "{line}: {}", run.err);
        assert!(run.err.contains(said), "{line}: {}", run.err);
    }
    assert_eq!(bench.run("send -f rest --resume nothing a.img /one").status, 2);
    bench.ok(&format!("send -f rest --resume {token} a.img /one"));
    let rest = std::fs::read(bench.path("rest")).unwrap();
    assert!(rest.len() < whole.len() * 6 / 10, "{} of {}", rest.len(), whole.len());
    // No other receiver takes it for a stream.
    assert!(!rest.starts_with(b"btrfs-stream"));
    let run = bench.run("receive -f rest b.img");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("--resume"), "{}", run.err);
    bench.ok("receive --resume -f rest b.img");
    bench.ok("get b.img /one out");
    let [expected, found] = ["src", "out"].map(|dir| std::fs::read(bench.path(dir).join("sub/large")).unwrap());
    assert!(expected == found);
    let list = bench.json("subvolume list --json b.img");
    assert_eq!(list["subvolumes"].as_array().unwrap().len(), 1);
    assert_eq!(list["subvolumes"][0]["read_only"], true);
    bench.check("b.img");
}

/// Changes a subvolume without clearing its received UUID, as the kernel lets any program do.
pub(crate) fn change(bench: &Bench, image: &str, path: &str, file: &str) {
    let volume = spinney::btrfs::Volume::open(bench.path(image)).unwrap();
    volume.set_subvolume_read_only(path, false).unwrap();
    volume.write(std::path::Path::new(path).join(file), b"changed").unwrap();
    volume.set_subvolume_read_only(path, true).unwrap();
    volume.close().unwrap();
}

#[test]
fn a_changed_parent_is_refused_by_name_and_taken_with_a_warning() {
    let bench = Bench::new();
    for name in ["a.img", "b.img"] {
        bench.ok(&format!("mkfs -q --size 128M {name}"));
    }
    bench.ok("subvolume create a.img /v");
    bench.ok("subvolume snapshot -r a.img /v /s1");
    std::fs::write(bench.path("g"), "g").unwrap();
    bench.ok("put a.img g /v/g");
    bench.ok("subvolume snapshot -r a.img /v /s2");
    bench.ok("send -f 1.stream a.img /s1");
    bench.ok("send -p /s1 -f 2.stream a.img /s2");
    bench.ok("receive -f 1.stream b.img");
    change(&bench, "b.img", "s1", "f");
    let run = bench.run("receive -f 2.stream b.img");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("/s1, which the stream needs as its parent, was changed"), "{}", run.err);
    assert!(run.err.contains("--force uses it anyway"), "{}", run.err);
    assert!(bench.run("stat b.img /s2").status != 0);
    let run = bench.run("receive --force -f 2.stream b.img");
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.err.contains("warning: /s1, which the stream needs"), "{}", run.err);
    // It is not sent under its received UUID either.
    for line in ["send -f x b.img /s1", "send -p /s1 -f x b.img /s2", "send -c /s1 -f x b.img /s2"] {
        let run = bench.run(line);
        assert!(run.status == 1 && run.err.contains("--force sends it anyway"), "{line}: {}", run.err);
        let run = bench.run(&line.replace("send", "send --force"));
        assert!(run.status == 0 && run.err.contains("warning: /s1 was changed"), "{line}: {}", run.err);
    }
}
