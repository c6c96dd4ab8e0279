//! The program with one more format: the file system in memory of the conformance tests, which is kept on a device.

use std::process::ExitCode;

fn main() -> ExitCode {
    spinney::add_format(&vfs_conformance::format::MemoryFormat);
    spinney_cli::run()
}
