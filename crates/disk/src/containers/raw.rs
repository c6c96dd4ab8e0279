//! Writes an image as it is: zeros become holes in a file, and are written to a stream. Called by `write`.

use std::fs::File;

use portable::FileExt;

use super::Written;
use super::output::{Output, Ready, Sink};
use super::scan::{Image, Run, Scan};
use super::watch::Watch;
use crate::number::bytes;
use crate::{Error, Result};

/// Holes are multiples of this: the block of most host file systems.
const UNIT_BYTES: usize = 4096;

pub(super) fn write(image: Image<'_>, output: Output<'_>, watch: &Watch<'_>) -> Result<Written> {
    let scan = Scan::new(image, UNIT_BYTES, watch);
    let data_bytes = match output.ready()? {
        Ready::File(file) => write_sparse(scan, file, image.size_bytes)?,
        Ready::Stream(mut stream) => write_all(scan, Sink::new(&mut stream, 0))?,
    };
    Ok(Written { output_bytes: image.size_bytes, data_bytes })
}

fn write_sparse(mut scan: Scan<'_>, file: &File, size_bytes: u64) -> Result<u64> {
    let mut at = 0;
    let mut data_bytes = 0;
    while let Some(run) = scan.next()? {
        at += match run {
            Run::Zeros(len) => len,
            Run::Data(data) => {
                file.write_all_at(data, at).map_err(|source| Error::Output { at, source })?;
                data_bytes += bytes(data.len());
                bytes(data.len())
            }
        };
    }
    file.set_len(size_bytes).map_err(|source| Error::Output { at: size_bytes, source })?;
    Ok(data_bytes)
}

fn write_all(mut scan: Scan<'_>, mut sink: Sink<'_>) -> Result<u64> {
    let mut data_bytes = 0;
    while let Some(run) = scan.next()? {
        match run {
            Run::Zeros(len) => sink.write_zeros(len)?,
            Run::Data(data) => {
                sink.write(data)?;
                data_bytes += bytes(data.len());
            }
        }
    }
    sink.end()?;
    Ok(data_bytes)
}
