//! Programs around this one that answer calls of the C library in the kernel's place: fakeroot, pseudo and fakechroot.
//!
//! They keep owners, modes and device nodes that an unprivileged user cannot have, in a table of their own, and are
//! loaded by `LD_PRELOAD`. All host files are read and written through the C library (the feature `use-libc` of
//! `rustix`), so the answers are theirs. A few calls are exceptions, because `rustix` asks the kernel itself for them:
//! `fchown`, `fchmod`, `fchmodat` and `openat2`. `beneath` has other calls for them where [`is_there`] says so.
//!
//! Failure: [`check`] refuses where the variables say that such a program is around, but its library is not loaded, as
//! in a statically linked program: owners and device nodes would silently be other ones. Callers: beneath, import and
//! export.

use std::sync::OnceLock;

use anyhow::Result;

use crate::failure::{Failure, Status};

/// A program that stands in for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Emulator {
    name: &'static str,
    /// An environment variable that only this program sets for the programs it runs, if it has one.
    variable: Option<&'static str>,
    /// Part of the name of its library, as it stands in `LD_PRELOAD`.
    library: &'static str,
}

const EMULATORS: &[Emulator] = &[
    Emulator { name: "fakeroot", variable: Some("FAKEROOTKEY"), library: "libfakeroot" },
    // Its variables may be set in a shell of the user's, too, to configure it.
    Emulator { name: "pseudo", variable: None, library: "libpseudo" },
    Emulator { name: "fakechroot", variable: Some("FAKECHROOT"), library: "libfakechroot" },
];

/// The environment that decides.
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

    /// The programs that are around this one.
    fn emulators(&self) -> impl Iterator<Item = &'static Emulator> {
        let is_set = |variable: Option<&str>| variable.is_some_and(|name| self.set.contains(&name));
        EMULATORS.iter().filter(move |one| is_set(one.variable) || self.preloaded.contains(one.library))
    }
}

/// True where such a program is around this one.
pub(crate) fn is_there() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| Environment::of_this_process().emulators().next().is_some())
}

/// Refuses to go on where the environment names a program whose library is not loaded.
///
/// # Errors
/// [`Status::Unsupported`], with the program's name.
pub(crate) fn check() -> Result<()> {
    if !is_there() {
        return Ok(());
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    check_loaded(&maps, &Environment::of_this_process())
}

fn check_loaded(maps: &str, environment: &Environment) -> Result<()> {
    match environment.emulators().find(|one| !maps.contains(one.library)) {
        None => Ok(()),
        Some(Emulator { name, library, .. }) => {
            let text = format!(
                "the environment says that {name} is around this program, but {library} is not loaded, as in a \
                 statically linked program: owners and device nodes would be those of the host; \
                 use a dynamically linked spinney"
            );
            Err(Failure::new(Status::Unsupported, text).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_loaded_is_refused_by_the_name_of_its_program() {
        let maps = "7f00 r-xp 00000000 fe:00 1 /usr/lib/x86_64-linux-gnu/libfakeroot/libfakeroot-sysv.so\n";
        let with = |preloaded: &str, set: &[&'static str]| Environment { preloaded: preloaded.into(), set: set.into() };
        check_loaded(maps, &with("libfakeroot-sysv.so", &["FAKEROOTKEY"])).unwrap();
        check_loaded("", &Environment::default()).unwrap();
        for (preloaded, set, name) in [
            ("", &["FAKEROOTKEY"][..], "fakeroot"),
            ("", &["FAKECHROOT"], "fakechroot"),
            ("libpseudo.so", &[], "pseudo"),
            ("libfakechroot.so libfakeroot-sysv.so", &[], "fakechroot"),
        ] {
            let maps = if name == "fakechroot" { maps } else { "" };
            let error = check_loaded(maps, &with(preloaded, set)).unwrap_err();
            assert!(error.to_string().contains(&format!("says that {name} is around")), "{error}");
            assert_eq!(crate::failure::status_of(&error), Status::Unsupported);
        }
    }
}
