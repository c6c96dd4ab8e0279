//! Reads the resources that a process has used, peak memory and processor time, from `/proc`. A process is named by its
//! number, or `self`. Called by `main`, `mounts`, `requests` and `log`.

use anyhow::{Context, Result};

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
