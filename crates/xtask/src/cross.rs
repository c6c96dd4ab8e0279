//! Prepares builds for other targets: the Rust library, a C compiler, a linker and flags that keep paths of this
//! machine out of the result.
//!
//! Several dependencies compile C (zstd, libdeflate, mimalloc, ring). `zig cc` compiles for every target here and
//! brings the headers of their C libraries; it is the package `ziglang` of pip. Musl on this machine's processor is
//! also served by `musl-gcc` (Debian: `musl-tools`). Fails where neither is installed. Called by `static_program` and
//! `portable`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::system::{is_installed, run, run_command, target_dir};

/// Targets, and what zig calls them.
const ZIG_NAMES: &[(&str, &str)] = &[
    ("x86_64-unknown-linux-musl", "x86_64-linux-musl"),
    ("aarch64-unknown-linux-musl", "aarch64-linux-musl"),
    ("x86_64-pc-windows-gnu", "x86_64-windows-gnu"),
    ("aarch64-apple-darwin", "aarch64-macos"),
    ("x86_64-unknown-freebsd", "x86_64-freebsd"),
];

const RUST_LLD: &str = "-Clinker=rust-lld";

/// Cargo for a target.
pub(crate) struct Cross {
    root: PathBuf,
    target: String,
    variables: Vec<(String, PathBuf)>,
    flags: Vec<String>,
}

impl Cross {
    /// Installs the Rust library of the target by rustup where it is missing, and finds a C compiler.
    ///
    /// # Errors
    /// An unknown target, a missing tool, a failing rustup.
    pub(crate) fn prepare(root: &Path, target: &str) -> Result<Self> {
        install_target(root, target)?;
        let mut flags = vec![format!("--remap-path-prefix={}=/spinney", root.display())];
        // The standard library's own sources, where they are installed.
        let library = run_command(Command::new("rustc").current_dir(root).args(["--print", "sysroot"]))?;
        flags.push(format!("--remap-path-prefix={}=/rust", library.trim()));
        if let Some(home) = cargo_home() {
            flags.push(format!("--remap-path-prefix={}=/registry", home.join("registry/src").display()));
        }
        let mut cross = Self { root: root.to_path_buf(), target: target.to_owned(), variables: Vec::new(), flags };
        let is_native_musl = target == format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        // cargo finds it by itself.
        if !is_native_musl || !is_installed("musl-gcc") {
            cross.use_zig()?;
        }
        if target.ends_with("-linux-musl") && !is_native_musl {
            // The start files and the C library for musl come with Rust.
            cross.flags.extend([RUST_LLD.to_owned(), "-Clinker-flavor=ld.lld".to_owned()]);
        }
        Ok(cross)
    }

    /// Whether Rust's own linker is used, which does not go through a C compiler.
    pub(crate) fn uses_rust_lld(&self) -> bool {
        self.flags.iter().any(|flag| flag == RUST_LLD)
    }

    /// Adds a flag of rustc.
    pub(crate) fn add_flag(&mut self, flag: &str) {
        self.flags.push(flag.to_owned());
    }

    /// Links with this program.
    pub(crate) fn add_linker(&mut self, program: &str) {
        let name = self.target.replace('-', "_").to_uppercase();
        self.variables.push((format!("CARGO_TARGET_{name}_LINKER"), PathBuf::from(program)));
    }

    /// A command of cargo for the target.
    pub(crate) fn cargo(&self, words: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(&self.root).args(words).args(["--locked", "--target", &self.target]);
        command.env("CARGO_ENCODED_RUSTFLAGS", self.flags.join("\x1f"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn use_zig(&mut self) -> Result<()> {
        let zig = if is_installed("zig") { "zig" } else { "python3 -m ziglang" };
        let found = run("sh", &["-c", &format!("{zig} version")]);
        ensure!(
            found.is_ok(),
            "{}: no C compiler; install zig by `pip install ziglang`, or for musl on this machine's processor the \
             Debian package musl-tools",
            self.target
        );
        let Some((_, name)) = ZIG_NAMES.iter().find(|(known, _)| *known == self.target) else {
            let known: Vec<&str> = ZIG_NAMES.iter().map(|(name, _)| *name).collect();
            bail!("{}: unknown target; known are {}", self.target, known.join(", "));
        };
        let dir = target_dir(&self.root).join("cross");
        fs::create_dir_all(&dir)?;
        // The build scripts name the target as Rust does, which zig does not know.
        let compile = format!(
            "#!/bin/sh\nfor word in \"$@\"; do\n  shift\n  case $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; \
             esac\ndone\nexec {zig} cc -target {name} \"$@\"\n"
        );
        let archive = format!("#!/bin/sh\nexec {zig} ar \"$@\"\n");
        let suffix = self.target.replace('-', "_");
        for (variable, text) in [("CC", compile), ("AR", archive)] {
            let path = std::path::absolute(dir.join(format!("{variable}-{}", self.target)))?;
            // Only a change is written: build scripts run again when their compiler is newer.
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                fs::write(&path, text)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
            self.variables.push((format!("{variable}_{suffix}"), path));
        }
        Ok(())
    }
}

fn cargo_home() -> Option<PathBuf> {
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".cargo")))
}

fn install_target(root: &Path, target: &str) -> Result<()> {
    let library =
        run_command(Command::new("rustc").current_dir(root).args(["--print", "target-libdir", "--target", target]))
            .with_context(|| format!("{target}: unknown to rustc"))?;
    if !Path::new(library.trim()).is_dir() {
        run_command(Command::new("rustup").current_dir(root).args(["target", "add", target]))?;
    }
    Ok(())
}
