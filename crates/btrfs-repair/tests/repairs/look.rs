//! Reads the contents of a volume: names, types, links, modes and contents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockdev::Device;
use btrfs::Volume;
use vfs::file_system::NodeKind;

/// The compared properties of each path.
pub(crate) type Files = BTreeMap<PathBuf, String>;

/// Reads all of a volume, its log included.
pub(crate) fn at(device: &Arc<dyn Device>) -> Result<Files, String> {
    let options = Volume::options().workers(1).read_only(true);
    let volume = options.open_device(Arc::clone(device)).map_err(|error| error.to_string())?;
    let mut files = Files::new();
    let mut todo = vec![PathBuf::from("/")];
    while let Some(dir) = todo.pop() {
        let entries = volume.read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let path = dir.join(entry.file_name());
            let said = one(&volume, &path, entry.file_type())?;
            files.insert(path.clone(), said);
            if entry.file_type() == NodeKind::Directory {
                todo.push(path);
            }
        }
    }
    Ok(files)
}

fn one(volume: &Volume, path: &Path, kind: NodeKind) -> Result<String, String> {
    let of = |error: vfs::Error| format!("{}: {error}", path.display());
    let contents = match kind {
        NodeKind::File => {
            let bytes = volume.read(path).map_err(of)?;
            let sum = codec::checksum::checksum(codec::ChecksumType::Sha256, &bytes);
            format!("{} bytes {sum:02x?}", bytes.len())
        }
        NodeKind::Symlink => format!("{:?}", volume.read_link(path).map_err(of)?),
        _ => String::new(),
    };
    let about = volume.symlink_metadata(path).map_err(of)?;
    Ok(format!("{kind:?} {about:?} {contents}"))
}

pub(crate) fn difference(before: &Files, now: &Files) -> String {
    let gone = before.iter().find(|(path, said)| now.get(*path) != Some(said));
    let new = now.keys().find(|path| !before.contains_key(*path));
    match (gone, new) {
        (Some((path, said)), _) => format!("{}: was {said}, is {:?}", path.display(), now.get(path)),
        (None, Some(path)) => format!("{}: new", path.display()),
        (None, None) => "none".to_owned(),
    }
}

/// Writes a device to a file, without its zeros.
pub(crate) fn store(device: &dyn Device, path: &Path) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::create(path).unwrap();
    file.set_len(device.size_bytes()).unwrap();
    let mut piece = vec![0; 4 << 10];
    for offset in (0..device.size_bytes()).step_by(piece.len()) {
        // A sector that cannot be read is left empty.
        if device.read_at(offset, &mut piece).is_ok() && piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece, offset).unwrap();
        }
    }
}
