//! Send streams that are applied: commands with right checksums, of names and numbers that are near each other, so that
//! they meet.
//!
//! The first byte chooses: bit 0 the version, bit 1 whether the rest says which commands there are, or is attributes of
//! commands as in the target `stream`; bit 2 a receipt that can go on; bit 3 that it is cut short and goes on, at the
//! place that the second byte says.
//!
//! Whatever the stream says: nothing outside of its subvolumes changes, and what looks whole is what was reported as
//! received.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use btrfs_receive::{Options, Receiver};
use btrfs_stream::{CloneRange, Command, Compression, EncodedWrite, Encoder, Special, Time, Version};
use codec::checksum::crc32c_raw;

/// Bytes of the volume.
const SIZE: u64 = 128 << 20;
const PARENT: [u8; 16] = [8; 16];
const UUIDS: [[u8; 16]; 4] = [[7; 16], PARENT, [0; 16], [9; 16]];

const PATHS: [&[u8]; 24] = [
    b"",
    b"a",
    b"b",
    b"dir",
    b"dir/a",
    b"dir/b",
    b"dir/sub",
    b"link",
    b"link/a",
    b"up",
    b"up/outside",
    b"..",
    b"../outside",
    b"/outside",
    b"dir/..",
    b".",
    b"dir//a",
    b"dir/",
    b"inherited",
    b"deep/er/a",
    b"deep",
    b"deep/er",
    b"sub",
    b"nothing",
];
const TARGETS: [&[u8]; 4] = [b"..", b"/", b"dir", b""];
const NUMBERS: [u64; 18] = [
    0,
    1,
    17,
    2048,
    4095,
    4096,
    4097,
    8192,
    65_536,
    131_072,
    131_073,
    1 << 20,
    1 << 31,
    1 << 40,
    (1 << 63) - 4096,
    1 << 63,
    u64::MAX - 4095,
    u64::MAX,
];
const XATTRS: [&[u8]; 8] = [
    b"user.a",
    b"user.b",
    b"security.capability",
    b"system.posix_acl_access",
    b"trusted.a",
    b"btrfs.compression",
    b"user.spinney.unfinished",
    b"what",
];
const DATA: [u8; 8192] = [0x5a; 8192];

/// Takes an input apart; behind its end are zeros.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    fn path(&mut self) -> &'static [u8] {
        self.of(&PATHS)
    }

    fn number(&mut self) -> u64 {
        self.of(&NUMBERS)
    }

    fn data(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()) % 64;
        let (data, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        data
    }

    fn command(&mut self) -> Command<'a> {
        let op = self.byte() % 24;
        let path = self.path();
        let ino = None;
        match op {
            0 => Command::Mkfile { path, ino },
            1 => Command::Mkdir { path, ino },
            2 => Command::Symlink { path, ino, target: self.of(&TARGETS) },
            3 => Command::Rename { path, to: self.path() },
            4 => Command::Link { path, existing: self.path() },
            5 => Command::Unlink { path },
            6 => Command::Rmdir { path },
            7 => Command::Write { path, offset: self.number(), data: &DATA[..usize::from(self.byte()) * 32] },
            8 => Command::Write { path, offset: self.number(), data: self.data() },
            9 => Command::Truncate { path, size: self.number() },
            10 => Command::SetXattr { path, name: self.of(&XATTRS), value: self.data() },
            11 => Command::RemoveXattr { path, name: self.of(&XATTRS) },
            12 => Command::Chmod { path, mode: self.number() },
            13 => Command::Chown { path, uid: self.number(), gid: self.number() },
            14 => {
                let time = Time { seconds: i64::from_ne_bytes(self.number().to_ne_bytes()), nanoseconds: 5 };
                Command::Utimes { path, atime: time, mtime: time, ctime: time, otime: None }
            }
            15 => Command::Fileattr { path, flags: 1 << (self.byte() % 16) },
            16 => Command::Fallocate {
                path,
                mode: u32::from(self.byte() % 64),
                offset: self.number(),
                size: self.number(),
            },
            17 => Command::EncodedWrite(EncodedWrite {
                path,
                offset: self.number(),
                unencoded_file_len: self.number(),
                unencoded_len: self.number(),
                unencoded_offset: self.number(),
                compression: self.of(&[Compression::None, Compression::Zlib, Compression::Zstd]),
                data: self.data(),
            }),
            18 => Command::Mknod(Special { path, ino, mode: self.number(), rdev: self.number() }),
            19 => Command::Mkfifo(Special { path, ino, mode: 0o10_644, rdev: 0 }),
            20 => Command::UpdateExtent { path, offset: self.number(), size: self.number() },
            21 => {
                let (uuid, ctransid) = (self.of(&UUIDS), 5);
                Command::Subvol { path, uuid, ctransid }
            }
            _ => Command::Clone(CloneRange {
                path,
                offset: self.number(),
                len: self.number(),
                from_uuid: self.of(&UUIDS),
                from_ctransid: 5,
                from_path: self.path(),
                from_offset: self.number(),
            }),
        }
    }
}

/// A command behind what is there, as far as the version has it.
fn put(bytes: &mut Vec<u8>, version: Version, command: &Command<'_>) {
    let mut encoder = Encoder::new(Vec::new(), version).expect("a vector takes everything");
    let header = usize::try_from(encoder.position()).expect("it is short");
    if encoder.command(command).is_ok() {
        bytes.extend_from_slice(&encoder.into_inner()[header..]);
    }
}

/// The stream that an input means, and the choices.
fn stream_of(data: &[u8]) -> (Vec<u8>, u8, u8) {
    let mut input = Input(data);
    let (choice, cut) = (input.byte(), input.byte());
    let version = if choice & 1 == 0 { Version::V1 } else { Version::V2 };
    let mut bytes = Encoder::new(Vec::new(), version).expect("a vector takes everything").into_inner();
    let (uuid, ctransid) = (UUIDS[0], 5);
    let begin = match choice & 16 {
        0 => Command::Subvol { path: b"sub", uuid, ctransid },
        _ => Command::Snapshot { path: b"sub", uuid, ctransid, parent_uuid: PARENT, parent_ctransid: 1 },
    };
    put(&mut bytes, version, &begin);
    if choice & 2 == 0 {
        for command in [
            Command::Mkfile { path: b"a", ino: None },
            Command::Mkdir { path: b"dir", ino: None },
            Command::Symlink { path: b"up", ino: None, target: b".." },
            Command::Write { path: b"a", offset: 0, data: &DATA },
        ] {
            put(&mut bytes, version, &command);
        }
        while !input.0.is_empty() {
            let command = input.command();
            put(&mut bytes, version, &command);
        }
    } else {
        frame(input.0, &mut bytes);
    }
    put(&mut bytes, version, &Command::End);
    (bytes, choice, cut)
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

/// A small volume in memory, to which one stream after the other is applied.
pub struct Applier {
    device: Arc<MemoryDevice>,
    volume: Volume,
}

impl Applier {
    /// A volume with a file and a received subvolume.
    pub fn new() -> Self {
        let device = Arc::new(MemoryDevice::new(SIZE));
        let make = MakeOptions { size: Some(SIZE), ..MakeOptions::default() };
        let made = Volume::options().make_device(Arc::clone(&device) as Arc<dyn Device>, &make);
        let volume = made.expect("a volume in memory");
        volume.write("outside", "untouched").expect("there is room");
        let mut encoder = Encoder::new(Vec::new(), Version::V1).expect("a vector takes everything");
        for command in [
            Command::Subvol { path: b"parent", uuid: PARENT, ctransid: 1 },
            Command::Mkfile { path: b"inherited", ino: None },
            Command::Write { path: b"inherited", offset: 0, data: &DATA },
            Command::End,
        ] {
            encoder.command(&command).expect("a vector takes everything");
        }
        let mut receiver = Receiver::new(&volume, Path::new("/"), Options::default()).expect("the root is there");
        receiver.receive(&encoder.into_inner()[..], &(), &mut ()).expect("the stream is right");
        drop(receiver);
        Self { device, volume }
    }

    /// Applies the stream of an input and says what came of it.
    pub fn apply(&self, data: &[u8]) -> String {
        let (stream, choice, cut) = stream_of(data);
        let resumable = choice & 4 != 0;
        let options = Options { resumable, keep_interval_bytes: 500, ..Options::default() };
        let mut said = String::new();
        if resumable && choice & 8 != 0 {
            let cut = stream.len() * usize::from(cut) / 256;
            said = self.receive(&stream[..cut], options);
            said.push_str("; then ");
        }
        said.push_str(&self.receive(&stream, options));
        self.clear();
        said
    }

    fn receive(&self, stream: &[u8], options: Options) -> String {
        let mut receiver = Receiver::new(&self.volume, Path::new("/"), options).expect("the root is there");
        let result = receiver.receive(stream, &(), &mut ());
        let report = receiver.report().clone();
        if !options.resumable {
            // What is left of a stream that failed can be deleted.
            receiver.discard().expect("it can be deleted");
        }
        drop(receiver);
        self.assert_untouched(report.subvolumes.len() + report.present.len());
        result.map_or_else(|error| error.to_string(), |()| "received".to_owned())
    }

    fn assert_untouched(&self, received: usize) {
        assert_eq!(self.volume.read("outside").expect("it is there"), b"untouched");
        assert_eq!(self.volume.symlink_metadata("outside").expect("it is there").nlink, 1);
        assert_eq!(self.volume.read("parent/inherited").expect("it is there"), DATA);
        let subvolumes = self.volume.subvolumes().expect("they can be listed");
        let whole = subvolumes.iter().filter(|found| found.read_only || found.received_uuid != [0; 16]).count();
        assert!(whole <= 1 + received, "{received} received: {subvolumes:?}");
        let names = self.volume.read_dir("/").expect("it is there").count();
        assert_eq!(names, 1 + subvolumes.len(), "a name at the top that is no subvolume");
    }

    fn clear(&self) {
        for found in self.volume.subvolumes().expect("they can be listed") {
            if found.path != "parent" {
                self.volume.delete_subvolume(&found.path).expect("it can be deleted");
            }
        }
    }

    /// Makes everything durable and returns what the volume lies on.
    pub fn close(self) -> Arc<MemoryDevice> {
        self.volume.close().expect("it can be closed");
        self.device
    }
}

impl Default for Applier {
    fn default() -> Self {
        Self::new()
    }
}

thread_local! {
    static APPLIER: RefCell<Option<Applier>> = const { RefCell::new(None) };
}

/// Runs one input.
pub fn apply(data: &[u8]) {
    APPLIER.with_borrow_mut(|applier| {
        applier.get_or_insert_default().apply(data);
    });
}
