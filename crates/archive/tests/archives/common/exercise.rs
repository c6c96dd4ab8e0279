//! Reads hostile bytes in every way that programs read archives, and everything that comes of it. The seeded test of
//! mutations and the fuzz targets share it.

use std::io::{Cursor, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::LazyLock;

use archive::tar::{WriteOptions, write};
use archive::{Accounts, Input, ReadOptions, cpio, read_into, tar};
use transfer::Tree;
use vfs::file_system::Time;

/// Bytes of one file that are read, from its begin: holes may be larger than any memory.
const READ_BYTES_MAX: usize = 64 << 10;
/// Sizes of files above which a tree is not written again.
const WRITTEN_BYTES_MAX: u64 = 1 << 20;

static OPTIONS: LazyLock<ReadOptions> = LazyLock::new(|| ReadOptions {
    temp_dir: temp_dir(),
    max_bytes: 4 << 20,
    accounts: Accounts::parse("root:x:0:", "root:x:0:"),
});

/// A directory in memory where there is one: most of the time would go into making files.
fn temp_dir() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// Reads an archive from a stream and from a file. Both end alike. Returns whether it was read.
pub(crate) fn exercise(bytes: &[u8]) -> bool {
    let mut file = tempfile::tempfile_in(&OPTIONS.temp_dir).expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    std::io::Seek::rewind(&mut file).expect("a file seeks");
    let file = std::sync::Arc::new(file);
    let in_file = || Input::part(std::sync::Arc::clone(&file), 0, u64::try_from(bytes.len()).expect("64 bits"));
    let streamed = read(Input::stream(Cursor::new(bytes.to_vec())), false);
    let filed = read(in_file(), true);
    match (&streamed, &filed) {
        (Ok(streamed), Ok(filed)) => assert_eq!(streamed, filed),
        (Err(streamed), Err(filed)) => assert_eq!(streamed, filed),
        _ => panic!("as a stream {streamed:?}, as a file {filed:?}"),
    }
    members(in_file());
    streamed.is_ok()
}

/// Words for a whole tree; or the failure. With `writes`, the tree is written, too.
fn read(input: Input, writes: bool) -> Result<String, String> {
    let mut tree = Tree::new(Time::default());
    read_into(&mut tree, input, &OPTIONS, &()).map_err(|error| error.to_string())?;
    let mut shown = String::new();
    let mut bytes: u64 = 0;
    for (path, number) in tree.walk() {
        let node = tree.node(number);
        bytes = bytes.saturating_add(node.attr.size);
        shown.push_str(&format!("{path:?} {:?} {:?} {:?}\n", node.attr, node.target, node.xattrs));
        if let Some(stored) = &node.contents {
            let contents = stored.open().expect("contents open");
            let mut buffer = vec![0; READ_BYTES_MAX.min(usize::try_from(node.attr.size).unwrap_or(READ_BYTES_MAX))];
            let mut at = 0;
            while at < buffer.len() {
                let position = u64::try_from(at).expect("64 bits");
                match contents.read_at(&mut buffer[at..], position).expect("contents are read") {
                    0 => panic!("{path:?} ends at byte {at} of {}", node.attr.size),
                    count => at += count,
                }
            }
            shown.push_str(&format!("{:x}\n", sum(&buffer)));
            let mut end = 0;
            while let Some((start, stop)) = contents.next_data(end, node.attr.size).expect("data is found") {
                assert!(start >= end && stop > start && stop <= node.attr.size, "{path:?}: {start} {stop}");
                end = stop;
            }
        }
    }
    if bytes < WRITTEN_BYTES_MAX && writes {
        again(&tree);
    }
    Ok(shown)
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// A tree that was read is written, read and written: both archives are the same.
fn again(tree: &Tree) {
    // Zeros of a stream become holes, so that archives without holes would differ.
    let options = WriteOptions::default();
    let written = |tree: &Tree| {
        let mut bytes = Vec::new();
        write(tree, &mut bytes, &options, &()).map(|()| bytes).map_err(|error| error.to_string())
    };
    let Ok(first) = written(tree) else { return };
    let mut second = Tree::new(Time::default());
    let read = read_into(&mut second, Input::stream(Cursor::new(first.clone())), &OPTIONS, &());
    // Names that lead through a link are other names when they are written.
    if read.is_ok() {
        assert!(written(&second).is_ok_and(|second| second == first), "read and written again it differs");
    }
}

/// Reads the members without a tree, by the readers of both formats.
fn members(input: Input) {
    let Ok(mut stream) = archive::decompressed(input) else { return };
    let mut bytes = Vec::new();
    if stream.by_ref().take(1 << 20).read_to_end(&mut bytes).is_err() {
        return;
    }
    if let Ok(mut members) = tar::Members::new(Input::stream(Cursor::new(bytes.clone())), &OPTIONS) {
        while let Ok(Some(_)) = members.next_member() {}
        assert!(members.next_member().is_ok_and(|member| member.is_none()));
    }
    if let Ok(mut members) = cpio::Members::new(Input::stream(Cursor::new(bytes)), &OPTIONS) {
        while let Ok(Some(_)) = members.next_member() {}
    }
}
