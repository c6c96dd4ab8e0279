//! Makes every block of a closure anew, with pointers to the new places: the move itself. Called by `store/relocation`.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::convert::to_u64;
use btrfs_disk::items::FileExtentItem;
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::{Generation, Logical, TreeId};
use zerocopy::FromBytes;

use super::closure::{Closure, Found, FoundData};
use crate::error::SpaceKind;
use crate::extent::{Counting, ExtentKind, RefChange, RefKey, Sign, child_changes};
use crate::space::{AllocRequest, Payer};
use crate::tree::{Edit, Host as _, children, layout, leaf, node};
use crate::txn::{Engine, Txn, TxnHost};
use crate::{Error, Result};

/// The most that a rewrite uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// New blocks, but for those of the chunk tree.
    pub(crate) blocks: u64,
    /// New blocks of the chunk tree.
    pub(crate) system_blocks: u64,
    /// Changes of references.
    pub(crate) heads: u64,
    /// Items of the checksum tree.
    pub(crate) items: u64,
}

impl Cost {
    /// The reservation for a step like one that cost this.
    pub(crate) fn with_some_more(self) -> Self {
        let more = |count: u64| count + count / 8 + 8;
        let system_blocks = self.system_blocks + 8;
        Self { blocks: more(self.blocks), system_blocks, heads: more(self.heads), items: more(self.items) }
    }

    /// The larger of each.
    pub(crate) fn at_least(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.max(other.blocks),
            system_blocks: self.system_blocks.max(other.system_blocks),
            heads: self.heads.max(other.heads),
            items: self.items.max(other.items),
        }
    }
}

/// Bytes of data whose checksums are copied with about one item.
const DATA_BYTES_PER_ITEM: u64 = 2 << 20;

/// The cost of [`rewrite`] of the closure.
pub(crate) fn cost(closure: &Closure<'_>) -> Cost {
    let mut cost = Cost::default();
    for found in closure.blocks.values() {
        *(if found.owner() == TreeId::CHUNK { &mut cost.system_blocks } else { &mut cost.blocks }) += 1;
        let below = if found.full_backref { to_u64(layout::nritems(&found.bytes)) * 2 } else { 0 };
        cost.heads += below + to_u64(found.holders.len()) * 2 + 1;
    }
    for data in closure.data.values() {
        cost.heads += 2 * to_u64(data.holders.len());
        cost.items += 1 + data.moved.len / DATA_BYTES_PER_ITEM;
    }
    cost
}

/// Makes every block of the closure anew, updates the references, and waits for readers of the old ones. After a
/// failure the transaction may have some of these changes, so the failure ends all writing.
///
/// # Errors
/// `NoSpace`, unless the caller reserved [`cost`]; `Corrupt`.
pub(crate) fn rewrite(txn: &Txn, closure: &Closure<'_>) -> Result<()> {
    let host = txn.host();
    let edit = Edit::new(&host);
    let engine: &Engine = &txn.engine;
    let places = allocate(&host, closure, &txn.reservation)?;
    let mut blocks: Vec<(&Logical, &Found)> = closure.blocks.iter().collect();
    blocks.sort_by_key(|(_, found)| std::cmp::Reverse(found.level()));
    let generations = generations(&blocks, txn.generation());
    let rewrite = Rewrite { host: &host, closure, places, generations };
    for data in closure.data.values() {
        rewrite.move_data(data)?;
    }
    for (at, found) in &blocks {
        rewrite.move_block(**at, found)?;
    }
    move_roots(engine, &rewrite, &blocks, |tree| !tree.is_subvolume())?;
    // Into the moved tree of checksums, whose blocks may lie in the group like the data, and before a reader can find
    // the data at its new place.
    for data in closure.data.values() {
        rewrite.copy_csums(&edit, data)?;
    }
    move_roots(engine, &rewrite, &blocks, TreeId::is_subvolume)?;
    // Waits for readers of the old root, or of blocks below it, the upper blocks first.
    for (at, _) in &blocks {
        engine.trees.forest().retire_moved(**at);
    }
    Ok(())
}

/// Changes the roots of these trees to the new blocks.
fn move_roots(
    engine: &Engine,
    rewrite: &Rewrite<'_>,
    blocks: &[(&Logical, &Found)],
    is_meant: impl Fn(TreeId) -> bool,
) -> Result<()> {
    for (at, found) in blocks {
        if let Some(tree) = found.root_of.filter(|tree| is_meant(*tree)) {
            engine.trees.tree(tree)?.move_root(rewrite.place_of(**at)?, rewrite.generation_of(**at));
        }
    }
    Ok(())
}

fn allocate(
    host: &TxnHost<'_>,
    closure: &Closure<'_>,
    reservation: &crate::space::Reservation,
) -> Result<BTreeMap<Logical, Logical>> {
    let len = host.engine.nodesize();
    let mut places = BTreeMap::new();
    for (at, found) in &closure.blocks {
        let kind = if found.owner() == TreeId::CHUNK { SpaceKind::System } else { SpaceKind::Metadata };
        let request = AllocRequest { kind, len, min_len: len, hint: None, window: 0 };
        places.insert(*at, host.engine.space.alloc(&request, Payer::Reservation(reservation))?.at);
    }
    Ok(places)
}

/// The generations of the new blocks. A block that may be shared keeps its generation, by which this code and the
/// kernel recognise it as shared. A block that only its tree leads to gets the running transaction's, and can be edited
/// in place. `blocks` are sorted from the roots down, since the answer depends on the blocks above.
fn generations(blocks: &[(&Logical, &Found)], running: Generation) -> BTreeMap<Logical, Generation> {
    let mut shared: BTreeSet<Logical> = BTreeSet::new();
    let mut generations = BTreeMap::new();
    for (at, found) in blocks {
        let owner = found.owner();
        let is_alone = !shared.contains(at) && !found.full_backref && found.holders == [RefKey::TreeRef { owner }];
        if !is_alone {
            shared.extend(children(&found.bytes).map(|(_, child, _)| child));
        }
        generations.insert(**at, if is_alone { running } else { Generation(layout::generation(&found.bytes)) });
    }
    generations
}

struct Rewrite<'a> {
    host: &'a TxnHost<'a>,
    closure: &'a Closure<'a>,
    /// Old addresses of blocks, and new ones.
    places: BTreeMap<Logical, Logical>,
    /// Generations of the new blocks, by old address.
    generations: BTreeMap<Logical, Generation>,
}

impl Rewrite<'_> {
    fn place_of(&self, at: Logical) -> Result<Logical> {
        self.places.get(&at).copied().ok_or_else(|| Error::bug(format!("{} has no new place", at.0), "relocation"))
    }

    /// The same reference, with the new address of a moved block.
    fn translated(&self, holder: RefKey) -> Result<RefKey> {
        Ok(match holder {
            RefKey::SharedTree { parent } => RefKey::SharedTree { parent: self.place_of(parent)? },
            RefKey::SharedData { parent } => RefKey::SharedData { parent: self.place_of(parent)? },
            RefKey::TreeRef { .. } | RefKey::DataRef { .. } => holder,
        })
    }

    fn generation_of(&self, at: Logical) -> Generation {
        self.generations.get(&at).copied().unwrap_or(self.host.generation())
    }

    fn move_block(&self, at: Logical, found: &Found) -> Result<()> {
        let to = self.place_of(at)?;
        let (level, owner, generation) = (found.level(), found.owner(), self.generation_of(at));
        let kind = ExtentKind::Tree { level };
        for (index, holder) in found.holders.iter().enumerate() {
            self.host.push(checked(RefChange::gain(to, kind, self.translated(*holder)?, index == 0))?)?;
        }
        self.host.push(RefChange::SetGeneration { at: to, kind, generation, owner: Some(owner) })?;
        if found.full_backref {
            self.host.push(RefChange::SetFullBackref { at: to, level })?;
            self.move_counts(&found.bytes, at, to, owner)?;
        }
        for holder in &found.holders {
            self.host.push(checked(RefChange::lose(at, kind, *holder))?)?;
        }
        let mut bytes = found.bytes.clone();
        let flags = layout::flags(&bytes);
        layout::readdress(&mut bytes, to.0, generation.0, owner.0);
        layout::set_fsid(&mut bytes, &self.host.engine.trees.forest().fsid);
        layout::set_flags(&mut bytes, flags);
        self.redirect(&mut bytes);
        self.host.engine.trees.forest().adopt_moved(self.host, to, bytes);
        Ok(())
    }

    /// Children of a block that counts by its address are counted by the new address. Children that move too get their
    /// own references translated.
    fn move_counts(&self, bytes: &[u8], at: Logical, to: Logical, owner: TreeId) -> Result<()> {
        let mut push = |change: RefChange| {
            let at = change.at();
            match self.closure.blocks.contains_key(&at) || self.closure.data.contains_key(&at) {
                true => Ok(()),
                false => self.host.push(change),
            }
        };
        child_changes(bytes, to, owner, (Counting::Shared, Sign::Add), &mut push)?;
        child_changes(bytes, at, owner, (Counting::Shared, Sign::Drop), &mut push)
    }

    /// Replaces pointers by those to the new places.
    fn redirect(&self, bytes: &mut [u8]) {
        for slot in 0..layout::nritems(bytes) {
            if layout::level(bytes) > 0 {
                let (child, _) = node::child(bytes, slot);
                if let Some(to) = self.places.get(&child) {
                    node::set_child(bytes, slot, *to, self.generation_of(child));
                }
                continue;
            }
            if layout::key_at(bytes, slot).item_type != EXTENT_DATA || self.closure.data.is_empty() {
                continue;
            }
            if let Ok(item) = FileExtentItem::mut_from_bytes(leaf::data_mut(bytes, slot))
                && let Some(data) = self.closure.data.get(&Logical(item.disk_bytenr.get()))
            {
                item.disk_bytenr = data.moved.to.0.into();
            }
        }
    }

    fn copy_csums(&self, edit: &Edit<'_>, data: &FoundData) -> Result<()> {
        let moved = data.moved;
        let csums = self.host.engine.csum_tree().lookup(moved.from, moved.len)?;
        let sector = u64::from(self.host.engine.reader.format.sectorsize);
        for (index, run) in csums.runs() {
            let at = moved.to.0.saturating_add(to_u64(index).saturating_mul(sector));
            self.host.engine.csum_tree().put(edit, Logical(at), run)?;
        }
        Ok(())
    }

    fn move_data(&self, data: &FoundData) -> Result<()> {
        let moved = data.moved;
        let kind = ExtentKind::Data { len: moved.len };
        let mut is_new = true;
        for held in &data.holders {
            let to = self.translated(held.holder)?;
            for _ in 0..held.count {
                self.host.push(checked(RefChange::gain(moved.to, kind, to, is_new))?)?;
                is_new = false;
            }
        }
        let (generation, owner) = (data.generation, data.owner);
        self.host.push(RefChange::SetGeneration { at: moved.to, kind, generation, owner })?;
        for held in &data.holders {
            for _ in 0..held.count {
                self.host.push(checked(RefChange::lose(moved.from, kind, held.holder))?)?;
            }
        }
        Ok(())
    }
}

/// A change of the references to an extent, whose holders must be of the extent's kind.
fn checked(change: Option<RefChange>) -> Result<RefChange> {
    change.ok_or_else(|| Error::bug("an extent is held as one of another kind", "relocation"))
}
