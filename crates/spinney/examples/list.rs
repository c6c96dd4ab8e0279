//! Lists everything in an image of any format, as `find -ls` would: `list IMAGE [PATH]`.
//!
//! The image is opened read-only: it may be in use by other readers.

use std::error::Error;
use std::path::{Path, PathBuf};

use spinney::{Volume, VolumeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let image = arguments.next().ok_or("usage: list IMAGE [PATH]")?;
    let start = arguments.next().map_or_else(|| PathBuf::from("/"), PathBuf::from);

    let volume = spinney::open(image, &VolumeOptions::new().read_only(true))?;
    let info = volume.info()?;
    println!("{}, label {:?}, {} of {} bytes free", info.format, info.label, info.free_bytes, info.total_bytes);
    list(&volume, &start)?;
    Ok(())
}

fn list(volume: &Volume, start: &Path) -> spinney::Result<()> {
    let mut todo = vec![start.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in volume.read_dir(&dir)? {
            let path = dir.join(entry?.file_name());
            let metadata = volume.symlink_metadata(&path)?;
            println!(
                "{:>8} {:06o} {:>3} {:>5}:{:<5} {:>12} {}",
                metadata.ino,
                metadata.mode(),
                metadata.nlink,
                metadata.uid,
                metadata.gid,
                metadata.size,
                path.display()
            );
            for name in volume.list_xattrs(&path)? {
                println!("{:>8} {}", "xattr", name.display());
            }
            if metadata.is_symlink() {
                println!("{:>8} {}", "->", volume.read_link(&path)?.display());
            }
            if metadata.is_dir() {
                todo.push(path);
            }
        }
    }
    Ok(())
}
