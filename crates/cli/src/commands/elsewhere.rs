//! Stands in for the commands that only Linux has: each takes any words, and refuses.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;

use super::failure::{Failure, Status};
use super::output::Output;

fn refused(command: &str, why: &str) -> Result<()> {
    Err(Failure::new(Status::Unsupported, format!("`spinney {command}` needs Linux: {why}")).into())
}

/// Declares commands that are refused.
macro_rules! refused {
    ($($(#[$doc:meta])* $name:ident($($out:ty)?), $command:literal, $why:literal;)*) => {
        $(
            #[derive(Debug, Clone, Args)]
            $(#[$doc])*
            pub(crate) struct $name {
                /// Arguments, which are not looked at
                #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
                _words: Vec<OsString>,
            }

            impl $name {
                /// Refuses.
                ///
                /// # Errors
                /// `Unsupported`.
                pub(crate) fn run(&self $(, _out: $out)?) -> Result<()> {
                    refused($command, $why)
                }
            }
        )*
    };
}

refused! {
    /// Mount an image (on Linux)
    Mount(&mut Output), "mount", "it mounts by FUSE";
    /// Unmount an image (on Linux)
    Umount(), "umount", "it mounts by FUSE";
    /// Serve an image as a disk or to browsers (on Linux)
    Serve(&mut Output), "serve", "the server closes itself in by Landlock and seccomp";
    /// Help a mount (on Linux)
    #[command(hide = true)]
    Attend(), "attend", "it mounts by FUSE";
    /// Run a command in a fork (on Linux)
    Run(), "run", "the command gets a mount of its own";
}
