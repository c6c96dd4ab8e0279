//! Names of a mount that are replaced while other programs use them. As on other file systems, each call must see the
//! old file or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, XattrFlags};

use crate::mounted::{Mounted, can_mount};

/// How long each pair of programs runs.
const RUN: Duration = Duration::from_millis(1500);
const THREADS: usize = 3;

type Step<'a> = &'a (dyn Fn(usize, usize) -> io::Result<()> + Sync);

/// Runs `change` in some threads and `look` in others, each with the number of its thread and of its
/// round. Panics with the first errors.
fn race(what: &str, change: Step<'_>, look: Step<'_>) {
    let is_over = AtomicBool::new(false);
    let (calls, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let errors = Mutex::new(Vec::new());
    let run = |name: &str, step: Step<'_>, thread: usize| {
        for round in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            calls.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = step(thread, round) {
                failed.fetch_add(1, Ordering::Relaxed);
                let mut errors = errors.lock().unwrap();
                if errors.len() < 5 {
                    errors.push(format!("{name} {round}: {error}"));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let run = &run;
            scope.spawn(move || run("change", change, thread));
            scope.spawn(move || run("look", look, thread));
        }
        let started = Instant::now();
        while started.elapsed() < RUN {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let errors = errors.into_inner().unwrap();
    let (calls, failed) = (calls.into_inner(), failed.into_inner());
    eprintln!("{what}: {calls} rounds");
    assert!(errors.is_empty(), "{what}: {failed} errors in {calls} rounds: {errors:#?}");
}

fn version(thread: usize, round: usize) -> Vec<u8> {
    let byte = u8::try_from((thread * 7 + round) % 250).unwrap();
    vec![byte; 100 + usize::from(byte)]
}

fn check_version(bytes: &[u8]) -> io::Result<()> {
    let first = bytes.first().copied().unwrap_or_default();
    let is_one = bytes.len() == 100 + usize::from(first) && bytes.iter().all(|byte| *byte == first);
    let why = || io::Error::other(format!("{} bytes that do not go together", bytes.len()));
    is_one.then_some(()).ok_or_else(why)
}

/// Every way to examine a file by its path.
fn look_at(path: &Path, number: usize) -> io::Result<()> {
    match number % 7 {
        0 => fs::metadata(path).map(drop),
        1 => check_version(&fs::read(path)?),
        2 => {
            let mut value = [0; 8];
            let len = rustix::fs::getxattr(path, "user.a", &mut value[..])?;
            assert_eq!(&value[..len], b"b");
            Ok(())
        }
        3 => fs::set_permissions(path, fs::Permissions::from_mode(0o640)),
        4 => OpenOptions::new().append(true).open(path).map(drop),
        5 => {
            let mut file = File::open(path)?;
            // The file that has the name by now.
            fs::metadata(path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            file.metadata()?;
            check_version(&bytes)
        }
        _ => fs::read_dir(path.parent().unwrap())?.try_for_each(|entry| entry.map(drop)),
    }
}

fn replace_files(dir: &Path, options: &str) {
    let target = dir.join("target");
    let make = |name: &Path, thread, round| {
        // After an exchange there is the old target, which others may be reading.
        let _ = fs::remove_file(name);
        fs::write(name, version(thread, round))?;
        rustix::fs::setxattr(name, "user.a", b"b", XattrFlags::empty()).map_err(io::Error::from)
    };
    make(&target, 0, 0).unwrap();
    let replace = |thread, round| -> io::Result<()> {
        let name = dir.join(format!("new{thread}"));
        make(&name, thread, round)?;
        match round % 5 {
            0 => {
                // Its inode lives on under another name.
                let kept = dir.join(format!("kept{thread}"));
                let _ = fs::remove_file(&kept);
                fs::hard_link(&name, &kept)?;
            }
            1 => {
                return Ok(rustix::fs::renameat_with(CWD, &name, CWD, &target, RenameFlags::EXCHANGE)?);
            }
            _ => {}
        }
        fs::rename(&name, &target)
    };
    race(&format!("{options}: renames over a file"), &replace, &|thread, round| look_at(&target, thread + round));
}

fn replace_links(dir: &Path, options: &str) {
    let link = dir.join("link");
    fs::write(dir.join("one"), b"one").unwrap();
    symlink("one", &link).unwrap();
    let replace = |thread, _| {
        let name = dir.join(format!("newlink{thread}"));
        symlink("one", &name)?;
        fs::rename(&name, &link)
    };
    race(&format!("{options}: renames over a link"), &replace, &|_, round| match round % 3 {
        0 => fs::read_link(&link).map(|target| assert_eq!(target, Path::new("one"))),
        1 => fs::read(&link).map(|bytes| assert_eq!(bytes, b"one")),
        _ => fs::symlink_metadata(&link).map(drop),
    });
}

fn replace_directories(dir: &Path, options: &str) {
    let target = dir.join("directory");
    fs::create_dir(&target).unwrap();
    let replace = |thread, _| {
        let name = dir.join(format!("newdir{thread}"));
        fs::create_dir(&name)?;
        fs::rename(&name, &target)
    };
    race(&format!("{options}: renames over a directory"), &replace, &|_, round| match round % 3 {
        0 => fs::read_dir(&target)?.try_for_each(|entry| entry.map(drop)),
        1 => File::open(&target)?.metadata().map(drop),
        _ => fs::metadata(&target).map(drop),
    });
}

fn remove_and_create(dir: &Path, options: &str) {
    let file = dir.join("comes and goes");
    let remove = |_, _| match fs::remove_file(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    race(&format!("{options}: O_CREAT beside unlink"), &remove, &|_, _| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&file)?;
        file.write_all(b"contents")?;
        let len = file.metadata()?.size();
        assert_eq!(len, 8);
        Ok(())
    });
}

#[test]
fn nobody_notices_that_a_name_is_replaced() {
    if !can_mount() {
        return;
    }
    for options in ["workers=2", "writeback", "zero_open", "io_uring"] {
        let mounted = Mounted::mount(&format!("-o {options}"));
        let dir = mounted.dir();
        replace_files(&dir, options);
        replace_links(&dir, options);
        replace_directories(&dir, options);
        remove_and_create(&dir, options);
        mounted.unmount();
        mounted.bench.check("a.img");
    }
}
