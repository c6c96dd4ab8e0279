//! Opens an image of any format, says which it is, and lists its root directory: `open_any IMAGE`.

use std::error::Error;

use spinney::VolumeOptions;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: open_any IMAGE")?;
    let volume = spinney::open(image, &VolumeOptions::new().read_only(true))?;
    let info = volume.info()?;
    println!("{} {:?}: {} bytes, {} free", info.format, info.label, info.total_bytes, info.free_bytes);
    if let Some(own) = volume.btrfs() {
        println!("{} subvolumes", own.subvolumes()?.len());
    }
    if let Some(own) = volume.f2fs() {
        println!("{} segments", own.info()?.segments);
    }
    for entry in volume.read_dir("/")? {
        println!("/{}", entry?.file_name().display());
    }
    Ok(())
}
