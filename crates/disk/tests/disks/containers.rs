//! Images in every form, compared with what the reference tools read from them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::{Place, run, sample, tool};
use crc_fast::{CrcAlgorithm, checksum};
use disk::Error;
use disk::containers::{Compression, Form, Options, Output, Written, Zeros, write};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// Writes to a file and to a stream, with several numbers of threads, and compares the bytes.
fn convert(place: &Place, image: &File, form: Form, options: Options<'_>, to: &str) -> Written {
    let size_bytes = image.metadata().unwrap().len();
    let file = place.create(to);
    // The contents before the conversion do not matter.
    file.write_all_at(&[0xee; 100_000], 0).unwrap();
    let written = write(image, size_bytes, form, Output::File(&file), &options).unwrap();
    assert_eq!(file.metadata().unwrap().len(), written.output_bytes);
    if size_bytes > GIB {
        return written;
    }
    let expected = std::fs::read(place.path(to)).unwrap();
    for count in [1, 3] {
        let mut stream = Vec::new();
        let options = Options { threads: threads(count), ..options };
        let again = write(image, size_bytes, form, Output::Stream(&mut stream), &options).unwrap();
        assert_eq!(again, written);
        assert!(stream == expected, "{form} with {count} threads: another output");
    }
    written
}

fn qemu_accepts(place: &Place, raw: &str, qcow2: &str) {
    let Some(qemu) = tool("qemu-img") else { return };
    let checked = run(Command::new(&qemu).args(["check", "-f", "qcow2"]).arg(place.path(qcow2)));
    assert!(checked.contains("No errors were found"), "{checked}");
    assert!(!checked.contains("eak"), "{checked}");
    let raw = place.path(raw);
    let compared =
        run(Command::new(&qemu).args(["compare", "-f", "raw", "-F", "qcow2"]).arg(raw).arg(place.path(qcow2)));
    assert!(compared.contains("Images are identical"), "{compared}");
}

#[test]
fn qemu_finds_the_same_image_in_qcow2() {
    let sizes = [0, 1, 512, 65_535, 65_536, 65_537, 3 * MIB + 512, 600 * MIB, 5 * GIB, 2 * TIB];
    for (index, size_bytes) in sizes.into_iter().enumerate() {
        for compression in [Compression::None, Compression::Zstd(3)] {
            let place = Place::new();
            let image = sample(&place, "raw", size_bytes, u64::try_from(index).unwrap());
            let options = Options { compression, ..Options::default() };
            let written = convert(&place, &image, Form::Qcow2, options, "disk.qcow2");
            qemu_accepts(&place, "raw", "disk.qcow2");
            println!("{size_bytes} bytes, {compression}: {written:?}");
            assert!(written.output_bytes < 80 * MIB);
        }
    }
}

#[test]
fn qemu_finds_the_same_in_many_small_images() {
    let mut random = common::Random::new(99);
    let place = Place::new();
    for seed in 100..150 {
        let image = sample(&place, "raw", random.below(6 * MIB), seed);
        let compression = [Compression::None, Compression::Zstd(1), Compression::Zstd(19)][random.index(3)];
        convert(&place, &image, Form::Qcow2, Options { compression, ..Options::default() }, "disk.qcow2");
        qemu_accepts(&place, "raw", "disk.qcow2");
    }
}

#[test]
fn qemu_reads_an_image_without_a_hole() {
    let place = Place::new();
    let mut random = common::Random::new(11);
    // More than one L2 table, text and noise by turns.
    let image = place.create("raw");
    for part in 490..540_u64 {
        let noise = random.bytes(MIB.try_into().unwrap());
        let text: Vec<u8> = noise.iter().map(|byte| byte % 4).collect();
        image.write_all_at(if part % 3 == 0 { &noise } else { &text }, part * MIB).unwrap();
    }
    for compression in [Compression::None, Compression::Zstd(1)] {
        let options = Options { compression, ..Options::default() };
        convert(&place, &image, Form::Qcow2, options, "disk.qcow2");
        qemu_accepts(&place, "raw", "disk.qcow2");
    }
}

#[test]
fn zstd_finds_the_same_image() {
    for (seed, size_bytes) in [(1, 0), (2, 1), (3, 2 * MIB), (4, 5 * MIB + 7), (5, 100 * MIB), (6, GIB)] {
        let place = Place::new();
        let image = sample(&place, "raw", size_bytes, seed);
        let written = convert(&place, &image, Form::Zstd, Options::default(), "disk.zst");
        println!("{size_bytes} bytes: {written:?}");
        let Some(zstd) = tool("zstd") else { return };
        run(Command::new(zstd).args(["-dfq", "-o"]).args([place.path("again"), place.path("disk.zst")]));
        assert_same(&place.path("raw"), &place.path("again"));
        read_by_the_seek_table(&place, &image);
    }
}

/// Reads one frame by the table alone.
fn read_by_the_seek_table(place: &Place, image: &File) {
    let bytes = std::fs::read(place.path("disk.zst")).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let end = bytes.len();
    assert_eq!((word(end - 4), bytes[end - 5]), (0x8f92_eab1, 0));
    let count = usize::try_from(word(end - 9)).unwrap();
    let table = end - 9 - count * 8;
    assert_eq!((word(table - 8), usize::try_from(word(table - 4)).unwrap()), (0x184d_2a5e, end - table));
    let (mut frame_at, mut contents_at) = (0, 0_u64);
    for entry in (table..end - 9).step_by(8) {
        let (len, contents_bytes) = (usize::try_from(word(entry)).unwrap(), word(entry + 4));
        let mut contents = vec![0; usize::try_from(contents_bytes).unwrap()];
        let decoded = zstd_safe::decompress(contents.as_mut_slice(), &bytes[frame_at..frame_at + len]).unwrap();
        let mut expected = vec![0; decoded];
        image.read_exact_at(&mut expected, contents_at).unwrap();
        assert!(contents == expected, "frame at {frame_at}");
        frame_at += len;
        contents_at += u64::from(contents_bytes);
    }
    assert_eq!(frame_at, table - 8);
    assert_eq!(contents_at, image.metadata().unwrap().len());
}

#[test]
fn simg2img_finds_the_same_image() {
    for (seed, size_bytes) in [(1, 0), (2, 4096), (3, 64 * MIB), (4, 300 * MIB)] {
        for (zeros, has_checksum) in [(Zeros::Fill, false), (Zeros::DontCare, true), (Zeros::Fill, true)] {
            let place = Place::new();
            let image = sample(&place, "raw", size_bytes, seed);
            let options = Options { zeros, has_checksum, ..Options::default() };
            let written = convert(&place, &image, Form::AndroidSparse, options, "disk.simg");
            println!("{size_bytes} bytes, {zeros:?}: {written:?}");
            if has_checksum {
                let whole = checksum(CrcAlgorithm::Crc32IsoHdlc, &std::fs::read(place.path("raw")).unwrap());
                let end = std::fs::read(place.path("disk.simg")).unwrap();
                assert_eq!(end.last_chunk(), Some(&u32::try_from(whole).unwrap().to_le_bytes()));
            }
            let Some(simg2img) = tool("simg2img") else { return };
            run(Command::new(simg2img).args([place.path("disk.simg"), place.path("again")]));
            assert_same(&place.path("raw"), &place.path("again"));
        }
    }
}

#[test]
fn a_raw_copy_is_sparse_and_a_raw_stream_is_whole() {
    let place = Place::new();
    let image = sample(&place, "raw", 200 * MIB + 99, 7);
    let written = convert(&place, &image, Form::Raw, Options::default(), "copy");
    assert_same(&place.path("raw"), &place.path("copy"));
    let copy = std::fs::metadata(place.path("copy")).unwrap();
    assert!(copy.blocks() * 512 <= written.data_bytes + MIB, "{} blocks", copy.blocks());
    let huge = sample(&place, "huge", 2 * TIB, 8);
    let written = convert(&place, &huge, Form::Raw, Options::default(), "huge copy");
    assert_eq!(written.output_bytes, 2 * TIB);
    assert!(written.data_bytes < 16 * MIB);
}

#[test]
fn a_pipe_gets_every_form() {
    let place = Place::new();
    let image = sample(&place, "raw", 20 * MIB, 9);
    for form in Form::ALL {
        let written = convert(&place, &image, form, Options::default(), "file");
        let (mut from, to) = std::io::pipe().unwrap();
        let to = File::from(std::os::fd::OwnedFd::from(to));
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut from, &mut bytes).unwrap();
            bytes
        });
        assert_eq!(write(&image, 20 * MIB, form, Output::File(&to), &Options::default()).unwrap(), written);
        drop(to);
        assert!(reader.join().unwrap() == std::fs::read(place.path("file")).unwrap(), "{form}");
    }
}

#[test]
fn progress_grows_to_the_size_and_cancelling_ends() {
    let place = Place::new();
    let image = sample(&place, "raw", 64 * MIB, 10);
    for form in Form::ALL {
        let seen = RefCell::new(Vec::new());
        let progress = |done| seen.borrow_mut().push(done);
        let options = Options { progress: &progress, ..Options::default() };
        write(&image, 64 * MIB, form, Output::Stream(&mut Vec::new()), &options).unwrap();
        let seen = seen.into_inner();
        assert!(seen.is_sorted(), "{form}: {seen:?}");
        assert_eq!(seen.last(), Some(&(64 * MIB)), "{form}");

        let asked = Cell::new(0);
        let is_cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() > 3
        };
        let options = Options { is_cancelled: &is_cancelled, ..Options::default() };
        let ended = write(&image, 64 * MIB, form, Output::Stream(&mut Vec::new()), &options);
        assert!(ended.is_err_and(|error| error.is_cancelled()), "{form}");
    }
}

#[test]
fn what_a_form_does_not_have_is_refused_by_name() {
    let place = Place::new();
    let image = sample(&place, "raw", 5000, 11);
    let refused = |size_bytes, form, options: Options<'_>| {
        write(&image, size_bytes, form, Output::Stream(&mut Vec::new()), &options).unwrap_err().to_string()
    };
    let usual = Options::default();
    assert_eq!(
        refused(5000, Form::AndroidSparse, usual),
        "simg: expected an image of whole blocks of 4096 bytes, found 5000 bytes"
    );
    assert_eq!(refused(5001, Form::Raw, usual), "image: expected 5001 bytes, found 5000");
    let level = |compression| Options { compression, ..usual };
    assert_eq!(refused(4096, Form::Zstd, level(Compression::None)), "compression `none`: expected zstd, for this form");
    assert_eq!(
        refused(4096, Form::AndroidSparse, level(Compression::Zstd(3))),
        "compression `zstd:3`: expected none, for this form"
    );
    assert_eq!(
        refused(4096, Form::Qcow2, level(Compression::Zstd(99))),
        "compression `zstd:99`: expected a level of 1 to 22"
    );
    let full = File::options().write(true).open("/dev/full").unwrap();
    for form in Form::ALL {
        let ended = write(&image, 4096, form, Output::File(&full), &usual);
        assert!(matches!(ended, Err(Error::Output { .. })), "{form}: {ended:?}");
    }
}

#[test]
fn an_image_that_changes_meanwhile_is_no_image() {
    let place = Place::new();
    let image = place.create("raw");
    image.write_all_at(b"begin", 7 * MIB).unwrap();
    image.set_len(8 * MIB).unwrap();
    let writer = File::options().write(true).open(place.path("raw")).unwrap();
    let is_cancelled = || {
        // Every look at the image makes one more of its clusters data.
        let at = std::fs::metadata(place.path("count")).map_or(0, |found| found.len());
        place.create("count").set_len(at + 65_536).unwrap();
        writer.write_all_at(b"changed", at).unwrap();
        false
    };
    let options = Options { is_cancelled: &is_cancelled, ..Options::default() };
    let ended = write(&image, 8 * MIB, Form::Qcow2, Output::Stream(&mut Vec::new()), &options);
    assert!(matches!(ended, Err(Error::ImageChanged)), "{ended:?}");
}

/// Compares two files where either has data.
fn assert_same(one: &Path, other: &Path) {
    run(Command::new("cmp").args([one, other]));
}
