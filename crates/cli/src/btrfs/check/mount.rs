//! Checks a mount in a committed state, which its server holds.
//!
//! ```text
//! check ----- job "check-hold" ----> server: commits, holds the state of the commit
//!       <---- its superblock -------
//! reads the image by itself
//!       ----- is it whole? --------> writers that find no room end the hold
//!       <---- yes: the report counts, no: once more from the beginning
//! ends, or is killed: the stream ends, and with it the hold
//! ```
//!
//! Invariants: a report is believed only if the server says, after the last read, that the state was whole. The check
//! reads the file that the server has locked; a read-only mount's file has no writer.
//!
//! Failure: as the check of an image, and if the state was given up at each attempt. Callers: `check` for the client's
//! side, `jobs` for the server's.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use spinney::blockdev::{self, Access, Device, Locator};
use spinney::btrfs::Volume;
use spinney::btrfs::check::{Held, Options, Report, Watch, check, check_held};
use spinney::btrfs::disk::items::OnDisk as _;
use spinney::btrfs::disk::superblock::{SUPERBLOCK_OFFSET, UncheckedSuperblock};

use super::super::format::first_superblock;
use crate::commands::image::served_image;
use crate::commands::on_mount::OnMount;

/// The name of the job on a mount.
pub(in crate::btrfs) const JOB: &str = "check-hold";

/// Most attempts, if the server gives states up.
const ATTEMPTS_MAX: usize = 4;
/// Longest offer, in bytes.
const OFFER_BYTES_MAX: u64 = 1 << 20;
/// The question, and the two answers.
const IS_WHOLE: u8 = b'?';
const WHOLE: u8 = b'y';
const GIVEN_UP: u8 = b'n';

/// The state that the server holds.
#[derive(Serialize, Deserialize)]
struct Offer {
    superblock: Vec<u8>,
    /// Byte on the device, and the fault.
    bad_copies: Vec<(u64, String)>,
}

/// Holds the committed state of a volume until the client ends.
///
/// # Errors
/// Damage, I/O.
pub(in crate::btrfs) fn hold(volume: &Volume, mut stream: &UnixStream) -> Result<()> {
    let state = volume.hold_committed()?;
    let superblock = state.superblock().sealed(SUPERBLOCK_OFFSET)?.bytes().to_vec();
    let bad = state.bad_superblocks()?.into_iter();
    let bad_copies = bad.map(|bad| (bad.copy.offset, bad.copy.cause.to_string())).collect();
    let mut offer = serde_json::to_vec(&Offer { superblock, bad_copies })?;
    offer.push(b'\n');
    stream.write_all(&offer).context("the stream")?;
    let mut question = [0];
    // The stream ends with the checking process, even if that is killed.
    while stream.read(&mut question).is_ok_and(|count| count == 1) {
        let answer = if state.is_whole() { WHOLE } else { GIVEN_UP };
        if stream.write_all(&[answer]).is_err() {
            break;
        }
    }
    Ok(())
}

/// Checks a mounted volume.
///
/// # Errors
/// The server's; as the check of an image.
pub(super) fn check_mount(dir: &Path, options: &Options, watch: &dyn Watch) -> Result<Report> {
    let image = served_image(dir)?;
    for _ in 0..ATTEMPTS_MAX {
        let mount = OnMount::connect(dir)?;
        let checked = mount.converse(vec![JOB.to_owned()], |stream| check_state(stream, &image, options, watch))?;
        if let Some(report) = checked {
            return Ok(report);
        }
    }
    bail!(
        "{}: others needed the room that the state under check kept from them, {ATTEMPTS_MAX} times: free some, or \
         check it while less is written",
        dir.display()
    )
}

/// The report; `None` if the state was given up meanwhile.
fn check_state(mut stream: &UnixStream, image: &Path, options: &Options, watch: &dyn Watch) -> Result<Option<Report>> {
    let mut line = Vec::new();
    BufReader::new(stream.take(OFFER_BYTES_MAX)).read_until(b'\n', &mut line).context("the stream")?;
    let Offer { superblock, bad_copies } = serde_json::from_slice(&line).context("what the server says")?;
    let superblock = UncheckedSuperblock::new(&superblock)?.verify(SUPERBLOCK_OFFSET)?;
    let (devices, is_locked) = open(image)?;
    let mut is_same = false;
    for device in &devices {
        // A server may be writing it: the compared fields do not change.
        let there = first_superblock(&**device)?;
        let (there, held) = (there.fields(), superblock.fields());
        is_same |= (there.fsid, there.dev_item.uuid) == (held.fsid, held.dev_item.uuid)
            && (!is_locked || there.generation == held.generation);
    }
    ensure!(is_same, "{}: no longer the mounted image", image.display());
    if is_locked {
        // No program writes to it while it is open here.
        return Ok(Some(check(&devices, options, watch)?));
    }
    let [device] = <[_; 1]>::try_from(devices).map_err(|_| anyhow!("a volume on several devices is being written"))?;
    let report = check_held(&device, &Held { superblock, bad_copies }, options, watch)?;
    stream.write_all(&[IS_WHOLE]).context("the mount ended meanwhile")?;
    let mut answer = [0];
    stream.write_all(&[IS_WHOLE]).context("the mount ended meanwhile")?;
    stream.read_exact(&mut answer).context("the mount ended meanwhile")?;
    Ok((answer == [WHOLE]).then_some(report))
}

/// The devices of the image, and whether they were locked against writers.
fn open(image: &Path) -> Result<(Vec<Arc<dyn Device>>, bool)> {
    let list = Locator::parse_list(image)?;
    let open = |access| list.iter().map(|device| blockdev::open(device, access)).collect::<blockdev::Result<_>>();
    match open(Access::READ) {
        Ok(devices) => Ok((devices, true)),
        Err(blockdev::Error::Locked { .. }) => Ok((open(Access { unlocked: true, ..Access::READ })?, false)),
        Err(error) => Err(error.into()),
    }
}
