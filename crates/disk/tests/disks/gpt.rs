//! Partition tables, written and read beside the reference tools and the kernel, and tables that lie.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Place, Random, run, tool};
use crc_fast::{CrcAlgorithm, checksum};
use disk::gpt::{Attributes, KINDS, Partition, SectorSize, Table, kind_named};
use uuid::Uuid;

const MIB: u64 = 1 << 20;

fn id(number: u8) -> Uuid {
    Uuid::from_bytes([number; 16])
}

/// Three partitions, with names and attributes.
fn sample(size: SectorSize, disk_bytes: u64) -> Table {
    let mut table = Table::new(id(0xd1), size, disk_bytes).unwrap();
    let last = Attributes::GROW_FS.with(Attributes::LEGACY_BOOT);
    for (number, kind, name, size_bytes, attributes) in [
        (1, "esp", "esp", 8 * MIB, Attributes::default()),
        (2, "swap", "Größe 512", 3 * MIB + 4096, Attributes::READ_ONLY),
        (3, "root-x86-64", "a name of exactly thirty-six letters", 20 * MIB, last),
    ] {
        let first_sector = table.next_at_bytes().unwrap() / size.bytes();
        let last_sector = first_sector + size_bytes / size.bytes() - 1;
        let kind = kind_named(kind).unwrap();
        let name = name.to_owned();
        table.partitions.push(Partition {
            number,
            kind,
            id: id(number.try_into().unwrap()),
            first_sector,
            last_sector,
            attributes,
            name,
        });
    }
    table
}

fn image(table: &Table) -> Vec<u8> {
    let mut disk = Cursor::new(vec![0; usize::try_from(table.sector_count * table.sector_size.bytes()).unwrap()]);
    table.write(&mut disk).unwrap();
    disk.into_inner()
}

fn read(bytes: &[u8]) -> disk::Result<disk::gpt::Found> {
    Table::read(&mut Cursor::new(bytes), u64::try_from(bytes.len()).unwrap())
}

#[test]
fn a_table_is_read_as_it_was_written() {
    for size in SectorSize::ALL {
        let table = sample(size, 40 * MIB);
        let bytes = image(&table);
        assert!(bytes == image(&table), "the same bytes again");
        let found = read(&bytes).unwrap();
        assert!(found.damage.is_empty(), "{:?}", found.damage);
        assert_eq!(found.table, table);
        // Any byte of the first copy may be lost, or of the last.
        let sector = usize::try_from(size.bytes()).unwrap();
        for at in [sector + 1, sector + 60, 2 * sector + 33, bytes.len() - 1000, bytes.len() - sector + 17] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let found = read(&damaged).unwrap();
            if at < bytes.len() - sector {
                assert_eq!(found.damage.len(), 1, "{at}");
            }
            assert_eq!(found.table, table, "{at}");
        }
        let mut both = bytes;
        let end = both.len();
        both[sector + 60] ^= 1;
        both[end - sector + 60] ^= 1;
        let message = read(&both).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("partition table: checksum of the header at {sector}: expected")),
            "{message}"
        );
    }
}

#[test]
fn the_code_of_a_boot_loader_stays() {
    let table = sample(SectorSize::Bytes512, 40 * MIB);
    let mut disk = Cursor::new(vec![0x90; usize::try_from(40 * MIB).unwrap()]);
    table.write(&mut disk).unwrap();
    let bytes = disk.into_inner();
    assert!(bytes[..440].iter().all(|byte| *byte == 0x90));
    assert!(bytes[34 * 512..40 << 20][..1000].iter().all(|byte| *byte == 0x90));
    assert!(read(&bytes).unwrap().damage.is_empty());
}

#[test]
fn sgdisk_finds_no_problem_and_the_same_partitions() {
    let Some(sgdisk) = tool("sgdisk") else { return };
    let place = Place::new();
    for disk_bytes in [40 * MIB, 40 * MIB + 512, 3 << 40] {
        let table = sample(SectorSize::Bytes512, disk_bytes);
        let mut file = place.create("disk");
        file.set_len(disk_bytes).unwrap();
        table.write(&mut file).unwrap();
        let verified = run(Command::new(&sgdisk).arg("-v").arg(place.path("disk")));
        assert!(verified.contains("No problems found"), "{verified}");
        for partition in &table.partitions {
            let info = run(Command::new(&sgdisk).arg(format!("-i{}", partition.number)).arg(place.path("disk")));
            for expected in [
                format!("code: {}", partition.kind.to_string().to_uppercase()),
                format!("GUID: {}", partition.id.to_string().to_uppercase()),
                format!("First sector: {} ", partition.first_sector),
                format!("Last sector: {} ", partition.last_sector),
                format!("flags: {:016X}", partition.attributes.0),
                format!("name: '{}'", partition.name),
            ] {
                assert!(info.contains(&expected), "{expected}\n{info}");
            }
        }
        if let Some(sfdisk) = tool("sfdisk") {
            run(Command::new(sfdisk).arg("--verify").arg(place.path("disk")));
        }
    }
}

#[test]
fn a_table_of_sgdisk_is_read() {
    let Some(sgdisk) = tool("sgdisk") else { return };
    let place = Place::new();
    let mut file = place.create("disk");
    file.set_len(64 * MIB).unwrap();
    run(Command::new(sgdisk)
        .args(["-n1:0:+8M", "-t1:ef00", "-c1:boot", "-n5:0:0", "-t5:8304", "-A5:set:60"])
        .arg(place.path("disk")));
    let found = Table::read(&mut file, 64 * MIB).unwrap();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    let told: Vec<_> = found.table.partitions.iter().map(|one| (one.number, one.name.as_str(), one.kind)).collect();
    let [esp, root] = ["esp", "root-x86-64"].map(|name| kind_named(name).unwrap());
    assert_eq!(told[0], (1, "boot", esp));
    assert_eq!((told[1].0, told[1].2), (5, root));
    assert_eq!(found.table.partitions[1].attributes, Attributes::READ_ONLY);
}

/// A loop device, which ends with the test.
struct Loop(PathBuf);

impl Loop {
    fn new(losetup: &Path, file: &Path, size: SectorSize) -> Option<Self> {
        let size = size.bytes().to_string();
        let made = Command::new(losetup).args(["-P", "-b", &size, "--show", "-f"]).arg(file).output().unwrap();
        if !made.status.success() {
            println!("skipped: losetup: {}", String::from_utf8_lossy(&made.stderr));
            return None;
        }
        Some(Self(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _status = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn the_kernel_finds_the_same_partitions() {
    let Some(losetup) = tool("losetup") else { return };
    for size in SectorSize::ALL {
        let place = Place::new();
        let table = sample(size, 40 * MIB);
        let mut file = place.create("disk");
        file.set_len(40 * MIB).unwrap();
        table.write(&mut file).unwrap();
        drop(file);
        let Some(device) = Loop::new(&losetup, &place.path("disk"), size) else { return };
        let name = device.0.file_name().unwrap().to_str().unwrap().to_owned();
        if let Some(partx) = tool("partx") {
            let shown = run(Command::new(partx).args(["-g", "-o", "NR,START,END,UUID", "--raw"]).arg(&device.0));
            let expected: String = table
                .partitions
                .iter()
                .map(|one| {
                    // It counts in sectors of 512 bytes.
                    let scale = size.bytes() / 512;
                    format!(
                        "{} {} {} {}\n",
                        one.number,
                        one.first_sector * scale,
                        (one.last_sector + 1) * scale - 1,
                        one.id
                    )
                })
                .collect();
            assert_eq!(shown, expected);
        }
        if let Some(sgdisk) = tool("sgdisk") {
            let verified = run(Command::new(sgdisk).arg("-v").arg(&device.0));
            assert!(verified.contains("No problems found"), "{verified}");
        }
        // A kernel without this kind of table takes the partitions from `partx`, which reads it by itself.
        let is_scanned = Path::new(&format!("/sys/block/{name}/{name}p1")).exists();
        println!("the kernel {} this kind of table", if is_scanned { "knows" } else { "does not know" });
        if let Some(partx) = tool("partx").filter(|_| !is_scanned) {
            run(Command::new(partx).arg("-a").arg(&device.0));
        }
        for one in &table.partitions {
            let dir = PathBuf::from(format!("/sys/block/{name}/{name}p{}", one.number));
            if !dir.exists() {
                println!("skipped: the kernel made no {}", dir.display());
                continue;
            }
            let number = |file| std::fs::read_to_string(dir.join(file)).unwrap().trim().parse::<u64>().unwrap();
            assert_eq!(number("start") * 512, one.first_sector * size.bytes());
            assert_eq!(number("size") * 512, (one.last_sector + 1 - one.first_sector) * size.bytes());
            println!("{}: as planned", dir.display());
        }
    }
}

#[test]
fn types_have_the_numbers_that_systemd_knows() {
    let Some(systemd_id) = tool("systemd-id128") else { return };
    let list = run(Command::new(systemd_id).args(["show", "--uuid"]));
    let mut count = 0;
    for (name, kind) in KINDS {
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(name));
        if let Some(line) = line {
            assert!(line.contains(&kind.to_string()), "{name}: {line}");
            count += 1;
        } else {
            println!("systemd does not know {name}");
        }
    }
    assert!(count >= 25, "{count}");
}

/// Sets a field of the header at a sector, and makes its checksum right again.
fn lie(bytes: &mut [u8], header_at: usize, field_at: usize, value: &[u8]) {
    bytes[header_at + field_at..][..value.len()].copy_from_slice(value);
    bytes[header_at + 16..header_at + 20].fill(0);
    let crc = u32::try_from(checksum(CrcAlgorithm::Crc32IsoHdlc, &bytes[header_at..header_at + 92])).unwrap();
    bytes[header_at + 16..header_at + 20].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_header_that_lies_is_named() {
    let whole = image(&sample(SectorSize::Bytes512, 40 * MIB));
    let max = u64::MAX.to_le_bytes();
    let cases: [(usize, &[u8], &str); 12] = [
        (8, &[2, 0, 1, 0], "revision at 512"),
        (24, &[2], "own sector at 512: expected 1, found 2"),
        (40, &max, "usable sectors at 512"),
        (48, &max, "usable sectors at 512"),
        (72, &max, "sectors of the entries at 512"),
        (72, &[1, 0], "sectors of the entries at 512"),
        (80, &[0xff, 0xff, 0xff, 0xff], "number of entries at 512: expected 1 to 1024, found 4294967295"),
        (80, &[0, 0, 0, 0], "number of entries at 512"),
        (80, &[0, 4, 0, 0], "sectors of the entries at 512"),
        (84, &[0, 0, 0, 0x80], "size of an entry at 512: expected a power of two of 128 to 4096, found 2147483648"),
        (84, &[129, 0, 0, 0], "size of an entry at 512"),
        (88, &[1, 2, 3, 4], "checksum of the entries at 1024: expected 0x04030201"),
    ];
    for (field_at, value, expected) in cases {
        let mut bytes = whole.clone();
        lie(&mut bytes, 512, field_at, value);
        let damage = read(&bytes).unwrap().damage;
        assert!(damage[0].to_string().contains(expected), "{expected}: {}", damage[0]);
    }
    let mut short = whole.clone();
    short[512 + 12] = 91;
    assert!(
        read(&short).unwrap().damage[0].to_string().contains("size of the header at 512: expected 92 to 512, found 91")
    );
}

#[test]
fn partitions_that_cannot_be_are_named() {
    let table = sample(SectorSize::Bytes512, 40 * MIB);
    let refused = |change: &dyn Fn(&mut Vec<Partition>)| {
        let mut table = table.clone();
        change(&mut table.partitions);
        let message = table.check().unwrap_err().to_string();
        assert_eq!(table.write(&mut Cursor::new(Vec::new())).unwrap_err().to_string(), message);
        message
    };
    let first = table.partitions[0].last_sector;
    assert_eq!(
        refused(&|all| all[1].first_sector = first),
        format!(
            "partition 2 `Größe 512`: expected free sectors of {} to {}, found {first} to {}",
            first + 1,
            table.last_usable,
            table.partitions[1].last_sector
        )
    );
    assert!(refused(&|all| all[2].last_sector = u64::MAX).contains("found 26624 to 18446744073709551615"));
    assert!(refused(&|all| all[0].first_sector = 0).contains("expected free sectors of 34"));
    assert!(refused(&|all| all[0].number = 129).contains("expected a number of 1 to 128, found 129"));
    assert!(refused(&|all| all[0].number = 2).contains("expected a number of its own"));
    assert!(refused(&|all| all[0].id = id(2)).contains("expected an identifier of its own"));
    assert!(refused(&|all| all[0].name = "x".repeat(37)).contains("37 units"));
    assert!(refused(&|all| all[0].kind = Uuid::nil()).contains("expected a type, found none"));
    assert!(Table::new(id(1), SectorSize::Bytes512, 1000).is_err());
    assert!(Table::new(id(1), SectorSize::Bytes4096, u64::MAX).is_err());
}

#[test]
fn twenty_thousand_damaged_tables_are_errors_or_tables() {
    let mut random = Random::new(2024);
    let wholes = SectorSize::ALL.map(|size| (size, image(&sample(size, 40 * MIB))));
    // A small disk, so that each case is fast: the partitions' own sectors are left out.
    let smalls = wholes.map(|(size, whole)| {
        let mut table = read(&whole).unwrap().table;
        table.partitions.truncate(1);
        let disk_bytes = 2 * MIB + 512 * 1024;
        let mut small = Table::new(table.id, size, disk_bytes).unwrap();
        let first_sector = MIB / size.bytes();
        let one = &table.partitions[0];
        small.partitions = vec![Partition { first_sector, last_sector: first_sector + 9, ..one.clone() }];
        (size, image(&small))
    });
    let (mut read_count, mut refused_count) = (0, 0);
    for case in 0..20_000 {
        let (size, whole) = &smalls[random.index(2)];
        let mut bytes = whole.clone();
        let sector = usize::try_from(size.bytes()).unwrap();
        let end = bytes.len();
        for header_at in [sector, end - sector] {
            let values = [0, 1, u64::MAX, 1 << random.below(64), random.next()];
            let value = values[random.index(values.len())].to_le_bytes();
            let len = [1, 2, 4, 8][random.index(4)];
            match random.below(3) {
                0 => lie(&mut bytes, header_at, 24 + random.index(68 - len), &value[..len]),
                1 => {
                    // An entry that lies, with right checksums.
                    let array_at = if header_at == sector { 2 * sector } else { end - sector - 128 * 128 };
                    let at = array_at + random.index(256);
                    bytes[at..at + len].copy_from_slice(&value[..len]);
                    let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, &bytes[array_at..array_at + 128 * 128]);
                    lie(&mut bytes, header_at, 88, &u32::try_from(crc).unwrap().to_le_bytes());
                }
                _ => bytes[header_at + random.index(512)] ^= 1 << random.below(8),
            }
        }
        if random.below(10) == 0 {
            bytes.truncate(random.index(bytes.len()));
        }
        match read(&bytes) {
            Ok(found) => {
                read_count += 1;
                // Identifiers may exist twice; then that is told.
                if let Err(error) = found.table.check() {
                    assert!(error.to_string().contains("an identifier of its own"), "case {case}: {error}");
                    assert!(!found.damage.is_empty(), "case {case}");
                }
            }
            Err(error) => {
                refused_count += 1;
                assert!(error.to_string().starts_with("partition"), "case {case}: {error}");
            }
        }
    }
    println!("{read_count} read, {refused_count} refused");
    assert!(read_count > 1000 && refused_count > 1000);
}

#[test]
fn blkid_finds_the_swap_area() {
    let place = Place::new();
    let mut file = place.create("swap");
    for (size_bytes, label) in [(40_960, ""), (64 * MIB, "label 15 bytes.")] {
        file.set_len(0).unwrap();
        file.set_len(size_bytes).unwrap();
        disk::swap::write(&mut file, 0, size_bytes, id(0x5a), label).unwrap();
        if let Some(blkid) = tool("blkid") {
            let told = run(Command::new(blkid).args(["-p", "-o", "export"]).arg(place.path("swap")));
            assert!(told.contains("TYPE=swap") && told.contains(&format!("UUID={}", id(0x5a))), "{told}");
        }
        if let Some(swaplabel) = tool("swaplabel") {
            let told = run(Command::new(swaplabel).arg(place.path("swap")));
            assert!(told.contains(&format!("UUID:  {}", id(0x5a))) && told.contains(label), "{told}");
        }
        same_as_mkswap(&place, &file, size_bytes, label);
    }
    for (size_bytes, label) in [(40_959, ""), ((1 << 44) + 4096, ""), (MIB, "label 16 bytes.."), (MIB, "\0")] {
        assert!(disk::swap::first_page(size_bytes, id(1), label).is_err(), "{size_bytes} {label}");
    }
}

fn same_as_mkswap(place: &Place, file: &File, size_bytes: u64, label: &str) {
    let Some(mkswap) = tool("mkswap") else { return };
    place.create("other").set_len(size_bytes).unwrap();
    let mut command = Command::new(mkswap);
    command.args(["-q", "-p", "4096", "-U", &id(0x5a).to_string()]);
    if !label.is_empty() {
        command.args(["-L", label]);
    }
    run(command.arg(place.path("other")));
    assert_eq!(file.metadata().unwrap().len(), size_bytes);
    assert!(
        std::fs::read(place.path("other")).unwrap() == std::fs::read(place.path("swap")).unwrap(),
        "mkswap's differs"
    );
}
