//! Makes files that both the btrfs and the f2fs images contain. Called by the `scenes` of btrfs and of f2fs.

use super::metadata::set_random_metadata;
use anyhow::Result;
use rustix::fs::{CWD, Dev, FileType, Mode};
use std::os::unix::fs::symlink;
use std::path::Path;
use testkit::Random;

/// A value of `security.capability`: version 2, cap_net_raw permitted.
pub(super) const CAPABILITY: [u8; 20] = [0, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Makes a folder with inodes of all kinds but regular files: FIFO, socket, devices, symbolic links, directory.
pub(super) fn nodes(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let kinds = [
        ("fifo", FileType::Fifo, 0, 0),
        ("socket", FileType::Socket, 0, 0),
        ("null", FileType::CharacterDevice, 1, 3),
        ("large", FileType::CharacterDevice, 4095, 1_048_575),
        ("disk", FileType::BlockDevice, 259, 300),
    ];
    for (name, kind, major, minor) in kinds {
        let device: Dev = rustix::fs::makedev(major, minor);
        let path = folder.join(name);
        rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), device)?;
        set_random_metadata(&path, random)?;
    }
    symlink("x", folder.join("short-link"))?;
    symlink("y".repeat(3000), folder.join("long-link"))?;
    std::fs::create_dir(folder.join("empty"))?;
    Ok(())
}

/// An access list of version 2: user::rw- user:N:r-- for each of `users`, group::r-- mask::r-- other::---
pub(super) fn access_list(users: &[u32]) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    let mut add = |tag: u16, permission: u16, id: u32| {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&permission.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    };
    add(1, 6, u32::MAX);
    for user in users {
        add(2, 4, *user);
    }
    add(4, 4, u32::MAX);
    add(0x10, 4, u32::MAX);
    add(0x20, 0, u32::MAX);
    list
}
