//! The profiles' layouts, worked out by hand.

use super::*;
use crate::plan::{logical_at, plan};

const START: u64 = 100 * M;

/// A chunk of `len` with stripe `i` on device `devices[i]`, from byte `(i + 1)` MiB.
fn chunk(profile: Profile, len: u64, devices: &[u64]) -> Chunk {
    let stripes = (1..)
        .zip(devices)
        .map(|(index, id)| Stripe { device: DevId(*id), offset: index * M, device_uuid: Uuid::NIL })
        .collect();
    Chunk::new(Logical(START), len, BlockGroupFlags::DATA | profile.flags(), stripes).unwrap()
}

/// A plan as (mirror, device, device offset, range offset, length).
fn planned(chunk: &Chunk, offset: u64, len: u64, purpose: Purpose) -> Vec<(u32, u64, u64, u64, u64)> {
    plan(chunk, Logical(START + offset), len, purpose)
        .into_iter()
        .map(|p| (p.mirror, p.device.0, p.device_offset, p.range_offset, p.len))
        .collect()
}

#[test]
fn single_is_one_piece() {
    let chunk = chunk(Profile::Single, M, &[1]);
    let whole = vec![(0, 1, M + 4 * K, 0, 300 * K)];
    assert_eq!(planned(&chunk, 4 * K, 300 * K, Purpose::Write), whole);
    assert_eq!(planned(&chunk, 4 * K, 300 * K, Purpose::Read(0)), whole);
}

#[test]
fn dup_writes_both_stripes_and_reads_the_one_asked_for() {
    let chunk = chunk(Profile::Dup, M, &[1, 1]);
    assert_eq!(
        planned(&chunk, 16 * K, 16 * K, Purpose::Write),
        vec![(0, 1, M + 16 * K, 0, 16 * K), (1, 1, 2 * M + 16 * K, 0, 16 * K)]
    );
    assert_eq!(planned(&chunk, 16 * K, 16 * K, Purpose::Read(1)), vec![(1, 1, 2 * M + 16 * K, 0, 16 * K)]);
}

#[test]
fn raid1_with_four_copies_writes_four_devices() {
    let chunk = chunk(Profile::Raid1c4, M, &[3, 1, 4, 2]);
    assert_eq!(
        planned(&chunk, 0, 4 * K, Purpose::Write),
        vec![(0, 3, M, 0, 4 * K), (1, 1, 2 * M, 0, 4 * K), (2, 4, 3 * M, 0, 4 * K), (3, 2, 4 * M, 0, 4 * K),]
    );
}

#[test]
fn raid0_over_three_goes_round_in_rows() {
    let chunk = chunk(Profile::Raid0, 6 * 64 * K, &[1, 2, 3]);
    assert_eq!(chunk.stripe_bytes(), 128 * K);
    // From the middle of row 1 (stripe 1) to the middle of row 4 (stripe 1, second turn).
    assert_eq!(
        planned(&chunk, 96 * K, 192 * K, Purpose::Write),
        vec![
            (0, 2, 2 * M + 32 * K, 0, 32 * K),
            (0, 3, 3 * M, 32 * K, 64 * K),
            (0, 1, M + 64 * K, 96 * K, 64 * K),
            (0, 2, 2 * M + 64 * K, 160 * K, 32 * K),
        ]
    );
}

#[test]
fn raid10_over_four_pairs_neighbours() {
    let chunk = chunk(Profile::Raid10, 4 * 64 * K, &[1, 2, 3, 4]);
    assert_eq!(chunk.stripe_bytes(), 128 * K);
    // Row 1 is on the second pair, row 2 on the first again.
    assert_eq!(
        planned(&chunk, 124 * K, 8 * K, Purpose::Write),
        vec![
            (0, 3, 3 * M + 60 * K, 0, 4 * K),
            (0, 1, M + 64 * K, 4 * K, 4 * K),
            (1, 4, 4 * M + 60 * K, 0, 4 * K),
            (1, 2, 2 * M + 64 * K, 4 * K, 4 * K),
        ]
    );
}

#[test]
fn raid5_over_three_moves_its_parity_on() {
    let chunk = chunk(Profile::Raid5, 6 * 64 * K, &[1, 2, 3]);
    assert_eq!(chunk.stripe_bytes(), 192 * K);
    // Row 0: 0 1 P, row 1: P 2 3, row 2: 5 P 4.
    assert_eq!(
        planned(&chunk, 96 * K, 256 * K, Purpose::Read(0)),
        vec![
            (0, 2, 2 * M + 32 * K, 0, 32 * K),
            (0, 2, 2 * M + 64 * K, 32 * K, 64 * K),
            (0, 3, 3 * M + 64 * K, 96 * K, 64 * K),
            (0, 3, 3 * M + 128 * K, 160 * K, 64 * K),
            (0, 1, M + 128 * K, 224 * K, 32 * K),
        ]
    );
    // A byte of parity is no byte of the chunk.
    assert_eq!(logical_at(&chunk, M + 64 * K, |id| id == DevId(1)), vec![]);
}

#[test]
fn raid6_over_four_moves_both_parities_on() {
    let chunk = chunk(Profile::Raid6, 8 * 64 * K, &[1, 2, 3, 4]);
    assert_eq!(chunk.stripe_bytes(), 256 * K);
    // Row 0: 0 1 P Q, row 1: Q 2 3 P, row 2: P Q 4 5, row 3: 7 P Q 6.
    let devices: Vec<u64> = planned(&chunk, 0, 512 * K, Purpose::Read(0)).iter().map(|part| part.1).collect();
    assert_eq!(devices, [1, 2, 2, 3, 3, 4, 4, 1]);
}

#[test]
fn every_planned_byte_maps_back() {
    let cases: [(Profile, &[u64]); 13] = [
        (Profile::Single, &[1]),
        (Profile::Dup, &[1, 1]),
        (Profile::Raid0, &[1]),
        (Profile::Raid0, &[1, 2, 3, 4, 5]),
        (Profile::Raid1, &[2, 1]),
        (Profile::Raid1c3, &[1, 2, 3]),
        (Profile::Raid1c4, &[1, 2, 3, 4]),
        (Profile::Raid10, &[1, 2]),
        (Profile::Raid10, &[1, 2, 3, 4, 5, 6]),
        (Profile::Raid5, &[1, 2]),
        (Profile::Raid5, &[1, 2, 3, 4]),
        (Profile::Raid6, &[3, 2, 1]),
        (Profile::Raid6, &[1, 2, 3, 4, 5, 6]),
    ];
    for (profile, devices) in cases {
        let chunk = chunk(profile, 15 * 64 * K, devices);
        let mut covered = vec![0; usize::try_from(profile.mirror_count()).unwrap()];
        for part in plan(&chunk, chunk.start(), chunk.len_bytes(), Purpose::Write) {
            let mirror = usize::try_from(part.mirror).unwrap();
            assert_eq!(covered[mirror], part.range_offset, "{profile}: parts are in order");
            covered[mirror] += part.len;
            for (offset, logical) in [(0, 0), (part.len - 1, part.len - 1)] {
                assert!(
                    logical_at(&chunk, part.device_offset + offset, |id| id == part.device)
                        .contains(&Logical(START + part.range_offset + logical)),
                    "{profile} at {}",
                    part.range_offset
                );
            }
        }
        assert!(covered.iter().all(|len| *len == chunk.len_bytes()), "{profile}");
    }
}

#[test]
fn both_copies_of_dup_map_back_to_one_address_each() {
    let chunk = chunk(Profile::Dup, 4 * M, &[1, 1]);
    // Stripes at 1..5 MiB and 2..6 MiB (overlapping, which the chunk map would refuse).
    assert_eq!(logical_at(&chunk, 3 * M, |_| true), vec![Logical(START + M), Logical(START + 2 * M)]);
    assert_eq!(logical_at(&chunk, 6 * M, |_| true), vec![]);
    assert_eq!(logical_at(&chunk, 3 * M, |id| id == DevId(2)), vec![]);
}

#[test]
fn profiles_without_a_plan_are_refused_by_name() {
    let remapped = BlockGroupFlags::DATA | BlockGroupFlags::REMAPPED;
    let error = Profile::from_flags(remapped).unwrap_err();
    assert_eq!(error.to_string(), "unsupported: remapped chunks");
    let two = BlockGroupFlags::DATA | BlockGroupFlags::DUP | BlockGroupFlags::RAID1;
    assert!(matches!(Profile::from_flags(two), Err(Error::Corrupt(_))));
    let unknown = BlockGroupFlags::from_bits_retain(1 | 1 << 40);
    assert!(matches!(Profile::from_flags(unknown), Err(Error::Corrupt(_))));
}

#[test]
fn chunks_need_the_stripes_of_their_profile() {
    let stripe = Stripe { device: DevId(1), offset: M, device_uuid: Uuid::NIL };
    for (profile, count) in [
        (Profile::Single, 0),
        (Profile::Single, 2),
        (Profile::Dup, 1),
        (Profile::Raid0, 0),
        (Profile::Raid1c3, 2),
        (Profile::Raid10, 0),
        (Profile::Raid10, 3),
        (Profile::Raid5, 1),
        (Profile::Raid6, 2),
        (Profile::Raid6, 256),
    ] {
        let flags = BlockGroupFlags::METADATA | profile.flags();
        let chunk = Chunk::new(Logical(0), M, flags, vec![stripe; count]);
        assert!(matches!(chunk, Err(Error::Corrupt(_))), "{profile} with {count}");
    }
    let far = Stripe { offset: u64::MAX - 10, ..stripe };
    assert!(Chunk::new(Logical(0), M, BlockGroupFlags::DATA, vec![far]).is_err());
    assert!(Chunk::new(Logical(u64::MAX - 10), M, BlockGroupFlags::DATA, vec![stripe]).is_err());
    assert!(Chunk::new(Logical(0), 0, BlockGroupFlags::DATA, vec![stripe]).is_err());
}
