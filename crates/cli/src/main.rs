//! The `spinney` program: calls `run` of the library `spinney_cli`, and ends with its exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    spinney_cli::run()
}
