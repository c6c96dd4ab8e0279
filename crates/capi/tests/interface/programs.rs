//! Programs in C against the header and the installed library.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::installed::{compile, compile_sanitized, is_there, output, pkg_config, prefix, run};

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"];

#[test]
fn the_header_is_clean_for_every_compiler_and_language() {
    let languages = [("c", "c99"), ("c", "c11"), ("c++", "c++17")];
    let compilers = [("gcc", "g++"), ("clang", "clang++")].into_iter().filter(|(cc, _)| is_there(cc));
    let mut count = 0;
    for (cc, cxx) in compilers {
        for (language, standard) in languages {
            let mut command = Command::new(if language == "c" { cc } else { cxx });
            command.args(WARNINGS).arg(format!("-std={standard}")).args(["-x", language, "include/spinney.h"]);
            // A header that is compiled by itself is a main file with a guard, which clang finds strange.
            command.arg("-Wno-pragma-once-outside-header");
            run(&mut command);
            count += 1;
        }
    }
    assert!(count > 0, "neither gcc nor clang is here");
}

#[test]
fn the_library_exports_only_its_own_names_with_a_version() {
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(prefix().join("lib/libspinney.so")));
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert!(names.len() > 50, "{symbols}");
    for name in names {
        let is_own = name.starts_with("spinney_") && name.ends_with("@@SPINNEY_0");
        assert!(is_own || name == "SPINNEY_0", "{name}");
    }
    let dynamic = run(Command::new("readelf").arg("-d").arg(prefix().join("lib/libspinney.so")));
    assert!(dynamic.contains("Library soname: [libspinney.so.0]"), "{dynamic}");
    assert_eq!(pkg_config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
}

#[test]
fn the_examples_do_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str| compile(&Path::new("examples").join(format!("{name}.c")), dir.path());
    let (from, to) = (dir.path().join("from.img"), dir.path().join("to.img"));
    assert_eq!(run(Command::new(program("make_image")).arg(&from)), "7 inodes, 0 errors\n");
    let listed = run(Command::new(program("list")).arg(&from));
    assert!(listed.contains("040750     0     0           10 ./home/ada\n"), "{listed}");
    assert!(listed.contains("100644     0     0           55 ./monday/ada/notes\n"), "{listed}");
    spinney::make(&to, "btrfs", &spinney::MakeOptions::new().size(64 << 20)).unwrap().close().unwrap();
    run(Command::new(program("backup")).arg(&from).arg("monday").arg(&to));
    let listed = run(Command::new(program("list")).arg(&to));
    assert!(listed.contains("100644     0     0           55 ./monday/ada/notes\n"), "{listed}");
    assert_eq!(run(&mut Command::new(program("own_device"))), "f2fs of 67108864 bytes\nreleased after writes\n");
    let read = run(Command::new(program("read_speed")).arg(&from).arg("home/ada/notes"));
    assert!(read.starts_with("55 bytes, "), "{read}");
}

#[test]
fn every_call_by_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new("tests/interface/programs/every_call.c");
    assert_eq!(run(Command::new(compile(source, dir.path())).arg(dir.path())), "done\n");
    let Some(sanitized) = compile_sanitized(source, dir.path(), "address") else {
        println!("not run: this compiler has no address sanitizer");
        return;
    };
    let mut command = Command::new(sanitized);
    let other = tempfile::tempdir().unwrap();
    command.arg(other.path()).env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0");
    assert_eq!(run(&mut command), "done\n");
}

#[test]
fn threads_share_handles() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new("tests/interface/programs/threads.c");
    assert_eq!(run(Command::new(compile(source, dir.path())).arg(dir.path().join("a.img"))), "done\n");
}

#[test]
fn the_end_of_a_program_with_open_handles() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    let source = Path::new("tests/interface/programs/exits.c");
    run(Command::new(compile(source, dir.path())).arg(&image));
    let report = spinney::check(&image, &spinney::CheckOptions::default(), &mut |_: &spinney::Progress| {
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(report.unwrap().errors(), 0);
    let volume = spinney::open(&image, &spinney::VolumeOptions::new().read_only(true)).unwrap();
    assert_eq!(volume.read("kept").unwrap(), b"kept");
}

#[test]
fn exceptions_of_functions_of_the_caller() {
    if !is_there("g++") {
        println!("SKIPPED: g++ is not here");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("exception");
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"]).arg(&program);
    command.arg("tests/interface/programs/exception.cc").args(pkg_config(&["--cflags", "--libs"]));
    run(command.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display())));
    assert_eq!(run(&mut Command::new(program)), "done\n");
}

#[test]
fn the_manual_is_well_formed() {
    if !is_there("groff") {
        println!("SKIPPED: groff is not here");
        return;
    }
    let checked = output(Command::new("groff").args(["-mdoc", "-Tutf8", "-ww", "-z", "spinney.3"]));
    let complaints = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && complaints.is_empty(), "{complaints}");
    let installed = fs::read(prefix().join("share/man/man3/spinney.3")).unwrap();
    assert_eq!(installed, fs::read("spinney.3").unwrap());
}
