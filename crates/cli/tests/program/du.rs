//! `spinney du` and `btrfs filesystem du` report the same for the same image.
//!
//! If the kernel's btrfs cannot mount the image, these tests compare only their own results.

use std::process::Command;

use crate::harness::Bench;
use crate::mounted::{KernelMount, Mounted};

/// Makes files of every kind in a subvolume, and snapshots of it that are partly overwritten.
const SCENE: &str = r#"
set -e
btrfs -q subvolume create sv
cd sv
mkdir d
head -c 3000000 /dev/urandom > plain
head -c 100000 /dev/urandom > first; ln first second; ln first d/third
cp --reflink=always plain reflink
head -c 2097152 /dev/urandom > part; sync
python3 -c "
import fcntl, os, struct
def clone(source, target, offset, len, to):
    fcntl.ioctl(target, 0x4020940d, struct.pack('<qQQQ', source, offset, len, to))
part = os.open('part', os.O_RDONLY)
clone(part, os.open('partial', os.O_RDWR | os.O_CREAT), 0, 262144, 1048576)
own = os.open('own', os.O_RDWR | os.O_CREAT)
os.write(own, os.urandom(524288)); os.fsync(own)
clone(own, own, 0, 131072, 1048576)"
echo small > inline; : > empty; ln -s plain link; mkfifo fifo; truncate -s 100M sparse
fallocate -l 4M preallocated; : > beyond; fallocate -n -l 1M beyond
dd if=/dev/urandom of=preallocated bs=64k seek=3 count=4 conv=notrunc status=none
: > text; chattr +c text; yes 'a text that becomes smaller' | head -c 3000000 > text; cp --reflink=always text text-2
dd if=/dev/urandom of=over bs=1M count=2 status=none; sync
dd if=/dev/urandom of=over bs=4k seek=100 count=10 conv=notrunc status=none
for i in $(seq 1200); do echo $i > d/f$i; done
for i in $(seq 200); do head -c 5000 /dev/urandom > d/g$i; done
sync; cd ..
btrfs -q subvolume snapshot sv snap
btrfs -q subvolume snapshot -r sv sv/nested
dd if=/dev/urandom of=snap/plain bs=64k seek=2 count=3 conv=notrunc status=none
dd if=/dev/urandom of=sv/d/g7 bs=4k count=1 conv=notrunc status=none
head -c 9000 /dev/urandom > sv/d/new; rm snap/d/g9
dd if=/dev/urandom of=sv/part bs=128k seek=1 count=3 conv=notrunc status=none
sync
"#;

impl KernelMount {
    fn du(&self, words: &[&str]) -> Vec<String> {
        let mut command = Command::new("btrfs");
        let output = command.args(["filesystem", "du", "--raw"]).args(words).current_dir(&self.0).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        lines(&String::from_utf8_lossy(&output.stdout))
    }
}

/// Numbers and names, without the line above them.
fn lines(said: &str) -> Vec<String> {
    said.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn du_says_what_btrfs_progs_say() {
    let Some(mounted) = Mounted::if_possible() else {
        return;
    };
    let bench = &mounted.bench;
    bench.ok("mkfs -q -f --size 512M a.img");
    let Some(kernel) = KernelMount::of(&bench.path("a.img"), bench.path("kernel")) else {
        eprintln!("SKIPPED: the kernel's btrfs is not here");
        return;
    };
    let made = Command::new("bash").args(["-c", SCENE]).current_dir(&kernel.0).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let each = ["sv", "snap", "sv/plain", "sv/first", "sv/d", "sv/link", "sv/inline", "sv/text", "sv/nested"];
    let all = kernel.du(&["."]);
    let (some, sums) = (kernel.du(&each), kernel.du(&[&["-s"][..], &each].concat()));
    assert!(all.len() > 4000 && sums.len() == each.len(), "{sums:?}");
    drop(kernel);
    let of_image = |words: &[&str]| {
        let run = bench.run_words(&[&["du", "--raw", "a.img"][..], words].concat());
        assert_eq!(run.status, 0, "{}", run.err);
        lines(&String::from_utf8_lossy(&run.out))
    };
    assert_eq!(of_image(&each), some);
    assert_eq!(of_image(&[&["-s"][..], &each].concat()), sums);
    let of_all = of_image(&["."]);
    assert_eq!(of_all.iter().map(|line| line.replace(" ./", " ")).collect::<Vec<_>>(), without_dots(&all));
    // The server of a mount reports the same.
    bench.ok("mount -o noatime a.img mnt");
    let said = bench.ok("du --raw mnt");
    let of_mount: Vec<String> = lines(&said).iter().map(|line| line.replace(" mnt/", " ")).collect();
    let same = all.len() - 1;
    assert_eq!(of_mount[..same], without_dots(&all)[..same]);
    let numbers = |line: &String| line.rsplit_once(' ').unwrap().0.to_owned();
    assert_eq!(of_mount.last().map(numbers), all.last().map(numbers));
    mounted.unmount();
}

fn without_dots(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.replace(" ./", " ")).collect()
}

#[test]
fn du_reports_as_json_and_refuses_what_is_not_there() {
    let bench = Bench::new();
    bench.filled_image();
    let rows = bench.json("du --json a.img");
    let rows = rows.as_array().unwrap();
    let (last, rest) = rows.split_last().unwrap();
    assert_eq!((last["path"].as_str(), last["set_shared_bytes"].as_u64()), (Some("/"), Some(0)));
    let sum: u64 = rest.iter().filter_map(|row| row["total_bytes"].as_u64()).max().unwrap();
    assert!(last["total_bytes"].as_u64().unwrap() >= sum);
    assert_eq!(last["exclusive_bytes"], last["total_bytes"]);
    assert!(rest.iter().all(|row| row["set_shared_bytes"].is_null()));
    let run = bench.run("du a.img /missing");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("/missing"), "{}", run.err);
}
