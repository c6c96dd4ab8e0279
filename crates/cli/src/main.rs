//! The `spinney` program.

fn main() {}
