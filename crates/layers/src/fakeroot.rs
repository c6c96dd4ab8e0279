//! Reads the state that `fakeroot -s FILE` saves: owners, modes and device numbers that its programs believe in. A
//! build that ran under fakeroot leaves a directory and this file; `host` applies the file while it reads the
//! directory. Callers of `host` read it.
//!
//! A line describes one file by device and inode number:
//! `dev=fe00,ino=9979872,mode=104755,uid=5,gid=6,nlink=2,rdev=0`, where `dev` is hexadecimal and `mode` octal. A later
//! line of the same file replaces an earlier one, as when fakeroot loads it.

use std::collections::HashMap;
use std::io::{BufReader, Read};

use transfer::FileId;
use vfs::Metadata;
use vfs::file_system::NodeKind;

use crate::error::Result;
use crate::line::{Lines, Problem};
use crate::number;

/// Most files in a saved state.
pub const STATE_FILES_MAX: usize = 16 << 20;

/// The attributes that fakeroot believes one file to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Belief {
    kind: NodeKind,
    permissions: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
}

/// The saved state of fakeroot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakerootState {
    files: HashMap<FileId, Belief>,
}

impl FakerootState {
    /// Reads a saved state; `file` is its name, for messages.
    ///
    /// # Errors
    /// Those of reading; [`crate::Error::Line`] for a line of another form.
    pub fn read(input: impl Read, file: &str) -> Result<Self> {
        let mut lines = Lines::new(BufReader::new(input), file);
        let mut files = HashMap::new();
        while let Some((number, line)) = lines.next()? {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let (id, belief) = parse(line.trim_ascii()).map_err(|problem| problem.at(file, number))?;
            files.insert(id, belief);
            if files.len() > STATE_FILES_MAX {
                let expected = format!("at most {STATE_FILES_MAX}");
                return Err(Problem::told("files", expected, "more").at(file, number));
            }
        }
        Ok(Self { files })
    }

    /// Number of files that the state describes.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Replaces owner, mode and device number of a file of the host that has this identity. A device node of fakeroot
    /// is an empty file of the host: it becomes the device node. Returns false for a file that the state does not know.
    pub fn apply(&self, id: FileId, attr: &mut Metadata) -> bool {
        let Some(belief) = self.files.get(&id) else { return false };
        let Belief { kind, permissions, uid, gid, rdev } = *belief;
        let is_device = matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice);
        // Another kind is another file, to which the inode number was given since.
        if attr.kind != kind && !(attr.is_file() && is_device) {
            return false;
        }
        (attr.kind, attr.permissions, attr.uid, attr.gid) = (kind, permissions, uid, gid);
        if is_device {
            (attr.rdev, attr.size) = (rdev, 0);
        }
        true
    }
}

fn parse(line: &[u8]) -> Result<(FileId, Belief), Problem> {
    let mut fields = line.split(|byte| *byte == b',');
    let mut next = |name: &'static str, radix| -> Result<u64, Problem> {
        let field = fields.next().unwrap_or_default();
        let value = field.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        value.and_then(|value| number::parse(value, radix)).ok_or_else(|| {
            let digits = match radix {
                8 => "octal",
                10 => "decimal",
                _ => "hexadecimal",
            };
            Problem::new(name, format!("`{name}=` and {digits} digits"), field)
        })
    };
    let id = (next("dev", 16)?, next("ino", 10)?);
    let mode = narrow("mode", next("mode", 8)?)?;
    let (uid, gid) = (narrow("uid", next("uid", 10)?)?, narrow("gid", next("gid", 10)?)?);
    next("nlink", 10)?;
    let rdev = narrow("rdev", next("rdev", 10)?)?;
    if let Some(rest) = fields.next() {
        return Err(Problem::new("end", "the end of the line", rest));
    }
    let kind = NodeKind::from_mode(mode);
    let kind = kind.ok_or_else(|| Problem::told("mode", "the mode of a known kind of file", format!("{mode:o}")))?;
    Ok((id, Belief { kind, permissions: mode & 0o7777, uid, gid, rdev }))
}

fn narrow(name: &str, number: u64) -> Result<u32, Problem> {
    u32::try_from(number).map_err(|_| Problem::told(name, "a number of 32 bits", number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_state_is_read() {
        let text = b"dev=fe00,ino=7,mode=104755,uid=5,gid=6,nlink=2,rdev=0\n\
            dev=fe00,ino=8,mode=60644,uid=0,gid=0,nlink=1,rdev=2051\n";
        let state = FakerootState::read(&text[..], "state").unwrap();
        assert_eq!(state.file_count(), 2);
        let mut attr = transfer::plain_metadata(NodeKind::File, 0o600, vfs::file_system::Time::default());
        assert!(!state.apply((0xfe00, 9), &mut attr));
        assert!(state.apply((0xfe00, 7), &mut attr));
        assert_eq!((attr.kind, attr.permissions, attr.uid, attr.gid), (NodeKind::File, 0o4755, 5, 6));
        assert!(state.apply((0xfe00, 8), &mut attr));
        assert_eq!((attr.kind, attr.rdev, attr.uid), (NodeKind::BlockDevice, 2051, 0));
        let mut dir = transfer::plain_metadata(NodeKind::Directory, 0o700, vfs::file_system::Time::default());
        assert!(!state.apply((0xfe00, 7), &mut dir));
        assert_eq!(dir.permissions, 0o700);
    }

    #[test]
    fn wrong_lines_are_named() {
        for (line, message) in [
            ("dev=x,ino=7", "s, line 2: dev: expected `dev=` and hexadecimal digits, found `dev=x`"),
            ("dev=1,ino=7", "s, line 2: mode: expected `mode=` and octal digits, found ``"),
            (
                "dev=1,ino=7,mode=104755,uid=4294967296,gid=6,nlink=2,rdev=0",
                "s, line 2: uid: expected a number of 32 bits, found 4294967296",
            ),
            (
                "dev=1,ino=7,mode=4755,uid=4,gid=6,nlink=2,rdev=0",
                "s, line 2: mode: expected the mode of a known kind of file, found 4755",
            ),
            (
                "dev=1,ino=7,mode=104755,uid=4,gid=6,nlink=2,rdev=0,x",
                "s, line 2: end: expected the end of the line, found `x`",
            ),
        ] {
            let error = FakerootState::read(format!("\n{line}\n").as_bytes(), "s").unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
