//! Reads the resources that a process has used, peak memory and processor time, from `/proc`. A process is named by its
//! number, or `self`. Called by `main`, `mounts`, `requests` and `log`.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::row::as_float;

/// Ticks of `/proc/PID/stat` in a second.
const TICKS: f64 = 100.0;

/// Peak memory; 0 where it is not known.
pub(crate) fn peak_kib(process: &str) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0)
}

/// User and system time so far, in microseconds.
pub(crate) fn cpu_us(process: &str) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path)?;
    // The name, which may hold blanks, ends at the last `)`.
    let (_, rest) = text.rsplit_once(')').with_context(|| path.clone())?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |index: usize| -> Result<u64> { Ok(fields.get(index).with_context(|| path.clone())?.parse()?) };
    Ok(as_float(field(11)? + field(12)?) / TICKS * 1e6)
}

/// The process that serves the mount of an image: of those that have it on their command line, the largest.
pub(crate) fn serving(image: &Path) -> Result<u32> {
    let mut found = None;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let (Ok(line), Ok(pages)) =
            (std::fs::read(entry.path().join("cmdline")), std::fs::read_to_string(entry.path().join("statm")))
        else {
            continue;
        };
        let has_image = line.split(|byte| *byte == 0).any(|word| word == image.as_os_str().as_encoded_bytes());
        let resident = pages.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
        if has_image && resident > found.map(|(_, resident)| resident) {
            found = resident.map(|resident| (number, resident));
        }
    }
    let Some((number, _)) = found else { bail!("no process serves {}", image.display()) };
    Ok(number)
}
