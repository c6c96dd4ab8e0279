//! `read_speed IMAGE PATH [PASSES]`: reads a file in pieces of 1 MiB, and prints the bytes of a second for each pass.
//! `read_speed.c` does the same through the interface for C.

use std::time::Instant;

use spinney::{File, VolumeOptions};

const PIECE_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: read_speed IMAGE PATH [PASSES]".into());
    };
    let passes: u32 = arguments.next().and_then(|count| count.to_str()?.parse().ok()).unwrap_or(1);
    let volume = spinney::open(&image, &VolumeOptions::new().read_only(true))?;
    let file = File::open(&volume, &path)?;
    let mut piece = vec![0; PIECE_BYTES];
    for _ in 0..passes {
        let (begin, mut at) = (Instant::now(), 0u64);
        loop {
            match file.read_at(&mut piece, at)? {
                0 => break,
                count => at += u64::try_from(count)?,
            }
        }
        let ms = begin.elapsed().as_millis().max(1);
        println!("{at} bytes, {} MiB/s", u128::from(at) * 1000 / ms / (1 << 20));
    }
    Ok(())
}
