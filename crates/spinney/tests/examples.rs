//! The examples run, one after the other on one image, and say what they should.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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
    assert!(said.ends_with("entries copied\n"), "{said}");
    let listed = run("list", &[&image, Path::new("/copy")]);
    assert!(listed.contains("/copy/examples/copy_tree.rs"), "{listed}");
}

#[test]
fn an_example_without_arguments_says_how_to_use_it() {
    for name in ["make_image", "list", "snapshot", "copy_tree"] {
        let output = Command::new(example(name)).output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage: "), "{name}");
    }
}
