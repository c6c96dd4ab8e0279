//! Tens of thousands of archives with wrong bytes, numbers, lengths and ends: each is read or refused, within limits of
//! time and memory, the same from a stream and from a file. `ARCHIVE_SEED` and `ARCHIVE_CASES` run others.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use crate::common::{header, sum};
use crate::exercise;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use archive::tar::{Prefix, TarWriter, WriteOptions};
use transfer::{Contents, NewNode, Stored, plain_metadata};
use vfs::file_system::{NodeKind, Time};

const CASES: u64 = 20_000;
const THREADS: u64 = 2;
/// Of processors, for all cases.
const SECONDS_MAX: u64 = 20;
/// For one case.
const MILLISECONDS_MAX: u64 = 5000;
/// Memory at its most, in KiB, as Linux counts it.
const MEMORY_KIB_MAX: u64 = 400 << 10;

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap();
        usize::try_from(self.next() % end).unwrap()
    }
}

/// Contents with a hole before them.
#[derive(Clone)]
struct Bytes(u64, Vec<u8>);

impl Contents for Bytes {
    fn next_data(&self, at: u64, size: u64) -> transfer::Result<Option<(u64, u64)>> {
        let start = at.max(self.0);
        Ok((start < size).then_some((start, size)))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> transfer::Result<usize> {
        let rest = &self.1[usize::try_from(at - self.0).unwrap()..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn size(&self) -> transfer::Result<u64> {
        Ok(self.0 + u64::try_from(self.1.len()).unwrap())
    }
}

impl Stored for Bytes {
    fn open(&self) -> transfer::Result<Box<dyn Contents + Send + Sync>> {
        Ok(Box::new(self.clone()))
    }
}

fn node(kind: NodeKind) -> NewNode {
    let attr = plain_metadata(kind, 0o644, Time::new(1_600_000_000, 5));
    NewNode { attr, target: None, xattrs: Vec::new(), contents: None }
}

fn file(hole: u64, data: &[u8]) -> NewNode {
    let mut node = node(NodeKind::File);
    node.attr.size = hole + u64::try_from(data.len()).unwrap();
    node.contents = Some(std::sync::Arc::new(Bytes(hole, data.to_vec())));
    node
}

/// An archive in PAX format with most of what there is.
fn pax() -> Vec<u8> {
    let options = WriteOptions { keeps_holes: true, prefix: Prefix::Dot, ..WriteOptions::default() };
    let mut writer = TarWriter::new(Vec::new(), options);
    let mut put = |path: &str, node: &NewNode| writer.append(Path::new(path), node).unwrap();
    put("", &node(NodeKind::Directory));
    put("d", &node(NodeKind::Directory));
    put("d/file", &file(0, b"text"));
    put("d/sparse", &file(9000, &[3; 600]));
    put(&"long/".repeat(30), &node(NodeKind::Directory));
    let mut device = node(NodeKind::CharDevice);
    device.attr.rdev = 0x105;
    put("dev", &device);
    put("link", &NewNode { target: Some(b"d".to_vec()), ..node(NodeKind::Symlink) });
    put("link/x", &file(0, b"y"));
    let mut rich = file(0, &[0; 8192]);
    rich.xattrs = vec![(b"user.a".to_vec(), b"v".to_vec()), (b"user.b%=".to_vec(), vec![1; 100])];
    put("rich", &rich);
    writer.append_link(Path::new("hard"), Path::new("d/file"), &file(0, b"")).unwrap();
    writer.finish().unwrap()
}

fn filled(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// An archive in GNU's own format: long names, the old sparse map with a block of its own, numbers in base 256.
fn gnu() -> Vec<u8> {
    let long = "n/".repeat(80);
    let mut bytes = Vec::new();
    bytes.extend(header("././@LongLink", b'L', long.len(), true, &[]));
    bytes.extend(filled(long.clone().into_bytes()));
    bytes.extend(header(&long[..99], b'5', 0, true, &[]));
    let part = |at: u32, len: u32| format!("{at:011o}\0{len:011o}\0").into_bytes();
    let parts: Vec<u8> = (0..4).flat_map(|index| part(index * 4096, 512)).collect();
    let size = b"00000100000\0";
    bytes.extend(header("sparse", b'S', 5 * 512, true, &[(386, &parts), (482, &[1]), (483, size)]));
    bytes.extend(filled(part(20_000, 512)));
    bytes.extend([8; 5 * 512]);
    bytes.extend(header("base256", b'0', 0, true, &[(108, &[0x80, 0, 0, 0, 0xb2, 0xd0, 0x5e, 0]), (136, &[0xff; 12])]));
    bytes.extend(header("hard", b'1', 0, true, &[(157, b"base256")]));
    bytes.extend([0; 1024]);
    bytes
}

/// Records of PAX by hand: the older sparse forms, records for all members, libarchive's attributes.
fn records() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut pax = |kind: u8, records: &[(&str, &str)], member: Vec<u8>| {
        let mut body = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let length = rest + if rest + 2 < 100 { 2 } else { 3 };
            body.extend(format!("{length} {key}={value}\n").as_bytes());
        }
        bytes.extend(header("x", kind, body.len(), false, &[]));
        bytes.extend(filled(body));
        bytes.extend(member);
    };
    pax(b'g', &[("mtime", "-12.5"), ("comment", "for all")], Vec::new());
    let sparse = [("GNU.sparse.size", "20000"), ("GNU.sparse.map", "0,3,1000,4"), ("GNU.sparse.name", "s1")];
    pax(b'x', &sparse, [header("s", b'0', 7, false, &[]), filled(b"abcdefg".to_vec())].concat());
    let sparse = [
        ("GNU.sparse.size", "99"),
        ("GNU.sparse.offset", "1"),
        ("GNU.sparse.numbytes", "2"),
        ("GNU.sparse.offset", "50"),
        ("GNU.sparse.numbytes", "1"),
    ];
    pax(b'x', &sparse, [header("s0", b'0', 3, false, &[]), filled(b"abc".to_vec())].concat());
    let attributes = [
        ("LIBARCHIVE.xattr.user.%61", "Zm9v"),
        ("SCHILY.xattr.user.b", "x"),
        ("SCHILY.acl.access", "user::rw-,user:root:r--,group::r--,mask::r--,other::---"),
        ("uid", "3000000000"),
        ("path", "a"),
    ];
    pax(b'x', &attributes, header("x", b'0', 0, false, &[]));
    pax(
        b'x',
        &[("linkpath", "a"), ("size", "3")],
        [header("h", b'1', 0, false, &[]), filled(b"new".to_vec())].concat(),
    );
    bytes.extend([0; 1024]);
    bytes
}

fn cpio() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |ino: u32, mode: u32, nlink: u32, name: &str, data: &[u8]| {
        let sum: u32 = data.iter().map(|byte| u32::from(*byte)).sum();
        let numbers = [
            ino,
            mode,
            0,
            0,
            nlink,
            1000,
            u32::try_from(data.len()).unwrap(),
            8,
            1,
            5,
            1,
            u32::try_from(name.len() + 1).unwrap(),
            sum,
        ];
        bytes.extend(b"070702");
        numbers.iter().for_each(|number| bytes.extend(format!("{number:08x}").as_bytes()));
        bytes.extend(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    };
    put(1, 0o040_755, 2, ".", b"");
    put(2, 0o100_644, 2, "one", b"");
    put(2, 0o100_644, 2, "two", b"contents");
    put(3, 0o120_777, 1, "link", b"one");
    put(4, 0o020_600, 1, "dev", b"");
    put(0, 0, 1, "TRAILER!!!", b"");
    put(2, 0o100_644, 1, "second", b"archive");
    put(0, 0, 1, "TRAILER!!!", b"");
    bytes.resize(1536, 0);
    bytes
}

/// Compresses bytes by the library that the crate uses for reading.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bases() -> Vec<Vec<u8>> {
    let pax = pax();
    let plain = [pax.clone(), gnu(), records(), cpio()];
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
    xz.write_all(&pax).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&pax).unwrap();
    let halves = pax.split_at(5000);
    let compressed = [
        [gzip(halves.0), gzip(halves.1)].concat(),
        zstd::encode_all(pax.as_slice(), 1).unwrap(),
        xz.finish().unwrap(),
        bzip2.finish().unwrap(),
        [cpio(), gzip(&cpio())].concat(),
    ];
    // Headers are where the decisions are: uncompressed bases are taken more often.
    plain.iter().cycle().take(6 * plain.len()).chain(&compressed).cloned().collect()
}

/// Changes an archive in one to four places.
fn mutated(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..1 + random.below(4) {
        let (at, length) = (random.below(bytes.len()), bytes.len());
        match random.below(9) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            2 => bytes[at] = b"0179 \0/.=\n-,\xff\x80"[random.below(14)],
            3 => bytes.truncate(at.max(1)),
            4 => {
                let end = (at + random.below(600)).min(length);
                bytes.drain(at..end.min(length));
            }
            5 => {
                let piece = bytes[at..(at + random.below(1100)).min(length)].to_vec();
                let to = random.below(length);
                bytes.splice(to..to, piece);
            }
            6 => {
                let blocks = length / 512;
                let (from, to) = (random.below(blocks) * 512, random.below(blocks) * 512);
                if length >= 512 {
                    let block = bytes[from..from + 512].to_vec();
                    bytes[to..to + 512].copy_from_slice(&block);
                }
            }
            7 => {
                let digits: Vec<usize> = (0..length).filter(|at| bytes[*at].is_ascii_digit()).collect();
                if let Some(at) = digits.get(random.below(digits.len())) {
                    bytes[*at] = b"01234567"[random.below(8)];
                }
            }
            _ => {
                let at = at / 512 * 512 + [124, 156, 257, 345, 386, 482, 483][random.below(7)];
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = b"\x8001234567LKSxgDV\0"[random.below(17)];
                }
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    // Wrong checksums hide what is behind them.
    if random.below(10) > 0 {
        for block in bytes.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
            sum(block);
        }
    }
    bytes
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn mutated_archives_are_read_or_refused() {
    let (seed, cases) = (number("ARCHIVE_SEED", 1), number("ARCHIVE_CASES", CASES));
    let bases = bases();
    for (index, base) in bases.iter().enumerate() {
        assert!(exercise::exercise(base), "base {index}");
    }
    let (begin, accepted, slowest) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let run = |case: u64| {
        let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(case));
        let base = bases[random.below(bases.len())].clone();
        let bytes = mutated(base, &mut random);
        let started = Instant::now();
        match std::panic::catch_unwind(|| exercise::exercise(&bytes)) {
            Ok(is_read) => accepted.fetch_add(u64::from(is_read), Ordering::Relaxed),
            Err(_) => panic!("seed {seed}, case {case}"),
        };
        slowest.fetch_max(u64::try_from(started.elapsed().as_millis()).unwrap(), Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let run = &run;
            scope.spawn(move || (thread..cases).step_by(usize::try_from(THREADS).unwrap()).for_each(run));
        }
    });
    let (accepted, slowest) = (accepted.into_inner(), slowest.into_inner());
    let (all, worked, memory) = (begin.elapsed(), processor_seconds(), memory_kib());
    println!("{cases} cases, {accepted} read, {all:?} ({worked} s of processors), slowest {slowest} ms, {memory} KiB");
    assert!(accepted > cases / 20 && accepted < cases * 19 / 20, "{accepted} of {cases} were read");
    assert!(cases > CASES || worked < SECONDS_MAX, "{worked} s");
    assert!(slowest < MILLISECONDS_MAX, "{slowest} ms");
    assert!(memory < MEMORY_KIB_MAX, "{memory} KiB");
}

/// Memory of this process at its most.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Time of processors that this process took.
fn processor_seconds() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Of the user and of the system, in hundredths.
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) / 100
}
