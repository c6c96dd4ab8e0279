//! Mounts whose processes die while files are written, and images with damage: synced data is there, and sound files
//! can be read.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::IFlags;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::harness::pattern;
use crate::mounted::{Mounted, can_mount, kill};

/// Longest time for a server with little to write.
const SOON: Duration = Duration::from_secs(1);
/// Additional time on a loaded machine.
const SLACK: Duration = Duration::from_secs(2);
/// Bytes between two syncs.
const PIECE: usize = 3001;
const NODE_BYTES: usize = 16 << 10;

/// Writes and syncs until the mount fails; returns the number of synced pieces.
fn write_until_the_end(path: PathBuf) -> JoinHandle<usize> {
    std::thread::spawn(move || {
        let piece = pattern(PIECE);
        let mut promised = 0;
        let Ok(mut file) = File::create(path) else {
            return 0;
        };
        while file.write_all(&piece).is_ok() && file.sync_all().is_ok() {
            promised += 1;
        }
        promised
    })
}

#[test]
fn whoever_is_signalled_the_server_ends_soon_and_keeps_what_was_synced() {
    if !can_mount() {
        return;
    }
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::KILL];
    for role in ["server", "supervisor"] {
        for signal in signals {
            let mounted = Mounted::mount_in_memory();
            let writer = write_until_the_end(mounted.dir().join("file"));
            std::thread::sleep(Duration::from_millis(150));
            let start = Instant::now();
            kill(mounted.processes(role)[0], signal);
            if (role, signal) == ("supervisor", Signal::KILL) {
                // Without the supervisor the server goes on until the mount is unmounted.
                mounted.bench.ok("umount --lazy mnt");
                kill(mounted.processes("server")[0], Signal::TERM);
            }
            mounted.wait_until_gone();
            let took = start.elapsed();
            assert!(took < SOON + SLACK, "{role}, {signal:?}: {took:?}");
            let promised = writer.join().unwrap();
            assert!(promised > 0, "{role}, {signal:?}");
            mounted.check_and_mount_again();
            let found = fs::read(mounted.dir().join("file")).unwrap();
            assert!(found.len() >= promised * PIECE, "{role}, {signal:?}");
            let wanted = pattern(PIECE).repeat(promised);
            assert!(found.starts_with(&wanted), "{role}, {signal:?}");
            mounted.unmount();
        }
    }
}

#[test]
fn a_supervisor_that_is_late_leaves_the_mounts_of_others_alone() {
    if !can_mount() {
        return;
    }
    let first = Mounted::mount_in_memory();
    let supervisor = first.processes("supervisor")[0];
    kill(supervisor, Signal::STOP);
    kill(first.processes("server")[0], Signal::KILL);
    let unmounted = Command::new("umount").arg("--lazy").arg(first.dir()).status().unwrap();
    assert!(unmounted.success());
    // A new mount often gets the device number that is free now.
    let second = Mounted::mount_in_memory();
    kill(supervisor, Signal::CONT);
    first.wait_until_gone();
    fs::write(second.dir().join("file"), b"contents").unwrap();
    assert!(second.is_mounted(), "it was unmounted by the other one's supervisor");
    second.unmount();
}

#[test]
fn who_keeps_a_mount_busy_is_told() {
    let Some(mounted) = Mounted::mount_if_possible("") else {
        return;
    };
    let file = File::create(mounted.dir().join("file")).unwrap();
    let mut waiting = Command::new("sleep").arg("100").current_dir(mounted.dir()).spawn().unwrap();
    let run = mounted.bench.run("umount mnt");
    assert!(run.status != 0 && mounted.is_mounted());
    assert!(run.err.contains(&format!("sleep ({})", waiting.id())), "{}", run.err);
    assert!(run.err.contains(&format!("({})", std::process::id())), "{}", run.err);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    drop(file);
    mounted.unmount();
}

#[test]
fn a_lazily_unmounted_mount_keeps_what_its_last_users_sync() {
    let Some(mounted) = Mounted::mount_if_possible("") else {
        return;
    };
    let mut file = File::create(mounted.dir().join("file")).unwrap();
    let gone = File::create(mounted.dir().join("gone")).unwrap();
    fs::remove_file(mounted.dir().join("gone")).unwrap();
    mounted.bench.ok("umount --lazy mnt");
    file.write_all(&pattern(50_000)).unwrap();
    file.sync_all().unwrap();
    kill(mounted.processes("server")[0], Signal::KILL);
    assert!(file.write_all(b"x").and_then(|()| file.sync_all()).is_err());
    drop((file, gone));
    mounted.wait_until_gone();
    mounted.check_and_mount_again();
    assert_eq!(fs::read(mounted.dir().join("file")).unwrap(), pattern(50_000));
    assert!(!mounted.dir().join("gone").exists());
    mounted.unmount();
}

/// With the writeback cache, what is written to a file that is then made immutable reaches the
/// server after the flag did; the kernel's own change of times was refused, and `fsync` failed.
#[test]
fn a_file_made_immutable_just_after_it_was_written_can_be_synced() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mounted = Mounted::mount("-o writeback");
    let path = mounted.dir().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&pattern(10_000)).unwrap();
    let old = rustix::fs::ioctl_getflags(&file).unwrap();
    rustix::fs::ioctl_setflags(&file, old | IFlags::IMMUTABLE).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let read = File::open(&path).unwrap();
    let refused = read.set_modified(std::time::UNIX_EPOCH).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::PERM));
    drop(read);
    mounted.unmount();
    mounted.bench.check("a.img");
    assert_eq!(mounted.bench.run("cat a.img /file").out, pattern(10_000));
}

/// An unmounted image with two folders of many files and a file with unique contents; and its bytes.
fn with_much_in_it() -> Option<(Mounted, Vec<u8>)> {
    let mounted = Mounted::if_possible()?;
    let bench = &mounted.bench;
    let name = |index: usize| format!("{index:04}-{}", "long".repeat(20));
    for folder in ["one", "two"] {
        let folder = bench.path("src").join(folder);
        fs::create_dir_all(&folder).unwrap();
        for index in 0..1500 {
            fs::write(folder.join(name(index)), format!("contents {index}")).unwrap();
        }
    }
    fs::write(bench.path("src").join("large"), marked(200_000)).unwrap();
    fs::remove_file(bench.path("a.img")).unwrap();
    bench.ok("mkfs -q --rootdir src --size 256M a.img");
    let image = fs::read(bench.path("a.img")).unwrap();
    Some((mounted, image))
}

fn marked(len: usize) -> Vec<u8> {
    b"<this is nowhere else in the image>".iter().copied().cycle().take(len).collect()
}

/// Offsets of `needle` in an image.
fn places(image: &[u8], needle: &[u8]) -> Vec<usize> {
    let is_there = |at: &usize| image.get(*at..).is_some_and(|rest| rest.starts_with(needle));
    places_of_byte(image, needle[0]).filter(is_there).collect()
}

fn places_of_byte(image: &[u8], byte: u8) -> impl Iterator<Item = usize> {
    let places = image.iter().enumerate().filter(move |(_, found)| **found == byte);
    places.map(|(at, _)| at).collect::<Vec<_>>().into_iter()
}

/// Damages `image` at one offset of every copy of a block.
fn damage(path: &Path, image: &mut [u8], places: &[usize]) {
    assert!(!places.is_empty());
    for place in places {
        image[*place] ^= 0xff;
    }
    fs::write(path, image).unwrap();
}

fn lines_with(log: &Path, word: &str) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap();
    let lines = text.lines().filter(|line| line.contains(word));
    lines.map(ToOwned::to_owned).collect()
}

fn is_eio<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::IO))
}

#[test]
fn damaged_data_is_an_error_where_it_is_and_nowhere_else() {
    let Some((mounted, mut image)) = with_much_in_it() else {
        return;
    };
    let bench = &mounted.bench;
    let first = places(&image, &marked(1000))[0];
    damage(&bench.path("a.img"), &mut image, &[first + 70_000]);
    bench.ok("mount --log log a.img mnt");
    let file = File::open(mounted.dir().join("large")).unwrap();
    let read = |offset: u64, len: usize| {
        let mut bytes = vec![0; len];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, offset).map(|()| bytes)
    };
    for _ in 0..3 {
        assert!(is_eio(read(70_000, 10)));
    }
    assert_eq!(read(0, 4096).unwrap(), marked(4096));
    assert_eq!(read(150_000, 40_000).unwrap()[..], marked(200_000)[150_000..190_000]);
    for folder in ["one", "two"] {
        for entry in fs::read_dir(mounted.dir().join(folder)).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            assert!(text.starts_with("contents "));
        }
    }
    fs::write(mounted.dir().join("new"), "written").unwrap();
    drop(file);
    mounted.unmount();
    let said = lines_with(&bench.path("log"), "corrupt data checksum");
    assert_eq!(said.len(), 1, "{:?}", fs::read_to_string(bench.path("log")));
    assert_eq!(bench.run("cat a.img /new").out, b"written");
}

#[test]
fn a_damaged_leaf_is_an_error_for_what_is_in_it_and_nothing_else() {
    let Some((mounted, mut image)) = with_much_in_it() else {
        return;
    };
    let bench = &mounted.bench;
    // The leaf with the contents of one small file, in each of its copies.
    let start_of = |at: usize| at - at % NODE_BYTES;
    let own_place = |at: usize| image[start_of(at)..][0x30..0x38].to_vec();
    let all = places(&image, b"contents 700");
    let wanted = own_place(all[0]);
    let copies: Vec<usize> = all.iter().copied().filter(|at| own_place(*at) == wanted).collect();
    damage(&bench.path("a.img"), &mut image, &copies);
    bench.ok("mount --log log a.img mnt");
    let (mut good, mut bad) = (0, 0);
    for folder in ["one", "two"] {
        for entry in fs::read_dir(mounted.dir().join(folder)).unwrap() {
            match entry.and_then(|entry| fs::read(entry.path())) {
                Ok(bytes) => {
                    assert!(bytes.starts_with(b"contents "));
                    good += 1;
                }
                Err(error) => {
                    assert!(is_eio::<()>(Err(error)));
                    bad += 1;
                }
            }
        }
    }
    // A leaf holds some dozens of such files, and every one in it is lost with it.
    assert!((1..200).contains(&bad) && good > 2700, "{good} good, {bad} bad");
    assert_eq!(fs::read(mounted.dir().join("large")).unwrap(), marked(200_000));
    mounted.unmount();
    let place = u64::from_le_bytes(wanted.try_into().unwrap()).to_string();
    let said = lines_with(&bench.path("log"), &place);
    assert_eq!(said.len(), 1, "{:?}", fs::read_to_string(bench.path("log")));
}

/// The kernel closes the files of programs a moment after they ended.
#[test]
fn what_is_busy_for_a_moment_is_unmounted_all_the_same() {
    let Some(mounted) = Mounted::mount_if_possible("") else {
        return;
    };
    let file = File::create(mounted.dir().join("file")).unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(file);
    });
    mounted.unmount();
    holder.join().unwrap();
    mounted.check_and_mount_again();
    let file = File::create(mounted.dir().join("file")).unwrap();
    let busy = mounted.bench.run("umount mnt");
    assert_eq!(busy.status, 7, "{}", busy.err);
    drop(file);
    mounted.unmount();
}
