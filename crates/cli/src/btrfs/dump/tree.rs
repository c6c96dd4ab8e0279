//! `spinney dump tree`

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use btrfs_disk::items::ShowItem;
use btrfs_disk::node::{self, BlockView};
use btrfs_disk::{Key, Logical, TreeId, verify};
use btrfs_store::Store;
use clap::Args;
use serde::Serialize;

use commands::failure::Failure;
use commands::names;
use commands::output::Output;

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
    /// Report as JSON: {blocks: [{at, level, generation, owner, items: [{key, text}]}]}
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
    // Some trees are numbered from the end: -9.
    match text.strip_prefix('-') {
        Some(number) => Ok(0_u64.wrapping_sub(number.parse().map_err(|_| wrong())?)),
        None => text.parse().map_err(|_| wrong()),
    }
}

#[derive(Serialize)]
struct Block {
    at: u64,
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

/// Writes blocks one after the other, so that a large tree needs no memory.
struct Writer<'a> {
    out: &'a mut Output,
    json: bool,
    count: u64,
}

impl Tree {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let store = super::open_store(&self.image)?;
        let mut writer = Writer { out, json: self.json, count: 0 };
        match (self.tree, self.block) {
            (Some(tree), _) => {
                let tree = store.tree(TreeId(tree))?;
                writer.start()?;
                let mut written = Ok(());
                tree.for_each_block(|at, bytes| {
                    if written.is_ok() {
                        written = writer.block(at, bytes);
                    }
                    Ok(())
                })?;
                written?;
            }
            (None, Some(at)) => {
                let block = read_block(&store, Logical(at))?;
                writer.start()?;
                writer.block(Logical(at), &block)?;
            }
            (None, None) => return Err(Failure::usage("a tree or --block is needed").into()),
        }
        writer.end()
    }
}

/// Any copy of the block whose checksum is right.
fn read_block(store: &Store, at: Logical) -> Result<Vec<u8>> {
    let sizes = store.sizes();
    if !at.0.is_multiple_of(u64::from(sizes.sector)) {
        let text = format!("--block: expected a multiple of {}, found {at}", sizes.sector);
        return Err(Failure::usage(text).into());
    }
    let superblock = store.superblock();
    let fields = superblock.fields();
    let format = verify::Format::of(fields);
    let check = |bytes: &[u8]| match &format {
        Some(format) => verify::block(bytes, &verify::Expect::at(format, at, superblock.generation())),
        None => Ok(()),
    };
    Ok(store.read_block(at, &check)?)
}

impl Writer<'_> {
    fn start(&mut self) -> Result<()> {
        if self.json {
            self.out.write_all(b"{\"blocks\":[")?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if self.json {
            self.out.write_all(b"\n]}\n")?;
        }
        self.out.finish()
    }

    fn block(&mut self, at: Logical, bytes: &[u8]) -> Result<()> {
        let (Some(header), Some(view)) = (node::header(bytes), BlockView::new(bytes)) else {
            return Ok(());
        };
        if !self.json {
            writeln!(self.out, "{header}")?;
            return self.items(view);
        }
        self.out.write_all(if self.count > 0 { b",\n" } else { b"\n" })?;
        self.count += 1;
        let mut items = Vec::new();
        each_item(view, |key, text| {
            let key = JsonKey { objectid: key.objectid, item_type: key.item_type, offset: key.offset };
            items.push(Item { key, text });
            Ok(())
        })?;
        let block = Block {
            at: at.0,
            level: header.level,
            generation: header.generation.get(),
            owner: header.owner.get(),
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
