//! Send streams: what the decoder makes of any bytes, and of any attributes behind a right checksum.

use btrfs_stream::dump::Dump;
use btrfs_stream::{Command, Decoder, Encoder, Version};
use codec::checksum::crc32c_raw;

/// A stream. The first byte chooses: bit 0 the version, bit 1 whether the rest is the body of a stream, or attributes
/// of commands whose framing is made right here: a command's number, the length of its attributes, the attributes.
/// Gives how many commands could be read.
pub fn stream(data: &[u8]) -> usize {
    let Some((choice, rest)) = data.split_first() else {
        return 0;
    };
    let version = if choice & 1 == 0 { Version::V1 } else { Version::V2 };
    let mut bytes = Encoder::new(Vec::new(), version).expect("a vector takes everything").into_inner();
    if choice & 2 == 0 {
        bytes.extend_from_slice(rest);
    } else {
        frame(rest, &mut bytes);
    }
    let Ok(Some(mut decoder)) = Decoder::open(&bytes[..]) else {
        return 0;
    };
    let (mut dump, mut commands) = (Dump::new(), 0);
    while let Ok(Some(command)) = decoder.command() {
        dump.line(&command, &mut std::io::sink()).expect("a sink takes everything");
        assert_comes_back(&command, version);
        commands += 1;
    }
    commands
}

fn frame(mut rest: &[u8], bytes: &mut Vec<u8>) {
    while let Some(([number, l0, l1], behind)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([*l0, *l1])).min(behind.len());
        let (attributes, behind) = behind.split_at(len);
        let head = [&u32::try_from(len).expect("16 bits").to_le_bytes()[..], &[*number, 0]].concat();
        let sum = crc32c_raw(crc32c_raw(crc32c_raw(0, &head), &[0; 4]), attributes);
        bytes.extend_from_slice(&[&head, &sum.to_le_bytes()[..], attributes].concat());
        rest = behind;
    }
}

/// What was read can be written, and reads as the same again.
fn assert_comes_back(command: &Command<'_>, version: Version) {
    let mut encoder = Encoder::new(Vec::new(), version).expect("a vector takes everything");
    // A value of 64 KiB and its name are longer than a command of version 1 with all that the encoder adds.
    if encoder.command(command).is_err() {
        return;
    }
    let again = encoder.into_inner();
    let mut decoder = Decoder::open(&again[..]).expect("it was just written").expect("it is not empty");
    let found = decoder.command().expect("it was just written").expect("there is one");
    // Version 1 has no time of creation to write.
    if let (Command::Utimes { .. }, Version::V1) = (command, version) {
        return;
    }
    assert_eq!(found, *command);
}
