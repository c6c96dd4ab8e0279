//! Runs the examples, one after the other on one image, and compares their output.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Examples are built with the tests, into the folder above theirs.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples").join(name)
}

fn run(name: &str, arguments: &[&Path]) -> String {
    let output = Command::new(example(name)).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_examples_run_on_one_image() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("example.img");
    assert_eq!(run("make_image", &[&image]), "588890 bytes of numbers\n");

    let listed = run("list", &[&image]);
    assert!(listed.contains("/docs/letters/numbers"), "{listed}");

    let said = run("snapshot", &[&image]);
    assert!(said.contains("read-only  work-monday"), "{said}");
    assert!(said.contains("the clone is equal to it: true"), "{said}");

    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let said = run("copy_tree", &[&image, source]);
    assert!(said.ends_with("copied to /copy\n"), "{said}");
    let listed = run("list", &[&image, Path::new("/copy")]);
    assert!(listed.contains("/copy/examples/copy_tree.rs"), "{listed}");
}

#[test]
fn an_image_of_any_format_is_opened_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    for format in ["btrfs", "f2fs"] {
        let image = dir.path().join(format);
        let make = spinney::MakeOptions::new().size(128 << 20).label("any");
        let volume = spinney::make(&image, format, &make).unwrap();
        volume.create_dir("docs").unwrap();
        volume.write("docs/large", vec![7; 4 << 20]).unwrap();
        volume.close().unwrap();

        let said = run("open_any", &[&image]);
        assert!(said.starts_with(&format!("{format} \"any\": ")) && said.ends_with("/docs\n"), "{said}");
        let said = run("check", &[&image]);
        assert!(said.contains(" bytes, ") && said.lines().last().unwrap().starts_with("0 errors, "), "{said}");
        let options = spinney::CheckOptions { passes: vec!["none".into()], ..Default::default() };
        let refused = spinney::check(&image, &options, &mut |_| std::ops::ControlFlow::Continue(())).unwrap_err();
        assert_eq!(refused.errno(), spinney::Errno::EINVAL, "{refused}");
        let wrong = spinney::open(dir.path().join(format!("{format}?size=x")), &spinney::VolumeOptions::new());
        assert_eq!(wrong.unwrap_err().errno(), spinney::Errno::EINVAL);
        let said = run("check", &[&image, Path::new("0")]);
        assert!(said.ends_with("cancelled\n"), "{said}");
    }
}

#[test]
fn a_copy_out_of_a_volume_is_what_was_copied_in_and_can_be_cancelled() {
    use std::ops::ControlFlow;
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let make = spinney::MakeOptions::new().size(128 << 20);
    let volume = spinney::make(dir.path().join("image"), "btrfs", &make).unwrap();
    let mut calls = 0;
    volume
        .import(&source, "/in", &mut |_| {
            calls += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(calls > 0);
    volume.export("/in", dir.path().join("out"), &mut |_| ControlFlow::Continue(())).unwrap();
    volume.write("/in/program", "x").unwrap();
    volume.set_permissions("/in/program", 0o6755).unwrap();
    volume.export("/in", dir.path().join("again"), &mut |_| ControlFlow::Continue(())).unwrap();
    let copied = std::fs::metadata(dir.path().join("again/program")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&copied.permissions()) & 0o7777, 0o755);
    for name in ["lib.rs", "btrfs/options.rs"] {
        let (one, other) = (source.join(name), dir.path().join("out").join(name));
        assert_eq!(std::fs::read(one).unwrap(), std::fs::read(other).unwrap(), "{name}");
    }
    let there = volume.import(&source, "/in", &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(there.errno(), spinney::Errno::EEXIST, "{there}");
    let cancelled = volume.import(&source, "/other", &mut |_| ControlFlow::Break(())).unwrap_err();
    assert_eq!(cancelled.errno(), spinney::Errno::ECANCELED, "{cancelled}");
    let mut out = dir.path().join("out");
    out.push("lib.rs");
    let refused = volume.export("/in", out, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(refused.errno().0, 20, "{refused}");
}

#[test]
fn a_cache_builds_what_changed_in_a_fork() {
    let dir = tempfile::tempdir().unwrap();
    let (image, sources) = (dir.path().join("cache.img"), dir.path().join("sources"));
    std::fs::create_dir(&sources).unwrap();
    for number in 0..30 {
        std::fs::write(sources.join(format!("part-{number}")), "one two three\n".repeat(number)).unwrap();
    }
    let build = || run("build_cache", &[&image, &sources]);
    let said = build();
    assert!(said.contains("30 of 30 built") && !said.contains("forked"), "{said}");
    assert!(build().contains("known"));
    std::fs::write(sources.join("part-7"), "other").unwrap();
    std::fs::remove_file(sources.join("part-8")).unwrap();
    let said = build();
    assert!(said.contains("forked trees/") && said.contains(": 1 of 29 built"), "{said}");
    assert!(said.contains("changed: part-7.built") && said.contains("removed: [Removed(\"part-8\")]"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("changed")).count(), 2, "{said}");
}

#[test]
fn a_fixture_is_rolled_back_in_memory_and_in_an_image() {
    let image = tempfile::NamedTempFile::new().unwrap();
    for arguments in [&[][..], &[image.path()]] {
        let said = run("test_fixture", arguments);
        let lines: Vec<&str> = said.lines().collect();
        let [removal, damage, count] = lines[..] else { panic!("{said}") };
        assert!(removal.starts_with("removal: 20") && removal.ends_with("ms, 0 left"), "{said}");
        assert!(damage.starts_with("damage: 10") && damage.ends_with("ms, 0 left"), "{said}");
        assert_eq!(count, "2000 files as before");
    }
}

#[test]
fn an_example_without_arguments_says_how_to_use_it() {
    for name in ["make_image", "list", "snapshot", "copy_tree", "build_cache", "open_any", "check"] {
        let output = Command::new(example(name)).output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage: "), "{name}");
    }
}

#[test]
fn an_image_is_backed_up_damaged_rescued_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let [image, dest, undo, out] = ["image", "dest", "undo", "out"].map(|name| dir.path().join(name));
    let volume = spinney::make(&image, "btrfs", &spinney::MakeOptions::new().size(128 << 20)).unwrap();
    volume.create_subvolume("home").unwrap();
    volume.write("home/letter", "Dear Ada,").unwrap();
    volume.close().unwrap();
    let backup = |path: &str| run("backup", &[&image, Path::new("/home"), &dest, Path::new(path)]);
    let said = backup("/first");
    assert!(said.contains("snapshot home.") && said.ends_with("restored to /first\n"), "{said}");
    assert!(backup("/second").contains("verify home."));
    let volume = spinney::open(&dest, &spinney::VolumeOptions::new().read_only(true)).unwrap();
    assert_eq!(volume.read("second/letter").unwrap(), b"Dear Ada,");

    assert!(run("repair", &[&image, &undo]).contains("nothing to repair"));
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[(64 << 20) + 200] ^= 1;
    std::fs::write(&image, bytes).unwrap();
    assert!(run("rescue", &[&image, &out]).ends_with("0 files are damaged or lost\n"));
    assert_eq!(std::fs::read(out.join("home/letter")).unwrap(), b"Dear Ada,");
    assert!(run("repair", &[&image, &undo]).contains("bytes written"));
    assert!(run("repair", &[&image, &dir.path().join("again")]).contains("nothing to repair"));
}
