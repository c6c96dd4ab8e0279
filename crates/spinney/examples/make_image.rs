//! Makes an image with a few files in it: `make_image IMAGE`.

use std::error::Error;
use std::io::Write;

use spinney::{File, MakeOptions, XattrMode};

const IMAGE_BYTES: u64 = 128 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: make_image IMAGE")?;
    let make = MakeOptions::new().label("example").size(IMAGE_BYTES);
    let volume = spinney::make(image, "btrfs", &make)?;

    volume.create_dir_all("docs/letters")?;
    volume.write("docs/readme.txt", "Made without the kernel.\n")?;
    volume.set_permissions("docs/readme.txt", 0o600)?;
    volume.set_xattr("docs/readme.txt", "user.author", "nobody", XattrMode::Create)?;
    volume.hard_link("docs/readme.txt", "docs/letters/again.txt")?;
    volume.symlink("docs/letters", "post")?;

    let mut file = File::create(&volume, "post/numbers")?;
    for number in 0..100_000 {
        writeln!(file, "{number}")?;
    }
    file.sync_all()?;
    println!("{} bytes of numbers", file.metadata()?.size);
    drop(file);

    volume.close()?;
    Ok(())
}
