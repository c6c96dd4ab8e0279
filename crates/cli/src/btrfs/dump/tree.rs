//! `spinney dump tree` shows the items of a tree, and `dump block` one tree block, as `medium` finds them. Called by
//! `dump`.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::disk::items::ShowItem;
use spinney::btrfs::disk::node::{self, BlockView};
use spinney::btrfs::disk::{Key, Logical, TreeId};

use super::medium::{Copy, Found, Medium, Pointer};
use crate::commands::failure::{Failure, Status};
use crate::commands::names;
use crate::commands::output::Output;

/// Show the items of a tree, or one block
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney dump tree site.img fs\n",
    "  spinney dump tree site.img 257 --json\n",
    "  spinney dump tree site.img --block 30408704"
))]
pub(crate) struct Tree {
    /// Image file or unmounted block device
    image: PathBuf,
    /// root, extent, chunk, dev, fs, csum, quota, uuid, free-space, block-group, data-reloc, or a number
    #[arg(value_parser = parse_tree, required_unless_present = "block")]
    tree: Option<u64>,
    /// Only the block at this logical address
    #[arg(long, value_name = "BYTENR", conflicts_with = "tree")]
    block: Option<u64>,
    /// Report as JSON: {blocks: [{at, problem, level, generation, owner, items: [{key, text}]}]}
    #[arg(long)]
    json: bool,
}

const NAMES: &[(&str, TreeId)] = &[
    ("root", TreeId::ROOT),
    ("extent", TreeId::EXTENT),
    ("chunk", TreeId::CHUNK),
    ("dev", TreeId::DEV),
    ("fs", TreeId::FS),
    ("csum", TreeId::CSUM),
    ("quota", TreeId::QUOTA),
    ("uuid", TreeId::UUID),
    ("free-space", TreeId::FREE_SPACE),
    ("block-group", TreeId::BLOCK_GROUP),
    ("data-reloc", TreeId::DATA_RELOC),
];

fn parse_tree(text: &str) -> Result<u64, String> {
    if let Some((_, id)) = NAMES.iter().find(|(name, _)| *name == text) {
        return Ok(id.0);
    }
    let wrong = || format!("`{text}` is no tree; write a number or a name such as fs");
    // Some trees have the last numbers below 2^64, which are written as negative numbers: -9.
    match text.strip_prefix('-') {
        Some(number) => Ok(0_u64.wrapping_sub(number.parse().map_err(|_| wrong())?)),
        None => text.parse().map_err(|_| wrong()),
    }
}

#[derive(Serialize)]
struct Block {
    at: u64,
    /// Its fault; null if a copy is valid.
    problem: Option<String>,
    level: u8,
    generation: u64,
    owner: u64,
    items: Vec<Item>,
}

#[derive(Serialize)]
struct Item {
    key: JsonKey,
    text: String,
}

#[derive(Serialize)]
struct JsonKey {
    objectid: u64,
    #[serde(rename = "type")]
    item_type: u8,
    offset: u64,
}

/// Writes blocks one after the other, so that a large tree is never in memory as a whole.
struct Writer<'a> {
    out: &'a mut Output,
    json: bool,
    count: u64,
    /// Blocks without a valid copy.
    damaged: u64,
}

impl Tree {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let medium = Medium::open(&self.image)?;
        let mut writer = Writer { out, json: self.json, count: 0, damaged: 0 };
        match (self.tree, self.block) {
            (Some(tree), _) => {
                let root = medium.root(TreeId(tree))?;
                writer.start()?;
                writer.tree(&medium, root)?;
            }
            (None, Some(at)) => {
                check_address(&medium, "--block", at)?;
                writer.start()?;
                let pointer = Pointer::to(at);
                writer.block(pointer.at, &medium.read(&pointer))?;
            }
            (None, None) => return Err(Failure::usage("a tree or --block is needed").into()),
        }
        writer.end(&self.image)
    }
}

/// Show a tree block as it is on disk, with every copy of it
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Prints the place and the fault of each copy, and the readable contents of the best one.\n",
    "Exit status 3: a copy is damaged.\n\n",
    "Examples:\n",
    "  spinney dump block site.img 30408704\n",
    "  spinney dump block --json site.img 30408704"
))]
pub(crate) struct OneBlock {
    /// Image file or unmounted block device
    image: PathBuf,
    /// Logical address of the block, as `dump tree` and error messages show it
    #[arg(value_name = "ADDR")]
    at: u64,
    /// Report as JSON: {copies: [{device, offset, problem}], blocks: [{at, problem, level, ..., items: [{key, text}]}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonCopy {
    /// Number of the device, and byte offset on it; null if no chunk has the address.
    device: Option<u64>,
    offset: Option<u64>,
    /// Its fault; null for a valid copy.
    problem: Option<String>,
}

impl OneBlock {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let medium = Medium::open(&self.image)?;
        check_address(&medium, "ADDR", self.at)?;
        let pointer = Pointer::to(self.at);
        let copies = medium.copies(&pointer);
        let damaged = copies.iter().filter(|copy| copy.problem.is_some()).count();
        let mut writer = Writer { out, json: self.json, count: 0, damaged: 0 };
        if self.json {
            let copy = |Copy { place, problem }| JsonCopy {
                device: place.map(|(device, _)| device),
                offset: place.map(|(_, offset)| offset),
                problem,
            };
            let copies: Vec<JsonCopy> = copies.into_iter().map(copy).collect();
            write!(writer.out, "{{\"copies\":{},", serde_json::to_string(&copies)?)?;
            writer.out.write_all(b"\"blocks\":[")?;
        } else {
            for (number, copy) in copies.iter().enumerate() {
                let (device, offset) = copy.place.unwrap_or_default();
                let state = copy.problem.as_deref().unwrap_or("good");
                writeln!(writer.out, "copy {} at byte {offset} of device {device}: {state}", number + 1)?;
            }
        }
        writer.block(pointer.at, &medium.read(&pointer))?;
        writer.damaged = writer.damaged.max(u64::from(damaged > 0));
        writer.end(&self.image)
    }
}

fn check_address(medium: &Medium, what: &str, at: u64) -> Result<()> {
    let sector = medium.sector();
    if !at.is_multiple_of(sector) {
        return Err(Failure::usage(format!("{what}: expected a multiple of {sector}, found {at}")).into());
    }
    Ok(())
}

impl Writer<'_> {
    fn start(&mut self) -> Result<()> {
        if self.json {
            self.out.write_all(b"{\"blocks\":[")?;
        }
        Ok(())
    }

    fn end(&mut self, image: &Path) -> Result<()> {
        if self.json {
            self.out.write_all(b"\n]}\n")?;
        }
        self.out.finish()?;
        match self.damaged {
            0 => Ok(()),
            count => {
                let blocks = if count == 1 { "a block is" } else { "blocks are" };
                let text = format!("{}: {blocks} damaged; the output names them and their faults", image.display());
                Err(Failure::new(Status::Corrupt, text).into())
            }
        }
    }

    /// All blocks of a tree that can be reached, each before those below it.
    fn tree(&mut self, medium: &Medium, root: Pointer) -> Result<()> {
        let mut todo = vec![root];
        // Pointers of damaged nodes may form a cycle, so each damaged block is visited only once.
        let mut seen = HashSet::new();
        while let Some(pointer) = todo.pop() {
            let found = medium.read(&pointer);
            if found.problem.is_some() && !seen.insert(pointer.at) {
                continue;
            }
            self.block(pointer.at, &found)?;
            let children = found.bytes.map(|bytes| pointer.children(&bytes)).unwrap_or_default();
            todo.extend(children.into_iter().rev());
        }
        Ok(())
    }

    fn block(&mut self, at: Logical, found: &Found) -> Result<()> {
        self.damaged += u64::from(found.problem.is_some());
        let bytes = found.bytes.as_deref().unwrap_or_default();
        let parts = node::header(bytes).zip(BlockView::new(bytes));
        if !self.json {
            if let Some(problem) = &found.problem {
                writeln!(self.out, "block {at}: damaged: {}", names::escaped_text(problem))?;
            }
            let Some((header, view)) = parts else { return Ok(()) };
            writeln!(self.out, "{header}")?;
            return self.items(view);
        }
        self.out.write_all(if self.count > 0 { b",\n" } else { b"\n" })?;
        self.count += 1;
        let mut items = Vec::new();
        if let Some((_, view)) = parts {
            each_item(view, |key, text| {
                let key = JsonKey { objectid: key.objectid, item_type: key.item_type, offset: key.offset };
                items.push(Item { key, text });
                Ok(())
            })?;
        }
        let header = parts.map(|(header, _)| header);
        let block = Block {
            at: at.0,
            problem: found.problem.clone(),
            level: header.map_or(0, |header| header.level),
            generation: header.map_or(0, |header| header.generation.get()),
            owner: header.map_or(0, |header| header.owner.get()),
            items,
        };
        Ok(serde_json::to_writer(&mut *self.out, &block).map_err(std::io::Error::from)?)
    }

    fn items(&mut self, view: BlockView<'_>) -> Result<()> {
        each_item(view, |key, text| {
            let text = names::escaped_text(&text);
            Ok(writeln!(self.out, "  {key} {text}")?)
        })
    }
}

fn each_item(view: BlockView<'_>, mut f: impl FnMut(Key, String) -> Result<()>) -> Result<()> {
    match view {
        BlockView::Leaf(leaf) => leaf.iter().try_for_each(|(key, data)| f(key, ShowItem(key, data).to_string())),
        BlockView::Node(node) => (0..node.nritems()).try_for_each(|slot| {
            let (at, generation) = node.ptr(slot);
            f(node.key(slot), format!("block {at} generation {generation}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_names_and_numbers() {
        assert_eq!(parse_tree("fs"), Ok(5));
        assert_eq!(parse_tree("257"), Ok(257));
        assert_eq!(parse_tree("-9"), Ok(TreeId::DATA_RELOC.0));
        assert!(parse_tree("nonsense").is_err());
        assert!(parse_tree("-x").is_err());
    }
}
