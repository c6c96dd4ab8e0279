//! The module for Go passes its tests, which include `testing/fstest.TestFS`, against the installed library.

use std::process::Command;

use super::installed::{prefix, run};

#[test]
fn the_module_for_go() {
    if !Command::new("go").arg("version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: Go is not here");
        return;
    }
    let mut command = Command::new("go");
    command.args(["test", "-count=1", "./..."]).current_dir("../../bindings/go");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).env("LD_LIBRARY_PATH", prefix().join("lib"));
    // Nothing is fetched: the module needs the standard library alone.
    command.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
    println!("{}", run(&mut command));
}
