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
            look(volume, &path, &mut buffer);
            todo.push(path);
        }
    }
    names
}

fn look(volume: &Volume, path: &Path, buffer: &mut [u8]) {
    let Ok(metadata) = volume.symlink_metadata(path) else {
        return;
    };
    for name in volume.list_xattrs(path).unwrap_or_default() {
        let _ = volume.get_xattr(path, name.as_encoded_bytes());
    }
    let _ = volume.read_link(path);
    let Ok(file) = File::open(volume, path) else {
        return;
    };
    let _ = file.read_at(buffer, 0);
    let _ = file.read_at(&mut buffer[..8192], metadata.size.saturating_sub(5000));
    let _ = (file.extents(), file.seek_data(0), file.seek_hole(0));
}
