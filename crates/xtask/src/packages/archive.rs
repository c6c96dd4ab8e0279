//! Packs the static program with its manual, completions and licences as `NAME-VERSION-TARGET.tar.gz`, as
//! `cargo binstall` expects it (`package.metadata.binstall` of `spinney-cli`). Called by `release`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::payload::{self, place, set_mode};
use crate::system::{empty_dir, run, run_command, text};

/// Shells, and the names of their completion files.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "spinney.bash"), ("zsh", "_spinney"), ("fish", "spinney.fish")];

/// Packs `program`, built for `target`. `own` is the program built for this machine, which writes the manual pages.
///
/// # Errors
/// A file or tool is missing.
pub(crate) fn make(root: &Path, name: &str, (program, own): (&Path, &Path), dir: &Path, date: &str) -> Result<PathBuf> {
    let trees = dir.join("trees");
    let tree = trees.join(name);
    empty_dir(&tree)?;
    let installed = place(&tree, "spinney")?;
    fs::copy(program, &installed).with_context(|| program.display().to_string())?;
    set_mode(&installed, 0o755)?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        let to = tree.join(file);
        fs::copy(root.join(file), &to).with_context(|| file.to_owned())?;
        set_mode(&to, 0o644)?;
    }
    for (shell, file) in COMPLETIONS {
        let to = place(&tree, &format!("completions/{file}"))?;
        fs::write(&to, run(text(own)?, &["completions", shell])?)?;
        set_mode(&to, 0o644)?;
    }
    let manual = tree.join("man/man1");
    fs::create_dir_all(&manual)?;
    run(text(own)?, &["man", "--dir", text(&manual)?])?;
    run("chmod", &["-R", "u=rwX,go=rX", text(&manual)?])?;
    payload::settle(&tree, date)?;
    let file = std::path::absolute(dir.join(format!("{name}.tar.gz")))?;
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--format=ustar", "--owner=0", "--group=0", "--numeric-owner", "--use-compress-program"]);
    run_command(tar.args(["gzip -9n", "-cf", text(&file)?, "-C", text(&trees)?, name]))?;
    Ok(file)
}
