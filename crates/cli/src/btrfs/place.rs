//! Finds the directory beneath an existing mount that shows a subvolume, for a second mount of the same image that asks
//! for this subvolume. `second_mount` calls it through `row`.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use spinney::btrfs::disk::TreeId;

use crate::commands::failure::{Failure, Status};
use crate::commands::kernel;
use spinney::VolumeOptions;
use spinney::btrfs::subvolume_id;

/// Attribute of every file of a mount: the number of its subvolume.
const SUBVOLUME_NAME: &str = "btrfs.subvolid";
/// Longest number, in bytes.
const NUMBER_BYTES_MAX: usize = 32;

/// The subvolume that a mount shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    subvol: Option<PathBuf>,
    subvolid: Option<TreeId>,
    generation: Option<OsString>,
}

impl Choice {
    fn of(request: &VolumeOptions) -> Result<Self> {
        let mut choice = Self::default();
        for (name, value) in &request.own {
            match (name.as_str(), value) {
                ("subvol", Some(path)) => choice.subvol = Some(plain(path)),
                ("subvolid", Some(id)) => choice.subvolid = Some(subvolume_id(&id.to_string_lossy())?),
                ("generation", number) => choice.generation.clone_from(number),
                _ => {}
            }
        }
        Ok(choice)
    }
}

/// Removes `.` and leading `/`; `..` is kept, and refused when the path is walked.
fn plain(path: &OsStr) -> PathBuf {
    let parts = Path::new(path).components();
    parts.filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir)).collect()
}

/// True for the options that choose a subvolume.
pub(crate) fn chooses(name: &str) -> bool {
    matches!(name, "subvol" | "subvolid" | "generation")
}

/// Path of the subvolume that `second` asks for, from the root of a mount that `first` asked for.
pub(crate) fn find(root: &Path, first: &VolumeOptions, second: &VolumeOptions) -> Result<PathBuf> {
    let (has, wanted) = (Choice::of(first)?, Choice::of(second)?);
    if has == wanted {
        return Ok(PathBuf::new());
    }
    if has.generation != wanted.generation {
        let text = "another state of the image is mounted there: `generation` is chosen by the first mount";
        return Err(Failure::new(Status::Busy, text).into());
    }
    let top = subvolume_of(root)?;
    let text = match (&wanted.subvol, wanted.subvolid) {
        (Some(path), _) if top == TreeId::FS => return Ok(path.clone()),
        (Some(path), _) => match has.subvol.as_ref().and_then(|above| path.strip_prefix(above).ok()) {
            Some(beneath) => return Ok(beneath.to_owned()),
            None => format!("`subvol={}` is not in the subvolume {} that is mounted there", path.display(), top.0),
        },
        (None, Some(id)) if id == top => return Ok(PathBuf::new()),
        (None, Some(id)) => format!("`subvolid={}`: say where that is, with subvol=PATH", id.0),
        (None, None) => "say which subvolume, with subvol=PATH: not the default one is mounted there".to_owned(),
    };
    Err(Failure::new(Status::Busy, text).into())
}

/// Refuses a directory that is not a subvolume, or not the subvolume with the requested ID.
pub(crate) fn check(found: &Path, above: Option<&Path>, second: &VolumeOptions) -> Result<()> {
    let wanted = Choice::of(second)?;
    let id = subvolume_of(found)?;
    let shown = || wanted.subvol.as_deref().unwrap_or(Path::new("")).display();
    if let Some(above) = above
        && subvolume_of(above)? == id
    {
        let text = format!("option `subvol=/{}`: not a subvolume", shown());
        return Err(Failure::refused(text).into());
    }
    match wanted.subvolid {
        Some(asked) if asked != id => {
            let text = format!(
                "options `subvol=/{}` and `subvolid={}` disagree: that path has the number {}",
                shown(),
                asked.0,
                id.0
            );
            Err(Failure::usage(text).into())
        }
        _ => Ok(()),
    }
}

fn subvolume_of(path: &Path) -> Result<TreeId> {
    let mut bytes = [0; NUMBER_BYTES_MAX];
    let len = kernel::read_attribute(path, SUBVOLUME_NAME, &mut bytes).context("the number of a subvolume")?;
    let text = bytes.get(..len).and_then(|text| std::str::from_utf8(text).ok());
    let number = text.and_then(|text| text.parse().ok());
    Ok(TreeId(number.context("the number of a subvolume")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::mount::Settings;

    #[test]
    fn paths_are_compared_without_what_says_nothing() {
        let choice = |list: &str| Choice::of(&Settings::parse(&[list]).unwrap().request).unwrap();
        assert_eq!(choice("subvol=/a//b/"), choice("subvol=a/./b"));
        assert_ne!(choice("subvol=a/../b"), choice("subvol=b"));
        assert_eq!(choice("subvolid=0"), choice("subvolid=5"));
        assert_eq!(choice("nodatacow"), Choice::default());
    }
}
