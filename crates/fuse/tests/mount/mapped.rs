//! A page that was stored into through a mapping, and not yet written back, was reported as a hole: `lseek` found no
//! data, and `cp` made a file of zeros.

use super::{Mounted, all_ways};
use std::process::Command;

/// Maps a new file that is mostly one hole, stores into that, and seeks through another descriptor. Prints whether
/// exactly the pages with data were found before that, the stored bytes in a copy that skips holes, and whether the
/// pages were found when the mapping was gone.
const PROGRAM: &str = "
import errno, mmap, os, sys, time
path, size, place = sys.argv[1], 1 << 20, 500000
writer = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(writer, size)
os.pwrite(writer, bytes(4096), 0)
reader = os.open(path, os.O_RDONLY)

def seek(offset, what):
    try:
        return os.lseek(reader, offset, what)
    except OSError as error:
        return errno.errorcode[error.errno]

def extents():
    found, offset = [], 0
    while isinstance(data := seek(offset, os.SEEK_DATA), int):
        offset = seek(data, os.SEEK_HOLE)
        found.append((data // mmap.PAGESIZE, offset // mmap.PAGESIZE))
    return found

before = extents()
mapped = mmap.mmap(writer, size)
mapped[place:place + 4] = b'page'
copy = bytearray(size)
for data, hole in extents():
    count = (hole - data) * mmap.PAGESIZE
    copy[data * mmap.PAGESIZE:hole * mmap.PAGESIZE] = os.pread(reader, count, data * mmap.PAGESIZE)
mapped.close()
os.close(writer)
page = place // mmap.PAGESIZE
wanted = [(0, 1), (page, page + 1)]
for _ in range(500):
    after = extents()
    if after == wanted:
        break
    time.sleep(0.01)
print(before == wanted[:1], copy[place:place + 4].decode(), after == wanted)
";

#[test]
fn what_is_stored_into_a_mapping_is_no_hole() {
    for options in all_ways() {
        let Some(mounted) = Mounted::new(options.clone()) else {
            return;
        };
        let asked = Command::new("python3").args(["-c", PROGRAM]).arg(mounted.path("f")).output();
        let Ok(asked) = asked else {
            return eprintln!("skipped: no python3 to ask with");
        };
        let error = String::from_utf8(asked.stderr).unwrap();
        let said = String::from_utf8(asked.stdout).unwrap();
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(words.len(), 3, "{options:?}: {error}");
        assert_eq!(words[1], "page", "{options:?}: stored data has to be copied");
        if !options.writeback && !options.zero_open {
            assert_eq!(words[0], "True", "{options:?}: the writer of a new file sees its holes");
            assert_eq!(words[2], "True", "{options:?}: a program that cannot map sees every hole");
        }
        mounted.unmount();
    }
}
