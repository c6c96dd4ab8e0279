//! `speed IMAGE`: reads and stats through the library, for `cargo xtask bindings-bench`; `bindings/bench/speed.c` and
//! `speed.py` do the same. For each line of the input (`read` or `stat`) it does the work once, and prints the seconds.
//! It makes the image if there is none: a file of 1 GiB, and a directory of 1000 files.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::time::Instant;

use spinney::{File, MakeOptions, OpenOptions, VolumeOptions};

const PIECE_BYTES: usize = 1 << 20;
const PIECES: u64 = 1 << 10;
const FILES: usize = 1000;
const STATS: usize = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: speed IMAGE")?;
    if !Path::new(&image).exists() {
        make(Path::new(&image))?;
    }
    let volume = spinney::open(&image, &VolumeOptions::new().read_only(true))?;
    let file = File::open(&volume, "/large")?;
    let names: Vec<String> = (0..FILES).map(|index| format!("/dir/file-{index}")).collect();
    let mut piece = vec![0; PIECE_BYTES];
    for line in std::io::stdin().lock().lines() {
        let begun = Instant::now();
        match &*line? {
            "read" => {
                let mut at = 0;
                loop {
                    match file.read_at(&mut piece, at)? {
                        0 => break,
                        count => at += u64::try_from(count)?,
                    }
                }
            }
            "stat" => {
                for name in names.iter().cycle().take(STATS) {
                    volume.metadata(name)?;
                }
            }
            other => return Err(format!("expected `read` or `stat`, found `{other}`").into()),
        }
        println!("{:.6}", begun.elapsed().as_secs_f64());
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Makes the image. Its data cannot be compressed.
fn make(image: &Path) -> spinney::Result<()> {
    let volume = spinney::make(image, "btrfs", &MakeOptions::new().size(3 << 30))?;
    volume.create_dir("dir")?;
    for index in 0..FILES {
        volume.write(format!("dir/file-{index}"), "")?;
    }
    let file = OpenOptions::new().write(true).create(true).open(&volume, "/large")?;
    let (mut piece, mut state) = (vec![0; PIECE_BYTES], 1u64);
    for index in 0..PIECES {
        for word in piece.chunks_exact_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&(state ^ (state >> 29)).to_le_bytes());
        }
        file.write_at(&piece, index << 20)?;
    }
    drop(file);
    volume.close()
}
