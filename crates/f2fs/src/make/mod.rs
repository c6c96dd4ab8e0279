//! Makes empty volumes, laid out as `mkfs.f2fs` 1.15 does it for the same options.
//!
//! - `plan`: positions of areas, space reserved for the cleaner, first segments of the logs
//! - `first_checkpoint`: the first checkpoint, the root directory, `lost+found`, quota files
//!
//! The superblocks are written last, after a flush of the device, so that an interrupted volume is not recognised. The
//! first checkpoint's version comes from the UUID, so that nodes of an earlier volume on the device are ignored.
//!
//! Failure: [`MakeError`]. Callers: the `spinney` library, for programs that make images, and `f2fs-crash`.

mod first_checkpoint;
mod plan;

use blockdev::Device;
use f2fs_disk::convert::{to_u64, usize_from};
use f2fs_disk::superblock::{COPIES, DiskSuperblock, copy_offset};
use f2fs_disk::{BLOCK_SIZE, BlockAddr, SEGMENT_BLOCKS, fold, hash};
use zerocopy::IntoBytes as _;

use plan::{LOGS, Plan};

pub use f2fs_disk::flags::Features;

/// Features that can be requested.
pub const CAN_HAVE: Features = Features::ENCRYPT
    .union(Features::EXTRA_ATTR)
    .union(Features::PRJQUOTA)
    .union(Features::INODE_CHKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::QUOTA_INO)
    .union(Features::INODE_CRTIME)
    .union(Features::LOST_FOUND)
    .union(Features::VERITY)
    .union(Features::SB_CHKSUM)
    .union(Features::CASEFOLD)
    .union(Features::COMPRESSION);
/// Features among them that need extra attributes.
const NEED_EXTRA: Features = Features::PRJQUOTA
    .union(Features::INODE_CHKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::INODE_CRTIME)
    .union(Features::COMPRESSION);
/// Bytes that are filled with zeros at a time.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
/// Most segments of a section, and sections of a zone.
const COUNT_MAX: u32 = 1 << 12;

/// Properties of a new volume.
#[derive(Debug, Clone)]
pub struct MakeOptions {
    /// Its name: up to 511 UTF-16 units.
    pub label: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its features, of [`CAN_HAVE`].
    pub features: Features,
    /// Percent of the segments that users cannot fill; `None` for the best value for the size.
    pub overprovision: Option<f64>,
    /// Segments of a section.
    pub section_segments: u32,
    /// Sections of a zone.
    pub zone_sections: u32,
    /// Owner and group of the root directory.
    pub owner: (u32, u32),
    /// Its times, in seconds since 1970.
    pub time: u64,
    /// Names that are not UTF-8 are refused in directories that ignore case.
    pub strict_names: bool,
    /// The name of the program in the superblock, up to 255 bytes.
    pub made_by: String,
}

impl Default for MakeOptions {
    fn default() -> Self {
        Self {
            label: String::new(),
            uuid: [0; 16],
            features: Features::empty(),
            overprovision: None,
            section_segments: 1,
            zone_sections: 1,
            owner: (0, 0),
            time: 0,
            strict_names: false,
            made_by: String::new(),
        }
    }
}

impl MakeOptions {
    /// Checks whether [`make`] would make such a volume on a device of `size_bytes`.
    ///
    /// # Errors
    /// [`MakeError`], except `Io`.
    pub fn check(&self, size_bytes: u64) -> Result<(), MakeError> {
        check_options(self)?;
        Plan::of(size_bytes, self).map(drop)
    }
}

/// The reason why there is no new volume.
///
/// To do: choose another value; `spinney mkfs --help` has the limits.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// The device is too small for one.
    #[error("{bytes} bytes are too few for an f2fs volume like this")]
    TooSmall {
        /// Size of the device.
        bytes: u64,
    },
    /// The device is too large.
    #[error("{bytes} bytes are too many for an f2fs volume: expected at most 16 TiB")]
    TooLarge {
        /// Size of the device.
        bytes: u64,
    },
    /// An option is invalid.
    #[error("{what}: expected {expected}, found {found}")]
    Option {
        /// The option.
        what: &'static str,
        /// Its valid values.
        expected: &'static str,
        /// Its value.
        found: String,
    },
    /// The device failed.
    #[error(transparent)]
    Io(#[from] blockdev::Error),
}

/// Makes an empty volume of a whole device. The contents of the device are lost, even if this fails later.
///
/// # Errors
/// [`MakeError`]; nothing was written unless it is `Io`.
pub fn make(device: &dyn Device, options: &MakeOptions) -> Result<(), MakeError> {
    check_options(options)?;
    let plan = Plan::of(device.size_bytes(), options)?;
    let superblock = superblock(&plan, options);
    // Without superblocks there is no volume until the rest is written.
    fill(device, 0, u32::try_from(COPIES).unwrap_or(0))?;
    device.flush()?;
    clear(device, &plan)?;
    first_checkpoint::write(device, &plan, hash::crc32_from(u32::MAX, &options.uuid), options)?;
    device.flush()?;
    for copy in 0..COPIES {
        device.write_at(copy_offset(copy), &[superblock.as_bytes()])?;
    }
    Ok(device.flush()?)
}

fn check_options(options: &MakeOptions) -> Result<(), MakeError> {
    let wrong = |what, expected, found: String| Err(MakeError::Option { what, expected, found });
    let unknown = options.features.difference(CAN_HAVE);
    if !unknown.is_empty() {
        return wrong("features", "such as a new volume can have", unknown.names().join(","));
    }
    if options.features.intersects(NEED_EXTRA) && !options.features.contains(Features::EXTRA_ATTR) {
        return wrong("features", "extra_attr with those kept in it", options.features.names().join(","));
    }
    if options.strict_names && !options.features.contains(Features::CASEFOLD) {
        return wrong("features", "casefold with strict names", options.features.names().join(","));
    }
    if options.label.encode_utf16().count() > 511 || options.label.contains('\0') {
        return wrong("label", "at most 511 UTF-16 units, none of them 0", options.label.clone());
    }
    if options.made_by.len() > 255 {
        return wrong("name of the maker", "at most 255 bytes", options.made_by.len().to_string());
    }
    let counts = [("segments of a section", options.section_segments), ("sections of a zone", options.zone_sections)];
    if let Some((what, count)) = counts.into_iter().find(|(_, count)| !(1..=COUNT_MAX).contains(count)) {
        return wrong(what, "1 to 4096", count.to_string());
    }
    match options.overprovision {
        Some(percent) if !(percent > 0.0 && percent < 100.0) => {
            wrong("overprovision", "more than 0 and less than 100 percent", percent.to_string())
        }
        _ => Ok(()),
    }
}

/// Zeroes the checkpoints, the first copies of SIT and NAT, and the blocks where roll-forward recovery would look for
/// nodes.
fn clear(device: &dyn Device, plan: &Plan) -> Result<(), MakeError> {
    let blocks = |segments: u32| segments.saturating_mul(SEGMENT_BLOCKS);
    fill(device, plan.cp.start, blocks(plan.cp.segments))?;
    fill(device, plan.sit.start, blocks(plan.sit.segments / 2))?;
    // The two copies of a segment of the NAT are adjacent.
    for pair in 0..plan.nat.segments / 2 {
        fill(device, plan.nat.start.saturating_add(blocks(pair.saturating_mul(2))), blocks(1))?;
    }
    (0..LOGS).try_for_each(|log| fill(device, plan.log_block(log), 1))
}

/// Fills blocks with zeros.
fn fill(device: &dyn Device, block: u32, count: u32) -> Result<(), MakeError> {
    let mut at = BlockAddr(block).byte();
    let mut left = usize_from(count).saturating_mul(BLOCK_SIZE);
    while left > 0 {
        let zeros = ZEROS.get(..left.min(ZEROS.len())).unwrap_or_default();
        device.write_at(at, &[zeros])?;
        at = at.saturating_add(to_u64(zeros.len()));
        left = left.saturating_sub(zeros.len());
    }
    Ok(())
}

/// The extensions of files that change rarely, and often: those of `mkfs.f2fs`.
const COLD_EXTENSIONS: &[&str] = &[
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus", "flac", "gif",
    "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc", "ttc", "ttf", "exe", "apk", "cnt",
    "exo", "odex", "vdex", "so",
];
const HOT_EXTENSIONS: &[&str] = &["db", "vmdk", "vdi", "qcow2"];

/// The features of a volume: project numbers are counted in a quota file.
fn features_of(options: &MakeOptions) -> Features {
    let counts = options.features.contains(Features::PRJQUOTA);
    options.features.union(if counts { Features::QUOTA_INO } else { Features::empty() })
}

fn superblock(plan: &Plan, options: &MakeOptions) -> DiskSuperblock {
    let mut fields = plan.superblock();
    fields.uuid = options.uuid;
    for (to, unit) in fields.volume_name.iter_mut().zip(options.label.encode_utf16()) {
        *to = unit.into();
    }
    for (to, name) in fields.extension_list.iter_mut().zip(COLD_EXTENSIONS.iter().chain(HOT_EXTENSIONS)) {
        to.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte);
    }
    fields.extension_count = u32::try_from(COLD_EXTENSIONS.len()).unwrap_or(0).into();
    fields.hot_ext_count = u8::try_from(HOT_EXTENSIONS.len()).unwrap_or(0);
    for version in [&mut fields.version, &mut fields.init_version] {
        version.iter_mut().zip(options.made_by.bytes()).for_each(|(to, byte)| *to = byte);
    }
    fields.feature = features_of(options).bits().into();
    for (to, (_, ino)) in first_checkpoint::quota_files(options) {
        if let Some(place) = fields.qf_ino.get_mut(to) {
            *place = ino.0.into();
        }
    }
    if options.features.contains(Features::CASEFOLD) {
        fields.s_encoding = fold::UTF8_12_1.into();
        fields.s_encoding_flags = if options.strict_names { fold::STRICT } else { 0 }.into();
    }
    if options.features.contains(Features::SB_CHKSUM) {
        fields.seal();
    }
    fields
}
