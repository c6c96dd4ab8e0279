//! Makes the Debian packages with `dpkg-deb`: `spinney` with manual pages, completions, mount helpers, a systemd unit
//! and desktop files; `libspinney0` and `libspinney-dev` if the C library was built. `--lintian` runs `lintian` on
//! them. If run as root, installs the packages into an empty directory, and tests the installed program there. Called
//! by `main` and `release`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::payload::{self, MOUNT_LINKS, OTHER_NAMES, Places, Sources, place, write_compressed};
use crate::symbols;
use crate::system::{empty_dir, is_root, run, run_command, source_date, text, version};

/// Options of the packages.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The program, built for release
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// The library for C as a static archive; if it exists, its packages are built, too
    #[arg(long, default_value = "target/library/libspinney_capi.a")]
    library: PathBuf,
    /// Directory of the packages
    #[arg(long, default_value = "target/deb")]
    dir: PathBuf,
    /// Run lintian on the packages, which takes a minute
    #[arg(long)]
    lintian: bool,
}

/// Default of the field `Maintainer`; `DEBFULLNAME` and `DEBEMAIL` in the environment replace it.
const MAINTAINER: &str = "The Spinney contributors <packages@spinney.invalid>";

/// The control fields of one package.
struct Package {
    name: &'static str,
    section: &'static str,
    /// The fields `Depends`, `Recommends` and the like, one per line.
    relations: String,
    summary: &'static str,
    description: &'static str,
}

const PROGRAM: &str = "\
Spinney makes, reads, changes, checks, repairs and mounts images of btrfs and
f2fs in user space, with code of its own: neither root nor a driver of the
kernel is needed. It builds images from directories, archives and container
images, keeps snapshots and backups, and serves images as disks.";
const RUNTIME: &str = "\
The library for C of Spinney: opens, makes, reads, changes and checks images
of btrfs and f2fs in user space.";
const DEVELOPMENT: &str = "\
The header, the static library, the file for pkg-config and examples of the
library for C of Spinney, which reads and writes images of btrfs and f2fs.";

/// Makes the packages, runs `lintian` if asked, and as root tests them.
///
/// # Errors
/// A file or tool is missing, `lintian` finds an error, or a test of the installed packages fails.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let sources = Sources {
        root: root.to_path_buf(),
        program: options.program.clone(),
        archive: payload::find_archive("deb", &options.library),
        version: version(root)?,
    };
    let packages = make(&sources, &options.dir, &source_date(root)?)?;
    for package in &packages {
        println!("deb: {}, {} bytes", package.display(), package.metadata()?.len());
    }
    let plain = options.dir.join("spinney.deb");
    let _ = fs::remove_file(&plain);
    fs::hard_link(packages.first().context("a package was made")?, &plain)?;
    if options.lintian {
        judge(&packages)?;
    }
    if is_root() {
        install(&packages, &options.dir.join("installed"))
    } else {
        println!("deb: SKIPPED: installing them needs root");
        Ok(())
    }
}

/// Makes the packages; the program's is the first.
pub(crate) fn make(sources: &Sources, dir: &Path, date: &str) -> Result<Vec<PathBuf>> {
    let trees = dir.join("trees");
    empty_dir(&trees)?;
    let triplet = run("dpkg-architecture", &["-qDEB_HOST_MULTIARCH"])?;
    let places = Places {
        libdir: format!("lib/{}", triplet.trim()),
        completions: [
            ("bash", "usr/share/bash-completion/completions/spinney"),
            ("zsh", "usr/share/zsh/vendor-completions/_spinney"),
            ("fish", "usr/share/fish/vendor_completions.d/spinney.fish"),
        ],
    };
    let tree = trees.join("spinney");
    payload::lay_out_program(sources, &places, &tree)?;
    let relations =
        format!("Depends: {}\nRecommends: fuse3\nSuggests: xdg-utils", needs(&trees, &tree.join("usr/bin/spinney"))?);
    let (summary, description) = ("btrfs and f2fs images without root", PROGRAM);
    let mut packages = vec![Package { name: "spinney", section: "admin", relations, summary, description }];
    if sources.archive.is_some() {
        let (runtime, development) = (trees.join("libspinney0"), trees.join("libspinney-dev"));
        payload::lay_out_library(sources, &places, &runtime, &development)?;
        packages.extend(library_packages(sources, &trees, &runtime, &places)?);
    }
    packages.iter().map(|package| pack(sources, package, &trees, dir, date)).collect()
}

/// Makes the packages of the library, with the files `shlibs` and `symbols` from which programs that link with it get
/// their dependencies.
fn library_packages(sources: &Sources, trees: &Path, runtime: &Path, places: &Places) -> Result<[Package; 2]> {
    let version = &sources.version;
    let library = runtime.join("usr").join(&places.libdir).join(format!("libspinney.so.{version}"));
    fs::write(place(runtime, "DEBIAN/shlibs")?, format!("libspinney 0 libspinney0 (>= {version})\n"))?;
    let mut names = "libspinney.so.0 libspinney0 #MINVER#\n".to_owned();
    for name in symbols::read(&library)? {
        names.push_str(&format!(" {name} {version}\n"));
    }
    fs::write(place(runtime, "DEBIAN/symbols")?, names)?;
    fs::write(place(runtime, "DEBIAN/triggers")?, "activate-noawait ldconfig\n")?;
    Ok([
        Package {
            name: "libspinney0",
            section: "libs",
            relations: format!("Depends: {}\nMulti-Arch: same", needs(trees, &library)?),
            summary: "btrfs and f2fs images without root - library",
            description: RUNTIME,
        },
        Package {
            name: "libspinney-dev",
            section: "libdevel",
            relations: format!("Depends: libspinney0 (= {version}-1), libc6-dev\nMulti-Arch: same"),
            summary: "btrfs and f2fs images without root - development files",
            description: DEVELOPMENT,
        },
    ])
}

/// The `Depends` for the shared libraries that a program is linked with.
fn needs(dir: &Path, program: &Path) -> Result<String> {
    fs::create_dir_all(dir.join("debian"))?;
    fs::write(dir.join("debian/control"), "Source: spinney\n\nPackage: spinney\nArchitecture: any\n")?;
    let program = std::path::absolute(program)?;
    let found = run_command(Command::new("dpkg-shlibdeps").current_dir(dir).arg("-O").arg(program))?;
    let needed = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(needed.context("dpkg-shlibdeps found no library")?.to_owned())
}

fn pack(sources: &Sources, package: &Package, trees: &Path, dir: &Path, date: &str) -> Result<PathBuf> {
    let tree = trees.join(package.name);
    let full = format!("{}-1", sources.version);
    let docs = format!("usr/share/doc/{}", package.name);
    fs::write(place(&tree, &format!("{docs}/copyright"))?, copyright(&sources.root)?)?;
    let changes = fs::read_to_string(sources.root.join("CHANGELOG.md"))?;
    write_compressed(&place(&tree, &format!("{docs}/changelog"))?, &changes)?;
    let maintainer = match (std::env::var("DEBFULLNAME"), std::env::var("DEBEMAIL")) {
        (Ok(name), Ok(address)) => format!("{name} <{address}>"),
        _ => MAINTAINER.to_owned(),
    };
    let day = run("date", &["--utc", "--rfc-email", "--date", &format!("@{date}")])?;
    let entry = format!(
        "spinney ({full}) unstable; urgency=medium\n\n  * Release {}; its changes are in changelog.gz.\n\n \
         -- {maintainer}  {}\n",
        sources.version,
        day.trim()
    );
    write_compressed(&place(&tree, &format!("{docs}/changelog.Debian"))?, &entry)?;
    let architecture = run("dpkg", &["--print-architecture"])?;
    let size = run("du", &["-sk", "--apparent-size", text(&tree)?])?;
    let description: String = package.description.lines().map(|line| format!(" {line}\n")).collect();
    let control = format!(
        "Package: {}\nSource: spinney\nVersion: {full}\nArchitecture: {}\nMaintainer: {maintainer}\n\
         Installed-Size: {}\nSection: {}\nPriority: optional\n{}\nDescription: {}\n{description}",
        package.name,
        architecture.trim(),
        size.split_whitespace().next().unwrap_or("0"),
        package.section,
        package.relations,
        package.summary
    );
    fs::write(place(&tree, "DEBIAN/control")?, control)?;
    write_sums(&tree)?;
    run("find", &[text(&tree)?, "-type", "f", "-perm", "/111", "-exec", "chmod", "755", "{}", "+"])?;
    run("find", &[text(&tree)?, "-type", "f", "!", "-perm", "/111", "-exec", "chmod", "644", "{}", "+"])?;
    payload::settle(&tree, date)?;
    let file = dir.join(format!("{}_{full}_{}.deb", package.name, architecture.trim()));
    let mut dpkg = Command::new("dpkg-deb");
    // xz output depends on the number of threads, so one thread makes it reproducible on every machine.
    dpkg.args(["--root-owner-group", "-Zxz", "--threads-max=1", "--build"]).args([&tree, &file]);
    run_command(dpkg.env("SOURCE_DATE_EPOCH", date))?;
    Ok(file)
}

/// Writes `DEBIAN/md5sums`, with which `dpkg --verify` finds changed files.
fn write_sums(tree: &Path) -> Result<()> {
    let script = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums";
    run_command(Command::new("sh").current_dir(tree).args(["-c", script]))?;
    Ok(())
}

/// The licences in Debian's machine-readable format.
fn copyright(root: &Path) -> Result<String> {
    let mut text = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: \
                    spinney\n\nFiles: *\nCopyright: 2026 The Spinney contributors\nLicense: MIT or Apache-2.0\n"
        .to_owned();
    text.push_str(" The Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0. The other one:\n .\n");
    for line in fs::read_to_string(root.join("LICENSE-MIT"))?.lines() {
        let line = line.trim_end();
        text.push_str(&if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") });
    }
    Ok(text)
}

/// Runs `lintian` on the packages.
fn judge(packages: &[PathBuf]) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error", "--tag-display-limit", "0"]).args(packages);
    let said = run_command(&mut lintian)?;
    let lines = said.lines().filter(|line| line.starts_with("W: "));
    println!("deb: lintian: no errors, {} warnings", lines.clone().count());
    lines.for_each(|line| println!("deb: lintian: {line}"));
    Ok(())
}

/// Installs the packages into a directory, and tests the installed program: it makes, lists and mounts an image.
fn install(packages: &[PathBuf], dir: &Path) -> Result<()> {
    empty_dir(dir)?;
    fs::create_dir_all(dir.join("var/lib/dpkg"))?;
    fs::write(dir.join("var/lib/dpkg/status"), "")?;
    let target = text(dir)?;
    let mut dpkg = Command::new("dpkg");
    dpkg.args(["--root", target, "--force-depends", "--force-not-root", "--install"]).args(packages);
    run_command(&mut dpkg)?;
    let files = run("dpkg", &["--root", target, "--listfiles", "spinney"])?;
    let pages = ["spinney.1.gz", "spinney-mount.1.gz", "spinney-open-image.1.gz"];
    for path in pages {
        let at = dir.join("usr/share/man/man1").join(path);
        ensure!(at.exists(), "{path} is not in the package");
    }
    for link in MOUNT_LINKS.map(|link| format!("usr/sbin/{link}")).iter().chain([&format!("{OTHER_NAMES}/mkfs.btrfs")])
    {
        let leads = dir.join(link).canonicalize().with_context(|| link.clone())?;
        ensure!(leads.ends_with("usr/bin/spinney"), "the link {link} leads elsewhere");
    }
    let program = dir.join("usr/bin/spinney");
    let image = dir.join("site.img");
    let source = dir.join("usr/share/doc");
    run(text(&program)?, &["mkfs", "-q", "--rootdir", text(&source)?, text(&image)?])?;
    let listed = run(text(&program)?, &["ls", text(&image)?, "/spinney"])?;
    ensure!(listed.lines().any(|line| line == "copyright"), "expected `copyright`, listed `{listed}`");
    if Path::new("/dev/fuse").exists() {
        mount_by_link(dir, &image)?;
    } else {
        println!("deb: SKIPPED: mounting needs /dev/fuse");
    }
    if packages.len() > 1 {
        link_with_library(dir)?;
    }
    println!("deb: installed and used: {} packages, {} files of the first", packages.len(), files.lines().count());
    Ok(())
}

/// Mounts an image by the helper's name, as `mount(8)` does for a line of `fstab`, reads a file, and unmounts it.
fn mount_by_link(dir: &Path, image: &Path) -> Result<()> {
    let at = dir.join("mounted");
    fs::create_dir(&at)?;
    let [link, _] = MOUNT_LINKS;
    run(text(&dir.join("usr/sbin").join(link))?, &[text(image)?, text(&at)?, "-o", "ro"])?;
    let found = fs::read_to_string(at.join("spinney/copyright"));
    run(text(&dir.join("usr/bin/spinney"))?, &["umount", text(&at)?])?;
    ensure!(found?.contains("MIT"), "the mounted file has other contents");
    Ok(())
}

/// Compiles an example against the installed library, and runs it.
fn link_with_library(dir: &Path) -> Result<()> {
    let dir = std::path::absolute(dir)?;
    let triplet = run("dpkg-architecture", &["-qDEB_HOST_MULTIARCH"])?;
    let libdir = dir.join("usr/lib").join(triplet.trim());
    let example = dir.join("usr/share/doc/libspinney-dev/examples/make_image.c");
    let (program, image) = (dir.join("make_image"), dir.join("made.img"));
    let include = format!("-I{}", dir.join("usr/include").display());
    let search = format!("-L{}", libdir.display());
    run("cc", &[text(&example)?, "-o", text(&program)?, &include, &search, "-lspinney"])?;
    run_command(Command::new(&program).arg(&image).env("LD_LIBRARY_PATH", &libdir))?;
    Ok(())
}
