//! Runs the tests of the Python package (`bindings/python/tests`) with the module as it was built, and with images that
//! lie. They need `python3` with `pytest` and `fsspec`; `SPINNEY_PYTHON` names an interpreter. fsspec's own suite for
//! file systems comes with its package of pip alone, and the picture of the example needs `matplotlib`.

#![allow(clippy::panic, clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::hostile::{hostile_image, small_bases};

/// Images that lie, of which each is read by Python and by the program.
const HOSTILE_COUNT: u64 = 6;

#[test]
fn the_tests_in_python_pass() {
    let Some(python) = python() else {
        println!("SKIPPED: needs python3 with pytest and fsspec");
        return;
    };
    let Some(module) = module() else {
        panic!("lib_spinney.so is not beside the test program");
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python").canonicalize().unwrap();
    let dir = work_dir();
    let package = dir.path().join("package/spinney");
    fs::create_dir_all(&package).unwrap();
    for file in fs::read_dir(sources.join("spinney")).unwrap() {
        let file = file.unwrap();
        // Not a module that was built in place.
        if file.path().extension().is_some_and(|kind| kind == "py") {
            symlink(file.path(), package.join(file.file_name())).unwrap();
        }
    }
    symlink(&module, package.join("_spinney.abi3.so")).unwrap();
    let hostile = dir.path().join("hostile");
    fs::create_dir(&hostile).unwrap();
    make_hostile(&hostile);
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5", "-rs", "--basetemp"]);
    tests.arg(dir.path().join("temp")).arg(sources.join("tests"));
    tests.env("PYTHONPATH", dir.path().join("package")).env("PYTHONDONTWRITEBYTECODE", "1");
    tests.env("SPINNEY_HOSTILE", &hostile).env("SPINNEY_EXAMPLES", sources.join("examples"));
    if let Some(program) = program() {
        tests.env("SPINNEY_PROGRAM", program);
    }
    let done = tests.current_dir(dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    println!("{text}{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "pytest: {}", done.status);
}

/// An interpreter that has what the tests need: the named one, the user's, or that of the host, for which packages are
/// installed.
fn python() -> Option<OsString> {
    if let Some(named) = std::env::var_os("SPINNEY_PYTHON") {
        return Some(named);
    }
    let has_all = |python: &OsString| {
        let asked = Command::new(python).args(["-c", "import pytest, fsspec"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    };
    ["python3", "/usr/bin/python3"].map(OsString::from).into_iter().find(has_all)
}

/// The module, which cargo builds for this test: beside the test program, or one folder above.
fn module() -> Option<PathBuf> {
    let dir = built()?;
    let places = [dir.join("deps/lib_spinney.so"), dir.join("lib_spinney.so")];
    let modified = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
    places.into_iter().filter(|path| path.exists()).max_by_key(modified)
}

/// The program, where the workspace was built.
fn program() -> Option<PathBuf> {
    let program = built()?.join("spinney");
    program.exists().then_some(program)
}

fn built() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.parent()?.to_owned())
}

/// In memory where that is possible: each test makes an image.
fn work_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let builder = tempfile::Builder::new();
    builder.tempdir_in(memory).or_else(|_| builder.tempdir()).unwrap()
}

fn make_hostile(dir: &Path) {
    let bases = small_bases().unwrap();
    for number in 0..HOSTILE_COUNT {
        let image = hostile_image(&bases, 1, &[number]).unwrap();
        let mut bytes = vec![0; usize::try_from(image.device.size_bytes()).unwrap()];
        image.device.read_at(0, &mut bytes).unwrap();
        fs::write(dir.join(format!("{number}.img")), bytes).unwrap();
    }
}
