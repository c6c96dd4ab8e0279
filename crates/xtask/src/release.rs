//! Makes everything that is published of a version: `cargo xtask release`.
//!
//! In `target/dist`: the static programs as `.tar.gz`, packages for Debian and Fedora, the wheel, the source, the list
//! of components, the notes of the version and `SHA256SUMS`. With `--again` all is packed a second time, and each file
//! has to have the same bytes. Called by `main`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::packages::payload::{self, Sources};
use crate::packages::{archive, deb, rpm};
use crate::system::{empty_dir, run_command, source_date, target_dir, text, version};
use crate::{capi, sbom, static_program, wheel};

/// Options of a release.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where the files go
    #[arg(long, default_value = "target/dist")]
    dir: PathBuf,
    /// Targets of static programs, besides this machine's
    #[arg(long = "target")]
    targets: Vec<String>,
    /// Without the wheel, which needs maturin
    #[arg(long)]
    no_wheel: bool,
    /// Pack what is built, without building
    #[arg(long)]
    no_build: bool,
    /// Make everything a second time, and compare
    #[arg(long)]
    again: bool,
}

/// Makes the files of a release.
///
/// # Errors
/// Those of the builds and of the tools, or a file that comes out differently the second time.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let built = build(root, options)?;
    make(root, options, &built, &options.dir)?;
    if options.again {
        let second = options.dir.with_extension("again");
        make(root, options, &built, &second)?;
        compare(&options.dir, &second)?;
    }
    Ok(())
}

/// Programs and libraries of a release.
struct Built {
    /// Static programs with their targets; this machine's is the first.
    programs: Vec<(String, PathBuf)>,
    sources: Sources,
}

fn build(root: &Path, options: &Options) -> Result<Built> {
    let target = target_dir(root);
    let own = static_program::native_target();
    let mut programs = Vec::new();
    for name in [&own].into_iter().chain(&options.targets) {
        let program =
            if options.no_build { static_program::path(root, name) } else { static_program::build(root, name)? };
        programs.push((name.clone(), program));
    }
    if !options.no_build {
        let words = ["build", "--release", "--locked", "--package", "spinney-cli"];
        run_command(Command::new("cargo").current_dir(root).args(words))?;
        capi::build(root, "library")?;
    }
    let sources = Sources {
        root: root.to_path_buf(),
        program: target.join("release/spinney"),
        archive: payload::find_archive("release", &target.join("library/libspinney_capi.a")),
        version: version(root)?,
    };
    Ok(Built { programs, sources })
}

fn make(root: &Path, options: &Options, built: &Built, dir: &Path) -> Result<()> {
    empty_dir(dir)?;
    let work = dir.with_extension("work");
    empty_dir(&work)?;
    let (date, version) = (source_date(root)?, &built.sources.version);
    let (_, own) = built.programs.first().context("this machine's program")?;
    let mut files = Vec::new();
    for (target, program) in &built.programs {
        let name = format!("spinney-{version}-{target}");
        files.push(archive::make(root, &name, (program, own), &work, &date)?);
        let list = work.join(format!("{name}.cdx.json"));
        sbom::write(root, target, &list, &date)?;
        files.push(list);
    }
    files.extend(deb::make(&built.sources, &work.join("deb"), &date)?);
    files.extend(rpm::make(&built.sources, &work.join("rpm"), &date)?);
    if !options.no_wheel {
        files.push(wheel::make(root, own, &work.join("wheel"), &date)?);
    }
    let source = work.join(format!("spinney-{version}.tar.gz"));
    let script =
        format!("git archive --prefix=spinney-{version}/ HEAD | gzip -9n > {}", text(&std::path::absolute(&source)?)?);
    run_command(Command::new("sh").current_dir(root).args(["-c", &script]))?;
    files.push(source);
    let notes = work.join("RELEASE-NOTES.md");
    fs::write(&notes, read_notes(&fs::read_to_string(root.join("CHANGELOG.md"))?, version)?)?;
    files.push(notes);
    for file in &files {
        let name = file.file_name().context("a file has a name")?;
        fs::copy(file, dir.join(name)).with_context(|| file.display().to_string())?;
    }
    let script = "LC_ALL=C; export LC_ALL; sha256sum -- * > ../SHA256SUMS.new && mv ../SHA256SUMS.new SHA256SUMS";
    run_command(Command::new("sh").current_dir(dir).args(["-c", script]))?;
    fs::remove_dir_all(&work)?;
    println!("release: {}: {} files and SHA256SUMS", dir.display(), files.len());
    Ok(())
}

/// The section of the changelog about a version; before it is released, that of what is not released.
fn read_notes(changes: &str, version: &str) -> Result<String> {
    let section = |name: &str| {
        let is_meant = |section: &&str| section.split_whitespace().next() == Some(name);
        changes.split("\n## ").skip(1).find(is_meant)
    };
    let section = section(version).or_else(|| section("Unreleased"));
    let section = section.with_context(|| format!("CHANGELOG.md: no section for {version}"))?;
    let (_, body) = section.split_once('\n').context("CHANGELOG.md: an empty section")?;
    Ok(format!("# Spinney {version}\n\n{}\n", body.trim()))
}

/// Fails unless two directories have the same files with the same bytes.
fn compare(first: &Path, second: &Path) -> Result<()> {
    let names = |dir: &Path| -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    };
    let (one, other) = (names(first)?, names(second)?);
    ensure!(one == other, "the second time other files were made: {one:?} and {other:?}");
    let mut differing = Vec::new();
    for name in &one {
        if fs::read(first.join(name))? != fs::read(second.join(name))? {
            differing.push(name);
        }
    }
    ensure!(differing.is_empty(), "made twice, these files differ: {differing:?}");
    println!("release: made twice: {} files with the same bytes", one.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_one_section_of_the_changelog() {
        let changes = "# Changelog\n\n## 0.2.0\n\n- New.\n\n## 0.1.0 (2026-01-01)\n\n- First.\n";
        assert_eq!(read_notes(changes, "0.1.0").unwrap(), "# Spinney 0.1.0\n\n- First.\n");
        assert_eq!(read_notes(changes, "0.2.0").unwrap(), "# Spinney 0.2.0\n\n- New.\n");
        assert!(read_notes(changes, "0.3.0").is_err());
    }
}
