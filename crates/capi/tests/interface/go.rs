//! The module for Go passes its tests, which include `testing/fstest.TestFS`, against the installed library.

use std::process::Command;

use super::installed::{prefix, program, run};
use super::lies;

#[test]
fn the_module_for_go() {
    if !Command::new("go").arg("version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: Go is not here");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    lies::make(dir.path());
    let mut command = Command::new("go");
    command.args(["test", "-count=1", "-v", "./..."]).current_dir("../../bindings/go");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).env("LD_LIBRARY_PATH", prefix().join("lib"));
    // Nothing is fetched: the module needs the standard library alone.
    command.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").env("SPINNEY_HOSTILE", dir.path());
    if let Some(program) = program() {
        command.env("SPINNEY_PROGRAM", program);
    }
    println!("{}", run(&mut command));
}
