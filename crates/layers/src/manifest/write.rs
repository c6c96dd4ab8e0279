//! Writes composefs-dump(5) of a source, as `composefs-info dump` prints an image: depth first, names in the order of
//! their bytes, attributes in the order of their names. Callers: `dump` commands, through `manifest`.
//!
//! Payload, content and digest of a file are `-`: the dump describes nodes, and the contents lie elsewhere. The target
//! of a symbolic link is its payload, and the first path of a hard link is the payload of its other names. The size of
//! a directory is written as 0, since every file system counts it in its own way.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use portable::OsStrExt as _;
use transfer::{Cause, FileId, Source, file_id};
use vfs::file_system::{KnownNode, NodeKind};

use super::escape::push_hex;
use crate::error::{Error, Result};
use crate::listing;

/// Writes the composefs dump of a source.
///
/// # Errors
/// Those of the source, and of writing; a directory that contains itself.
pub fn write_composefs_dump(source: &impl Source, out: &mut impl Write) -> Result<()> {
    let mut firsts: HashMap<FileId, PathBuf> = HashMap::new();
    let top = source.top(Path::new(""))?;
    // Nodes that are still to come, the next one last.
    let mut waiting = vec![(PathBuf::new(), top, Vec::new())];
    while let Some((path, node, mut above)) = waiting.pop() {
        let first = listing::shared_id(&node).and_then(|id| match firsts.get(&id) {
            Some(first) => Some(first.clone()),
            None => {
                firsts.insert(id, path.clone());
                None
            }
        });
        out.write_all(&line(&path, &node, first.as_deref())).map_err(Error::host("composefs dump"))?;
        if !node.attr.is_dir() {
            continue;
        }
        let id = file_id(&node.attr);
        if above.contains(&id) {
            return Err(transfer::Error::from(Cause::Cycle).about(&path).into());
        }
        above.push(id);
        let dir = source.open_dir(&path)?;
        for name in listing::names(source, &dir)?.into_iter().rev() {
            let path = path.join(&name.name);
            let found = listing::look(source, &dir, &name, &path)?;
            let above = if found.node.attr.is_dir() { above.clone() } else { Vec::new() };
            waiting.push((path, found.node, above));
        }
    }
    Ok(())
}

fn line(path: &Path, node: &KnownNode, first: Option<&Path>) -> Vec<u8> {
    let mut line = Vec::new();
    push_path(&mut line, path);
    let attr = &node.attr;
    let size = if attr.is_dir() { 0 } else { attr.size };
    let mark = if first.is_some() { "@" } else { "" };
    let mode = attr.kind.mode_bits() | attr.permissions;
    let rdev = if matches!(attr.kind, NodeKind::CharDevice | NodeKind::BlockDevice) { attr.rdev } else { 0 };
    let (nlink, uid, gid, mtime) = (attr.nlink, attr.uid, attr.gid, attr.mtime);
    let numbers = format!(" {size} {mark}{mode:o} {nlink} {uid} {gid} {rdev} {}.{} ", mtime.sec, mtime.nsec);
    line.extend(numbers.into_bytes());
    match (first, &node.target) {
        (Some(first), _) => push_path(&mut line, first),
        (None, Some(target)) if target == b"-" => line.extend(b"\\x2d"),
        (None, Some(target)) => push_hex(&mut line, target, false),
        (None, None) => line.push(b'-'),
    }
    line.extend(b" - -");
    for (name, value) in listing::sorted_xattrs(node) {
        line.push(b' ');
        push_hex(&mut line, &name, true);
        line.push(b'=');
        push_hex(&mut line, &value, true);
    }
    line.push(b'\n');
    line
}

fn push_path(line: &mut Vec<u8>, path: &Path) {
    line.push(b'/');
    push_hex(line, path.as_os_str().as_bytes(), false);
}
