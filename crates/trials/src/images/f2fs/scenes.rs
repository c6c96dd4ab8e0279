//! Makes scenes of names, directories, attributes and flags. `recipes` lists them.

use super::scene::{Scene, checkpoint, knob, open};
use crate::images::common;
use crate::images::metadata::{set_random_metadata, set_xattr};
use crate::system::run;
use anyhow::{Context, Result};
use rustix::fs::IFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use testkit::Random;

pub(super) const NODES: Scene = Scene { name: "nodes", run: common::nodes };
pub(super) const LINKS: Scene = Scene { name: "links", run: links };
pub(super) const XATTRS: Scene = Scene { name: "xattrs", run: xattrs };
pub(super) const MORE_XATTRS: Scene = Scene { name: "more-xattrs", run: more_xattrs };
pub(super) const DIRECTORIES: Scene = Scene { name: "directories", run: directories };
pub(super) const LEVELS: Scene = Scene { name: "levels", run: levels };
pub(super) const CASEFOLD: Scene = Scene { name: "casefold", run: casefold };
pub(super) const FLAGS: Scene = Scene { name: "flags", run: flags };
pub(super) const ENABLE_CHECKPOINT: Scene = Scene { name: "enable-checkpoint", run: enable_checkpoint };

/// Hard links in several directories, renamed and removed ones, symlinks of every possible length.
fn links(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    std::fs::create_dir(folder.join("other"))?;
    let file = folder.join("file");
    std::fs::write(&file, random.content(5000))?;
    for number in 0..60 {
        let name = format!("{number}-{}", "n".repeat(random.index(200)));
        let place = if number % 3 == 0 { folder.join("other") } else { folder.to_path_buf() };
        std::fs::hard_link(&file, place.join(&name))?;
        match number % 7 {
            1 => std::fs::rename(place.join(&name), folder.join("other").join(format!("moved-{number}")))?,
            2 => std::fs::remove_file(place.join(&name))?,
            _ => {}
        }
    }
    for len in [1, 59, 60, 61, 255, 3487, 3488, 3489, 3691, 3692, 4000, 4094, 4095] {
        symlink("l".repeat(len), folder.join(format!("symlink-{len}")))?;
    }
    std::fs::create_dir_all(folder.join("a/b/c"))?;
    std::fs::rename(folder.join("a/b"), folder.join("moved"))?;
    Ok(std::fs::rename(folder.join("a"), folder.join("moved/c/a"))?)
}

/// Attributes in the inode, in a node of their own and in both; access lists of several lengths.
fn xattrs(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let file = |name: &str| -> Result<_> {
        let path = folder.join(name);
        std::fs::write(&path, name)?;
        Ok(path)
    };
    let few = file("few")?;
    set_xattr(&few, "user.a", b"1")?;
    set_xattr(&few, "user.empty", b"")?;
    set_xattr(&few, "trusted.secret", b"\0\x01\xff")?;
    let many = file("many")?;
    for number in 0..40 {
        let len = random.index(50);
        set_xattr(&many, &format!("user.number-{number}"), &random.noise(len))?;
    }
    set_xattr(&file("large")?, "user.large", &random.noise(3000))?;
    let capable = file("capable")?;
    set_xattr(&capable, "security.capability", &common::CAPABILITY)?;
    let listed = file("listed")?;
    set_xattr(&listed, "system.posix_acl_access", &common::access_list(&[1000]))?;
    let long_list = file("long-list")?;
    let users: Vec<u32> = (1000..1060).collect();
    set_xattr(&long_list, "system.posix_acl_access", &common::access_list(&users))?;
    // Attributes that outgrow the inode, that come back into it, and that are all removed.
    let grown = file("grown")?;
    set_xattr(&grown, "user.value", &random.noise(20))?;
    checkpoint(folder)?;
    set_xattr(&grown, "user.value", &random.noise(2000))?;
    let shrunk = file("shrunk")?;
    set_xattr(&shrunk, "user.value", &random.noise(2000))?;
    checkpoint(folder)?;
    set_xattr(&shrunk, "user.value", &random.noise(10))?;
    let emptied = file("emptied")?;
    set_xattr(&emptied, "user.value", &random.noise(2000))?;
    rustix::fs::lremovexattr(&emptied, "user.value")?;
    let inner = folder.join("folder");
    std::fs::create_dir(&inner)?;
    set_xattr(&inner, "user.of-a-folder", b"value")?;
    set_xattr(&inner, "system.posix_acl_default", &common::access_list(&[7, 70_000]))?;
    // Both inherit the default.
    std::fs::write(inner.join("heir"), "y")?;
    std::fs::create_dir(inner.join("heir-folder"))?;
    symlink("target", folder.join("symlink"))?;
    set_xattr(&folder.join("symlink"), "trusted.of-a-symlink", b"value")
}

/// Attributes that fill their space, and names of every length.
fn more_xattrs(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let full = folder.join("full");
    std::fs::write(&full, "x")?;
    let mut count = 0;
    while count < 1000 && set_xattr(&full, &format!("user.{count}"), &random.noise(24)).is_ok() {
        count += 1;
    }
    anyhow::ensure!((50..1000).contains(&count), "{count} attributes fit");
    for len in (1..250).step_by(12) {
        let path = folder.join(format!("name-{len}"));
        std::fs::write(&path, random.content(len * 20))?;
        set_xattr(&path, &format!("user.{}", "n".repeat(len)), &random.noise(len))?;
    }
    Ok(())
}

/// Directories of a few names to many thousand, with names of all lengths and gaps of removed names.
fn directories(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    // 182 slots are in an inode of default size, 214 in a block, two blocks in a bucket, twice the buckets a level.
    for count in [1, 100, 181, 182, 183, 500, 2000] {
        let inner = folder.join(format!("short-{count}"));
        fill(&inner, count, |number| format!("{number}"))?;
        if count >= 500 {
            thin_out(&inner, random)?;
        }
    }
    let huge = folder.join("huge");
    fill(&huge, 9000, |number| format!("name {number}"))?;
    thin_out(&huge, random)?;
    for number in 0..300 {
        std::fs::write(huge.join(format!("again {number}")), "")?;
    }
    let long = folder.join("long");
    fill(&long, 700, |number| format!("{number}-{}", "long".repeat(number % 62)))?;
    let bytes = folder.join("bytes");
    std::fs::create_dir(&bytes)?;
    for byte in (1..=255u8).filter(|byte| *byte != b'/' && *byte != b'.') {
        std::fs::write(bytes.join(OsStr::from_bytes(&[byte])), [byte])?;
    }
    let emptied = folder.join("emptied");
    fill(&emptied, 600, |number| format!("{number}"))?;
    for entry in std::fs::read_dir(&emptied)?.collect::<Result<Vec<_>, _>>()? {
        std::fs::remove_file(entry.path())?;
    }
    let mut deep = folder.join("deep");
    for number in 0..60 {
        std::fs::create_dir(&deep)?;
        deep = deep.join(format!("deeper-{number}"));
    }
    Ok(())
}

/// A directory with many names of one file, which costs no nodes.
fn fill(folder: &Path, count: usize, name: impl Fn(usize) -> String) -> Result<()> {
    std::fs::create_dir(folder)?;
    let first = folder.join(name(0));
    std::fs::write(&first, "many names")?;
    for number in 1..count {
        std::fs::hard_link(&first, folder.join(name(number)))?;
    }
    Ok(())
}

/// Removes a third of the names.
fn thin_out(folder: &Path, random: &mut Random) -> Result<()> {
    for entry in std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()? {
        if random.one_in(3) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Directories whose hash tables begin with several buckets.
fn levels(folder: &Path, _: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let knob = knob("dir_level")?;
    for level in ["1", "2", "4"] {
        std::fs::write(&knob, level)?;
        fill(&folder.join(format!("level-{level}")), 1500, |number| format!("{number}"))?;
    }
    Ok(std::fs::write(&knob, "0")?)
}

/// Directories that ignore case, with names that detect wrong folding or hashing.
fn casefold(folder: &Path, random: &mut Random) -> Result<()> {
    const FOLDED: IFlags = IFlags::from_bits_retain(0x4000_0000);
    std::fs::create_dir(folder)?;
    rustix::fs::ioctl_setflags(File::open(folder)?, FOLDED).context("casefold flag")?;
    let names = [
        "Hello",
        "straße",
        "ÄÖÜ",
        "ångström",
        "cafe\u{301}",
        "Ǆ",
        "İstanbul",
        "ﬁn",
        "한글",
        "ΣΊΣΥΦΟΣ",
        "Ω",
        "🌲 Tree",
        "with space",
        "ʼn",
        "\u{1e9e}",
        "q\u{307}\u{323}",
    ];
    for name in names {
        std::fs::write(folder.join(name), name)?;
        let found = std::fs::read(folder.join(name.to_uppercase()));
        println!("casefold: {name} as {}: {}", name.to_uppercase(), found.is_ok());
    }
    // Names that are not UTF-8: allowed unless the encoding is strict.
    let odd = folder.join(OsStr::from_bytes(b"odd-\xff-Name"));
    println!("casefold: a name that is no UTF-8: {}", std::fs::write(odd, "x").is_ok());
    let many = folder.join("Many");
    std::fs::create_dir(&many)?;
    for number in 0..1500 {
        let name = format!("{}-Näme-{number}", if number % 2 == 0 { "UPPER" } else { "lower" });
        if number == 0 {
            std::fs::write(many.join(&name), "x")?;
        } else {
            std::fs::hard_link(many.join("UPPER-Näme-0"), many.join(&name))?;
        }
    }
    thin_out(&many.join("."), random)?;
    let plain = folder.with_extension("not");
    std::fs::create_dir(&plain)?;
    std::fs::write(plain.join("Name"), "1")?;
    Ok(std::fs::write(plain.join("name"), "2")?)
}

/// Inode flags as `chattr` sets them.
fn flags(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let all = [
        ("append", IFlags::APPEND),
        ("immutable", IFlags::IMMUTABLE),
        ("nodump", IFlags::NODUMP),
        ("noatime", IFlags::NOATIME),
        ("sync", IFlags::SYNC),
        ("all", IFlags::NODUMP | IFlags::NOATIME | IFlags::SYNC | IFlags::APPEND | IFlags::IMMUTABLE),
        ("project", IFlags::from_bits_retain(0x2000_0000)),
    ];
    for (name, flag) in all {
        let path = folder.join(name);
        std::fs::write(&path, random.content(3000))?;
        set_random_metadata(&path, random)?;
        if name == "project" {
            continue;
        }
        rustix::fs::ioctl_setflags(&open_read(&path)?, flag).with_context(|| name.to_owned())?;
    }
    let pinned = folder.join("pinned");
    open(&pinned)?;
    super::scene::f2fs_io(&["pinfile", "set"], &pinned).context("pin")?;
    rustix::fs::fallocate(&open(&pinned)?, rustix::fs::FallocateFlags::empty(), 0, 2 << 20).context("pinned")?;
    let project = folder.join("project-folder");
    std::fs::create_dir(&project)?;
    rustix::fs::ioctl_setflags(File::open(&project)?, IFlags::from_bits_retain(0x2000_0000))?;
    std::fs::write(project.join("heir"), "x")?;
    let inner = folder.join("dirsync");
    std::fs::create_dir(&inner)?;
    Ok(rustix::fs::ioctl_setflags(File::open(&inner)?, IFlags::DIRSYNC | IFlags::NOATIME)?)
}

fn open_read(path: &Path) -> Result<File> {
    File::open(path).with_context(|| path.display().to_string())
}

/// Turns checkpoints on again after a mount without them.
fn enable_checkpoint(folder: &Path, _: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    std::fs::write(folder.join("before"), "checkpoints are off")?;
    let top = folder.parent().context("a scene's folder is in the mount")?;
    run("mount", &["-o", "remount,checkpoint=enable", &top.to_string_lossy()])?;
    Ok(std::fs::write(folder.join("after"), "checkpoints are on")?)
}
