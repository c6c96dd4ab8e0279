//! `spinney image` keeps container images in a volume, equal layers once, and makes roots of containers of them. It
//! works on image files and on mounts, by the files of either. Called by `args`.
//!
//! Failure: an import that is interrupted leaves nothing that `list` shows as an image; `prune` removes the rest.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use serde::Serialize;
use spinney::btrfs::images::{ImageStore, StoredImage};
use spinney::host::Env;
use spinney::layers::oci::{Place, Platform, Storage};
use spinney::transfer::{Rules, VolumeSinkOptions};
use spinney::vfs::file_system::Time;
use spinney::{Contents, ContentsOptions, Files, SnapshotMode};

use crate::commands::failure::Failure;
use crate::commands::human;
use crate::commands::image::{ImageArgs, ReadArgs, connect_mount, maker};
use crate::commands::names::escaped;
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};
use crate::commands::tally::{Counted, Tally};
use crate::job::source_date_epoch;

/// Keep container images in a volume, equal layers once; start containers of them
///
/// Each layer is a read-only subvolume. The root of a container is a snapshot, made at once and writable; it goes to
/// podman, bwrap, systemd-nspawn or runc as a directory of the mount.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney image import store.img oci:debian:12 debian\n",
    "  spinney image list store.img\n",
    "  spinney image fork mnt debian mnt/web         mnt/web is a root for a container\n",
    "  podman run --rootfs mnt/web sh\n",
    "  spinney image mount store.img debian tree     look at an image, read-only\n",
    "  spinney image export mnt mnt/web oci:out:web  with the changes as one more layer\n",
    "  spinney subvolume delete mnt/web\n",
    "  spinney image rm mnt debian"
))]
pub(crate) struct Image {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Import(Import),
    List(List),
    Show(Show),
    Fork(Fork),
    Mount(Mount),
    Export(Export),
    Rm(Remove),
    Prune(Prune),
}

/// The directory of a store.
#[derive(Debug, Args)]
struct Dir {
    /// Directory of the images, from the root of the volume
    #[arg(long, value_name = "PATH", default_value = "/images")]
    dir: PathBuf,
}

/// Import a container image; layers that are there are not copied again
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney image import store.img oci:debian:12 debian\n",
    "  spinney image import mnt docker-archive:saved.tar web\n",
    "  spinney image import --json store.img oci-archive:web.tar web | jq .shared"
))]
struct Import {
    #[command(flatten)]
    image: ImageArgs,
    /// oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker-archive:FILE[:TAG]
    source: OsString,
    /// Name of the image in the store
    name: String,
    #[command(flatten)]
    dir: Dir,
    /// Platform, where there are several: OS/ARCHITECTURE[/VARIANT]
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<Platform>,
    /// Most bytes of a layer after decompression
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    max_size: Option<u64>,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {name, layers, shared}
    #[arg(long)]
    json: bool,
}

/// List the images, their layers and roots
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney image list store.img\n",
    "  spinney image list --json mnt | jq -r '.[] | .tree'"
))]
struct List {
    #[command(flatten)]
    image: ReadArgs,
    #[command(flatten)]
    dir: Dir,
    /// Report as JSON: a list of {name, complete, manifest, layers: [{chain_id, diff_id}], tree, roots}
    #[arg(long)]
    json: bool,
}

/// Print the configuration of an image: its environment, user, program
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney image show store.img debian\n",
    "  spinney image show --json mnt debian | jq .config.Env"
))]
struct Show {
    #[command(flatten)]
    image: ReadArgs,
    /// Name of the image
    name: String,
    #[command(flatten)]
    dir: Dir,
    /// Print it as JSON on one line: the configuration of the image format {architecture, os, config, history, ...}
    #[arg(long)]
    json: bool,
}

/// Make a writable root of an image, at once
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Prints the path of the root. `spinney subvolume delete` deletes it.\n\n",
    "Examples:\n",
    "  spinney image fork mnt debian mnt/web\n",
    "  spinney image fork store.img debian /web\n",
    "  spinney image fork --json --read-only mnt debian mnt/base | jq -r .path"
))]
struct Fork {
    #[command(flatten)]
    image: ImageArgs,
    /// Name of the image
    name: String,
    /// Path of the root, in the volume or below the mount
    path: PathBuf,
    #[command(flatten)]
    dir: Dir,
    /// The root cannot be changed
    #[arg(short, long)]
    read_only: bool,
    /// Report as JSON: {path}
    #[arg(long)]
    json: bool,
}

/// Mount the tree of an image read-only, or a new root of it
///
/// Other options are those of `spinney mount`. On a mount the trees are there already: `image list` names them.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "`spinney umount` ends it. The root stays.\n\n",
    "Examples:\n",
    "  spinney image mount store.img debian tree\n",
    "  spinney image mount --root /web store.img debian web\n",
    "  spinney image mount -o allow_other store.img debian tree"
))]
struct Mount {
    #[command(flatten)]
    image: ImageArgs,
    /// Name of the image
    name: String,
    /// The directory to mount it at
    dir: PathBuf,
    /// Mount this root of the image, which can be written; it is made if it is not there
    #[arg(long, value_name = "PATH")]
    root: Option<PathBuf>,
    /// Options of `spinney mount`
    #[arg(short, value_name = "OPTIONS")]
    options: Option<String>,
    /// Directory of the images, from the root of the volume
    #[arg(long = "dir", value_name = "PATH", default_value = "/images")]
    images: PathBuf,
}

/// Write a root as a container image, its changes as one more layer
///
/// Layers of the image that the layout has are taken from it. Others are written anew, compressed by gzip: the same
/// trees, under other digests.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney image export mnt mnt/web oci:out:web\n",
    "  spinney image export --base debian store.img /web oci:out:web\n",
    "  spinney image export --json mnt mnt/web oci:out:web | jq -r .manifest"
))]
struct Export {
    #[command(flatten)]
    image: ReadArgs,
    /// The root, in the volume or below the mount
    root: PathBuf,
    /// oci:DIR[:TAG]; a layout that is there gets one more image
    target: String,
    /// The image that it was made of, if `image fork` did not make it
    #[arg(long, value_name = "NAME")]
    base: Option<String>,
    #[command(flatten)]
    dir: Dir,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {manifest, layers, known, changed}
    #[arg(long)]
    json: bool,
}

/// Remove an image, and the layers that no other image has
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney image rm store.img debian\n",
    "  spinney image rm --json mnt debian | jq .layers"
))]
struct Remove {
    #[command(flatten)]
    image: ImageArgs,
    /// Name of the image
    name: String,
    #[command(flatten)]
    dir: Dir,
    /// Also if there are roots of it; they stay, but cannot be exported any more
    #[arg(short, long)]
    force: bool,
    /// Report as JSON: {layers}
    #[arg(long)]
    json: bool,
}

/// Remove what imports have left that were ended, and layers that no image has
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "No import may run meanwhile.\n\n",
    "Examples:\n",
    "  spinney image prune store.img\n",
    "  spinney image prune --json mnt | jq .layers"
))]
struct Prune {
    #[command(flatten)]
    image: ImageArgs,
    #[command(flatten)]
    dir: Dir,
    /// Report as JSON: {layers}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ImportReport<'a> {
    name: &'a str,
    layers: usize,
    shared: usize,
}

#[derive(Serialize)]
struct LayerRow {
    chain_id: String,
    diff_id: String,
}

#[derive(Serialize)]
struct Row {
    name: String,
    complete: bool,
    manifest: Option<String>,
    layers: Vec<LayerRow>,
    tree: Option<PathBuf>,
    roots: Vec<PathBuf>,
}

#[derive(Serialize)]
struct PathReport {
    path: PathBuf,
}

#[derive(Serialize)]
struct LayersReport {
    layers: usize,
}

#[derive(Serialize)]
struct ExportReport {
    manifest: String,
    layers: usize,
    known: usize,
    changed: bool,
}

impl Image {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Import(command) => command.run(out),
            Command::List(command) => command.run(out),
            Command::Show(command) => command.run(out),
            Command::Fork(command) => command.run(out),
            Command::Mount(command) => command.run(),
            Command::Export(command) => command.run(out),
            Command::Rm(command) => command.run(out),
            Command::Prune(command) => command.run(out),
        }
    }
}

impl Dir {
    fn store(&self, files: &Files) -> ImageStore {
        ImageStore::new(files.clone(), &self.dir)
    }
}

/// The path in the volume that an argument names: below a mount, or from the root of an image.
fn in_volume(image: &ImageArgs, path: &Path) -> Result<PathBuf> {
    if image.mounted_dir()?.is_none() {
        return Ok(Path::new("/").join(path));
    }
    let name = path.file_name().with_context(|| format!("{}: no name of a root", path.display()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().with_context(|| parent.display().to_string())?;
    Ok(connect_mount(&parent)?.1.join(name))
}

impl Import {
    fn run(&self, out: &mut Output) -> Result<()> {
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let tally = Tally::new(&progress, Counted::Tried);
        let default = ContentsOptions::default();
        let max_bytes = self.max_size.unwrap_or(default.max_bytes);
        let options = ContentsOptions { platform: self.platform.clone(), max_bytes, ..default };
        let image = Contents::open_layers(std::slice::from_ref(&self.source), &options, &tally)?;
        let files = self.image.open_writable()?;
        let is_user = self.image.mounted_dir()?.is_some() && !rustix::process::geteuid().is_root();
        let rules = Rules { owner: is_user.then(maker), keeps_privileged: !is_user, ..Rules::default() };
        // A user may neither set the times of changes nor touch what others own.
        let sink = VolumeSinkOptions {
            keeps_ctime: !is_user,
            user: is_user.then(|| maker().0),
            ..VolumeSinkOptions::default()
        };
        let imported = self.dir.store(&files).import(&image, &self.name, (&rules, sink), &tally);
        let closed = files.close();
        drop(bar);
        let imported = imported?;
        closed?;
        if self.json {
            return out.json(&ImportReport { name: &self.name, layers: imported.layers, shared: imported.shared });
        }
        let (layers, shared) = (imported.layers, imported.shared);
        Ok(writeln!(out, "{}: {}, {shared} of them were there", escaped(self.name.as_bytes()), counted(layers))?)
    }
}

impl List {
    fn run(&self, out: &mut Output) -> Result<()> {
        let files = self.image.open_read_only()?;
        let store = self.dir.store(&files);
        let roots = store.roots()?;
        let row = |image: StoredImage| {
            let tree = store.tree_of(&image).ok().filter(|_| image.is_complete);
            let own = roots.iter().filter(|root| root.image == image.name);
            let layer = |layer: &spinney::btrfs::images::StoredLayer| LayerRow {
                chain_id: layer.chain_id.clone(),
                diff_id: layer.diff_id.clone(),
            };
            let layers = image.layers.iter().map(layer).collect();
            let roots = own.map(|root| root.path.clone()).collect();
            Row { name: image.name, complete: image.is_complete, manifest: image.manifest, layers, tree, roots }
        };
        let rows: Vec<Row> = store.list()?.into_iter().map(row).collect();
        if self.json {
            return out.json(&rows);
        }
        for row in rows {
            let state = if row.complete { "" } else { ", not whole: its import was ended, or still runs" };
            writeln!(out, "{}: {}{state}", escaped(row.name.as_bytes()), counted(row.layers.len()))?;
            if let Some(tree) = row.tree {
                writeln!(out, "  tree  {}", escaped(tree.as_os_str().as_bytes()))?;
            }
            for root in row.roots {
                writeln!(out, "  root  {}", escaped(root.as_os_str().as_bytes()))?;
            }
        }
        Ok(())
    }
}

impl Show {
    fn run(&self, out: &mut Output) -> Result<()> {
        let files = self.image.open_read_only()?;
        let image = self.dir.store(&files).find(&self.name)?;
        if self.json {
            return out.json(&image.config);
        }
        // As JSON, which escapes control characters, too.
        Ok(writeln!(out, "{}", serde_json::to_string_pretty(&image.config)?)?)
    }
}

impl Fork {
    fn run(&self, out: &mut Output) -> Result<()> {
        let target = in_volume(&self.image, &self.path)?;
        let files = self.image.open_writable()?;
        let mode = if self.read_only { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite };
        let made = self.dir.store(&files).fork(&self.name, &target, mode);
        let closed = files.close();
        made?;
        closed?;
        let path = if self.image.mounted_dir()?.is_some() { self.path.clone() } else { target };
        if self.json {
            return out.json(&PathReport { path });
        }
        out.put_name(path.as_os_str().as_bytes())?;
        Ok(out.write_all(b"\n")?)
    }
}

impl Mount {
    /// The subvolume to mount, from the root of the volume.
    fn subvolume(&self) -> Result<PathBuf> {
        let dir = Dir { dir: self.images.clone() };
        let Some(root) = &self.root else {
            let files = ReadArgs::of(self.image.clone()).open_read_only()?;
            let store = dir.store(&files);
            return Ok(store.tree_of(&store.find(&self.name)?)?);
        };
        let root = Path::new("/").join(root);
        let files = self.image.open_writable()?;
        let store = dir.store(&files);
        let made = match store.roots()?.iter().find(|known| known.path == root) {
            Some(known) if known.image == self.name => Ok(()),
            Some(known) => {
                let text = format!("{}: a root of {}, expected one of {}", root.display(), known.image, self.name);
                return Err(Failure::refused(text).into());
            }
            None => store.fork(&self.name, &root, SnapshotMode::ReadWrite),
        };
        let closed = files.close();
        made?;
        closed?;
        Ok(root)
    }

    fn run(&self) -> Result<()> {
        if self.image.mounted_dir()?.is_some() {
            let text = format!("{}: a mount, which shows the trees of its images", self.image.image.display());
            return Err(Failure::usage(text).into());
        }
        if self.image.has_options() {
            return Err(Failure::usage("devices are named as A,B here; other options of the image do not apply").into());
        }
        let subvolume = self.subvolume()?;
        if subvolume.as_os_str().as_bytes().contains(&b',') {
            return Err(Failure::refused(format!("{}: a comma ends an option of mount", subvolume.display())).into());
        }
        let mut options = OsString::from(if self.root.is_some() { "subvol=" } else { "ro,subvol=" });
        options.push(&subvolume);
        if let Some(more) = &self.options {
            options.push(",");
            options.push(more);
        }
        let mut mount = std::process::Command::new("/proc/self/exe");
        mount.arg0("spinney").arg("mount").arg("-o").arg(options).arg("--").args([&self.image.image, &self.dir]);
        Err(mount.exec()).context("cannot start this program again")
    }
}

impl Export {
    fn run(&self, out: &mut Output) -> Result<()> {
        let place: Place = self.target.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        if place.storage != Storage::Layout {
            return Err(Failure::usage("the target is a layout in a directory: oci:DIR[:TAG]").into());
        }
        let root = in_volume(&self.image.image, &self.root)?;
        let files = self.image.open_read_only()?;
        let store = self.dir.store(&files);
        let base = match &self.base {
            Some(name) => store.find(name)?,
            None => store.image_of(&root)?,
        };
        let now = || Env::system().now().0;
        let created = human::time_short(Time::new(source_date_epoch()?.unwrap_or_else(now), 0)).replace(' ', "T") + "Z";
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let tally = Tally::new(&progress, Counted::Tried);
        let done = store.export((&root, &base), (&place.path, place.tag.as_deref()), &created, &tally);
        drop(bar);
        let done = done?;
        let manifest = done.manifest.to_string();
        if self.json {
            let (layers, known, changed) = (done.layers, done.known, done.has_changes);
            return out.json(&ExportReport { manifest, layers, known, changed });
        }
        Ok(writeln!(out, "{manifest}: {}, {} of them were there", counted(done.layers), done.known)?)
    }
}

impl Remove {
    fn run(&self, out: &mut Output) -> Result<()> {
        let files = self.image.open_writable()?;
        let removed = self.dir.store(&files).remove(&self.name, self.force);
        report_layers(files, removed, self.json, out)
    }
}

impl Prune {
    fn run(&self, out: &mut Output) -> Result<()> {
        let files = self.image.open_writable()?;
        let removed = self.dir.store(&files).prune();
        report_layers(files, removed, self.json, out)
    }
}

fn report_layers(files: Files, removed: spinney::Result<usize>, json: bool, out: &mut Output) -> Result<()> {
    let closed = files.close();
    let layers = removed?;
    closed?;
    if json { out.json(&LayersReport { layers }) } else { Ok(writeln!(out, "{} removed", counted(layers))?) }
}

fn counted(layers: usize) -> String {
    if layers == 1 { "1 layer".to_owned() } else { format!("{layers} layers") }
}
