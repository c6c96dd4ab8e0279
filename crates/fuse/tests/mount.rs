//! Programs on a mount, with the file system in memory behind it.

mod common;
#[path = "mount/direct.rs"]
mod direct;
#[path = "mount/mapped.rs"]
mod mapped;
#[path = "mount/synced.rs"]
mod synced;

use common::Mounted;
use fuse::{Connection, ServerOptions, Transport};
use rustix::fs::{AtFlags, CWD, FallocateFlags, IFlags, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Options of serving that must behave the same.
fn all_ways() -> Vec<ServerOptions> {
    let plain = ServerOptions::default();
    let ring = ServerOptions {
        // If the kernel refuses the ring, the device is used again.
        transport: Transport::Ring,
        ..plain.clone()
    };
    vec![
        plain.clone(),
        ServerOptions { writeback: true, ..plain.clone() },
        ServerOptions { zero_open: true, near: false, workers: 3, ..plain.clone() },
        ServerOptions { request_bytes_max: 4096, workers: 1, ..plain },
        ServerOptions { writeback: true, ..ring.clone() },
        ring,
    ]
}

fn on_all_ways(test: impl Fn(&Mounted)) {
    for options in all_ways() {
        let Some(mounted) = Mounted::new(options.clone()) else {
            return;
        };
        eprintln!("{options:?}");
        test(&mounted);
        mounted.unmount();
    }
}

#[test]
fn files_are_written_read_and_listed() {
    on_all_ways(|mounted| {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1] ^ 7).collect();
        let path = mounted.path("file");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(fs::metadata(&path).unwrap().len(), 3_000_000);
        fs::create_dir(mounted.path("dir")).unwrap();
        for index in 0..1500 {
            fs::write(mounted.path(&format!("dir/{index:0100}")), b"x").unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(mounted.path("dir"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(names.len(), 1500);
        assert_eq!(names[1499], format!("{:0100}", 1499));
        let error = fs::remove_dir(mounted.path("dir")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
        fs::remove_dir_all(mounted.path("dir")).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 0);
    });
}

#[test]
fn names_are_moved_and_linked() {
    on_all_ways(|mounted| {
        let (a, b) = (mounted.path("a"), mounted.path("b"));
        fs::write(&a, b"a").unwrap();
        fs::hard_link(&a, &b).unwrap();
        assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
        fs::remove_file(&a).unwrap();
        assert_eq!(fs::metadata(&b).unwrap().nlink(), 1);
        fs::write(&a, b"new").unwrap();
        let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(&b).unwrap(), b"new");
        if rustix::process::geteuid().is_root() {
            rename(RenameFlags::WHITEOUT).unwrap();
            let whiteout = fs::metadata(&a).unwrap();
            assert_eq!((whiteout.mode() & 0o170_000, whiteout.rdev()), (0o020_000, 0));
        }
        symlink("b", mounted.path("link")).unwrap();
        assert_eq!(fs::read_link(mounted.path("link")).unwrap().to_str(), Some("b"));
        let long = "n".repeat(255);
        fs::write(mounted.path(&long), b"").unwrap();
        let error = fs::write(mounted.path(&format!("{long}n")), b"").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
        let error = File::create_new(mounted.path(&long)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EXIST.raw_os_error()));
    });
}

#[test]
fn a_file_without_name_gets_one() {
    on_all_ways(|mounted| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = rustix::fs::open(mounted.root(), flags, Mode::from_raw_mode(0o600)).unwrap();
        rustix::io::write(&file, b"unnamed").unwrap();
        let path = mounted.path("named");
        let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, proc.as_str(), CWD, &path, AtFlags::SYMLINK_FOLLOW).unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"unnamed");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    });
}

#[test]
fn a_removed_file_stays_while_it_is_open() {
    on_all_ways(|mounted| {
        let path = mounted.path("open");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).open(&path).unwrap();
        file.write_all_at(b"kept", 0).unwrap();
        fs::remove_file(&path).unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, file.metadata().unwrap().nlink()), (b"kept", 0));
    });
}

#[test]
fn space_is_allocated_punched_and_sought() {
    on_all_ways(|mounted| {
        let mut options = OpenOptions::new();
        // A descriptor that permits mapping for writing may get less exact answers (see `mapped`).
        let file = options.write(true).create(true).open(mounted.path("f")).unwrap();
        let reader = File::open(mounted.path("f")).unwrap();
        file.write_all_at(&[1; 65536], 0).unwrap();
        file.sync_all().unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 8192, 8192).unwrap();
        if mounted.is_writeback || mounted.is_zero_open {
            // Data that only the kernel has must not be reported as a hole.
            file.write_all_at(&[1; 4096], 61440).unwrap();
            assert_eq!(rustix::fs::seek(&reader, SeekFrom::Data(61440)), Ok(61440));
        } else {
            assert_eq!(rustix::fs::seek(&reader, SeekFrom::Hole(0)), Ok(8192));
            assert_eq!(rustix::fs::seek(&reader, SeekFrom::Data(8192)), Ok(16384));
        }
        assert_eq!(rustix::fs::seek(&reader, SeekFrom::Data(65536)), Err(Errno::NXIO));
        let mut bytes = [9; 8192];
        reader.read_exact_at(&mut bytes, 8192).unwrap();
        assert_eq!(bytes, [0; 8192]);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 65536, 4096).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 69632);
        let collapse = FallocateFlags::COLLAPSE_RANGE;
        assert_eq!(rustix::fs::fallocate(&file, collapse, 0, 4096), Err(Errno::OPNOTSUPP));
        let copy = File::create_new(mounted.path("copy")).unwrap();
        let (mut from, mut to) = (0, 0);
        let copied = rustix::fs::copy_file_range(&reader, Some(&mut from), &copy, Some(&mut to), 65536);
        assert_eq!(copied, Ok(65536));
        let copied = fs::read(mounted.path("copy")).unwrap();
        assert_eq!((copied.len(), copied[0], copied[8192], copied[16384]), (65536, 1, 0, 1));
        file.set_len(100).unwrap();
        assert_eq!(fs::read(mounted.path("f")).unwrap(), [1; 100]);
    });
}

#[test]
fn attributes_are_kept() {
    on_all_ways(|mounted| {
        let path = mounted.path("f");
        fs::write(&path, b"").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let times = fs::FileTimes::new()
            .set_accessed(std::time::UNIX_EPOCH + Duration::from_secs(5))
            .set_modified(std::time::UNIX_EPOCH + Duration::new(7, 9));
        File::open(&path).unwrap().set_times(times).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode(), metadata.atime()), (0o100_640, 5));
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (7, 9));
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let statx = rustix::fs::statx(CWD, &path, AtFlags::empty(), mask).unwrap();
        assert!(statx.stx_mask & StatxFlags::BTIME.bits() != 0);
        assert!(statx.stx_btime.tv_sec > 1_500_000_000);
        let status = rustix::fs::statvfs(mounted.root()).unwrap();
        assert_eq!(status.f_namemax, 255);
    });
}

#[test]
fn extended_attributes_and_acls_are_kept() {
    on_all_ways(|mounted| {
        let path = mounted.path("f");
        fs::write(&path, b"").unwrap();
        rustix::fs::setxattr(&path, "user.a", &[7; 3000], XattrFlags::CREATE).unwrap();
        let again = rustix::fs::setxattr(&path, "user.a", b"x", XattrFlags::CREATE);
        assert_eq!(again, Err(Errno::EXIST));
        assert_eq!(rustix::fs::getxattr_query(&path, "user.a"), Ok(3000));
        let mut value = vec![0; 4000];
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..2]), Err(Errno::RANGE));
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..]), Ok(3000));
        assert_eq!(value[..3000], [7; 3000]);
        assert_eq!(rustix::fs::listxattr_query(&path), Ok(7));
        let len = rustix::fs::listxattr(&path, &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"user.a\0");
        rustix::fs::removexattr(&path, "user.a").unwrap();
        let gone = rustix::fs::getxattr(&path, "user.a", &mut value[..]);
        assert_eq!(gone, Err(Errno::NODATA));
        // Owner rwx, user 65534 r, group r, mask r, others nothing.
        let entry =
            |tag: u16, perm: u16, id: u32| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat();
        let nobody = u32::MAX;
        let acl = [
            2_u32.to_le_bytes().to_vec(),
            entry(1, 7, nobody),
            entry(2, 4, 65534),
            entry(4, 4, nobody),
            entry(16, 4, nobody),
            entry(32, 0, nobody),
        ]
        .concat();
        let dir = mounted.path("dir");
        fs::create_dir(&dir).unwrap();
        rustix::fs::setxattr(&dir, "system.posix_acl_default", &acl, XattrFlags::empty()).unwrap();
        fs::write(dir.join("child"), b"").unwrap();
        assert_eq!(fs::metadata(dir.join("child")).unwrap().mode() & 0o777, 0o640);
        let len = rustix::fs::getxattr(dir.join("child"), "system.posix_acl_access", &mut value[..]);
        assert_eq!(len, Ok(acl.len()));
    });
}

#[test]
fn flags_are_kept_and_enforced() {
    on_all_ways(|mounted| {
        let path = mounted.path("f");
        fs::write(&path, b"12").unwrap();
        let file = File::open(&path).unwrap();
        let before = file.metadata().unwrap();
        assert_eq!(rustix::fs::ioctl_getflags(&file), Ok(IFlags::empty()));
        std::thread::sleep(Duration::from_millis(20));
        rustix::fs::ioctl_setflags(&file, IFlags::NODUMP).unwrap();
        assert_eq!(rustix::fs::ioctl_getflags(&file), Ok(IFlags::NODUMP));
        let after = file.metadata().unwrap();
        // With a writeback cache the kernel keeps the times of files itself, and forgets this one.
        if !mounted.is_writeback {
            assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
        }
        if rustix::process::geteuid().is_root() {
            rustix::fs::ioctl_setflags(&file, IFlags::IMMUTABLE).unwrap();
            let error = fs::write(&path, b"3").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
            rustix::fs::ioctl_setflags(&file, IFlags::empty()).unwrap();
        }
        fs::write(&path, b"3").unwrap();
    });
}

#[test]
fn writers_append_without_losing_anything() {
    on_all_ways(|mounted| {
        let path = mounted.path("log");
        std::thread::scope(|scope| {
            for id in 0..4_u8 {
                let path = &path;
                scope.spawn(move || {
                    let mut options = OpenOptions::new();
                    let mut file = options.append(true).create(true).open(path).unwrap();
                    for _ in 0..200 {
                        file.write_all(&[id; 100]).unwrap();
                    }
                });
            }
        });
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 80_000);
        for id in 0..4_u8 {
            assert_eq!(bytes.iter().filter(|byte| **byte == id).count(), 20_000);
        }
        assert!(bytes.chunks(100).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])));
    });
}

#[test]
fn direct_and_cached_io_see_each_other() {
    on_all_ways(|mounted| {
        let path = mounted.path("f");
        let direct = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(&path)
            .unwrap();
        let cached = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let big = Aligned(Box::new(Page([3; 65536])));
        direct.write_all_at(&big.0.0, 0).unwrap();
        cached.write_all_at(b"cached", 4096).unwrap();
        let mut back = Aligned(Box::new(Page([0; 65536])));
        direct.read_exact_at(&mut back.0.0[..8192], 0).unwrap();
        assert_eq!(&back.0.0[4094..4104], b"\x03\x03cached\x03\x03");
        direct.write_all_at(&[5; 65536][..0], 0).unwrap();
        let mut some = [0; 10];
        cached.read_exact_at(&mut some, 65526).unwrap();
        assert_eq!(some, [3; 10]);
    });
}

#[repr(align(4096))]
struct Page([u8; 65536]);
struct Aligned(Box<Page>);

#[test]
fn synchronous_writes_are_durable() {
    on_all_ways(|mounted| {
        for (flags, name) in [
            (0o4_010_000, "O_SYNC"),
            (0o10_000, "O_DSYNC"),
            (0o4_010_000 | OFlags::DIRECT.bits(), "O_SYNC|O_DIRECT"),
            (0o10_000 | OFlags::DIRECT.bits(), "O_DSYNC|O_DIRECT"),
        ] {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .custom_flags(flags.cast_signed())
                .open(mounted.path(name))
                .unwrap();
            mounted.fs.take();
            let page = Aligned(Box::new(Page([1; 65536])));
            file.write_all_at(&page.0.0[..4096], 0).unwrap();
            let counts = mounted.fs.take();
            assert_eq!(counts.get("sync_file"), Some(&1), "{name}: {counts:?}");
        }
    });
}

/// Copies within the file system, as another user than its owner.
const COPY: &str = "python3 -c \"
import os
f, t = os.open('source', os.O_RDONLY), os.open('program', os.O_WRONLY)
os.copy_file_range(f, t, 4096)\"";

/// Makes a program of root's with each of some modes, runs a command as user and group 65534 that writes to it, and
/// reads the mode: command, before, after. The program has this group.
fn check_writes_of_another(mounted: &Mounted, group: u32, cases: &[(&str, u32, u32)]) -> std::io::Result<()> {
    let path = mounted.path("program");
    for (command, before, expected) in cases {
        fs::write(&path, [b'x'; 8192])?;
        fs::write(mounted.path("source"), [b'y'; 8192])?;
        std::os::unix::fs::chown(&path, None, Some(group))?;
        fs::set_permissions(&path, PermissionsExt::from_mode(*before))?;
        let mut writer = Command::new("sh");
        writer.args(["-c", command]).current_dir(mounted.root()).uid(65534).gid(65534);
        assert!(writer.status()?.success(), "{command}");
        let mode = fs::metadata(&path)?.mode() & 0o7777;
        assert_eq!(mode, *expected, "{command}, {before:o}");
    }
    Ok(())
}

#[test]
fn a_writer_without_rights_clears_set_user_bits() {
    on_all_ways(|mounted| {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can act as another user");
            return;
        }
        fs::set_permissions(mounted.root(), PermissionsExt::from_mode(0o777)).unwrap();
        let path = mounted.path("program");
        let direct = "dd if=/dev/zero of=program bs=4096 count=1 conv=notrunc oflag=direct status=none";
        let cases = [
            ("echo more >> program", 0o6777, 0o777),
            (": > program", 0o6777, 0o777),
            ("true", 0o6777, 0o6777),
            // The kernel leaves the bits to the server, and ran the program with them until it asked anew.
            (direct, 0o6777, 0o777),
            (direct, 0o2666, 0o666),
            ("truncate -s 5 program", 0o6777, 0o777),
            ("truncate -s 5 program", 0o2666, 0o666),
            ("echo more >> program", 0o2666, 0o666),
            ("fallocate -l 9000 program", 0o6777, 0o777),
            ("fallocate -l 9000 program", 0o2666, 0o666),
            ("fallocate -n -l 9000 program", 0o2666, 0o666),
            ("fallocate -p -l 4096 program", 0o6777, 0o777),
            ("fallocate -z -l 4096 program", 0o6777, 0o777),
            (COPY, 0o6777, 0o777),
            (COPY, 0o2666, 0o666),
        ];
        check_writes_of_another(mounted, 0, &cases).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
        rustix::fs::chown(&path, None, None).unwrap();
        std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
    });
}

/// A member of the file's group keeps a set-group bit that is no privilege, as on any Linux file system; a write
/// cleared it for all users.
#[test]
fn a_member_who_writes_leaves_set_group_without_group_execution() {
    on_all_ways(|mounted| {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can act as another user");
            return;
        }
        fs::set_permissions(mounted.root(), PermissionsExt::from_mode(0o777)).unwrap();
        let cases = [
            ("echo more >> program", 0o2666, 0o2666),
            ("echo more >> program", 0o6767, 0o2767),
            ("echo more >> program", 0o6777, 0o777),
            ("echo more > program", 0o2666, 0o2666),
            ("dd if=/dev/zero of=program bs=4096 count=1 conv=notrunc oflag=direct status=none", 0o6767, 0o2767),
            ("truncate -s 5 program", 0o2666, 0o2666),
        ];
        check_writes_of_another(mounted, 65534, &cases).unwrap();
    });
}

/// The kernel kept its cached mode after a direct write: a user who may write to a program then ran it as its owner.
#[test]
fn a_program_that_another_user_wrote_does_not_run_as_its_owner() {
    on_all_ways(|mounted| {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can act as another user");
            return;
        }
        fs::set_permissions(mounted.root(), PermissionsExt::from_mode(0o777)).unwrap();
        let path = mounted.path("id");
        fs::copy("/usr/bin/id", &path).unwrap();
        let write = "dd if=/usr/bin/id of=id bs=4096 count=1 conv=notrunc status=none";
        for (command, expected) in [
            ("./id -u".to_owned(), "0"),
            (format!("{write} oflag=direct && ./id -u"), "65534"),
            (format!("{write} && ./id -u"), "65534"),
            (format!("{write} oflag=direct,dsync && ./id -u"), "65534"),
            (format!("exec 3<>id; {write} oflag=direct; exec 3>&-; ./id -u"), "65534"),
        ] {
            fs::set_permissions(&path, PermissionsExt::from_mode(0o4777)).unwrap();
            let mut stranger = Command::new("sh");
            stranger.args(["-c", &command]).current_dir(mounted.root()).uid(65534).gid(65534);
            let output = stranger.output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{command}: {error}");
        }
    });
}

#[test]
fn others_are_kept_out() {
    let Some(mounted) = Mounted::new(ServerOptions::default()) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can act as another user");
        return;
    }
    fs::set_permissions(mounted.root(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(mounted.path("secret"), b"x").unwrap();
    fs::set_permissions(mounted.path("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    for command in ["cat secret", "echo > new", "rm -f secret", "chmod 777 secret"] {
        let status = Command::new("sh")
            .args(["-c", command])
            .current_dir(mounted.root())
            .uid(65534)
            .gid(65534)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(!status.success(), "{command}");
    }
    mounted.unmount();
}

#[test]
fn a_lazy_unmount_ends_the_server_when_the_last_file_is_closed() {
    let Some(mut mounted) = Mounted::new(ServerOptions::default()) else {
        return;
    };
    let mut file = File::create_new(mounted.path("f")).unwrap();
    fuse::unmount(mounted.root(), true).unwrap();
    file.write_all(b"still there").unwrap();
    mounted.fs.take();
    drop(file);
    let start = Instant::now();
    mounted.wait().unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(mounted.fs.take().get("sync_fs"), Some(&1));
}

#[test]
fn a_client_may_die_at_any_time() {
    let Some(mounted) = Mounted::new(ServerOptions::default()) else {
        return;
    };
    for round in 0..5 {
        let mut client = Command::new("sh")
            .args(["-c", "i=0; while :; do echo $i > f$i; cat f$i > /dev/null; i=$((i+1)); done"])
            .current_dir(mounted.root())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20 + 13 * round));
        client.kill().unwrap();
        client.wait().unwrap();
    }
    let mut text = String::new();
    let mut file = File::open(mounted.path("f0")).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert!(text.is_empty() || text == "0\n");
    drop(file);
    mounted.unmount();
}

#[test]
fn a_mount_on_an_anchor_is_synced_as_a_whole() {
    let may_mount = rustix::process::geteuid().is_root();
    if !may_mount || !std::path::Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: needs root and loop devices");
        return;
    }
    let options = ServerOptions::default();
    let backing = tempfile::NamedTempFile::new().unwrap();
    backing.as_file().set_len(8192).unwrap();
    let mount = |dir: &std::path::Path, options: &fuse::MountOptions| {
        Connection::mount_synced(dir, options, backing.as_file().as_fd())
    };
    let Some(mut mounted) = Mounted::with(options, mount) else {
        return;
    };
    let file = File::create_new(mounted.path("f")).unwrap();
    let device = file.metadata().unwrap().dev();
    mounted.fs.take();
    rustix::fs::syncfs(&file).unwrap();
    assert_eq!(mounted.fs.take().get("sync_fs"), Some(&1));
    drop(file);
    let line = fs::read_to_string(format!("/sys/dev/block/7:{}/size", rustix::fs::minor(device)));
    assert_eq!(line.unwrap().trim(), "8", "sectors");
    // Data is durable when unmounting returns only because the kernel waited.
    fuse::unmount(mounted.root(), false).unwrap();
    assert!(mounted.fs.take().contains_key("sync_fs"));
    mounted.wait().unwrap();
    let loop_file = format!("/sys/dev/block/7:{}/loop/backing_file", rustix::fs::minor(device));
    let start = Instant::now();
    let is_anchor = |text: String| text.trim_end() == backing.path().to_str().unwrap();
    while fs::read_to_string(&loop_file).is_ok_and(is_anchor) {
        assert!(start.elapsed() < Duration::from_secs(5), "{loop_file} is left behind");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_name_that_a_control_made_is_seen_at_once() {
    let program = "open(D, '<', $ARGV[0]) or die; $a = \"made\\0\\0\\0\\0\"; \
        ioctl(D, $ARGV[1], $a) or die";
    on_all_ways(|mounted| {
        let dir = mounted.path("dir");
        let made = dir.join("made");
        fs::create_dir(&dir).unwrap();
        assert!(!made.exists());
        let client =
            Command::new("perl").args(["-e", program]).arg(&dir).arg(common::MAKE_DIRECTORY.to_string()).status();
        match client {
            Ok(status) => assert!(status.success()),
            Err(error) => return eprintln!("skipped: no perl to ask with: {error}"),
        }
        assert!(made.is_dir());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    });
}
