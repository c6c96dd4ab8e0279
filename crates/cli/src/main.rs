//! The `spinney` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    spinney_cli::run()
}
