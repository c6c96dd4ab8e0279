//! Images that a kernel wrote, with what the kernel's own walk of them found: `NAME.img` and `NAME.walk` in the
//! directory that `SPINNEY_F2FS_IMAGES` names. A walk has a line of JSON for each path: what `stat`, `getfattr`,
//! `FS_IOC_GETFLAGS` and `FIEMAP` said, and the SHA-256 of the contents.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockdev::backends::{FileDevice, FileOptions};
use codec::ChecksumType;
use codec::checksum::checksum;
use f2fs::OpenOptions;
use serde_json::{Value, json};
use vfs::file_system::{Attr, Extent, ExtentKind, Time};
use vfs::{File, Volume};

/// Larger files are not read whole.
const READ_BYTES_MAX: u64 = 256 << 20;
/// Differences that are shown of an image.
const SHOWN_MAX: usize = 12;

#[test]
fn what_a_kernel_wrote_is_read_as_it_reads_it() {
    let Some(dir) = std::env::var_os("SPINNEY_F2FS_IMAGES") else {
        println!("images of a kernel are compared where SPINNEY_F2FS_IMAGES names their directory");
        return;
    };
    let mut images: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    images.retain(|path| path.extension() == Some(OsStr::new("img")) && path.with_extension("walk").exists());
    images.sort();
    assert!(!images.is_empty(), "no image with a walk beside it");
    let mut wrong = 0;
    for image in images {
        let differences = compare(&image);
        println!("{}: {} differences", image.display(), differences.len());
        differences.iter().take(SHOWN_MAX).for_each(|line| println!("    {line}"));
        wrong += differences.len();
    }
    assert_eq!(wrong, 0);
}

fn compare(image: &Path) -> Vec<String> {
    // Recovery by the kernel changes times of directories, and where data lies.
    let name = image.file_stem().unwrap().to_string_lossy().into_owned();
    let is_recovered = name.starts_with("cut-") || name.starts_with("orphans");
    let device = FileDevice::open(image, &FileOptions { read_only: true, ..FileOptions::default() }).unwrap();
    let fs = match OpenOptions::new().open(Arc::new(device)) {
        Ok(fs) => fs,
        Err(error) => return vec![format!("cannot be opened: {error}")],
    };
    let volume = Volume::new(Arc::new(fs));
    let mut expected = BTreeMap::new();
    for line in std::fs::read_to_string(image.with_extension("walk")).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        expected.insert(line["path"].as_str().unwrap().to_owned(), line);
    }
    let mut differences = Vec::new();
    let mut found = BTreeMap::from([(String::new(), describe(&volume, b""))]);
    let mut left = vec![Vec::new()];
    while let Some(dir) = left.pop() {
        let listed = match volume.read_dir(at(&dir)) {
            Ok(listed) => listed,
            Err(error) => {
                differences.push(error.to_string());
                continue;
            }
        };
        for entry in listed {
            let Ok(entry) = entry else {
                differences.push(format!("{}: {entry:?}", escaped(&dir)));
                break;
            };
            let mut path = dir.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.name_bytes());
            found.insert(escaped(&path), describe(&volume, &path));
            if entry.file_type().is_dir() {
                left.push(path);
            }
        }
    }
    for path in expected.keys().filter(|path| !found.contains_key(*path)) {
        differences.push(format!("{path}: missing"));
    }
    for (path, found) in &found {
        match expected.get(path) {
            None => differences.push(format!("{path}: not in the walk")),
            Some(expected) => differ(path, expected, found, is_recovered, &mut differences),
        }
    }
    differences
}

fn differ(path: &str, expected_line: &Value, found: &Value, is_recovered: bool, out: &mut Vec<String>) {
    let is_dir = expected_line["mode"].as_str().is_some_and(|mode| mode.starts_with("40"));
    for (key, value) in expected_line.as_object().unwrap() {
        let clipped = if key == "extents" { comparable(value, &expected_line["size"]) } else { value.clone() };
        let (expected, found) = (&clipped, &found[key]);
        // The holes of the largest are compared as extents.
        if key == "sha256" && found.is_null() && is_too_large(expected_line) {
            continue;
        }
        // What is refused by name is told, not read wrongly.
        if key == "sha256" && found.as_str().is_some_and(|text| text.contains("lzo-rle, which is not supported")) {
            continue;
        }
        let moves = (is_recovered && matches!(key.as_str(), "extents" | "blocks"))
            || (key == "extents" && has_cut_clusters(expected));
        // The walk itself reads directories and links.
        if key == "atime" || moves || (is_recovered && is_dir && matches!(key.as_str(), "mtime" | "ctime" | "size")) {
            continue;
        }
        if expected != found && !(key == "flags" && expected.is_null()) {
            let brief = |value: &Value| value.to_string().chars().take(150).collect::<String>();
            out.push(format!("{path}: {key}: expected {}, found {}", brief(expected), brief(found)));
        }
    }
}

fn at(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(if path.is_empty() { b"/" } else { path }))
}

/// Bytes as the walk has them in its JSON.
fn escaped(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the walk has for a path. What fails is told in the place of the answer.
fn describe(volume: &Volume, name: &[u8]) -> Value {
    let path = at(name);
    let attr = match volume.symlink_metadata(path) {
        Ok(attr) => attr,
        Err(error) => return json!({ "mode": error.to_string() }),
    };
    let time = |time: Time| json!([time.sec, time.nsec]);
    let contents = (attr.is_file() && attr.size <= READ_BYTES_MAX)
        .then(|| volume.read(path).map(|bytes| hex(&checksum(ChecksumType::Sha256, &bytes))));
    json!({
        "atime": time(attr.atime), "mtime": time(attr.mtime), "ctime": time(attr.ctime), "btime": time(attr.btime),
        "blocks": attr.blocks, "size": attr.size, "links": attr.nlink, "uid": attr.uid, "gid": attr.gid,
        "ino": attr.ino, "rdev": attr.rdev, "mode": format!("{:o}", attr.mode()), "flags": attr.flags.bits(),
        "path": escaped(name),
        "target": attr.is_symlink().then(|| volume.read_link(path).map_or_else(
            |error| error.to_string(), |target| escaped(target.as_os_str().as_bytes()))),
        "sha256": contents.map(|sum| sum.unwrap_or_else(|error| error.to_string())),
        "xattrs": xattrs(volume, path),
        "extents": extents(volume, path, &attr),
    })
}

fn xattrs(volume: &Volume, path: &Path) -> Value {
    let mut found = serde_json::Map::new();
    match volume.list_xattrs(path) {
        Ok(names) => {
            for name in names {
                let value = volume.get_xattr(path, name.as_bytes());
                let value = value.map_or_else(|error| error.to_string(), |value| hex(&value.unwrap_or_default()));
                found.insert(escaped(name.as_bytes()), value.into());
            }
        }
        Err(error) => _ = found.insert("error".to_owned(), error.to_string().into()),
    }
    Value::Object(found)
}

/// As `FIEMAP` tells them: offset, length, place, flags.
fn extents(volume: &Volume, path: &Path, attr: &Attr) -> Value {
    if !attr.is_file() || attr.size == 0 {
        return json!([]);
    }
    let found = File::open(volume, path).and_then(|file| file.extents());
    let found = found.unwrap_or_default();
    let shown = |extent: &Extent| match (extent.kind, extent.compression) {
        (ExtentKind::Preallocated, _) => json!([extent.offset, extent.len, 0, "unwritten"]),
        // `FIEMAP` rounds up, and shows where the inode is.
        (ExtentKind::Inline, _) => json!([0, 4096, 0, "inline"]),
        (ExtentKind::Data, Some(_)) => json!([extent.offset, extent.len, extent.logical, "compressed"]),
        (ExtentKind::Data, None) => json!([extent.offset, extent.len, extent.logical, ""]),
    };
    found.iter().map(shown).collect()
}

fn is_too_large(line: &Value) -> bool {
    line["size"].as_u64().is_some_and(|size| size > READ_BYTES_MAX)
}

/// `FIEMAP` may tell a compressed cluster in two parts where another one follows.
fn has_cut_clusters(extents: &Value) -> bool {
    let is_cut = |extent: &Value| extent[3] == "compressed" && extent[1].as_u64().is_none_or(|len| len % 16_384 != 0);
    extents.as_array().is_some_and(|extents| extents.iter().any(is_cut))
}

/// Extents of the walk in the same form, up to the end of the file: what is behind it is not listed.
fn comparable(extents: &Value, size: &Value) -> Value {
    let end = size.as_u64().unwrap().next_multiple_of(4096);
    let clip = |extent: &Value| {
        let (offset, len) = (extent[0].as_u64()?, extent[1].as_u64()?);
        let left = end.checked_sub(offset).filter(|left| *left > 0)?;
        let is_placed = !matches!(extent[3].as_str()?, "inline" | "unwritten");
        let is_whole = extent[3] == "compressed";
        let len = if is_whole { len } else { len.min(left) };
        Some(json!([offset, len, if is_placed { extent[2].clone() } else { json!(0) }, extent[3]]))
    };
    extents.as_array().unwrap().iter().filter_map(clip).collect()
}
