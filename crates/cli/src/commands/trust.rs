//! Decides whether a copy keeps the files of an image that give privileges to users who run or open them.
//!
//! Device nodes, set-user and set-group bits and capabilities are copied from the caller's own images and mounts, and
//! from those of root. Callers: `get`, `cp` and `rescue`.

use std::path::Path;

use clap::Args;

use super::output::warn;

/// The options that decide it.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Trust {
    /// Make no device nodes
    #[arg(long)]
    pub(crate) no_devices: bool,
    /// Drop set-user and set-group bits and capabilities, which run programs with other rights
    #[arg(long)]
    pub(crate) no_setid: bool,
    /// Keep device nodes and such bits also from an image that others may have written
    #[arg(long, conflicts_with_all = ["no_devices", "no_setid"])]
    trust: bool,
}

/// Whether a copy keeps device nodes, and set-user bits and the like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed {
    pub(crate) devices: bool,
    /// Set-user and set-group bits, and capabilities.
    pub(crate) setid: bool,
}

/// Counts of files that a copy left out, or made without these bits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Withheld {
    pub(crate) devices: u64,
    pub(crate) setid: u64,
}

impl Trust {
    /// Decides for an image that belongs to the caller or not.
    pub(crate) fn allowed(self, is_own: bool) -> Allowed {
        let is_believed = is_own || self.trust;
        Allowed { devices: is_believed && !self.no_devices, setid: is_believed && !self.no_setid }
    }

    /// Warns of files left out by default, not by an option.
    pub(crate) fn tell_withheld(self, (image, is_own): (&Path, bool), withheld: Withheld) {
        if is_own || self.trust {
            return;
        }
        let mut parts = Vec::new();
        for (count, what, is_asked) in [
            (withheld.devices, "device nodes", self.no_devices),
            (withheld.setid, "set-user and set-group bits or capabilities", self.no_setid),
        ] {
            if count > 0 && !is_asked {
                parts.push(format!("{count} {what}"));
            }
        }
        if !parts.is_empty() {
            let (image, parts) = (image.display(), parts.join(" and "));
            warn(&format!("{image}: others may have written it, so {parts} were left out; --trust copies them"));
        }
    }
}
