//! Detects emulators that answer system calls in the kernel's place: fakeroot, pseudo and fakechroot.
//!
//! `LD_PRELOAD` loads them below this program. They keep a table of owners, modes and device nodes that an unprivileged
//! user cannot set. All host files are read and written through the C library (the feature `use-libc` of `rustix`), so
//! that emulators see the calls. `rustix` makes a few calls directly, without the C library: `fchown`, `fchmod`,
//! `fchmodat` and `openat2`. `root_dirs` replaces these by others if [`is_there`].
//!
//! Failure: [`check`] refuses if environment variables name an emulator whose library is not loaded, as in a statically
//! linked program: owners and device nodes would be wrong without an error. Callers: `root_dirs`, and the source and
//! the sink of the host.

use std::sync::OnceLock;

#[cfg(target_os = "linux")]
use crate::error::{Cause, Result};

/// An emulator of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulator {
    /// Its name.
    pub name: &'static str,
    /// An environment variable that only this emulator sets for the programs it runs, if it has one.
    variable: Option<&'static str>,
    /// Part of the name of its library, as it stands in `LD_PRELOAD`.
    pub library: &'static str,
}

const EMULATORS: &[Emulator] = &[
    Emulator { name: "fakeroot", variable: Some("FAKEROOTKEY"), library: "libfakeroot" },
    // Users set its variables in their shells too, to configure it.
    Emulator { name: "pseudo", variable: None, library: "libpseudo" },
    Emulator { name: "fakechroot", variable: Some("FAKECHROOT"), library: "libfakechroot" },
];

/// The environment variables that name emulators.
#[derive(Debug, Default)]
struct Environment {
    preloaded: String,
    /// Names of the variables of [`EMULATORS`] that are set.
    set: Vec<&'static str>,
}

impl Environment {
    fn of_this_process() -> Self {
        let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default().to_string_lossy().into_owned();
        let variables = EMULATORS.iter().filter_map(|one| one.variable);
        Self { preloaded, set: variables.filter(|variable| std::env::var_os(variable).is_some()).collect() }
    }

    /// The emulators that this program was started under.
    fn emulators(&self) -> impl Iterator<Item = &'static Emulator> {
        let is_set = |variable: Option<&str>| variable.is_some_and(|name| self.set.contains(&name));
        EMULATORS.iter().filter(move |one| is_set(one.variable) || self.preloaded.contains(one.library))
    }
}

/// True if this program was started under an emulator.
#[must_use]
pub fn is_there() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| Environment::of_this_process().emulators().next().is_some())
}

/// The emulator that the environment names, if its library is not loaded.
#[must_use]
pub fn unloaded_emulator() -> Option<Emulator> {
    if !is_there() {
        return None;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    unloaded(&maps, &Environment::of_this_process())
}

/// Refuses if the environment names an emulator whose library is not loaded.
///
/// # Errors
/// [`Cause::Emulator`].
#[cfg(target_os = "linux")]
pub(crate) fn check() -> Result<()> {
    match unloaded_emulator() {
        None => Ok(()),
        Some(Emulator { name, library, .. }) => Err(Cause::Emulator { name, library }.into()),
    }
}

fn unloaded(maps: &str, environment: &Environment) -> Option<Emulator> {
    environment.emulators().find(|one| !maps.contains(one.library)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_loaded_is_found_by_the_name_of_its_program() {
        let maps = "7f00 r-xp 00000000 fe:00 1 /usr/lib/x86_64-linux-gnu/libfakeroot/libfakeroot-sysv.so\n";
        let with = |preloaded: &str, set: &[&'static str]| Environment { preloaded: preloaded.into(), set: set.into() };
        assert_eq!(unloaded(maps, &with("libfakeroot-sysv.so", &["FAKEROOTKEY"])), None);
        assert_eq!(unloaded("", &Environment::default()), None);
        for (preloaded, set, name) in [
            ("", &["FAKEROOTKEY"][..], "fakeroot"),
            ("", &["FAKECHROOT"], "fakechroot"),
            ("libpseudo.so", &[], "pseudo"),
            ("libfakechroot.so libfakeroot-sysv.so", &[], "fakechroot"),
        ] {
            let maps = if name == "fakechroot" { maps } else { "" };
            assert_eq!(unloaded(maps, &with(preloaded, set)).map(|found| found.name), Some(name));
        }
    }
}
