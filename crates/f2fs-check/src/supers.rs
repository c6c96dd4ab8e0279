//! Reads both superblocks, compares them, and chooses one. Called by `run`.

use f2fs_disk::flags::Features;
use f2fs_disk::superblock::{COPIES, DiskSuperblock, SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock, copy_offset};

use crate::code::Code;
use crate::error::Error;
use crate::finding::{Findings, Place};
use crate::volume::Media;

/// Features that the check supports, or that do not concern it.
const KNOWN: Features = Features::READABLE.union(Features::BLKZONED);

/// The superblock to use: the first valid one.
///
/// # Errors
/// [`Error::NoSuperblock`], [`Error::Unsupported`].
pub(crate) fn open(media: &mut Media<'_>, findings: &Findings) -> Result<Superblock, Error> {
    let mut good: Option<(Superblock, Vec<u8>)> = None;
    let mut first_error = None;
    for copy in 0..COPIES {
        let offset = copy_offset(copy);
        match read(media, offset)? {
            Ok((superblock, bytes)) => match &good {
                None => good = Some((superblock, bytes)),
                Some((_, first)) if *first != bytes => {
                    let at = first.iter().zip(&bytes).position(|(a, b)| a != b).unwrap_or(0);
                    let found = format!("a difference from byte {at} of it on");
                    findings.add(Code::SuperMirror, Place::byte(offset), "the same as the first copy", found);
                }
                Some(_) => {}
            },
            Err(error) => {
                findings.add(Code::SuperCopy, Place::byte(offset), "a superblock", &error);
                first_error = first_error.or(Some(error));
            }
        }
    }
    let why = || Error::NoSuperblock(first_error.unwrap_or_default());
    let (superblock, _) = good.ok_or_else(why)?;
    check_is_known(superblock.fields())?;
    note_errors(superblock.fields(), findings);
    Ok(superblock)
}

fn check_is_known(fields: &DiskSuperblock) -> Result<(), Error> {
    let missing = fields.features().difference(KNOWN);
    if !missing.is_empty() {
        return Err(Error::Unsupported(format!("the feature {}", missing.names().join(", "))));
    }
    match fields.device_count() {
        0 | 1 => Ok(()),
        count => Err(Error::Unsupported(format!("a volume on {count} devices"))),
    }
}

/// Errors noted by a kernel are history, and may have been repaired.
fn note_errors(fields: &DiskSuperblock, findings: &Findings) {
    if fields.s_stop_reason.iter().any(|byte| *byte != 0) {
        findings.note("the superblock says that a kernel stopped writing checkpoints at some time".to_owned());
    }
    if fields.s_errors.iter().any(|byte| *byte != 0) {
        findings.note("the superblock says that a kernel found errors at some time".to_owned());
    }
}

type Copy = Result<(Superblock, Vec<u8>), String>;

fn read(media: &mut Media<'_>, offset: u64) -> Result<Copy, Error> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    if let Err(error) = media.read_bytes(offset, &mut bytes) {
        return Ok(Err(error.to_string()));
    }
    let unchecked = match UncheckedSuperblock::new(&bytes) {
        Ok(unchecked) => unchecked,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Some(log) = unchecked.foreign_block_size() {
        return Err(Error::Unsupported(format!("a block size of {} bytes", 1_u64 << log)));
    }
    Ok(unchecked.verify(offset).map(|superblock| (superblock, bytes)).map_err(|error| error.to_string()))
}
