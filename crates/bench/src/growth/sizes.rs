//! The steps of the dimension of the size of an image, which is sparse. `growth` runs them.

use std::ffi::OsStr;
use std::time::Instant;

use anyhow::Result;

use super::step::{self, At, Outcome, Step};

pub(super) const STEPS: &[Step] = &[
    Step::single("make", make),
    Step::single("open", step::open),
    Step::single("open to write", step::open_to_write),
    Step::single("write", write),
    Step::single("check", step::check),
    Step::single("usage", step::usage),
    Step::single("scrub", step::scrub),
];

/// Files that are written.
const FILES: u32 = 1000;

fn make(at: &At<'_>) -> Result<Outcome> {
    let (size, image) = (format!("{}G", at.count), at.image());
    step::command(
        &["mkfs", "-q", "-f", "--size", &size]
            .map(OsStr::new)
            .into_iter()
            .chain([image.as_os_str()])
            .collect::<Vec<_>>(),
    )
}

/// Opens it, writes some files, and makes them durable.
fn write(at: &At<'_>) -> Result<Outcome> {
    let start = Instant::now();
    let volume = at.volume()?;
    for number in 0..FILES {
        volume.write(format!("f{number}"), [b'x'; 5000])?;
    }
    volume.close()?;
    Ok(start.elapsed().into())
}
