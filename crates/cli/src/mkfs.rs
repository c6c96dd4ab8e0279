//! `spinney mkfs` parses the options of all formats, and has one format make the file system. Called by `args`.

use anyhow::Result;
use clap::Args;
use spinney::disk::containers::Options;
use spinney::transfer::{Options as TransferOptions, Totals};
use spinney::{Contents, Format, MakeOptions};

use crate::commands::failure::Failure;
use crate::commands::format;
use crate::commands::output::Output;
use crate::delivery::Delivery;
use crate::job::Job;
use crate::make::Make;
use crate::target::Common;
use crate::{btrfs, f2fs};

/// Make a file system, empty or with the contents of directories, archives or other images
///
/// Without --size, a new image is as large as needed, and a file or device keeps its size; an empty
/// f2fs needs it for a new file. The defaults are those of mkfs.btrfs 6.19 and mkfs.f2fs 1.15.
///
/// With SOURCE_DATE_EPOCH and -U, or with --deterministic, the same contents make the same image, byte for byte: no
/// file is newer than SOURCE_DATE_EPOCH, and all other UUIDs follow from -U.
///
/// Owners: a manifest wins over --owner, --all-root and the maps, these over archives and the state of fakeroot, and
/// those over the files of this machine.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney mkfs --size 2G disk.img\n",
    "  spinney mkfs --rootdir ./site -L site site.img\n",
    "  spinney mkfs --rootdir ./site --compress zstd:9 site.img\n",
    "  spinney mkfs --rootdir ./site --shrink site.img\n",
    "  spinney mkfs --rootdir root.tar.zst --from ./overlay --all-root disk.img\n",
    "  spinney mkfs --rootdir oci:./layout:latest disk.img\n",
    "  zcat root.cpio.gz | spinney mkfs --rootdir - disk.img\n",
    "  spinney mkfs --csum xxhash64 -O ^block-group-tree --size 1G old.img\n",
    "  spinney mkfs -O list-all\n",
    "  spinney mkfs -t f2fs --size 1G -l phone phone.img\n",
    "  spinney mkfs -t f2fs --rootdir ./site site.img\n",
    "  spinney mkfs -t f2fs -O extra_attr,inode_checksum,inode_crtime --size 8G card.img"
))]
pub(crate) struct Mkfs {
    /// Format of the file system
    #[arg(short = 't', long = "type", value_name = "FORMAT", default_value = "btrfs", value_parser = parse_format)]
    format: &'static dyn Format,
    #[command(flatten)]
    common: Common,
    #[command(flatten, next_help_heading = "Options of btrfs")]
    of_btrfs: btrfs::mkfs::Own,
    #[command(flatten, next_help_heading = "Options of f2fs")]
    of_f2fs: f2fs::mkfs::Own,
}

fn parse_format(name: &str) -> Result<&'static dyn Format, String> {
    let found = spinney::format_named(name);
    found.ok_or_else(|| format!("`{name}` is no format; there are {}", spinney::format_names()))
}

impl Mkfs {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let own: [(&str, &dyn Make); 2] =
            [(btrfs::row::FACE.name, &self.of_btrfs), (f2fs::row::FACE.name, &self.of_f2fs)];
        let name = self.format.name();
        let other = own.iter().filter(|(owner, _)| *owner != name).find_map(|(owner, own)| Some((owner, own.given()?)));
        if let Some((owner, option)) = other {
            return Err(Failure::usage(format!("{option}: only {owner} has it: -t {owner}")).into());
        }
        let make = |out: &mut Output| match own.iter().find(|(owner, _)| *owner == name) {
            Some((_, own)) => own.run(&self.common, out),
            None => self.make_plain(out),
        };
        // btrfs gets its superblock last.
        let is_bare = name != btrfs::row::FACE.name && !self.common.contents.sources.is_empty();
        let Some(path) = self.common.path().filter(|path| Delivery::is_needed(path, is_bare)) else { return make(out) };
        let delivery = Delivery::new(path, None, self.common.force)?;
        let draft = delivery.draft()?;
        // It is set once, here.
        let _ = self.common.place.set(draft.path());
        make(out)?;
        delivery.deliver(&draft, &Options::default())
    }

    /// Counts the contents; `None` where there are none, or only reading them once is possible.
    ///
    /// # Errors
    /// Those of the sources.
    pub(crate) fn measure(&self) -> Result<Option<Totals>> {
        let sources = &self.common.contents.sources;
        if sources.is_empty() || sources.iter().any(|source| source == "-") {
            return Ok(None);
        }
        let contents = Contents::read(sources, &self.common.contents.options()?, &())?;
        Ok(Some(contents.measure(&TransferOptions::default())?))
    }

    /// Makes a file system of a format without options of its own.
    fn make_plain(&self, out: &mut Output) -> Result<()> {
        let (common, name) = (&self.common, self.format.name());
        let job = Job::new(common)?;
        let target = &job.target;
        let size = common.size(target)?;
        target.check_size(size)?;
        let (label, uuid) = (common.label.clone(), job.uuid());
        let options = MakeOptions { label, uuid, owner: common.top_owner(), ..MakeOptions::new() };
        let made = target.open_bare(size).and_then(|device| {
            let volume = spinney::make_devices(vec![device], name, &options)?;
            job.copy_in(&volume, 0)?;
            volume.sync()?;
            Ok(volume)
        });
        match made {
            Err(error) => {
                target.remove_new();
                Err(error)
            }
            Ok(_) if !common.reports() => Ok(()),
            Ok(volume) => (format::face(self.format).report)(&volume, common.json, out),
        }
    }
}
