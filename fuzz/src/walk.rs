//! How a volume is looked at: every name, its attributes, and both ends of its contents.

use std::path::{Path, PathBuf};

use vfs::{File, Volume};

/// Names that a walk looks at: crafted directories may loop.
const NAMES_MAX: u64 = 300;
/// Bytes read of each end of a file.
const READ_MAX: usize = 256 << 10;

/// Looks at everything, within limits; how many names it saw.
pub(crate) fn walk(volume: &Volume) -> u64 {
    let mut todo = vec![PathBuf::from("/")];
    let mut names = 0;
    let mut buffer = vec![0; READ_MAX];
    while let Some(dir) = todo.pop() {
        let Ok(entries) = volume.read_dir(&dir) else {
            continue;
        };
        for entry in entries {
            names += 1;
            if names > NAMES_MAX {
                return names;
            }
            let Ok(entry) = entry else {
                break;
            };
            let path = dir.join(entry.file_name());
            if look(volume, &path, &mut buffer) {
                todo.push(path);
            }
        }
    }
    names
}

/// Looks at one name; whether it is a directory. One in eight is asked for what its kind does not have, too.
fn look(volume: &Volume, path: &Path, buffer: &mut [u8]) -> bool {
    let Ok(metadata) = volume.symlink_metadata(path) else {
        return false;
    };
    let asks_all = metadata.home.ino % 8 == 0;
    for name in volume.list_xattrs(path).unwrap_or_default() {
        let _ = volume.get_xattr(path, name.as_encoded_bytes());
    }
    if metadata.is_symlink() || asks_all {
        let _ = volume.read_link(path);
    }
    if metadata.is_file() || asks_all {
        read(volume, path, metadata.size, buffer);
    }
    metadata.is_dir() || asks_all
}

fn read(volume: &Volume, path: &Path, size: u64, buffer: &mut [u8]) {
    let Ok(file) = File::open(volume, path) else {
        return;
    };
    let _ = file.read_at(buffer, 0);
    let _ = file.read_at(&mut buffer[..8192], size.saturating_sub(5000));
    let _ = (file.extents(), file.seek_data(0), file.seek_hole(0));
}
