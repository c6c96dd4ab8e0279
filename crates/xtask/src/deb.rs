//! Makes a Debian package of the program: manual, completions and the link for `fstab` with it, by `dpkg-deb`. As root
//! it is then installed into an empty folder and used from there. Called by `cargo xtask deb`.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::system::{is_root, run};

/// Options of the package.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The program, built for release.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// Where the package goes.
    #[arg(long, default_value = "target/deb")]
    dir: PathBuf,
}

/// The path at which `mount(8)` looks for the helper of the type `fuse.spinney`.
const MOUNT_LINK: &str = "usr/sbin/mount.fuse.spinney";
/// Shells, with the place where each looks for completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/spinney"),
    ("zsh", "usr/share/zsh/vendor-completions/_spinney"),
    ("fish", "usr/share/fish/vendor_completions.d/spinney.fish"),
];

/// Makes the package, and as root tests it.
///
/// # Errors
/// A missing file, or a failing test of the installed package.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let tree = options.dir.join("tree");
    if tree.exists() {
        std::fs::remove_dir_all(&tree)?;
    }
    fill(root, &options.program, &tree)?;
    let package = options.dir.join("spinney.deb");
    run("dpkg-deb", &["--root-owner-group", "--build", text(&tree)?, text(&package)?])?;
    println!("deb: {}, {} bytes", package.display(), package.metadata()?.len());
    if is_root() {
        install(&package, &options.dir.join("installed"))?;
    } else {
        println!("deb: SKIPPED: installing it needs root");
    }
    Ok(())
}

fn fill(root: &Path, program: &Path, tree: &Path) -> Result<()> {
    let name = text(program)?;
    let place = |path: &str| -> Result<PathBuf> {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().context("a place in the tree")?)?;
        Ok(path)
    };
    let installed = place("usr/bin/spinney")?;
    std::fs::copy(program, &installed).with_context(|| format!("{name}: build it with `cargo build --release`"))?;
    run("strip", &["--strip-unneeded", text(&installed)?])?;
    std::fs::set_permissions(&installed, std::fs::Permissions::from_mode(0o755))?;
    symlink("../bin/spinney", place(MOUNT_LINK)?)?;
    let manual = tree.join("usr/share/man/man1");
    std::fs::create_dir_all(&manual)?;
    run(name, &["man", "--dir", text(&manual)?])?;
    for page in std::fs::read_dir(&manual)? {
        run("gzip", &["-9n", text(&page?.path())?])?;
    }
    for (shell, path) in COMPLETIONS {
        std::fs::write(place(path)?, run(name, &["completions", shell])?)?;
    }
    let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| std::fs::read_to_string(root.join(name)));
    let [mit, apache] = licences;
    std::fs::write(place("usr/share/doc/spinney/copyright")?, format!("{}\n{}", mit?, apache?))?;
    let version = run(name, &["--version"])?;
    let version = version.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    let architecture = run("dpkg", &["--print-architecture"])?;
    std::fs::write(place("DEBIAN/control")?, control(&version, architecture.trim()))?;
    Ok(())
}

fn control(version: &str, architecture: &str) -> String {
    format!(
        "Package: spinney\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The Spinney contributors\n\
         Section: admin\nPriority: optional\nDepends: libc6\nRecommends: fuse3\n\
         Description: btrfs images without root\n \
         Makes, reads, changes and mounts btrfs images in user space.\n"
    )
}

/// Installs the package into a directory, and makes, fills and reads an image with the installed program.
fn install(package: &Path, dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir.join("var/lib/dpkg"))?;
    std::fs::write(dir.join("var/lib/dpkg/status"), "")?;
    let target = text(dir)?;
    run("dpkg", &["--root", target, "--force-depends", "--force-not-root", "--install", text(package)?])?;
    let files = run("dpkg", &["--root", target, "--listfiles", "spinney"])?;
    let expected = COMPLETIONS.iter().map(|(_, path)| *path).chain([MOUNT_LINK, "usr/share/man/man1/spinney.1.gz"]);
    for path in expected {
        ensure!(files.lines().any(|line| line.trim_start_matches('/') == path), "{path} is not in the package");
    }
    let program = dir.join(MOUNT_LINK);
    ensure!(program.canonicalize()?.ends_with("usr/bin/spinney"), "the link for fstab leads elsewhere");
    let program = dir.join("usr/bin/spinney");
    let image = dir.join("site.img");
    let source = dir.join("usr/share/doc");
    run(text(&program)?, &["mkfs", "-q", "--rootdir", text(&source)?, text(&image)?])?;
    let listed = run(text(&program)?, &["ls", text(&image)?, "/spinney"])?;
    ensure!(listed.trim() == "copyright", "expected `copyright`, listed `{listed}`");
    if Path::new("/dev/fuse").exists() {
        mount_by_link(dir, &image)?;
    } else {
        println!("deb: SKIPPED: mounting needs /dev/fuse");
    }
    println!("deb: installed and used: {} files", files.lines().count());
    Ok(())
}

/// Mounts as `mount(8)` does with a line of `fstab`, and unmounts.
fn mount_by_link(dir: &Path, image: &Path) -> Result<()> {
    let at = dir.join("mounted");
    std::fs::create_dir(&at)?;
    run(text(&dir.join(MOUNT_LINK))?, &[text(image)?, text(&at)?, "-o", "ro"])?;
    let found = std::fs::read_to_string(at.join("spinney/copyright"));
    run(text(&dir.join("usr/bin/spinney"))?, &["umount", text(&at)?])?;
    ensure!(found?.contains("MIT"), "the mounted file has other contents");
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: not UTF-8", path.display()))
}
