//! The common commands over a format that lives in memory: the smallest program that has a format.
//!
//! Reads command lines from the standard input, one a line, words apart by spaces, and runs them one after the other in
//! this process: `ls image /dir`. An image is a file that begins with [`MAGIC`]; what is "in" it is kept in memory
//! under its name while the program runs. After each command its exit status follows, as `= 0`.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use anyhow::Result;
use blockdev::Device;
use clap::{Parser, Subcommand};
use commands::failure::{Failure, Status, one_line, status_of};
use commands::format::{About, Format, MountFormat, OpenRequest, Opened, Request, Served};
use commands::magic::magic;
use commands::mount::unknown;
use commands::output::Output;
use vfs::{FileSystem, Volume};
use vfs_conformance::MemoryFs;

/// The first bytes of an image.
const MAGIC: &[u8] = b"in memory";

const FORMATS: &[Format] = &[Format {
    name: "memory",
    magic: magic(0, MAGIC),
    copies: &[],
    relatives: &[],
    open,
    remedies: |_| Vec::new(),
    status: |_| None,
    mount: MountFormat {
        open: |device, _| Ok(Served { file_system: of(&*device), jobs: None }),
        check_options,
        is_option: |_| false,
        chooses: |_| false,
        place: |_, _, _| Ok(PathBuf::new()),
        check_place: |_: &Path, _: Option<&Path>, _: &Request| Ok(()),
        shows_image: |_: &Path| true,
        options_help: "",
    },
}];

static IMAGES: LazyLock<Mutex<HashMap<String, Arc<MemoryFs>>>> = LazyLock::new(Mutex::default);

/// What is in an image.
fn of(device: &dyn Device) -> Arc<dyn FileSystem> {
    let mut images = IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::<MemoryFs>::clone(images.entry(device.name().to_owned()).or_default())
}

fn check_options(request: &Request) -> Result<()> {
    request.own.first().map_or(Ok(()), |(name, _)| Err(unknown(name)))
}

fn open(device: Arc<dyn Device>, request: &OpenRequest) -> Result<Opened> {
    let lacks = match request {
        OpenRequest { subvolume: Some(_), .. } | OpenRequest { subvolume_id: Some(_), .. } => "subvolumes",
        OpenRequest { superblock: Some(_), .. } => "copies of a superblock",
        OpenRequest { generation: Some(_), .. } => "earlier states",
        OpenRequest { compression: Some(_), .. } => "compression",
        _ => return Ok(Opened { volume: Volume::new(of(&*device)), about: Box::new(Memory(of(&*device))) }),
    };
    Err(Failure::new(Status::Unsupported, format!("the format memory has no {lacks}")).into())
}

struct Memory(Arc<dyn FileSystem>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl About for Memory {
    fn report(&self, json: bool, out: &mut Output) -> Result<()> {
        let blocks = self.0.status()?.blocks;
        if json {
            return out.json(&std::collections::BTreeMap::from([("blocks", blocks)]));
        }
        Ok(writeln!(out, "Blocks: {blocks}")?)
    }
}

#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Info(commands::info::Info),
    Ls(commands::ls::Ls),
    Tree(commands::tree::Tree),
    Cat(commands::cat::Cat),
    Stat(commands::stat::Stat),
    Get(commands::get::Get),
    Put(commands::put::Put),
    Mkdir(commands::mkdir::Mkdir),
    Rm(commands::rm::Rm),
    Defrag(commands::defrag::Defrag),
    Dedupe(commands::dedupe::Dedupe),
    Cp(commands::cp::Cp),
    Mv(commands::mv::Mv),
    Ln(commands::ln::Ln),
}

fn run(line: &str) -> Result<()> {
    let mut out = Output::new();
    let out = &mut out;
    match Line::try_parse_from(line.split(' '))?.command {
        Command::Info(command) => command.run(out),
        Command::Ls(command) => command.run(out),
        Command::Tree(command) => command.run(out),
        Command::Cat(command) => command.run(out),
        Command::Stat(command) => command.run(out),
        Command::Get(command) => command.run(out),
        Command::Put(command) => command.run(out),
        Command::Mkdir(command) => command.run(out),
        Command::Rm(command) => command.run(out),
        Command::Mv(command) => command.run(out),
        Command::Ln(command) => command.run(out),
        Command::Defrag(command) => command.run(out),
        Command::Dedupe(command) => command.run(out),
        Command::Cp(command) => command.run(out),
    }?;
    out.finish()
}

fn main() -> Result<()> {
    commands::format::know(FORMATS);
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let done = run(&line);
        if let Err(error) = &done {
            println!("{}", one_line(error));
        }
        println!("= {}", done.map_or_else(|error| status_of(&error).code(), |()| Status::Done.code()));
    }
    Ok(())
}
