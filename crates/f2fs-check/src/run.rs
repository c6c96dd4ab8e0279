//! Runs a check: reads and compares, pass by pass. Called by the `spinney` library for the command line, and by
//! `f2fs-crash`.

use blockdev::Device;
use checking::Watch;

use crate::code::Code;
use crate::error::Error;
use crate::finding::{Findings, Place, Report};
use crate::pass::Pass;
use crate::volume::{Media, Volume};
use crate::{files, fsync_chain, names, packs, space, supers, tables};

/// The extent of a check.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Passes to run, with those that they need; all if empty.
    pub passes: Vec<Pass>,
    /// Verify contents protected by fs-verity against their hashes.
    pub data: bool,
}

/// Checks the file system on a device. Nothing is written to it.
///
/// # Errors
/// If no superblock or checkpoint can be used, or the volume has an unknown feature; faults of the file system are in
/// the report.
pub fn check(device: &dyn Device, options: &Options, watch: &dyn Watch) -> Result<Report, Error> {
    let findings = Findings::new(Pass::with_needs(&options.passes));
    let mut media = Media::new(device, watch);
    let superblock = supers::open(&mut media, &findings)?;
    let (end, size) = (superblock.geometry().end().byte(), media.size_bytes());
    if size < end {
        // Sizes of tables in memory follow from the superblock, which is not trusted if the device is smaller.
        findings.add(Code::SuperSize, Place::default(), format!("{end} bytes or more"), format!("{size} bytes"));
        findings.note("nothing but the superblocks was looked at: the device ends within the volume".to_owned());
        return Ok(findings.report(0, media.bytes_read()));
    }
    if !findings.wants(Pass::Checkpoint) {
        return Ok(findings.report(0, media.bytes_read()));
    }
    let checkpoint = packs::open(&mut media, &superblock, &findings)?;
    let journals = packs::journals(&mut media, &checkpoint, &findings);
    let mut volume = Volume { media, superblock, checkpoint, nat_journal: journals.nat };
    let orphans = packs::read_orphans(&mut volume, &findings);
    if !orphans.is_empty() {
        let count = orphans.len();
        findings.note(format!("{count} inodes without names are deleted when the volume is mounted for writing"));
    }
    let mut inodes = 0;
    if findings.wants(Pass::Tables) {
        let tables = tables::read(&mut volume, &journals.sit, &findings);
        space::check_current(&volume, &tables.segments, &findings);
        if findings.wants(Pass::Files) {
            let found = files::walk(&mut volume, &tables, &orphans, options.data, &findings);
            inodes = found.inodes;
            if findings.wants(Pass::Space) {
                space::compare(&volume, &tables.segments, &found, &findings);
            }
        }
    }
    if findings.wants(Pass::Log) {
        fsync_chain::follow(&mut volume, &findings);
    }
    let mut report = findings.report(inodes, 0);
    names::add_paths(&mut volume, &mut report.findings);
    Ok(Report { bytes: volume.media.bytes_read(), ..report })
}
