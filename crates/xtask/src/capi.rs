//! Builds the library for C and lays it out below a prefix: `cargo xtask capi --prefix DIR`.
//!
//! It is built in the profile `library`, in which a panic becomes an error of the call: in `release` it would end the
//! process of the caller. `crates/capi/install.sh` links the shared library and copies the files. Fails with the first
//! command that fails.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::system::{run, target_dir, text};

/// Options of the library for C.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory that gets include, lib and share
    #[arg(long, default_value = "target/capi")]
    prefix: PathBuf,
    /// Directory of the libraries below the prefix
    #[arg(long, default_value = "lib")]
    libdir: String,
    /// Profile of cargo
    #[arg(long, default_value = "library")]
    profile: String,
}

/// Builds the library, and lays it out.
///
/// # Errors
/// Those of cargo, of the linker and of the host.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let archive = build(root, &options.profile)?;
    std::fs::create_dir_all(&options.prefix)?;
    let prefix = options.prefix.canonicalize()?;
    let script = root.join("crates/capi/install.sh");
    run(text(&script)?, &[text(&archive)?, text(&prefix)?, &options.libdir])?;
    println!("capi: {}: PKG_CONFIG_PATH={}/{}/pkgconfig", prefix.display(), prefix.display(), options.libdir);
    Ok(())
}

/// Builds the library; the result is the archive.
pub(crate) fn build(root: &Path, profile: &str) -> Result<PathBuf> {
    let manifest = root.join("Cargo.toml");
    let cargo = ["build", "--package", "spinney-capi", "--profile", profile, "--manifest-path"];
    run("cargo", &[&cargo[..], &[text(&manifest)?]].concat())?;
    Ok(target_dir(root).join(profile).join("libspinney_capi.a"))
}
