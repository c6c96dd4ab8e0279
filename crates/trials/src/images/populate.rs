//! Fills a directory with a random tree that resembles a real one: many small files, some large ones, odd names, owners
//! and times. Called by `images`, `guest` and `round_trip`.

use super::metadata::{set_random_metadata, set_xattr};
use anyhow::Result;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use testkit::Random;

const FILES_PER_FOLDER: u64 = 40;
const FILE_SIZE_MAX: u64 = 2 << 20;

/// Makes about `files` files below `folder`.
pub(crate) fn populate(folder: &Path, files: u32, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let mut folders = vec![folder.to_path_buf()];
    let mut regular: Vec<PathBuf> = Vec::new();
    for number in 0..files {
        if random.one_in(FILES_PER_FOLDER) {
            let parent = pick(&folders, random).unwrap_or(folder);
            let new = parent.join(name("d-", number, random));
            if new.as_os_str().len() < 3000 {
                std::fs::create_dir(&new)?;
                folders.push(new);
            }
        }
        let path = pick(&folders, random).unwrap_or(folder).join(name("", number, random));
        match random.below(100) {
            0..3 => std::os::unix::fs::symlink(OsString::from_vec(target(random)), &path)?,
            3..5 if !regular.is_empty() => std::fs::hard_link(pick(&regular, random).unwrap_or(folder), &path)?,
            _ => {
                make_file(&path, random)?;
                regular.push(path.clone());
            }
        }
        if random.one_in(30) && !path.is_symlink() {
            let len = random.index(200);
            set_xattr(&path, "user.random", &random.noise(len))?;
        }
        if random.one_in(2) {
            set_random_metadata(&path, random)?;
        }
    }
    for folder in folders.iter().rev() {
        set_random_metadata(folder, random)?;
    }
    Ok(())
}

fn pick<'a>(paths: &'a [PathBuf], random: &mut Random) -> Option<&'a Path> {
    random.pick(paths).map(PathBuf::as_path)
}

fn make_file(path: &Path, random: &mut Random) -> Result<()> {
    let len = match random.below(1000) {
        0..50 => 0,
        50..500 => random.below(2200),
        500..900 => random.below(16 << 10),
        900..997 => random.below(64 << 10),
        _ => random.below(FILE_SIZE_MAX),
    };
    let content = random.content(usize::try_from(len)?);
    Ok(std::fs::write(path, content)?)
}

/// A symlink's target: any bytes, since it is never followed.
fn target(random: &mut Random) -> Vec<u8> {
    let len = usize::try_from(random.between(1, 300)).unwrap_or(1);
    random.text(len).into_iter().map(|byte| if byte == 0 { b'x' } else { byte }).collect()
}

/// Mostly short names, sometimes of all 255 bytes, sometimes not UTF-8. `start` and the number make it unique.
fn name(start: &str, number: u32, random: &mut Random) -> OsString {
    let mut bytes = format!("{start}{number:x}").into_bytes();
    let len = match random.below(20) {
        0 => 255,
        1..4 => random.index(120),
        _ => random.index(12),
    };
    while bytes.len() < len {
        match random.below(30) {
            0 => bytes.push(0xff),
            1 => bytes.extend_from_slice("é".as_bytes()),
            2 => bytes.push(b' '),
            3 => bytes.push(b'\n'),
            _ => bytes.push(b"abcdefghijklmnopqrstuvwxyz"[random.index(26)]),
        }
    }
    bytes.truncate(255);
    OsString::from_vec(bytes)
}
