//! On a regular file past the page cache, which takes the same care as a disk.

use super::*;
use crate::backends::{FileDevice, FileOptions, MemoryDevice};
use crate::buffer::AlignedBuffer;
use crate::{Device, Kind, Tag};

const MIB: u64 = 1 << 20;

/// `None` (said aloud) where the file system of temporary files cannot be passed by the page cache.
fn device(dir: &tempfile::TempDir, len: u64) -> Option<FileDevice> {
    let options = FileOptions { create: true, size: Some(len), ..FileOptions::default() };
    let device = FileDevice::open(dir.path().join("disk"), &options).unwrap().past_the_cache();
    if device.is_none() {
        println!("skipped: the file system of temporary files has no O_DIRECT");
    }
    device
}

/// Numbers that look random, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn noise(numbers: &mut Numbers, len: u64) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::new(to_usize(len));
    bytes.iter_mut().for_each(|byte| *byte = numbers.below(256).to_le_bytes()[0]);
    bytes
}

const TAG: Tag = Tag { kind: Kind::Data, mirror: 1 };

/// Aligned and unaligned, in memory and on the disk, in one part and in many, alone and together: the contents
/// afterwards equal those of a device in memory.
#[test]
fn bytes_come_where_they_belong_however_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = device(&dir, 16 * MIB) else { return };
    let model = MemoryDevice::new(16 * MIB);
    let mut numbers = Numbers(7);
    for round in 0..120 {
        let count = 1 + numbers.below(24);
        // Each in a part of the device of its own.
        let share = 16 * MIB / count / 4096 * 4096;
        let runs: Vec<(u64, Vec<AlignedBuffer>)> = (0..count)
            .map(|index| {
                let unit = if numbers.below(4) == 0 { 1 } else { 4096 };
                let room = share / 2 / unit * unit;
                let start = index * share + numbers.below(room / unit) * unit;
                let parts = 1 + numbers.below(5);
                let longest = (room / parts / unit).min(if round % 10 == 0 { MIB } else { 40_000 / unit }).max(1);
                let parts = (0..parts).map(|_| {
                    let len = (1 + numbers.below(longest)) * unit;
                    noise(&mut numbers, len)
                });
                (start, parts.collect())
            })
            .collect();
        let shift = usize::from(numbers.below(3) == 0);
        let slices: Vec<Vec<&[u8]>> = runs
            .iter()
            .map(|(_, parts)| parts.iter().map(|part| &part[shift.min(part.len() - 1)..]).collect())
            .collect();
        let writes: Vec<Write<'_>> = std::iter::zip(&runs, &slices)
            .map(|((offset, _), parts)| Write { offset: *offset, parts, tag: TAG })
            .collect();
        assert!(disk.submit(&writes).iter().all(Result::is_ok));
        assert!(model.submit(&writes).iter().all(Result::is_ok));
        for write in &writes {
            let before = write.offset - numbers.below(write.offset.min(9000) + 1);
            let len = to_usize(parts_len(write.parts)) + 5000;
            let (mut found, mut wanted) = (AlignedBuffer::new(len), AlignedBuffer::new(len));
            let cut = to_usize(numbers.below(3)) * 4096 % len;
            let (first, second) = found.split_at_mut(cut);
            disk.read_parts_at(before, &mut [first, second]).unwrap();
            model.read_at(before, &mut wanted).unwrap();
            assert!(found[..] == wanted[..], "round {round}, at {before}");
        }
    }
    assert_eq!(disk.idle_rings(), RINGS, "every ring came back");
}

/// Eight threads have more writes under way than there are rings.
#[test]
fn more_threads_than_rings_write_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = device(&dir, 64 * MIB) else { return };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let disk = &disk;
            scope.spawn(move || {
                let bytes = [thread + 1; 12288];
                let parts: [&[u8]; 1] = [&bytes];
                let start = u64::from(thread) * 8 * MIB;
                for _ in 0..20 {
                    let writes: Vec<_> = (0..40_u64)
                        .map(|index| Write { offset: start + index * 16384, parts: &parts, tag: TAG })
                        .collect();
                    assert!(disk.submit(&writes).iter().all(Result::is_ok));
                }
            });
        }
    });
    for thread in 0..8_u8 {
        let mut found = vec![0; 40 * 16384];
        disk.read_at(u64::from(thread) * 8 * MIB, &mut found).unwrap();
        let expected = |at: usize| if at % 16384 < 12288 { thread + 1 } else { 0 };
        assert!(found.iter().enumerate().all(|(at, byte)| *byte == expected(at)), "thread {thread}");
    }
}

/// Of several writes, those outside the device are refused and the others are done.
#[test]
fn a_write_outside_is_refused_and_its_neighbours_are_done() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = device(&dir, MIB) else { return };
    let parts: [&[u8]; 1] = [&[7; 4096]];
    let writes = [0, MIB - 4096, MIB - 100, 8192].map(|offset| Write { offset, parts: &parts, tag: TAG });
    let answers: Vec<bool> = disk.submit(&writes).iter().map(Result::is_ok).collect();
    assert_eq!(answers, [true, true, false, true]);
    let mut found = [0; 4096];
    for offset in [0, 8192, MIB - 4096] {
        disk.read_at(offset, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 7));
    }
}

/// The kernel's answer, not only its own checks.
#[test]
fn what_the_kernel_refuses_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = device(&dir, 4 * MIB) else { return };
    drop(disk);
    let parts: [&[u8]; 1] = [&[7; 4096]];
    let writes = [0, 65536].map(|offset| Write { offset, parts: &parts, tag: TAG });
    // A descriptor that is open for reading only refuses.
    let read_only = FileOptions { read_only: true, ..FileOptions::default() };
    let disk = FileDevice::open(dir.path().join("disk"), &read_only).unwrap().past_the_cache().unwrap();
    let direct = Direct::new(4096);
    let answers = direct.submit(disk.raw(), &writes);
    assert!(answers.iter().all(|answer| matches!(answer, Err(crate::Error::Io { op: crate::Op::Write, .. }))));
}
