//! Finds the paths of the inodes in findings, as far as inodes know their directories. Called by `run` at the end.

use std::collections::HashMap;

use f2fs_disk::flags::Features;
use f2fs_disk::inode::Inode;
use f2fs_disk::{Nid, node};

use crate::finding::Finding;
use crate::volume::Volume;

/// Most levels of a path: a damaged inode may be its own ancestor.
const DEPTH_MAX: usize = 64;

/// Adds paths to findings.
pub(crate) fn add_paths(volume: &mut Volume<'_>, findings: &mut [Finding]) {
    let mut known: HashMap<u32, Option<String>> = HashMap::new();
    for finding in findings {
        if let Some(ino) = finding.place.inode {
            let path = known.entry(ino).or_insert_with(|| path(volume, Nid(ino)));
            finding.place.path.clone_from(path);
        }
    }
}

fn path(volume: &mut Volume<'_>, ino: Nid) -> Option<String> {
    let root = volume.superblock.root();
    let (mut names, mut at) = (Vec::new(), ino);
    while at != root {
        if names.len() >= DEPTH_MAX {
            return None;
        }
        let (name, parent) = own_name(volume, at)?;
        names.push(name);
        at = parent;
    }
    names.reverse();
    Some(format!("/{}", names.join("/")))
}

/// The name of an inode, and its directory.
fn own_name(volume: &mut Volume<'_>, ino: Nid) -> Option<(String, Nid)> {
    let at = volume.nat_entry(ino).at();
    if !volume.geometry().is_main(at) {
        return None;
    }
    let block = volume.media.read(at).ok()?;
    if node::Footer::of(&block).nid() != ino {
        return None;
    }
    let features = volume.superblock.features().difference(Features::INODE_CHKSUM);
    let inode = Inode::verify(&block, ino, features, 0).ok()?;
    let name = inode.name().ok()?.escape_ascii().to_string();
    Some((name, Nid(inode.fields().i_pino.get())))
}
