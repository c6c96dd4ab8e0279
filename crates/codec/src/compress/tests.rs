//! Tests compression and decompression with each codec: round trips, limits, and damaged or foreign streams.

#![allow(clippy::as_conversions, reason = "tests")]
use super::*;

const SECTOR: usize = 4096;

/// A small generator (xorshift64*), so that every failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Bytes with repetitions at many distances, some noise and some zeros.
fn sample(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 300);
    while bytes.len() < len {
        let run = 1 + random.below(300);
        match random.below(4) {
            0 => bytes.extend((0..run).map(|_| random.next() as u8)),
            1 => bytes.resize(bytes.len() + run, 0),
            2 => bytes.extend_from_slice(b"the quick brown fox jumps over the lazy dog"),
            _ => {
                let from = random.below(bytes.len());
                let end = bytes.len().min(from + run);
                bytes.extend_from_within(from..end);
            }
        }
    }
    bytes.truncate(len);
    bytes
}

fn options(level: i32) -> CompressOptions {
    CompressOptions { level, sector_size: SECTOR, output_size_max: usize::MAX }
}

fn lengths() -> impl Iterator<Item = usize> {
    (0..70).chain([238, 239, 240, 4095, 4096, 4097, 8192, 12_000, 65_537, 131_072])
}

#[test]
fn every_codec_and_level_reads_back_what_it_wrote_with_and_without_padding() {
    let mut random = Random(7);
    for codec in CompressionType::ALL {
        for len in lengths() {
            let data = sample(&mut random, len);
            for level in [i32::MIN, -15, 0, 1, 9, 15, i32::MAX] {
                let packed = compress(codec, &data, &options(level)).unwrap().unwrap();
                // One segment, and so one sector at most, lies inside an item.
                let is_segment = codec != CompressionType::Lzo || (1..=SECTOR).contains(&len);
                let form = if is_segment { Form::inline(SECTOR) } else { Form::regular(SECTOR) };
                let exact = decompress(codec, &packed, form, len);
                assert!(exact.as_ref() == Ok(&data), "{codec} {level} {len}: {exact:?}");
                let mut padded = packed.clone();
                padded.resize(packed.len().next_multiple_of(SECTOR) + SECTOR, 0);
                let found = decompress(codec, &padded, Form::regular(SECTOR), len);
                assert!(found == Ok(data.clone()), "{codec} {level} {len} padded");
            }
        }
    }
}

#[test]
fn incompressible_data_is_refused_and_the_limit_is_exact() {
    let mut random = Random(3);
    let noise: Vec<u8> = (0..20_000).map(|_| random.next() as u8).collect();
    let text = sample(&mut random, 20_000);
    for codec in CompressionType::ALL {
        let mut limits = options(0);
        limits.output_size_max = noise.len() - SECTOR;
        assert_eq!(compress(codec, &noise, &limits), Ok(None));
        let len = compress(codec, &text, &options(0)).unwrap().unwrap().len();
        limits.output_size_max = len + 1;
        assert!(compress(codec, &text, &limits).unwrap().is_some());
        limits.output_size_max = len - 1;
        assert_eq!(compress(codec, &text, &limits), Ok(None));
    }
}

#[test]
fn a_short_stream_is_zero_filled_in_regular_extents_and_damage_in_inline_ones() {
    for codec in CompressionType::ALL {
        let packed = compress(codec, b"tail of a file", &options(0)).unwrap().unwrap();
        let mut output = [9; 64];
        let len = decompress_into(codec, &packed, Form::regular(SECTOR), &mut output);
        assert_eq!(len, Ok(14), "{codec}");
        assert_eq!(&output[..14], b"tail of a file");
        assert!(output[14..].iter().all(|byte| *byte == 0), "{codec}");
        assert_eq!(
            decompress(codec, &packed, Form::inline(SECTOR), 64),
            Err(Error::ShortOutput { codec, expected: 64, found: 14 })
        );
    }
}

#[test]
fn longer_streams_end_with_a_regular_extent() {
    let mut random = Random(11);
    for codec in CompressionType::ALL {
        for len in [1, 14, 5000, 131_072] {
            let data = sample(&mut random, len);
            let packed = compress(codec, &data, &options(0)).unwrap().unwrap();
            for shorter in [0, 1, len / 2, len - 1].into_iter().filter(|cut| *cut < len) {
                let found = decompress(codec, &packed, Form::regular(SECTOR), shorter);
                assert!(found.as_deref() == Ok(&data[..shorter]), "{codec} {len} to {shorter}: {found:?}");
            }
        }
    }
    // However long they are, they take no more memory than stated, or a fixed amount.
    for codec in [CompressionType::Zlib, CompressionType::Zstd] {
        let bomb = compress(codec, &vec![0; 8 << 20], &options(0)).unwrap().unwrap();
        let found = decompress(codec, &bomb, Form::regular(SECTOR), SECTOR);
        assert_eq!(found.is_ok(), codec == CompressionType::Zstd, "{codec}");
    }
    assert_eq!(
        decompress(CompressionType::Zlib, &[], Form::regular(SECTOR), usize::MAX),
        Err(Error::OutOfMemory { codec: CompressionType::Zlib })
    );
}

/// True if kernels read an extent of `wanted` bytes whose stream decompresses to `stream` bytes.
fn is_read(codec: CompressionType, layout: Layout, (stream, wanted): (usize, usize)) -> bool {
    match layout {
        Layout::Regular => true,
        Layout::Inline => match codec {
            CompressionType::Zstd => stream >= wanted,
            _ => stream >= wanted && stream <= SECTOR.max(wanted),
        },
    }
}

#[test]
fn streams_of_every_length_are_read_as_kernels_read_them() {
    let mut random = Random(0xb0);
    let lengths = [1, 2, 299, 300, 301, 4095, 4096, 4097, 8191, 8192, 8193];
    for codec in CompressionType::ALL {
        for stream in lengths {
            let data = sample(&mut random, stream);
            let packed = compress(codec, &data, &options(0)).unwrap().unwrap();
            for wanted in lengths {
                // An extent of several segments lies outside its item.
                let is_segments = codec == CompressionType::Lzo && stream > SECTOR;
                for form in [Form::regular(SECTOR), Form::inline(SECTOR)] {
                    if form.layout == Layout::Inline && is_segments {
                        assert!(decompress(codec, &packed, form, wanted).is_err());
                        continue;
                    }
                    let mut expected = data.clone();
                    expected.resize(wanted, 0);
                    let found = decompress(codec, &packed, form, wanted);
                    let is_right = match is_read(codec, form.layout, (stream, wanted)) {
                        true => found.as_ref() == Ok(&expected),
                        false => found.is_err(),
                    };
                    assert!(is_right, "{codec} {form:?} {stream} of {wanted}: {found:?}");
                }
            }
        }
    }
}

#[test]
fn an_inline_extent_of_lzo_is_one_segment_that_fills_its_item() {
    let codec = CompressionType::Lzo;
    let packed = compress(codec, b"tail of a file", &options(0)).unwrap().unwrap();
    let read = |bytes: &[u8]| decompress(codec, bytes, Form::inline(SECTOR), 14).is_ok();
    assert!(read(&packed));
    let mut longer = packed.clone();
    longer.push(0);
    assert!(!read(&longer), "the total is less than the item has");
    for at in [0, 4] {
        for change in [1, 255] {
            let mut bad = packed.clone();
            bad[at] = bad[at].wrapping_add(change);
            assert!(!read(&bad), "a wrong length at {at} was accepted");
        }
    }
}

#[test]
fn an_adler_32_is_not_looked_at() {
    let data = sample(&mut Random(5), 3000);
    let mut packed = compress(CompressionType::Zlib, &data, &options(0)).unwrap().unwrap();
    *packed.last_mut().unwrap() ^= 1;
    for form in [Form::regular(SECTOR), Form::inline(SECTOR)] {
        assert!(decompress(CompressionType::Zlib, &packed, form, 3000).as_deref() == Ok(&data));
    }
}

#[test]
fn truncated_and_mutated_streams_end_in_bytes_or_an_error() {
    let mut random = Random(0x5eed);
    for codec in CompressionType::ALL {
        for len in [1, 100, 4096, 20_000] {
            let data = sample(&mut random, len);
            let packed = compress(codec, &data, &options(0)).unwrap().unwrap();
            // The decoder ignores the Adler-32 behind a zlib stream.
            let end = packed.len() - if codec == CompressionType::Zlib { 4 } else { 0 };
            for cut in 0..end.min(600) {
                let found = decompress(codec, &packed[..cut], Form::inline(SECTOR), len);
                assert!(found.is_err(), "{codec} cut at {cut} of {}", packed.len());
            }
            for _ in 0..2000 {
                let mut bad = packed.clone();
                for _ in 0..=random.below(4) {
                    // Damage near the start, where the headers are, is the more likely.
                    let bound = 1 + random.below(bad.len());
                    let at = random.below(bound);
                    bad[at] = random.next() as u8;
                }
                let wanted = random.below(2 * len);
                let sector = [0, 1, 3, 4, SECTOR, 65_536, usize::MAX][random.below(7)];
                // Any result is valid if the call returns.
                let _ = decompress(codec, &bad, Form::regular(sector), wanted);
            }
        }
        for _ in 0..5000 {
            let len = random.below(64);
            let noise: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            let _ = decompress(codec, &noise, Form::regular(SECTOR), random.below(9000));
        }
    }
}

#[test]
fn lzo_lengths_never_cross_a_sector_and_streams_start_as_kernels_expect() {
    let mut random = Random(99);
    let mut skips = 0;
    for _ in 0..200 {
        let data = sample(&mut random, 131_072);
        let packed = compress(CompressionType::Lzo, &data, &options(0)).unwrap().unwrap();
        let word = |at: usize| u32::from_le_bytes(packed[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(word(0), packed.len());
        let mut at = 4;
        for _ in 0..data.len() / SECTOR {
            if SECTOR - at % SECTOR < 4 {
                skips += 1;
                at = at.next_multiple_of(SECTOR);
            }
            assert_eq!(at / SECTOR, (at + 3) / SECTOR);
            // A first byte of 17 announces a newer bitstream to the kernel's decoder.
            assert_ne!(packed[at + 4], 17);
            let segment = &packed[at + 4..][..word(at)];
            assert!(lzo1x::decompress(segment, SECTOR).unwrap().len() == SECTOR);
            at += 4 + segment.len();
        }
        assert_eq!(at, packed.len());
    }
    assert!(skips > 0, "the samples never ended near a sector boundary");
}

#[test]
fn lzo_framing_errors_are_named() {
    let form = Form::regular(SECTOR);
    let lzo = |input: &[u8]| decompress(CompressionType::Lzo, input, form, 100);
    let codec = CompressionType::Lzo;
    assert!(matches!(lzo(&[]), Err(Error::Invalid { at: 0, .. })));
    assert!(matches!(lzo(&[3, 0, 0, 0]), Err(Error::Invalid { at: 0, .. })));
    assert_eq!(lzo(&[9, 0, 0, 0]), Err(Error::Length { codec, what: "total length", at: 0, expected: 4, found: 9 }));
    assert_eq!(lzo(&[4, 0, 0, 0, 1]), Ok(vec![0; 100]));
    assert_eq!(
        lzo(&[8, 0, 0, 0, 5, 0, 0, 0]),
        Err(Error::Length { codec, what: "segment length", at: 4, expected: 0, found: 5 })
    );
    assert!(matches!(lzo(&[6, 0, 0, 0, 5, 0]), Err(Error::Invalid { at: 4, .. })));
}

#[test]
fn zstd_windows_above_128_kib_are_refused() {
    // Magic, descriptor "no content size, window follows", window 2^18, one empty last block.
    let frame = |window_log: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3, 1, 0, 0];
    let form = Form::regular(SECTOR);
    assert_eq!(decompress(CompressionType::Zstd, &frame(17), form, 5), Ok(vec![0; 5]));
    assert!(matches!(decompress(CompressionType::Zstd, &frame(18), form, 5), Err(Error::Invalid { .. })));
}

#[test]
fn numbers_are_those_on_disk() {
    for raw in 0..=u8::MAX {
        let codec = CompressionType::from_raw(raw);
        assert_eq!(codec.is_some(), (1..=3).contains(&raw));
        if let Some(codec) = codec {
            assert_eq!(codec.to_raw(), raw);
            assert_eq!(CompressionType::from_name(codec.name()), Some(codec));
        }
    }
}

#[test]
fn zlib_streams_with_flush_points_read_as_kernels_and_mkfs_write_them() {
    // Level 3, a sync flush after 64 bytes, padded to a sector.
    let mut stream = vec![
        0x78, 0x5e, 0x2a, 0x2f, 0xca, 0x2c, 0x29, 0x49, 0xcd, 0x53, 0x48, 0xaa, 0x54, 0x28, 0xc9, 0x48, 0x55, 0xc8,
        0x4e, 0x2d, 0xca, 0x4b, 0xcd, 0x51, 0x28, 0x27, 0x5a, 0x14, 0x00, 0x00, 0x00, 0xff, 0xff, 0xa3, 0xb7, 0x5a,
        0x00, 0xb7, 0x02, 0x41, 0x51,
    ];
    stream.resize(SECTOR, 0);
    let text = b"written by the kernel ".repeat(8);
    let found = decompress(CompressionType::Zlib, &stream, Form::inline(SECTOR), text.len());
    assert_eq!(found, Ok(text));
}
