use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// CRC-32C bit by bit, straight from the polynomial.
fn slow_crc(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1));
        }
        crc
    })
}

#[test]
fn published_vectors() {
    let vectors = [
        (ChecksumType::Crc32c, "123456789", "839206e3"),
        (ChecksumType::Xxhash64, "", "99e9d85137db46ef"),
        (ChecksumType::Xxhash64, "abc", "990977adf52cbc44"),
        (ChecksumType::Sha256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (ChecksumType::Blake2b, "", "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"),
        (ChecksumType::Blake2b, "abc", "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"),
    ];
    for (kind, text, expected) in vectors {
        let found = checksum(kind, text.as_bytes());
        assert_eq!(hex(&found[..kind.len()]), expected, "{kind} of {text:?}");
        assert!(found[kind.len()..].iter().all(|byte| *byte == 0));
        assert!(matches(kind, text.as_bytes(), &found));
        assert!(!matches(kind, b"other", &found));
        assert!(!matches(kind, text.as_bytes(), &found[..kind.len() - 1]));
    }
}

#[test]
fn name_hash_of_default_is_the_one_in_every_volume() {
    assert_eq!(crc32c_raw(!1, b"default"), 0x8dbf_c2d2);
    assert_eq!(!crc32c_raw(!0, b"123456789"), 0xe306_9283);
}

#[test]
fn raw_crc_agrees_with_the_polynomial_at_every_length_and_seed() {
    let bytes: Vec<u8> = (0..1100u32).map(|at| at.wrapping_mul(197).to_le_bytes()[0]).collect();
    for len in (0..300).chain([511, 512, 513, 1023, 1024, 1025, 1100]) {
        for seed in [0, 1, !1, !0, 0xdead_beef] {
            assert_eq!(crc32c_raw(seed, &bytes[..len]), slow_crc(seed, &bytes[..len]), "{len}");
        }
        let usual = checksum(ChecksumType::Crc32c, &bytes[..len]);
        assert_eq!(usual[..4], (!slow_crc(!0, &bytes[..len])).to_le_bytes());
        let (head, tail) = bytes[..len].split_at(len / 3);
        assert_eq!(crc32c_raw(crc32c_raw(7, head), tail), slow_crc(7, &bytes[..len]));
    }
}

#[test]
fn many_sectors_are_the_same_as_one_by_one() {
    let bytes: Vec<u8> = (0..50_000u32).map(|at| at.wrapping_mul(31).to_le_bytes()[1]).collect();
    for kind in ChecksumType::ALL {
        for len in [0, 1, 4096, 4097, 5 * 4096, 50_000] {
            let count = bytes[..len].chunks(4096).count();
            let mut out = vec![0; count * kind.len()];
            checksum_many(kind, &bytes[..len], 4096, &mut out);
            for (sector, found) in bytes[..len].chunks(4096).zip(out.chunks(kind.len())) {
                assert_eq!(found, &checksum(kind, sector)[..kind.len()], "{kind} {len}");
            }
        }
        // Neither a missing sector size nor a short output is a reason to panic.
        checksum_many(kind, &bytes[..10], 0, &mut [0; 33]);
        checksum_many(kind, &bytes, 4096, &mut []);
        checksum_into(kind, &bytes, &mut [0; 2]);
        let mut wide = [9; 40];
        checksum_into(kind, &bytes, &mut wide);
        assert!(wide[kind.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn numbers_and_names_are_those_on_disk() {
    for raw in 0..6 {
        let kind = ChecksumType::from_raw(raw);
        assert_eq!(kind.is_some(), raw < 4);
        if let Some(kind) = kind {
            assert_eq!(kind.to_raw(), raw);
            assert_eq!(ChecksumType::from_name(kind.name()), Some(kind));
        }
    }
    assert_eq!(ChecksumType::from_name("md5"), None);
}
