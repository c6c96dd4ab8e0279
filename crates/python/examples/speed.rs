//! Measures reads and stats through the library, for comparison with `bindings/python/examples/speed.py`, which makes
//! the image: `cargo run --profile wheel -p spinney-python --example speed -- IMAGE`.

use std::time::Instant;

use spinney::{File, VolumeOptions};

const PIECE_BYTES: usize = 1 << 20;
const STAT_COUNT: usize = 100_000;
/// Runs, of which the fastest counts.
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args_os().nth(1).ok_or("expected the path of an image")?;
    let volume = spinney::open(image, &VolumeOptions::new().read_only(true))?;
    let names: Vec<String> = (0..1000).map(|index| format!("/dir/file-{index}")).collect();
    let (mut read_s, mut stat_s) = (f64::MAX, f64::MAX);
    let mut buffer = vec![0; PIECE_BYTES];
    for _ in 0..RUNS {
        let file = File::open(&volume, "/large")?;
        let (begun, mut at) = (Instant::now(), 0);
        loop {
            let done = file.read_at(&mut buffer, at)?;
            if done == 0 {
                break;
            }
            at += u64::try_from(done)?;
        }
        read_s = read_s.min(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        for index in 0..STAT_COUNT {
            let name = names.get(index % names.len()).ok_or("no names")?;
            volume.metadata(name)?;
        }
        stat_s = stat_s.min(begun.elapsed().as_secs_f64());
    }
    println!("read {read_s:.3} s, {STAT_COUNT} stats {stat_s:.3} s");
    Ok(())
}
