//! Reads the superblocks of the devices of one file system, its members, and checks that they belong together.
//!
//! A member's superblock records its file system (fsid), its device (devid, UUID), the number of devices, and the
//! commit that wrote it (generation). The newest superblock is authoritative, as in the kernel; the first member wins a
//! tie.
//!
//! A power cut between the writes of the superblocks leaves some members one generation behind. They have all blocks of
//! the newest commit, which were flushed before; a member that was absent at that commit lacks them. [`Member`] cannot
//! tell these apart: the store looks for the blocks ([`Members::lagging`]).
//!
//! Two members with the same generation and different roots, or a member whose root is not the one that the newest
//! superblock remembers for its generation, were written apart from each other, which no further commit can mend.
//!
//! A seed is a volume that is marked as one and never changes again: a sprout on another device refers to its chunks. A
//! seed given beside its sprout is a member with a file system of its own, whose age says nothing.
//!
//! Invariants: the members of a set belong to one file system or its seeds, and their devids differ. Except in
//! [`Mode::Salvage`] their states are of one history, and no member is more than one generation behind. [`crate::Pool`]
//! refuses an incomplete strict set once it knows the number of devices.
//!
//! Failures: a [`MemberError`] with the device names. Callers: [`crate::Pool`], check and rescue.

use std::sync::Arc;

use blockdev::{Access, Device, Locator};
use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::SuperFlags;
use btrfs_disk::items::DevItem;
use btrfs_disk::superblock::Superblock;
use btrfs_disk::{DevId, Generation, Logical, Uuid};

use crate::error::{Error, MemberError, Result};
use crate::supers::{self, Copies, FsSuper, Intent};

/// The members required to open a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All members, with equal generations.
    #[default]
    Strict,
    /// Members may be missing; chunks are read from the remaining mirrors.
    Degraded,
    /// Members may be missing, stale, or without a superblock.
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

    /// Its authoritative superblock copy: the primary, or a mirror that replaces it.
    #[must_use]
    pub fn superblock(&self) -> Option<&Superblock> {
        self.superblock.as_ref()
    }

    /// All copies of its superblock, if they were read, as in [`Mode::Salvage`].
    #[must_use]
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The id in its superblock.
    #[must_use]
    pub fn id(&self) -> Option<DevId> {
        self.superblock.as_ref().map(id_of)
    }

    fn name(&self) -> String {
        self.device.name().to_owned()
    }
}

/// Opens the devices of one volume: as `access` says, but for reading alone those that are marked as seeds, beside
/// others, so that several sprouts of one seed can be open.
///
/// # Errors
/// The first device's that cannot be opened.
pub fn open_list(list: &[Locator], access: Access) -> blockdev::Result<Vec<Arc<dyn Device>>> {
    let look = Access { read_only: true, unlocked: true, create: false, ..access };
    let is_seed = |locator: &Locator| {
        let superblock = supers::read_one(&*blockdev::open(locator, look).ok()?, 0).ok()?;
        Some(is_seeding(&superblock))
    };
    let open = |locator: &Locator| match !access.read_only && list.len() > 1 && is_seed(locator) == Some(true) {
        true => blockdev::open(locator, Access { read_only: true, create: false, ..access }),
        false => blockdev::open(locator, access),
    };
    list.iter().map(open).collect()
}

fn id_of(superblock: &Superblock) -> DevId {
    DevId(superblock.fields().dev_item.devid.get())
}

/// The devices of one file system.
#[derive(Clone, Debug)]
pub struct Members {
    members: Vec<Member>,
    /// Index of the member with the authoritative superblock.
    newest: Option<usize>,
}

impl Members {
    /// Reads the superblock of each device, to open the file system: copy `copy` only (0: primary), or else the primary
    /// or a mirror as [`supers::read`] allows.
    ///
    /// # Errors
    /// For one device, the error of its superblock; for several, `Members` if one has none
    /// ([`MemberError::Unreadable`]) or if they cannot be used together.
    pub fn read(devices: &[Arc<dyn Device>], access: Intent, copy: Option<usize>, mode: Mode) -> Result<Self> {
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

    /// Reads every superblock copy of devices to examine or rescue. A device without a superblock is a member too.
    ///
    /// # Errors
    /// For devices of different file systems, and devices with equal ids.
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
        // A sprout counts, and not its seeds, whatever their generations.
        let superblocks = || members.iter().filter_map(Member::superblock);
        let has_other = superblocks().any(|superblock| !is_seeding(superblock));
        let generations = generations.filter_map(|(index, member)| {
            let superblock = member.superblock()?;
            (!has_other || !is_seeding(superblock)).then_some((index, superblock.generation()))
        });
        let newest = generations.max_by(newer).map(|(index, _)| index);
        let set = Self { members, newest };
        if let Some(newest) = set.counting() {
            // First, since a device of another file system may have an id of this one.
            set.members.iter().try_for_each(|member| foreign(member, newest).map_or(Ok(()), Err))?;
            set.members.iter().try_for_each(|member| set.check(member, newest, mode))?;
        }
        Ok(set)
    }

    fn check(&self, member: &Member, newest: (&Member, &Superblock), mode: Mode) -> Result<(), MemberError> {
        let Some(id) = member.id() else { return Ok(()) };
        let is_other = |other: &&Member| !std::ptr::eq(*other, member) && other.id() == Some(id);
        if let Some(other) = self.members.iter().find(is_other) {
            return Err(MemberError::Repeated { id, device: member.name(), other: other.name() });
        }
        if mode == Mode::Salvage || seed_fsid(member, newest.1).is_some() {
            return Ok(());
        }
        if let Some(error) = unlike(member, newest) {
            return Err(error);
        }
        match split(member, newest).or_else(|| stale(member, newest)) {
            Some(MemberError::Stale { found, newest, .. }) if is_next(found, newest) => Ok(()),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The members that are one generation behind, each with the error that refuses it where it was absent.
    pub fn lagging(&self) -> impl Iterator<Item = (DevId, MemberError)> + '_ {
        self.stale().filter_map(|error| match error {
            MemberError::Stale { id, found, newest, .. } if is_next(found, newest) => Some((id, error)),
            _ => None,
        })
    }

    /// The member with the authoritative superblock, and that superblock; `None` if no device has one.
    #[must_use]
    pub fn counting(&self) -> Option<(&Member, &Superblock)> {
        let member = self.newest.and_then(|index| self.members.get(index))?;
        Some((member, member.superblock()?))
    }

    /// The members that missed commits, each as the error that refuses it when a volume is opened.
    pub fn stale(&self) -> impl Iterator<Item = MemberError> + '_ {
        self.counting()
            .into_iter()
            .flat_map(|newest| self.members.iter().filter_map(move |member| stale(member, newest)))
    }

    /// Marks the file system on these devices as a seed, or takes the mark away: each superblock is written anew. A
    /// seed is not written by anyone, so it may have no log that is to be replayed.
    ///
    /// # Errors
    /// `Unsupported` for a log; `Members` where some are missing, or one is not of this file system; the device's
    /// error.
    pub fn mark_seed(&self, is_seed: bool) -> Result<()> {
        let (_, counting) = self.counting().ok_or(MemberError::None)?;
        supers::check_features(counting, Intent::ReadOnly)?;
        if counting.fields().log_root.get() != 0 {
            return Err(Error::unsupported("a seed with a log"));
        }
        // The number of a sprout's devices has those of its seeds.
        let (present, count) = (self.members.len(), counting.fields().num_devices.get());
        if to_u64(present) != count {
            return Err(MemberError::Missing { present, count, missing: Vec::new() }.into());
        }
        let item = |member: &Member| Some((Arc::clone(member.device()), member.superblock()?.fields().dev_item));
        let own = |member: &&Member| self.seed_fsid_of(member).is_none();
        let devices: Vec<(Arc<dyn Device>, DevItem)> = self.members.iter().filter(own).filter_map(item).collect();
        let mut superblock = FsSuper::new(counting.clone(), devices.iter().map(|(_, item)| *item));
        let mut flags = counting.fields().super_flags();
        flags.set(SuperFlags::SEEDING, is_seed);
        superblock.fields_mut().flags = flags.bits().into();
        let mut devices = devices.into_iter();
        devices.try_for_each(|(device, item)| supers::enlist(device, DevId(item.devid.get()), &superblock))
    }

    /// The file system that a member is a seed of; `None` for a member of this file system.
    #[must_use]
    pub fn seed_fsid_of(&self, member: &Member) -> Option<Uuid> {
        self.counting().and_then(|(_, newest)| seed_fsid(member, newest))
    }

    /// The file systems of the seeds, as their tree blocks have them.
    #[must_use]
    pub fn seed_fsids(&self) -> Vec<Uuid> {
        let seeds = self.iter().filter(|member| self.seed_fsid_of(member).is_some());
        let mut fsids: Vec<Uuid> = seeds.filter_map(|seed| Some(seed.superblock()?.fields().tree_fsid())).collect();
        fsids.dedup();
        fsids
    }

    /// The members, in the order given.
    pub fn iter(&self) -> std::slice::Iter<'_, Member> {
        self.members.iter()
    }

    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Always false: a set without members is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// The superblock of a device that missed commits of a file system in use, which has the superblock `newest` now, on a
/// device named `other` among others: it is to be brought up to date.
///
/// # Errors
/// `Unreadable`, `Foreign`; `Split` for a device that was written apart; `Current` for one that missed no commit.
pub fn read_behind(device: &dyn Device, newest: &Superblock, other: &str) -> Result<Superblock, MemberError> {
    let name = || device.name().to_owned();
    let superblock = supers::read(device, Intent::ReadOnly)
        .map_err(|error| MemberError::Unreadable { device: name(), why: error.to_string() })?;
    let (found, expected) = (superblock.fields().fsid, newest.fields().fsid);
    if found != expected {
        return Err(MemberError::Foreign { device: name(), found, other: other.to_owned(), expected });
    }
    let (id, generation) = (id_of(&superblock), superblock.generation());
    let is_apart = match root_at(newest, generation) {
        Some(root) => root != superblock.root().0,
        None => generation > newest.generation(),
    };
    if is_apart {
        return Err(MemberError::Split { device: name(), id, other: other.to_owned(), generation });
    }
    if generation == newest.generation() {
        return Err(MemberError::Current { device: name(), id });
    }
    Ok(superblock)
}

/// The error for a member of another file system than the newest.
fn foreign(member: &Member, (newest, superblock): (&Member, &Superblock)) -> Option<MemberError> {
    let (found, expected) = (member.superblock()?.fields().fsid, superblock.fields().fsid);
    let (device, other) = (member.name(), newest.name());
    let is_seed = seed_fsid(member, superblock).is_some();
    (found != expected && !is_seed).then_some(MemberError::Foreign { device, found, other, expected })
}

/// True for a volume that is marked as a seed.
fn is_seeding(superblock: &Superblock) -> bool {
    superblock.fields().super_flags().contains(SuperFlags::SEEDING)
}

/// The file system of a seed, beside the newest superblock of its sprout. The chunk tree says whether it is one of this
/// sprout's.
fn seed_fsid(member: &Member, newest: &Superblock) -> Option<Uuid> {
    let superblock = member.superblock()?;
    let (found, expected) = (superblock.fields().fsid, newest.fields().fsid);
    (found != expected && is_seeding(superblock) && !is_seeding(newest)).then_some(found)
}

/// The error for a member with other properties than the newest: those that never change, and those that change with
/// each commit alone.
fn unlike(member: &Member, (newest, superblock): (&Member, &Superblock)) -> Option<MemberError> {
    let (own, fields) = (member.superblock()?.fields(), superblock.fields());
    let number = |number: u64| number.to_string();
    let is_same_commit = own.generation == fields.generation;
    let counts =
        [own, fields].map(|fields| if is_same_commit { number(fields.num_devices.get()) } else { String::new() });
    let [found_count, expected_count] = counts;
    let pairs = [
        ("sector size", number(own.sectorsize.get().into()), number(fields.sectorsize.get().into())),
        ("node size", number(own.nodesize.get().into()), number(fields.nodesize.get().into())),
        ("checksum type", number(own.csum_type.get().into()), number(fields.csum_type.get().into())),
        ("UUID of metadata", own.tree_fsid().to_string(), fields.tree_fsid().to_string()),
        ("number of devices", found_count, expected_count),
    ];
    let (what, found, expected) = pairs.into_iter().find(|(_, found, expected)| found != expected)?;
    Some(MemberError::Unlike { device: member.name(), what, found, other: newest.name(), expected })
}

/// The error for a member with an older generation than the newest.
fn stale(member: &Member, (other, newest): (&Member, &Superblock)) -> Option<MemberError> {
    if seed_fsid(member, newest).is_some() {
        return None;
    }
    let superblock = member.superblock()?;
    let (device, id, other) = (member.name(), id_of(superblock), other.name());
    let (found, newest) = (superblock.generation(), newest.generation());
    (found != newest).then_some(MemberError::Stale { device, id, found, other, newest })
}

fn is_next(generation: Generation, newest: Generation) -> bool {
    generation.0.checked_add(1) == Some(newest.0)
}

/// The error for a member that was written apart from the newest.
fn split(member: &Member, (newest, expected): (&Member, &Superblock)) -> Option<MemberError> {
    let superblock = member.superblock()?;
    let generation = superblock.generation();
    let root = root_at(expected, generation)?;
    let found = superblock.root().0;
    let (device, id, other) = (member.name(), id_of(superblock), newest.name());
    (found != root).then_some(MemberError::Split { device, id, other, generation })
}

/// The address of the root tree of a commit, as far as a superblock remembers it.
fn root_at(superblock: &Superblock, generation: Generation) -> Option<Logical> {
    if superblock.generation() == generation {
        return Some(superblock.root().0);
    }
    let backups = superblock.fields().super_roots.iter();
    let mut of_it = backups.filter(|root| root.tree_root.get() != 0 && root.tree_root_gen.get() == generation.0);
    of_it.next().map(|root| Logical(root.tree_root.get()))
}
