//! Lists the subvolumes beneath a directory of a mount by one request to its server, for users who may administer it.
//! By paths it takes six requests through the kernel for each. `mount` asks, and `jobs` answers with [`write()`].
//!
//! The answer has a line for each subvolume, in JSON. A caller without permission, and one of an older server, gets an
//! error, and goes by paths.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use spinney::Time;
use spinney::btrfs::disk::{Generation, InodeNo, TreeId};
use spinney::btrfs::{SubvolumeInfo, Volume};

use crate::commands::on_mount::OnMount;

/// The first word of the job; the second is the directory, from the root of the mount.
pub(crate) const JOB: &str = "subvolumes";

/// A subvolume.
#[derive(Serialize, Deserialize)]
struct Line {
    id: u64,
    parent: Option<u64>,
    dir: Option<u64>,
    path: Vec<u8>,
    /// Its own, that of its source, and that at the sender.
    uuids: [[u8; 16]; 3],
    /// Of its last change, of its creation, of the last change of a file, of the sender and of the receipt.
    generations: [u64; 5],
    /// Of its creation, of the sender and of the receipt.
    times: [Time; 3],
    read_only: bool,
}

impl From<SubvolumeInfo> for Line {
    fn from(info: SubvolumeInfo) -> Self {
        let generations = [info.generation, info.created, info.changed, info.sent, info.received];
        Self {
            id: info.id.0,
            parent: info.parent.map(|parent| parent.0),
            dir: info.dir.map(|dir| dir.0),
            path: info.path.into_vec(),
            uuids: [info.uuid, info.parent_uuid, info.received_uuid],
            generations: generations.map(|generation| generation.0),
            times: [info.otime, info.stime, info.rtime],
            read_only: info.read_only,
        }
    }
}

impl From<Line> for SubvolumeInfo {
    fn from(line: Line) -> Self {
        let [uuid, parent_uuid, received_uuid] = line.uuids;
        let [generation, created, changed, sent, received] = line.generations.map(Generation);
        let [otime, stime, rtime] = line.times;
        Self {
            id: TreeId(line.id),
            parent: line.parent.map(TreeId),
            dir: line.dir.map(InodeNo),
            path: OsString::from_vec(line.path),
            uuid,
            parent_uuid,
            received_uuid,
            generation,
            created,
            changed,
            sent,
            received,
            otime,
            stime,
            rtime,
            read_only: line.read_only,
        }
    }
}

/// Writes the subvolumes beneath a directory.
pub(crate) fn write(volume: &Volume, words: &[String], out: &mut impl Write) -> Result<()> {
    let dir = words.get(1).map_or("/", String::as_str);
    for info in volume.subvolumes_below(dir)? {
        serde_json::to_writer(&mut *out, &Line::from(info))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// The subvolumes beneath a directory of a mount, in the order of their numbers.
///
/// # Errors
/// If the mount has no socket, or the server refuses.
pub(super) fn list(dir: &Path) -> Result<Vec<SubvolumeInfo>> {
    let mount = OnMount::connect(dir)?;
    let report = mount.report(JOB, vec![mount.word(Path::new(""))?])?;
    let lines = report.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let parsed = lines.map(|line| serde_json::from_slice::<Line>(line).map(Into::into));
    parsed.collect::<Result<_, _>>().context("unexpected report of the server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_everything() {
        let line = Line {
            id: 257,
            parent: Some(5),
            dir: Some(256),
            path: b"a\xff\nb".to_vec(),
            uuids: [[1; 16], [2; 16], [3; 16]],
            generations: [1, 2, 3, 4, 5],
            times: [Time { sec: -1, nsec: 7 }, Time::default(), Time { sec: 9, nsec: 0 }],
            read_only: true,
        };
        let text = serde_json::to_vec(&line).unwrap();
        assert!(!text.contains(&b'\n'));
        let info = SubvolumeInfo::from(line);
        let again: SubvolumeInfo = serde_json::from_slice::<Line>(&text).unwrap().into();
        assert_eq!(again, info);
        assert_eq!(serde_json::to_vec(&Line::from(info)).unwrap(), text);
    }
}
