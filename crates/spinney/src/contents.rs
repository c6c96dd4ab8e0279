//! Reads the contents of a new image from one source or several: directories, archives, container images, other images;
//! and applies the owners and manifests that change them. `mkfs` and `put` of the program fill images with it.
//!
//! One directory without rules is read while it is copied. Everything else becomes a [`Tree`] first, whose contents
//! stay where they are. The order of precedence: a manifest wins over the rules for owners, these over an archive or
//! the state of fakeroot, and that over the host.

use std::ffi::{OsStr, OsString};
use std::fs::File as HostFile;
use std::io::{Read as _, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use archive::{Input, ReadOptions};
use layers::host::HostReadOptions;
use layers::manifest::{Form, ManifestOptions, Names};
use layers::oci::{Image, OpenOptions as ImageOptions, Place, Platform};
use layers::owners::{self, OwnerRules};
use layers::{FakerootState, host as host_tree, manifest};
use portable::OsStrExt as _;
use transfer::{
    Contents as FileContents, FileId, HostSource, Observer, Options, Result as TransferResult, Stored, Totals,
    Transfer, Tree, VolumeSink, VolumeSource, measure, read_source,
};
use vfs::file_system::Time;
use vfs::{File, Result};

use crate::formats::recognise_bytes;
use crate::open::open;
use crate::source_errors::{of_archive, of_host, of_layers};
use crate::{Volume, VolumeOptions};

/// Bytes at the begin of a file in which a file system is recognised.
const HEAD_BYTES: u64 = 0x20000;

/// Where the contents of an image come from.
#[derive(Debug)]
pub enum Contents {
    /// A directory, which is read while it is copied.
    Directory(HostSource),
    /// Anything else.
    Tree(Tree),
}

/// How sources are read, and what is changed in them.
#[derive(Debug, Clone)]
pub struct ContentsOptions {
    /// Owners of all nodes.
    pub owners: OwnerRules,
    /// Manifests, which add nodes and change attributes: mtree, or dumps of composefs.
    pub manifests: Vec<PathBuf>,
    /// The file in which `fakeroot -s` saved its state, for directories.
    pub fakeroot_state: Option<PathBuf>,
    /// The platform of container images.
    pub platform: Option<Platform>,
    /// Most bytes of one archive or layer after decompression.
    pub max_bytes: u64,
    /// A file to leave out: the image that is written.
    pub skip: Option<FileId>,
}

impl Default for ContentsOptions {
    fn default() -> Self {
        Self {
            owners: OwnerRules::default(),
            manifests: Vec::new(),
            fakeroot_state: None,
            platform: None,
            max_bytes: 1 << 40,
            skip: None,
        }
    }
}

/// A source, by the text that names it.
enum Kind {
    Directory(PathBuf),
    /// An archive in a file, or on the standard input.
    Archive(Option<PathBuf>),
    Container(Place),
    /// A directory of a volume in an image.
    Image(PathBuf, PathBuf),
}

impl Contents {
    /// Reads `sources`, later ones over earlier ones. A source is a directory; an archive (tar or cpio, compressed or
    /// not; `-` is the standard input); a container image (`oci:DIR[:TAG]`, `oci-archive:FILE[:TAG]`,
    /// `docker-archive:FILE[:TAG]`); or another image (`IMAGE` or `IMAGE:/PATH`).
    ///
    /// # Errors
    /// `EIO` with the cause for a source that is damaged or cannot be read, `EINVAL` for one that is nothing of these;
    /// those of `watch`.
    pub fn read(sources: &[OsString], options: &ContentsOptions, watch: &dyn Observer) -> Result<Self> {
        let kinds = sources.iter().map(|source| kind(source)).collect::<Result<Vec<_>>>()?;
        if let [Kind::Directory(dir)] = kinds.as_slice()
            && options.is_plain()
        {
            return Ok(Self::Directory(HostSource::open(dir)?));
        }
        // Directories that no source describes are as old as Unix, so that the same sources make the same image.
        let mut tree = Tree::new(Time::default());
        for (kind, source) in kinds.into_iter().zip(sources) {
            options.read_one(&mut tree, kind, source, watch)?;
        }
        owners::apply(&mut tree, &options.owners).map_err(of_layers)?;
        for path in &options.manifests {
            options.apply_manifest(&mut tree, path)?;
        }
        Ok(Self::Tree(tree))
    }

    /// Opens the only source, which has to be a container image, to have its layers one by one.
    ///
    /// # Errors
    /// `EINVAL` for several sources and for another kind; those of the image.
    pub fn open_layers(sources: &[OsString], options: &ContentsOptions, watch: &dyn Observer) -> Result<Image> {
        let [source] = sources else { return Err(of_layers(not_layers("one source", sources.len().to_string()))) };
        let Kind::Container(place) = kind(source)? else {
            return Err(of_layers(not_layers("a container image", source.display().to_string())));
        };
        let read = ReadOptions { max_bytes: options.max_bytes, ..ReadOptions::default() };
        let how = ImageOptions { platform: options.platform.clone(), read };
        Image::open(&place, &how, watch).map_err(of_layers)
    }

    /// Counts the contents.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn measure(&self, options: &Options) -> Result<Totals> {
        Ok(match self {
            Self::Directory(source) => measure(source, options, &()),
            Self::Tree(source) => measure(source, options, &()),
        }?)
    }

    /// Copies the contents.
    ///
    /// # Errors
    /// Those of the copy.
    pub fn copy(&self, sink: &VolumeSink<'_>, options: &Options, watch: &dyn Observer) -> TransferResult<()> {
        match self {
            Self::Directory(source) => Transfer::new(source, sink, options, watch).contents(),
            Self::Tree(source) => Transfer::new(source, sink, options, watch).contents(),
        }
    }
}

impl ContentsOptions {
    /// True if nothing is changed in a directory.
    fn is_plain(&self) -> bool {
        self.owners == OwnerRules::default() && self.manifests.is_empty() && self.fakeroot_state.is_none()
    }

    fn read_one(&self, tree: &mut Tree, kind: Kind, source: &OsStr, watch: &dyn Observer) -> Result<()> {
        let read = ReadOptions { max_bytes: self.max_bytes, ..ReadOptions::default() };
        match kind {
            Kind::Directory(dir) => {
                let fakeroot = self.fakeroot_state.as_deref().map(state_of_fakeroot).transpose()?;
                let how = HostReadOptions { fakeroot, skip: self.skip, ..HostReadOptions::default() };
                host_tree::read_into(tree, &dir, &how, watch).map(drop).map_err(of_layers)
            }
            Kind::Archive(path) => {
                tree.begin_source(source);
                let input = match &path {
                    Some(path) => Input::open(path).map_err(|error| of_host(path, error))?,
                    None => Input::stream(stdin()),
                };
                archive::read_into(tree, input, &read, watch).map_err(|error| of_archive(source, error))
            }
            Kind::Container(place) => {
                tree.begin_source(source);
                let how = ImageOptions { platform: self.platform.clone(), read };
                let image = Image::open(&place, &how, watch).map_err(of_layers)?;
                image.apply(tree, watch).map_err(of_layers)
            }
            Kind::Image(image, path) => {
                tree.begin_source(source);
                let volume = Arc::new(open(&image, &VolumeOptions::new().read_only(true))?);
                let stored = |file: &Path| -> Arc<dyn Stored> {
                    Arc::new(InVolume { volume: Arc::clone(&volume), path: path.join(file) })
                };
                let source = VolumeSource::new(&volume, &path).without_contents();
                Ok(read_source(tree, &source, &stored, watch)?)
            }
        }
    }

    fn apply_manifest(&self, tree: &mut Tree, path: &Path) -> Result<()> {
        let host = |error| of_host(path, error);
        let mut input = HostFile::open(path).map_err(host)?;
        let mut head = Vec::new();
        (&mut input).take(HEAD_BYTES).read_to_end(&mut head).map_err(host)?;
        let table = |name: &str| std::fs::read(name).map(|text| Names::parse(&text)).unwrap_or_default();
        let options = ManifestOptions {
            name: path.display().to_string(),
            users: table("/etc/passwd"),
            groups: table("/etc/group"),
            contents_below: None,
        };
        let form = if is_dump(&head) { Form::ComposefsDump } else { Form::Mtree };
        let whole = head.as_slice().chain(input);
        manifest::apply(tree, whole, form, &options).map(drop).map_err(of_layers)
    }
}

fn not_layers(expected: &str, found: String) -> layers::Error {
    layers::Error::Rule { what: "layers", expected: expected.to_owned(), found }
}

/// True for a dump of composefs, whose lines begin with a path, a size and a mode in octal; a line of mtree has
/// keywords with `=`.
fn is_dump(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let is_number = |field: Option<&&[u8]>| field.is_some_and(|field| field.iter().all(u8::is_ascii_digit));
    line.starts_with(b"/") && fields.len() >= 11 && is_number(fields.get(1))
}

fn state_of_fakeroot(path: &Path) -> Result<FakerootState> {
    let input = HostFile::open(path).map_err(|error| of_host(path, error))?;
    FakerootState::read(input, &path.display().to_string()).map_err(of_layers)
}

/// The kind of source that a text names.
fn kind(source: &OsStr) -> Result<Kind> {
    let bytes = source.as_bytes();
    if bytes == b"-" {
        return Ok(Kind::Archive(None));
    }
    let is_container = [&b"oci:"[..], b"oci-archive:", b"docker-archive:"].iter().any(|name| bytes.starts_with(name));
    if is_container && let Some(text) = source.to_str() {
        return Ok(Kind::Container(text.parse().map_err(of_layers)?));
    }
    let path = Path::new(source);
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(Kind::Directory(path.to_owned())),
        Ok(found) if found.is_file() && is_image(path).map_err(|error| of_host(path, error))? => {
            Ok(Kind::Image(path.to_owned(), PathBuf::from("/")))
        }
        Ok(_) => Ok(Kind::Archive(Some(path.to_owned()))),
        Err(error) => match in_image(bytes) {
            Some((image, path)) if image.is_file() => Ok(Kind::Image(image, path)),
            _ => Err(of_host(path, error)),
        },
    }
}

/// `IMAGE:/PATH`.
fn in_image(source: &[u8]) -> Option<(PathBuf, PathBuf)> {
    let colon = source.windows(2).position(|pair| pair == b":/")?;
    let part = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    Some((part(source.get(..colon)?), part(source.get(colon + 1..)?)))
}

fn is_image(path: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    HostFile::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(recognise_bytes(&head).is_some_and(|name| crate::format_named(name).is_some()))
}

/// The contents of a file of another image.
struct InVolume {
    volume: Arc<Volume>,
    path: PathBuf,
}

impl Stored for InVolume {
    fn open(&self) -> TransferResult<Box<dyn FileContents + Send + Sync>> {
        Ok(Box::new(File::open(&self.volume, &self.path).map_err(|error| error.at(&self.path))?))
    }
}
