//! Members: the devices of one file system, told apart by their superblocks.
//!
//! A member says in its superblock which file system it is of (fsid), which of its devices it is (devid, UUID), how
//! many there are, and which commit wrote it (generation). The newest superblock counts for all of them, as in the
//! kernel; the first member wins a tie.
//!
//! Invariants: the members of a set are of one file system, and no two have the same devid. Except in
//! [`Mode::Salvage`] all have the same generation. A strict set that is incomplete is refused by [`crate::Pool`], once
//! it knows how many devices there are.
//!
//! How it fails: with a [`MemberError`], which names the devices. Who calls it: [`crate::Pool`], and the programs that
//! check and rescue.

use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::superblock::Superblock;
use btrfs_disk::{DevId, Generation};

use crate::error::{MemberError, Result};
use crate::supers::{self, Access, Copies};

/// How much of a file system has to be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every member, each as new as the others.
    #[default]
    Strict,
    /// Members may be missing; chunks are read from the mirrors that are left.
    Degraded,
    /// Whatever there is: members may be missing, older, or without any superblock.
    Salvage,
}

/// A device of a file system.
#[derive(Clone, Debug)]
pub struct Member {
    device: Arc<dyn Device>,
    superblock: Option<Superblock>,
    copies: Copies,
}

impl Member {
    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The copy of its superblock that counts: the primary, or a mirror that stands in for it.
    #[must_use]
    pub fn superblock(&self) -> Option<&Superblock> {
        self.superblock.as_ref()
    }

    /// All copies of its superblock, if they were read: [`Mode::Salvage`] does.
    #[must_use]
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The number that its superblock gives it.
    #[must_use]
    pub fn id(&self) -> Option<DevId> {
        self.superblock.as_ref().map(id_of)
    }

    fn name(&self) -> String {
        self.device.name().to_owned()
    }
}

fn id_of(superblock: &Superblock) -> DevId {
    DevId(superblock.fields().dev_item.devid.get())
}

/// Devices that belong together.
#[derive(Clone, Debug)]
pub struct Members {
    members: Vec<Member>,
    /// Which of them has the superblock that counts.
    newest: Option<usize>,
}

impl Members {
    /// Reads the superblock of each device, to open the file system. With `copy` only that copy is read (0: primary);
    /// without it the primary, or a mirror as [`supers::read`] allows.
    ///
    /// # Errors
    /// With one device, the error of its superblock; with several, `Members` for one that has none
    /// ([`MemberError::Unreadable`]) and for devices that cannot be used together.
    pub fn read(devices: &[Arc<dyn Device>], access: Access, copy: Option<usize>, mode: Mode) -> Result<Self> {
        let read = |device: &Arc<dyn Device>| {
            let found = match copy {
                None => supers::read(&**device, access),
                Some(copy) => supers::read_one(&**device, copy),
            };
            let superblock = match found {
                Err(error) if devices.len() > 1 => {
                    return Err(
                        MemberError::Unreadable { device: device.name().to_owned(), why: error.to_string() }.into()
                    );
                }
                found => Some(found?),
            };
            Ok(Member { device: Arc::clone(device), superblock, copies: Copies::default() })
        };
        Ok(Self::of(devices.iter().map(read).collect::<Result<_>>()?, mode)?)
    }

    /// Reads every copy of the superblocks of devices of which something is to be found out or saved. A device without
    /// a superblock is a member as well.
    ///
    /// # Errors
    /// For devices of two file systems, and two devices with one number.
    pub fn salvage(devices: &[Arc<dyn Device>]) -> Result<Self, MemberError> {
        let read = |device: &Arc<dyn Device>| {
            let copies = Copies::read(&**device);
            Member { device: Arc::clone(device), superblock: copies.counting().cloned(), copies }
        };
        Self::of(devices.iter().map(read).collect(), Mode::Salvage)
    }

    fn of(members: Vec<Member>, mode: Mode) -> Result<Self, MemberError> {
        if members.is_empty() {
            return Err(MemberError::None);
        }
        let newer = |a: &(usize, Generation), b: &(usize, Generation)| a.1.cmp(&b.1).then(b.0.cmp(&a.0));
        let generations = members.iter().enumerate();
        let generations = generations.filter_map(|(index, member)| Some((index, member.superblock()?.generation())));
        let newest = generations.max_by(newer).map(|(index, _)| index);
        let set = Self { members, newest };
        if let Some((counting, superblock)) = set.counting() {
            for member in &set.members {
                set.check(member, (counting, superblock), mode)?;
            }
        }
        Ok(set)
    }

    fn check(&self, member: &Member, newest: (&Member, &Superblock), mode: Mode) -> Result<(), MemberError> {
        let Some(found) = member.superblock() else { return Ok(()) };
        let (other, superblock) = newest;
        let (device, id) = (member.name(), id_of(found));
        let (own, expected) = (found.fields().fsid, superblock.fields().fsid);
        if own != expected {
            return Err(MemberError::Foreign { device, found: own, other: other.name(), expected });
        }
        let is_other = |other: &&Member| !std::ptr::eq(*other, member) && other.id() == Some(id);
        if let Some(other) = self.members.iter().find(is_other) {
            return Err(MemberError::Repeated { id, device, other: other.name() });
        }
        let (found, newest) = (found.generation(), superblock.generation());
        if mode != Mode::Salvage && found != newest {
            return Err(MemberError::Stale { device, id, found, other: other.name(), newest });
        }
        Ok(())
    }

    /// The member whose superblock counts for all, and that superblock; `None` where there is no superblock.
    #[must_use]
    pub fn counting(&self) -> Option<(&Member, &Superblock)> {
        let member = self.newest.and_then(|index| self.members.get(index))?;
        Some((member, member.superblock()?))
    }

    /// Those that were given, in that order.
    pub fn iter(&self) -> std::slice::Iter<'_, Member> {
        self.members.iter()
    }

    /// How many were given.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Never true: a set without members is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}
