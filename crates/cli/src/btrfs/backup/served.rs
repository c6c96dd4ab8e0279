//! Does a step of a backup or restore in the server of a mount, for a client ([`super::mounted`]). Called by `jobs`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::Result;
use spinney::btrfs::Volume;
use spinney::btrfs::backup::{Source as _, Target as _, from_hex};

use super::failure;
use crate::commands::failure::{Failure, Status};

/// Does the step that a client of the server asks for. Names that changed are added to `changed`.
pub(in crate::btrfs) fn serve(
    volume: &Volume,
    words: &[String],
    out: &mut impl Write,
    changed: &mut Vec<Vec<u8>>,
) -> Result<()> {
    let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let mut change = |path: &Path| changed.push(path.as_os_str().as_bytes().to_vec());
    match words[..] {
        ["lineage", path] => Ok(serde_json::to_writer(out, &volume.lineage(Path::new(path)).map_err(failure)?)?),
        ["list", dir] => Ok(serde_json::to_writer(out, &volume.subvolumes_in(Path::new(dir)).map_err(failure)?)?),
        ["freeze", path, snapshot] => {
            let snapshot = Path::new(snapshot);
            volume.freeze(Path::new(path), snapshot).map_err(failure)?;
            // Directories on the way may be new.
            snapshot.ancestors().filter(|path| path.file_name().is_some()).for_each(&mut change);
            Ok(())
        }
        ["delete", path] => {
            volume.delete(Path::new(path)).map_err(failure)?;
            change(Path::new(path));
            Ok(())
        }
        ["begin", work] => {
            change(Path::new(work));
            volume.begin(Path::new(work)).map_err(failure)
        }
        ["finish", received, path, work, ref kept @ ..] if kept.len() <= 1 => {
            let [received, path, work] = [received, path, work].map(Path::new);
            let kept = kept.first().map(|kept| Path::new(*kept));
            // Directories on the way may be new.
            let above = kept.into_iter().flat_map(Path::ancestors).filter(|path| path.file_name().is_some());
            [path, work].into_iter().chain(above).for_each(&mut change);
            volume.finish(received, path, work, kept).map_err(failure)
        }
        ["has", uuid] => Ok(serde_json::to_writer(out, &volume.has(parse(uuid)?).map_err(failure)?)?),
        ["revive", uuid, path] => {
            change(Path::new(path));
            volume.revive(parse(uuid)?, Path::new(path)).map_err(failure)
        }
        _ => Err(Failure::new(Status::Unsupported, "the server of the mount does not know this command").into()),
    }
}

fn parse(uuid: &str) -> Result<[u8; 16]> {
    let found = from_hex(uuid).ok_or_else(|| Failure::usage(format!("{uuid} is no UUID")));
    Ok(found?)
}
