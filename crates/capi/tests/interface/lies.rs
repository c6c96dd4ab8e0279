//! Images whose checksums are right and whose contents are not: reading everything through C, and through Go, fails
//! with the messages of the program.

use std::ffi::CStr;
use std::fs;
use std::mem::{size_of, zeroed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};

use spinney_capi::*;
use testkit::hostile::{hostile_image, small_bases};

use super::installed::{output, program};
use super::misuse::{message, text};

/// Images that lie.
const COUNT: u64 = 12;
/// Paths that are read in an image, whose directories may go round in circles.
const PATHS_MAX: usize = 40;
const EIO: i64 = -5;

/// A failure of reading an image: the path, if one was reached, the code and the message.
type Failure = (Option<String>, i64, String);

/// Writes images that lie into a directory.
pub(crate) fn make(dir: &Path) -> Vec<PathBuf> {
    let bases = small_bases().unwrap();
    let write = |number: u64| {
        let image = hostile_image(&bases, 1, &[number]).unwrap();
        let mut bytes = vec![0; usize::try_from(image.device.size_bytes()).unwrap()];
        image.device.read_at(0, &mut bytes).unwrap();
        let path = dir.join(format!("{number}.img"));
        fs::write(&path, bytes).unwrap();
        path
    };
    (0..COUNT).map(write).collect()
}

fn read_only() -> SpinneyOpenOptions {
    let mut options: SpinneyOpenOptions = unsafe { zeroed() };
    (options.struct_size, options.flags) = (size_of::<SpinneyOpenOptions>(), SPINNEY_READ_ONLY);
    options
}

/// The failures of reading everything in an image.
fn failures(image: &Path) -> Vec<Failure> {
    let (image, options) = (text(image.to_str().unwrap()), read_only());
    let mut volume = null_mut();
    let code = unsafe { spinney_open(image.as_ptr(), &raw const options, &raw mut volume) };
    if code < 0 {
        return vec![(None, code.into(), message::<u8>(null()))];
    }
    let (mut failures, mut todo) = (Vec::new(), vec![String::new()]);
    for _ in 0..PATHS_MAX {
        let Some(path) = todo.pop() else { break };
        if let Err((code, message)) = unsafe { read(volume, &path, &mut todo) } {
            failures.push((Some(path), code, message));
        }
    }
    spinney_close(volume.cast());
    failures
}

/// Reads one path. Names in a directory are added to `todo`.
unsafe fn read(volume: *mut SpinneyVolume, path: &str, todo: &mut Vec<String>) -> Result<(), (i64, String)> {
    let place = text(if path.is_empty() { "/" } else { path });
    let told = |code: i64| (code, message::<u8>(null()));
    unsafe {
        let mut found: SpinneyAttributes = zeroed();
        found.struct_size = size_of::<SpinneyAttributes>();
        let code = spinney_lstat(volume, place.as_ptr(), &raw mut found);
        if code < 0 {
            return Err(told(code.into()));
        }
        let mut file = null_mut();
        let mut dir = null_mut();
        match found.mode & 0o170_000 {
            0o040_000 => {
                let code = spinney_dir_open(volume, place.as_ptr(), &raw mut dir);
                if code < 0 {
                    return Err(told(code.into()));
                }
                let mut entry: SpinneyEntry = zeroed();
                entry.struct_size = size_of::<SpinneyEntry>();
                let mut code = spinney_dir_read(dir, &raw mut entry);
                while code > 0 {
                    let name = CStr::from_ptr(entry.name.as_ptr()).to_string_lossy().into_owned();
                    todo.push(if path.is_empty() { name } else { format!("{path}/{name}") });
                    code = spinney_dir_read(dir, &raw mut entry);
                }
                let end = if code < 0 { Err(told(code.into())) } else { Ok(()) };
                spinney_close(dir.cast());
                end
            }
            0o100_000 => {
                let code = spinney_file_open(volume, place.as_ptr(), SPINNEY_FILE_READ, 0, &raw mut file);
                if code < 0 {
                    return Err(told(code.into()));
                }
                let (mut buffer, mut at) = (vec![0u8; 1 << 20], 0);
                let end = loop {
                    match spinney_file_read(file, buffer.as_mut_ptr().cast(), buffer.len(), at) {
                        0 => break Ok(()),
                        count if count > 0 => at += count,
                        code => break Err(told(code)),
                    }
                };
                spinney_close(file.cast());
                end
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn images_that_lie_fail_as_in_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program() else {
        println!("SKIPPED: the program is not built");
        return;
    };
    let (mut count, mut compared) = (0, 0);
    for image in make(dir.path()) {
        for (path, code, message) in failures(&image) {
            count += 1;
            assert!(!message.is_empty() && !message.starts_with("a defect of this library"), "{message}");
            let mut command = Command::new(&program);
            match &path {
                Some(path) if !path.is_empty() => command.arg("cat").arg(&image).arg(path),
                _ => command.arg("ls").arg(&image),
            };
            let told = String::from_utf8_lossy(&output(&mut command).stderr).into_owned();
            // The program refuses to show a directory, and reads less than everything.
            if code != EIO || told.is_empty() {
                continue;
            }
            let cause = path.as_ref().and_then(|path| message.strip_prefix(&format!("{path}: "))).unwrap_or(&message);
            let cause = cause.strip_prefix(&format!("{}: ", image.display())).unwrap_or(cause);
            assert!(told.contains(cause), "{}: {path:?}: {cause}: {told}", image.display());
            compared += 1;
        }
    }
    println!("{count} failures, of which {compared} have the message of the program");
    assert!(compared > 0, "no image made the program fail");
}
