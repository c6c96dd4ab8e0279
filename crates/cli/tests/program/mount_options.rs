//! Options in lines of fstab: those of mount(8) for every file system, and those of the kernel's btrfs. A mount has to
//! accept them, because the kernel does.

use std::fs;

use crate::mounted::{KernelMount, Mounted, can_mount_as_root};

#[test]
fn options_of_every_file_system_are_taken_as_the_kernel_takes_them() {
    if !can_mount_as_root() {
        return;
    }
    let mounted = Mounted::new();
    let kernel = mounted.bench.path("kernel");
    for option in [
        "defaults",
        "lazytime",
        "nolazytime",
        "iversion",
        "noiversion",
        "nosymfollow",
        "symfollow",
        "ssd",
        "nossd",
        "space_cache=v2",
        "acl",
        "noautodefrag",
        "thread_pool=4",
        "ro,norecovery",
        "ro,nologreplay",
        "ro,rescue=nologreplay",
        "ro,rescue=all",
        "ro,usebackuproot",
        "ro,rescue=usebackuproot:ibadroots:idatacsums",
    ] {
        let taken = KernelMount::with(&mounted.bench.path("a.img"), kernel.clone(), &format!("loop,{option}"));
        // Kernels differ in these words.
        let is_old = ["symfollow", "ro,nologreplay"].contains(&option) || option.contains(':');
        assert!(taken.is_some() || is_old, "the kernel refuses {option}");
        drop(taken);
        mounted.bench.ok(&format!("mount -o {option} a.img mnt"));
        if option == "nosymfollow" {
            std::os::unix::fs::symlink("target", mounted.dir().join("link")).unwrap();
            fs::write(mounted.dir().join("target"), "").unwrap();
            let refused = fs::read(mounted.dir().join("link")).unwrap_err();
            assert_eq!(rustix::io::Errno::from_io_error(&refused), Some(rustix::io::Errno::LOOP));
        }
        mounted.unmount();
    }
}

#[test]
fn rescue_shows_damaged_data_and_goes_back_to_an_earlier_commit() {
    if !can_mount_as_root() {
        return;
    }
    let mounted = Mounted::new();
    let bench = &mounted.bench;
    fs::write(bench.path("file"), [7; 8192]).unwrap();
    bench.ok("put -q a.img file /");
    bench.ok("mkdir a.img /later");
    let sector = *bench.sectors_of("a.img", &[7; 4096]).first().unwrap();
    bench.rot("a.img", sector);
    bench.ok("mount -o ro a.img mnt");
    assert!(fs::read(mounted.dir().join("file")).is_err());
    mounted.unmount();
    bench.ok("mount -o ro,rescue=idatacsums a.img mnt");
    assert_eq!(fs::read(mounted.dir().join("file")).unwrap().len(), 8192);
    mounted.unmount();

    // The root of the root tree, on both mirrors.
    let tree = bench.json("dump super --json a.img");
    let (root, generation) = (tree["copies"][0]["root"].as_u64(), tree["copies"][0]["generation"].as_u64());
    let (root, generation) = (root.unwrap_or_else(|| panic!("{tree}")), generation.unwrap());
    let mut wanted = [0; 8];
    wanted.copy_from_slice(&root.to_le_bytes());
    let mut bytes = fs::read(bench.path("a.img")).unwrap();
    for block in bytes.chunks_mut(4096).skip(32) {
        let is_root = block[48..56] == wanted && block[80..88] == generation.to_le_bytes();
        if is_root {
            block[200] ^= 1;
        }
    }
    fs::write(bench.path("a.img"), bytes).unwrap();
    assert_eq!(bench.run("mount -o ro a.img mnt").status, 3);
    bench.ok("mount -o ro,rescue=usebackuproot a.img mnt");
    assert!(mounted.dir().join("file").exists());
    mounted.unmount();
}
