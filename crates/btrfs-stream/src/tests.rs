use super::*;

/// Numbers from a seed: xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, len_max: u64) -> Vec<u8> {
        let len = self.below(len_max + 1);
        (0..len).map(|_| self.next().to_le_bytes()[3]).collect()
    }

    fn string(&mut self) -> Vec<u8> {
        let mut bytes = self.bytes(60);
        bytes.iter_mut().for_each(|byte| *byte = (*byte).max(1));
        bytes
    }

    fn uuid(&mut self) -> Uuid {
        let [a, b] = [self.next(), self.next()].map(u64::to_le_bytes);
        [a, b].concat().try_into().unwrap()
    }

    fn time(&mut self) -> Time {
        let nanoseconds = u32::try_from(self.below(1_000_000_000)).unwrap();
        Time { seconds: i64::from_le_bytes(self.next().to_le_bytes()), nanoseconds }
    }

    fn ino(&mut self) -> Option<u64> {
        (self.below(3) > 0).then(|| self.next())
    }
}

/// Data that random commands borrow.
struct Parts {
    path: Vec<u8>,
    other: Vec<u8>,
    data: Vec<u8>,
}

fn random_parts(random: &mut Random, version: Version) -> Parts {
    let data_max = if version == Version::V1 { 60_000 } else { 200_000 };
    let data_max = if random.below(10) == 0 { data_max } else { 100 };
    Parts { path: random.string(), other: random.string(), data: random.bytes(data_max) }
}

fn random_command<'a>(random: &mut Random, number: u64, version: Version, parts: &'a Parts) -> Command<'a> {
    let Parts { path, other, data } = parts;
    let xattr = &data[..data.len().min(60_000)];
    match number {
        1 => Command::Subvol { path, uuid: random.uuid(), ctransid: random.next() },
        2 => Command::Snapshot {
            path,
            uuid: random.uuid(),
            ctransid: random.next(),
            parent_uuid: random.uuid(),
            parent_ctransid: random.next(),
        },
        3 => Command::Mkfile { path, ino: random.ino() },
        4 => Command::Mkdir { path, ino: random.ino() },
        5..=7 => {
            let special = Special { path, ino: random.ino(), mode: random.next(), rdev: random.next() };
            [Command::Mknod, Command::Mkfifo, Command::Mksock][usize::try_from(number - 5).unwrap()](special)
        }
        8 => Command::Symlink { path, ino: random.ino(), target: other },
        9 => Command::Rename { path, to: other },
        10 => Command::Link { path, existing: other },
        11 => Command::Unlink { path },
        12 => Command::Rmdir { path },
        13 => Command::SetXattr { path, name: other, value: xattr },
        14 => Command::RemoveXattr { path, name: other },
        15 => Command::Write { path, offset: random.next(), data },
        16 => Command::Clone(CloneRange {
            path,
            offset: random.next(),
            len: random.next(),
            from_uuid: random.uuid(),
            from_ctransid: random.next(),
            from_path: other,
            from_offset: random.next(),
        }),
        17 => Command::Truncate { path, size: random.next() },
        18 => Command::Chmod { path, mode: random.next() },
        19 => Command::Chown { path, uid: random.next(), gid: random.next() },
        20 => Command::Utimes {
            path,
            atime: random.time(),
            mtime: random.time(),
            ctime: random.time(),
            otime: (version == Version::V2 && random.below(2) == 0).then(|| random.time()),
        },
        21 => Command::End,
        22 => Command::UpdateExtent { path, offset: random.next(), size: random.next() },
        23 => Command::Fallocate { path, mode: 3, offset: random.next(), size: random.next() },
        24 => Command::Fileattr { path, flags: random.next() },
        _ => Command::EncodedWrite(EncodedWrite {
            path,
            offset: random.next(),
            unencoded_file_len: random.next(),
            unencoded_len: random.next(),
            unencoded_offset: random.next(),
            compression: Compression::from_raw(u32::try_from(random.below(8)).unwrap()).unwrap(),
            data,
        }),
    }
}

const LAST: [(Version, u64); 2] = [(Version::V1, 22), (Version::V2, 25)];

#[test]
fn every_command_comes_back_as_it_was_written() {
    for (version, last) in LAST {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let parts: Vec<Parts> = (0..40 * last).map(|_| random_parts(&mut random, version)).collect();
        let numbers = (1..=last).cycle();
        let commands: Vec<Command<'_>> = parts
            .iter()
            .zip(numbers)
            .map(|(parts, number)| random_command(&mut random, number, version, parts))
            .collect();
        let mut encoder = Encoder::new(Vec::new(), version).unwrap();
        for command in &commands {
            encoder.command(command).unwrap();
        }
        let end = encoder.position();
        let stream = encoder.into_inner();
        assert_eq!(u64::try_from(stream.len()).unwrap(), end);

        let mut decoder = Decoder::open(&stream[..]).unwrap().unwrap();
        assert_eq!(decoder.version(), version);
        for command in &commands {
            assert_eq!(decoder.command().unwrap().as_ref(), Some(command));
        }
        assert!(decoder.command().unwrap().is_none());
        assert_eq!(decoder.position(), end);
        assert!(!decoder.next_stream().unwrap());
    }
}

/// One stream with each command of its version.
fn sample(version: Version, last: u64) -> Vec<u8> {
    let mut random = Random(77);
    let mut encoder = Encoder::new(Vec::new(), version).unwrap();
    for number in (1..=last).filter(|number| *number != 21).chain([21]) {
        let parts = Parts { path: b"some/path".to_vec(), other: b"other".to_vec(), data: random.bytes(30) };
        encoder.command(&random_command(&mut random, number, version, &parts)).unwrap();
    }
    encoder.into_inner()
}

/// Decodes and dumps as far as possible. Returns whether the last command was the end command.
fn read_all(stream: &[u8]) -> Result<bool> {
    let Some(mut decoder) = Decoder::open(stream)? else {
        return Ok(false);
    };
    let mut dump = dump::Dump::new();
    let mut was_end = false;
    while let Some(command) = decoder.command()? {
        was_end = command == Command::End;
        dump.line(&command, &mut std::io::sink()).unwrap();
    }
    Ok(was_end)
}

#[test]
fn a_stream_that_was_cut_short_never_looks_whole() {
    for (version, last) in LAST {
        let stream = sample(version, last);
        assert!(read_all(&stream).unwrap());
        for len in 0..stream.len() {
            assert!(!matches!(read_all(&stream[..len]), Ok(true)), "{len} bytes of version {version}");
        }
    }
}

#[test]
fn every_flipped_bit_behind_the_header_is_noticed() {
    for (version, last) in LAST {
        let stream = sample(version, last);
        for at in 0..stream.len() {
            for bit in 0..8 {
                let mut damaged = stream.clone();
                damaged[at] ^= 1 << bit;
                // In a header of version 1, the bytes for 0, 2 or 3 give another valid header, and decoding follows
                // that version.
                let is_version = (13..17).contains(&at);
                let result = read_all(&damaged);
                assert!(is_version || result.is_err(), "bit {bit} of byte {at} of version {version}: {result:?}");
            }
        }
    }
}

#[test]
fn random_attributes_with_a_right_checksum_never_panic() {
    let mut random = Random(4711);
    for round in 0..20_000u32 {
        let version = if round % 2 == 0 { Version::V1 } else { Version::V2 };
        let mut stream = Encoder::new(Vec::new(), version).unwrap().into_inner();
        let mut attributes = Vec::new();
        for _ in 0..random.below(6) {
            let value = random.bytes(20);
            attributes.extend_from_slice(&random.below(34).to_le_bytes()[..2]);
            let len = if random.below(5) == 0 { random.below(30) } else { u64::try_from(value.len()).unwrap() };
            attributes.extend_from_slice(&len.to_le_bytes()[..2]);
            attributes.extend_from_slice(&value);
        }
        let number = u16::try_from(random.below(30)).unwrap();
        stream.extend_from_slice(&u32::try_from(attributes.len()).unwrap().to_le_bytes());
        stream.extend_from_slice(&number.to_le_bytes());
        stream.extend_from_slice(&decoder::checksum(number, &attributes).to_le_bytes());
        stream.extend_from_slice(&attributes);
        let _ = read_all(&stream);
    }
}

#[test]
fn lengths_that_lie_cost_no_memory() {
    for version in [Version::V1, Version::V2] {
        let header = Encoder::new(Vec::new(), version).unwrap().into_inner();
        for len in [u32::MAX, 1 << 31, u32::try_from(version.command_size_max()).unwrap() - 9] {
            let stream = [&header[..], &len.to_le_bytes(), &[0; 6]].concat();
            assert!(matches!(read_all(&stream), Err(Error::TooLong { .. })), "{len} in version {version}");
        }
        let len = u32::try_from(version.command_size_max()).unwrap() - 10;
        let stream = [&header[..], &len.to_le_bytes(), &[0; 6]].concat();
        let mut decoder = Decoder::open(&stream[..]).unwrap().unwrap();
        assert!(matches!(decoder.command(), Err(Error::Truncated { .. })));
    }
}

#[test]
fn what_a_version_cannot_hold_is_refused_by_name() {
    let mut encoder = Encoder::new(Vec::new(), Version::V1).unwrap();
    let start = encoder.position();
    let refused = [
        Command::Fileattr { path: b"f", flags: 0 },
        Command::Write { path: b"f", offset: 0, data: &[0; 65_536] },
        Command::Write { path: b"f", offset: 0, data: &[0; 65_510] },
        Command::Unlink { path: b"a\0b" },
        Command::Unlink { path: &[b'a'; 4096] },
    ];
    for command in refused {
        let error = encoder.command(&command).unwrap_err();
        assert_eq!(encoder.position(), start, "{error}");
    }
    let mut stream = encoder.into_inner();
    stream.extend_from_slice(&[0, 0, 0, 0, 26, 0]);
    stream.extend_from_slice(&decoder::checksum(26, &[]).to_le_bytes());
    let error = read_all(&stream).unwrap_err().to_string();
    assert!(error.contains("enable_verity"), "{error}");
}

#[test]
fn streams_follow_each_other() {
    let mut encoder = Encoder::new(Vec::new(), Version::V2).unwrap();
    encoder.command(&Command::End).unwrap();
    encoder.header().unwrap();
    encoder.command(&Command::Rmdir { path: b"d" }).unwrap();
    encoder.command(&Command::End).unwrap();
    let stream = encoder.into_inner();
    let mut decoder = Decoder::open(&stream[..]).unwrap().unwrap();
    assert_eq!(decoder.command().unwrap(), Some(Command::End));
    assert!(decoder.next_stream().unwrap());
    assert_eq!(decoder.command().unwrap(), Some(Command::Rmdir { path: b"d" }));
    assert_eq!(decoder.command().unwrap(), Some(Command::End));
    assert!(!decoder.next_stream().unwrap());
}
