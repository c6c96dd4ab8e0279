//! RAID5 and RAID6: every set of lost or wrong stripes that the profile survives gives the same bytes, and more of
//! them give an error. The rows are laid out by hand.

use super::*;
use crate::parity;

const START: u64 = 100 * M;
const COLUMN: usize = 64 << 10;

/// The product in GF(256), from its definition.
fn product(a: u8, b: u8) -> u8 {
    let mut wide = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0u32, |sum, bit| sum ^ u32::from(a) << bit);
    for bit in (8..16).rev().filter(|bit| *bit >= 8) {
        if wide >> bit & 1 == 1 {
            wide ^= 0x11d << (bit - 8);
        }
    }
    u8::try_from(wide).unwrap()
}

/// Devices with a chunk of some rows, whose bytes are returned, and a pool that reads them.
fn filled(profile: Profile, width: usize, rows: usize) -> (Vec<Arc<MemoryDevice>>, Pool, Vec<u8>) {
    let devices = memory_devices(width as u64);
    let parities = profile.parity_count() as usize;
    let columns = width - parities;
    let data = pattern(rows * columns * COLUMN);
    for (row, bytes) in data.chunks(columns * COLUMN).enumerate() {
        let mut stored: Vec<Vec<u8>> = bytes.chunks(COLUMN).map(<[u8]>::to_vec).collect();
        let (mut p, mut q) = (vec![0; COLUMN], vec![0; COLUMN]);
        let mut power = 1;
        for column in &stored {
            for (at, byte) in column.iter().enumerate() {
                p[at] ^= byte;
                q[at] ^= product(power, *byte);
            }
            power = product(power, 2);
        }
        stored.extend([p, q].into_iter().take(parities));
        for (column, bytes) in stored.iter().enumerate() {
            let at = 10 * M + (row * COLUMN) as u64;
            devices[(row + column) % width].write_at(at, &[bytes]).unwrap();
        }
    }
    let pool = pool_on(&devices, Intent::ReadOnly);
    let stripes: Vec<Stripe> = (1..=width as u64).map(|id| stripe(id, 10 * M)).collect();
    add(&pool, START, data.len() as u64, BlockGroupFlags::DATA | profile.flags(), &stripes).unwrap();
    (devices, pool, data)
}

fn wipe(device: &MemoryDevice) {
    device.write_at(10 * M, &[&[0x3c; 1 << 20]]).unwrap();
}

fn read_all(pool: &Pool, data: &[u8]) -> Result<Vec<u8>> {
    let csums = csums_of(pool, data);
    let mut found = vec![0; data.len()];
    pool.read(Logical(START), &mut found, Expect::Csums(&csums)).map(|()| found)
}

#[test]
fn every_set_of_wrong_devices_is_computed_from_the_rest() {
    for (profile, width) in
        [(Profile::Raid5, 2), (Profile::Raid5, 4), (Profile::Raid6, 3), (Profile::Raid6, 4), (Profile::Raid6, 6)]
    {
        for bits in 1u32..1 << width {
            let (devices, pool, data) = filled(profile, width, width + 1);
            devices.iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1).for_each(|(_, device)| wipe(device));
            let found = read_all(&pool, &data);
            if bits.count_ones() <= profile.parity_count() {
                assert!(found.unwrap() == data, "{profile} over {width}, wrong: {bits:b}");
            } else {
                assert!(matches!(found, Err(Error::NoGoodCopy { .. })), "{profile} over {width}, wrong: {bits:b}");
            }
        }
    }
}

#[test]
fn devices_that_are_wrong_in_different_places_help_each_other() {
    let (devices, pool, data) = filled(Profile::Raid6, 5, 5);
    for (n, device) in (0..5).zip(&devices) {
        // In each row two other stripes are wrong.
        for row in [n, (n + 1) % 5] {
            device.write_at(10 * M + row * 64 * K + 8 * K, &[&[7; 8192]]).unwrap();
        }
    }
    assert!(read_all(&pool, &data).unwrap() == data);
}

#[test]
fn missing_devices_are_not_asked() {
    for (profile, width, lost) in [(Profile::Raid5, 3, 1), (Profile::Raid6, 5, 2)] {
        let (devices, pool, data) = filled(profile, width, 7);
        let chunk = pool.chunks().all()[0].clone();
        let pooled = (1..).zip(&devices).map(|(id, device)| match id <= lost {
            true => PoolDevice::missing(DevId(id), uuid(id), 80 * M),
            false => PoolDevice::new(DevId(id), uuid(id), Arc::clone(device) as Arc<dyn Device>, 80 * M),
        });
        let pool = Pool::create(pooled.collect(), LAYOUT, Arc::new(Workers::inline()));
        let pool = Pool { access: Intent::ReadOnly, ..pool };
        pool.add_chunk((*chunk).clone()).unwrap();
        assert!(pool.loss_of(&chunk).is_none());
        let mut found = vec![0; data.len()];
        pool.read(Logical(START), &mut found, Expect::Unchecked).unwrap();
        assert!(found == data, "{profile}");
        assert!(pool.devices().iter().all(|device| device.counts() == DeviceCounts::default()));
    }
}

#[test]
fn a_block_over_two_columns_is_computed_where_one_of_them_is_wrong() {
    let (devices, pool, data) = filled(Profile::Raid5, 3, 3);
    wipe(&devices[1]);
    let (from, to) = (COLUMN - 8192, COLUMN + 8192);
    let wanted = &data[from..to];
    let check = |bytes: &[u8]| match bytes == wanted {
        true => Ok(()),
        false => Err(Corrupt::new("block", Detail::Text("the pattern"), Detail::Text("something else"))),
    };
    let mut found = vec![0; to - from];
    pool.read(Logical(START + from as u64), &mut found, Expect::Block(&check)).unwrap();
    assert!(found == wanted);
}

#[test]
fn parity_that_does_not_fit_its_row_is_told() {
    let (devices, pool, data) = filled(Profile::Raid6, 4, 4);
    let chunk = pool.chunks().all()[0].clone();
    assert_eq!(parity::rows(&chunk, Logical(START + 128 * K), 128 * K), 1..2);
    assert_eq!(parity::rows(&chunk, Logical(START + 127 * K), 2 * K), 0..2);
    for row in 0..4 {
        assert_eq!(pool.check_parity(&chunk, row).unwrap(), []);
    }
    // Row 1: Q 2 3 P.
    devices[3].write_at(10 * M + 64 * K + 5, &[b"x"]).unwrap();
    devices[0].write_at(10 * M + 64 * K + 9, &[b"x"]).unwrap();
    let wrong = pool.check_parity(&chunk, 1).unwrap();
    let places: Vec<_> = wrong.iter().map(|wrong| (wrong.part.device.0, wrong.part.mirror, wrong.at)).collect();
    assert_eq!(places, [(4, 0, 5), (1, 1, 9)]);
    assert_eq!(pool.devices().get(DevId(4)).unwrap().counts().corruptions, 1);
    // Wrong parity beside right data is not asked.
    assert!(read_all(&pool, &data).unwrap() == data);
}

#[test]
fn parity_is_not_written_and_hostile_chunks_are_refused() {
    let devices = memory_devices(3);
    let pool = pool_on(&devices, Intent::ReadWrite);
    let raid5 = BlockGroupFlags::DATA | BlockGroupFlags::RAID5;
    let stripes = [stripe(1, 10 * M), stripe(2, 10 * M), stripe(3, 10 * M)];
    let error = add(&pool, START, M, raid5, &stripes).unwrap_err();
    assert_eq!(error.to_string(), "unsupported: writing with RAID5 block groups (reading is possible)");
    let pool = pool_on(&devices, Intent::ReadOnly);
    let onto_itself = [stripe(1, 10 * M), stripe(2, 10 * M), stripe(1, 10 * M)];
    let error = add(&pool, START, M, raid5, &onto_itself).unwrap_err();
    assert!(matches!(&error, Error::Corrupt(_)), "{error}");
    let error = add(&pool, START, M, BlockGroupFlags::DATA | BlockGroupFlags::RAID6, &stripes[..2]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "corrupt number of stripes of a chunk in tree 3, key (256 228 104857600): expected 3 to 255, found 2"
    );
    // A chunk whose length is no multiple of a row: its last row is read as far as it goes.
    add(&pool, START, 100 * K, raid5, &stripes).unwrap();
    let mut bytes = vec![0; 100 << 10];
    pool.read(Logical(START), &mut bytes, Expect::Unchecked).unwrap();
    let chunk = pool.chunks().all()[0].clone();
    assert_eq!(chunk.stripe_bytes(), 64 * K);
    for way in parity::ways(&chunk, Logical(START), 100 * K).into_iter().chain([77, u32::MAX]) {
        pool.read_copy(Logical(START), &mut bytes, way).unwrap();
    }
}

#[test]
fn rows_with_a_superblock_are_left_out_whole() {
    let flags = BlockGroupFlags::DATA | BlockGroupFlags::RAID5;
    let stripes = vec![stripe(1, 63 * M), stripe(2, 10 * M), stripe(3, 10 * M)];
    let chunk = Chunk::new(Logical(START), 8 * M, flags, stripes).unwrap();
    // The second copy lies in row 16, whichever column the device holds there.
    assert_eq!(chunk_map::superblock_runs(&chunk), [(Logical(START + 2 * M), 128 * K)]);
}
