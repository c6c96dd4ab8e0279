//! Parses the mount options of btrfs (`mount -o`), and opens a volume with them. Called by `format`; the command line
//! also calls [`open_with`], [`subvolume_id`] and [`compression`].

use std::path::{Path, PathBuf};

use ::btrfs::{CallerError, Compression, CompressionType, Error as Cause, FsOptions, Generation, TreeId};
use ::btrfs::{Volume, VolumeOptions as Own};
use formats::options::{needs_value, size, takes_no_value, unknown};
use formats::{Devices, OptionError, VolumeOptions};
use vfs::{Blame, Errno, Error, Result};

/// The options that only btrfs has; the first words of the lines are their names.
pub(super) const OPTIONS_HELP: &str = "  subvol=PATH         the subvolume at PATH is the root of the mount
  subvolid=ID         the subvolume with this number is; 5 is the top level
  max_inline=BYTES    files up to this size are stored with their metadata; 2048, 0 for none
  nodatacow           new files are overwritten in place, and have no checksums
  nodatasum           new files have no checksums
  compress[=ALGO]     new data is compressed: zlib[:1-9], lzo, zstd[:-15-15], or no; zlib where nothing is said. What
                      does not look as if it became smaller, and files with the flag `m`, are stored as they are
  compress-force[=ALGO]  the same, and everything is tried
  discard             each commit returns freed space: it punches holes into an image file, or discards the blocks of
                      a disk; without it fstrim(8) and `spinney trim` do that for all free space at once
  bg_reclaim_threshold=PERCENT  block groups that have become less full than that are emptied in the background, and
                      given back; up to 90, and 0 for none
  skip_balance        a balance that was cut short is not resumed
  user_subvol_ioctls  programs may make, delete and freeze subvolumes and defragment files by ioctl(2), as far as
                      owners, permission bits and access control lists surely allow it; such calls are NOT
                      stopped by a mount that was made read-only later or in another place (remount,ro or a bind
                      mount with ro). The mount cannot be idmapped, as the server has to know who asks
  generation=N        with ro: shows the state that the transaction N committed, as far as it was not written over;
                      `spinney generations` lists them
  degraded            devices of the volume may be missing; what lies on those alone cannot be read, and
                      nothing is written if a block group needs them
  resync, noresync    a device that missed commits is brought up to date in the background, and not read
                      before (the default); or the mount is refused
  super=COPY          opens the volume by this copy of the superblock: 0 at 64 KiB, 1 at 64 MiB, 2 at 256 GiB
  nologreplay, norecovery, rescue=nologreplay
                      with ro: shows the last commit, without what a crash left in the log
  usebackuproot, rescue=usebackuproot
                      with ro: where the last commit cannot be opened, the newest earlier one that can is shown
  rescue=ignorebadroots, rescue=ignoredatacsums
                      with ro: trees that reading files does not take are not looked at; data is shown as it is on
                      the device, damaged or not. rescue=all is all four, and rescue=A:B some of them
  ssd, space_cache=v2, acl, barrier, treelog, thread_pool=N and other options of the kernel's btrfs
                      that ask for nothing that a mount of ours does not do anyway are accepted, for fstab";

/// Names of the options in [`OPTIONS_HELP`], and their opposites.
const NAMES: &[&str] = &[
    "subvol",
    "subvolid",
    "max_inline",
    "nodatacow",
    "datacow",
    "nodatasum",
    "datasum",
    "degraded",
    "resync",
    "noresync",
    "nologreplay",
    "norecovery",
    "rescue",
    "usebackuproot",
    "recovery",
    "generation",
    "super",
    "compress",
    "compress-force",
    "discard",
    "nodiscard",
    #[cfg(feature = "ablation")]
    "older",
    "bg_reclaim_threshold",
    "skip_balance",
    "user_subvol_ioctls",
    "nouser_subvol_ioctls",
];

/// Options that only the kernel's btrfs supports. An `/etc/fstab` may contain them; they are refused by name.
const NOT_HERE: &[&str] = &[
    "autodefrag",
    "clear_cache",
    "enospc_debug",
    "fatal_errors",
    "flushoncommit",
    "noacl",
    "nobarrier",
    "nospace_cache",
    "notreelog",
    "rescan_uuid_tree",
    "user_subvol_rm_allowed",
];

/// Options of the kernel's btrfs, with their values, that request the usual behaviour of a mount, or an optimisation
/// without a counterpart here. They are accepted without effect, so that lines of `/etc/fstab` need no change.
const ACCEPTED: &[(&str, &[&str])] = &[
    ("acl", &[]),
    ("barrier", &[]),
    ("noautodefrag", &[]),
    ("noenospc_debug", &[]),
    ("noflushoncommit", &[]),
    ("nossd", &[]),
    ("nossd_spread", &[]),
    ("space_cache", &["v2"]),
    ("ssd", &[]),
    ("ssd_spread", &[]),
    ("treelog", &[]),
    ("thread_pool", &["N"]),
];

/// Options that need a value, and its name in messages.
const WITH_VALUE: &[(&str, &str)] = &[
    ("subvol", "PATH"),
    ("subvolid", "ID"),
    ("max_inline", "BYTES"),
    ("bg_reclaim_threshold", "PERCENT"),
    ("generation", "N"),
    ("super", "COPY"),
    ("rescue", "PART[:PART...]"),
    ("thread_pool", "N"),
];

/// The parts of `rescue=` and their short names, as the kernel has them.
const RESCUE_PARTS: &str =
    "usebackuproot, nologreplay, ignorebadroots (ibadroots), ignoredatacsums (idatacsums) or all";

/// The copies of the superblock.
const SUPER_COPIES: &str = "give the number of a copy: 0 at 64 KiB, 1 at 64 MiB, 2 at 256 GiB";
/// The largest legal `max_inline`; a leaf limits it further.
const MAX_INLINE_MAX: u64 = 64 << 10;
/// Highest permitted percentage of `bg_reclaim_threshold`: moving a group that is nearly full frees too little.
const RECLAIM_MAX: u8 = 90;
/// True for the name of an option that btrfs has.
pub(super) fn is_option(name: &str) -> bool {
    NAMES.contains(&name) || ACCEPTED.iter().any(|(accepted, _)| *accepted == name)
}

/// True for an option that changes nothing.
fn is_accepted(name: &str, value: Option<&str>) -> bool {
    ACCEPTED.iter().any(|(accepted, values)| {
        *accepted == name
            && match value {
                None => *values != ["N"],
                Some(value) if *values == ["N"] => value.parse::<u32>().is_ok(),
                Some(value) => values.contains(&value),
            }
    })
}

/// Refuses unknown mount options and invalid values.
pub(super) fn check_options(request: &VolumeOptions) -> Result<()> {
    Wanted::of(request).map(drop)
}

/// Opens a volume; also returns the options with which it is served as a mount.
pub(super) fn open(devices: Devices, request: &VolumeOptions) -> Result<(Volume, FsOptions)> {
    let wanted = Wanted::of(request)?;
    let served = wanted.served.clone();
    Ok((wanted.open(devices, |options| options)?, served))
}

/// Opens a btrfs volume with `request`, after `change` has set those [`crate::btrfs::VolumeOptions`] that have no mount
/// option.
///
/// # Errors
/// As [`crate::open_devices`].
pub fn open_with(devices: Devices, request: &VolumeOptions, change: impl FnOnce(Own) -> Own) -> Result<Volume> {
    Wanted::of(request)?.open(devices, change)
}

/// Switches to an older algorithm, for benchmarks.
#[cfg(feature = "ablation")]
fn older(way: &str) -> Result<()> {
    use ::btrfs::ablation;
    match way {
        "items-in-leaf" => ablation::set_makes_items_in_leaf(true),
        "commit-each-sync" => ablation::set_commits_each_sync(true),
        "apart" => ablation::set_allocates_apart(true),
        "collect-csums" => ablation::set_collects_csums(true),
        "pinned-locked" => ablation::set_sums(ablation::Sums::Locked),
        way if let Some(batch) = way.strip_prefix("pinned-batch-").and_then(|batch| batch.parse().ok()) => {
            ablation::set_sums(ablation::Sums::Batch(batch));
        }
        _ => {
            let ways = "items-in-leaf, commit-each-sync, apart, collect-csums, pinned-locked or pinned-batch-BYTES";
            return Err(OptionError::wrong(format!("older={way}: {ways}")).into());
        }
    }
    Ok(())
}

/// The requested settings.
struct Wanted {
    options: Own,
    subvol: Option<PathBuf>,
    subvolid: Option<TreeId>,
    replays_log: bool,
    verifies_data: bool,
    /// If the last commit cannot be opened, an earlier one is.
    goes_back: bool,
    is_earlier: bool,
    served: FsOptions,
}

impl Wanted {
    fn of(request: &VolumeOptions) -> Result<Self> {
        let (uid, gid) = request.owner;
        let mut options = Volume::options().read_only(request.read_only).owner(uid, gid);
        if let Some(bytes) = request.dirty_bytes {
            options = options.dirty_bytes(bytes);
        }
        if let Some(bytes) = request.cache_bytes {
            options = options.cache_bytes(bytes);
        }
        let served = FsOptions {
            atime: request.atime,
            commit_interval: request.commit_interval,
            pin_known: request.keep_known,
            ..FsOptions::default()
        };
        let mut wanted = Self {
            options,
            subvol: None,
            subvolid: None,
            replays_log: true,
            verifies_data: true,
            goes_back: false,
            is_earlier: false,
            served,
        };
        for (name, value) in &request.own {
            wanted = match (name.as_str(), value) {
                ("subvol", Some(path)) if !path.is_empty() => Self { subvol: Some(path.into()), ..wanted },
                (name, value) => wanted.with(name, formats::options::text(name, value.as_deref())?)?,
            };
        }
        if !wanted.replays_log && !request.read_only {
            let text = "option `nologreplay` needs `ro`: the first commit would discard the log that a crash left";
            return Err(OptionError::wrong(text).into());
        }
        if (!wanted.verifies_data || wanted.goes_back) && !request.read_only {
            let text = "option `rescue` needs `ro` beside it: a damaged volume is not written to";
            return Err(OptionError::wrong(text).into());
        }
        if wanted.is_earlier && !request.read_only {
            let text = "option `generation` needs `ro` beside it: an earlier state cannot be written to";
            return Err(OptionError::wrong(text).into());
        }
        Ok(wanted)
    }

    fn with(mut self, name: &str, value: Option<&str>) -> Result<Self> {
        if let (None | Some(""), Some((_, what))) = (value, WITH_VALUE.iter().find(|(known, _)| *known == name)) {
            return Err(needs_value(name, what));
        }
        if let ("rescue", Some(parts)) = (name, value) {
            return parts.split(':').try_fold(self, Self::rescue);
        }
        let options = self.options;
        self.options = match (name, value) {
            ("subvolid", Some(id)) => {
                self.subvolid = Some(subvolume_id(id)?);
                options
            }
            ("max_inline", Some(bytes)) => {
                let bytes = size(name, bytes, 0..=MAX_INLINE_MAX)?;
                options.max_inline(u32::try_from(bytes).unwrap_or(u32::MAX))
            }
            ("compress" | "compress-force", value) => options.compress(compression_of(name, value)?),
            ("nodatacow", None) => options.nodatacow(true),
            ("datacow", None) => options.nodatacow(false),
            ("nodatasum", None) => options.nodatasum(true),
            ("datasum", None) => options.nodatasum(false).nodatacow(false),
            // The kernel's two ways differ in when they do it; ours is always with the commit.
            ("discard", None | Some("sync" | "async")) => options.discard(true),
            ("discard", Some(value)) => {
                return Err(OptionError::wrong(format!("discard={value}: sync, async or nothing")).into());
            }
            #[cfg(feature = "ablation")]
            ("older", Some(way)) => {
                older(way)?;
                options
            }
            ("nodiscard", None) => options.discard(false),
            ("degraded", None) => options.degraded(true),
            ("resync" | "noresync", None) => options.resync(name == "resync"),
            ("user_subvol_ioctls" | "nouser_subvol_ioctls", None) => {
                self.served.user_subvol_ioctls = name == "user_subvol_ioctls";
                options
            }
            ("bg_reclaim_threshold", Some(percent)) => {
                self.served.bg_reclaim_threshold = percentage(name, percent)?;
                options
            }
            ("skip_balance", None) => {
                self.served.skip_balance = true;
                options
            }
            ("super", Some(copy)) => {
                let copy = copy.parse();
                let wrong = |_| OptionError::wrong(format!("option `super`: {SUPER_COPIES}"));
                options.superblock(copy.map_err(wrong)?)
            }
            ("generation", Some(number)) => {
                self.is_earlier = true;
                options.generation(Some(generation(number)?))
            }
            ("nologreplay" | "norecovery", None) => {
                self.replays_log = false;
                options.replay_log(false)
            }
            (name, value) if is_accepted(name, value) => options,
            ("usebackuproot" | "recovery", None) => {
                self.goes_back = true;
                options.backup_roots(true)
            }
            (name, value) => return Err(refusal(name, value)),
        };
        Ok(self)
    }

    /// Applies one part of `rescue=`.
    fn rescue(mut self, part: &str) -> Result<Self> {
        let is_all = part == "all";
        match part {
            // `ignorebadroots` changes nothing: a read-only volume opens only the trees that reading files needs.
            "all" | "nologreplay" | "ignoredatacsums" | "idatacsums" | "usebackuproot" | "ignorebadroots"
            | "ibadroots" => {}
            "ignoremetacsums" | "imetacsums" | "ignoresuperflags" | "isuperflags" => {
                let text = format!(
                    "option `rescue={part}` is not supported: metadata is always verified; \
                     `spinney rescue get IMAGE DIRECTORY` reads past damaged blocks"
                );
                return Err(OptionError::unsupported(text).into());
            }
            _ => return Err(OptionError::wrong(format!("option `rescue={part}`: {RESCUE_PARTS}")).into()),
        }
        if is_all || part == "nologreplay" {
            self.replays_log = false;
            self.options = self.options.replay_log(false);
        }
        if is_all || ["ignoredatacsums", "idatacsums"].contains(&part) {
            self.verifies_data = false;
            self.options = self.options.verify_data(false);
        }
        if is_all || part == "usebackuproot" {
            self.goes_back = true;
            self.options = self.options.backup_roots(true);
        }
        Ok(self)
    }

    fn open(self, devices: Devices, change: impl FnOnce(Own) -> Own) -> Result<Volume> {
        let options = match (&self.subvol, self.subvolid) {
            (Some(path), _) => self.options.subvolume(path),
            (None, Some(id)) => self.options.subvolume_id(id),
            (None, None) => self.options,
        };
        let (subvol, id) = (self.subvol.as_deref(), self.subvolid);
        let volume = change(options).open_devices(devices).map_err(|error| not_found(error, subvol, id))?;
        // Users may give both options, as in the kernel, which lists both for every mount.
        if let (Some(path), Some(id)) = (subvol, id) {
            let found = TreeId(volume.metadata("/")?.home.subvolume);
            if found != id {
                let (id, found) = (id.0, found.0);
                let path = path.display();
                let text =
                    format!("options `subvol={path}` and `subvolid={id}` disagree: `{path}` has the number {found}");
                return Err(OptionError::wrong(text).into());
            }
        }
        Ok(volume)
    }
}

/// Why an option, or its value, is refused.
fn refusal(name: &str, value: Option<&str>) -> Error {
    let accepted = ACCEPTED.iter().find(|(accepted, _)| *accepted == name).map(|(_, values)| *values);
    match (accepted, value) {
        (None | Some([]), Some(_)) if is_option(name) => takes_no_value(name),
        (Some(values), Some(value)) => {
            OptionError::wrong(format!("option `{name}={value}`: expected `{}`", values.join("` or `"))).into()
        }
        _ if NOT_HERE.contains(&name) => {
            let text = format!(
                "option `{name}`, which the kernel's btrfs has, is not supported; \
                 `spinney mount --help` lists those that are"
            );
            OptionError::unsupported(text).into()
        }
        _ => unknown(name),
    }
}

/// The algorithm of `compress` or `compress-force`; by default zlib, as in the kernel.
fn compression_of(name: &str, value: Option<&str>) -> Result<Option<Compression>> {
    let is_forced = name == "compress-force";
    match value {
        Some("no" | "none") => Ok(None),
        value => {
            let found = compression(value.unwrap_or("zlib"));
            let found = found.map_err(|text| OptionError::wrong(format!("option `{name}`: {text}")))?;
            Ok(Some(Compression { is_forced, ..found }))
        }
    }
}

/// Parses the value of `subvolid=`: a decimal subvolume id; 0 means the top level (5), as in the kernel.
///
/// # Errors
/// `EINVAL` with an [`OptionError`] for other text.
pub fn subvolume_id(text: &str) -> Result<TreeId> {
    match text.parse() {
        Ok(0) => Ok(TreeId::FS),
        Ok(id) => Ok(TreeId(id)),
        Err(_) => {
            let text = format!(
                "option `subvolid={text}`: give the number of a subvolume, as `spinney subvolume list` shows it"
            );
            Err(OptionError::wrong(text).into())
        }
    }
}

/// Adds the option that names a missing subvolume to the error.
fn not_found(error: Error, subvol: Option<&Path>, id: Option<TreeId>) -> Error {
    let option = match (subvol, id) {
        (Some(path), _) => format!("option `subvol={}`", path.display()),
        (None, Some(id)) => format!("option `subvolid={}`", id.0),
        (None, None) => return error,
    };
    if error.errno() == Errno::ENOTDIR {
        let text = format!("{option}: {error}");
        return Error::new(Errno::ENOTDIR, Blame::Caller, OptionError::wrong(text));
    }
    if error.errno() != Errno::ENOENT {
        return error;
    }
    let is_no_subvolume = error.cause::<Cause>().and_then(Cause::caller_error) == Some(CallerError::NoSuchSubvolume);
    let reason = match (is_no_subvolume, subvol) {
        (true, Some(_)) => "not a subvolume",
        (false, Some(_)) => "nothing is there; a path starts at the top level",
        (_, None) => "no subvolume has that number; `spinney subvolume list` shows them",
    };
    Error::new(Errno::ENOENT, Blame::Caller, OptionError::wrong(format!("{option}: {reason}")))
}

/// Parses a compression as the kernel's `compress=` and mkfs.btrfs write it: `zlib[:1-9]`, `lzo`, `zstd[:-15-15]`.
///
/// # Errors
/// [`OptionError`] for an unknown algorithm or level; the message lists the valid ones.
pub fn compression(text: &str) -> Result<Compression, OptionError> {
    if let Some(compression) = Compression::parse(text) {
        return Ok(compression);
    }
    let name = text.split_once(':').map_or(text, |(name, _)| name);
    Err(OptionError::wrong(match CompressionType::from_name(name) {
        None => format!("`{text}` is no compression; there are zlib, lzo and zstd"),
        Some(CompressionType::Lzo) => format!("`{text}`: lzo has no levels"),
        Some(kind) => {
            let levels = kind.levels();
            format!("`{text}`: the levels of {kind} are {} to {}", levels.start(), levels.end())
        }
    }))
}

fn generation(text: &str) -> Result<Generation> {
    let found = text.parse().map(Generation);
    found.map_err(|_| {
        let text = format!("option `generation={text}`: give a number, as `spinney generations` lists them");
        OptionError::wrong(text).into()
    })
}

fn percentage(name: &str, text: &str) -> Result<u8> {
    let found = text.parse().ok().filter(|percent| *percent <= RECLAIM_MAX);
    found.ok_or_else(|| {
        let text = format!("option `{name}={text}`: give a percentage from 0 to {RECLAIM_MAX}");
        OptionError::wrong(text).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option_list;

    fn check(list: &str) -> Result<()> {
        check_options(&option_list::parse(list))
    }

    #[test]
    fn own_options_are_known_and_others_refused_by_name() {
        check("subvol=/home,max_inline=0,nodatacow,datacow,nodatasum,datasum").unwrap();
        check("ro,subvolid=5,nologreplay").unwrap();
        check("ro,generation=17").unwrap();
        check("ro,norecovery,rescue=all,rescue=usebackuproot:nologreplay:idatacsums:ibadroots").unwrap();
        check("ssd,nossd,space_cache,space_cache=v2,acl,barrier,noautodefrag,treelog,thread_pool=4").unwrap();
        check("max_inline=2k,subvolid=0").unwrap();
        check("discard,discard=async,nodiscard").unwrap();
        check("bg_reclaim_threshold=30,bg_reclaim_threshold=0,skip_balance").unwrap();
        check("compress,compress=no,compress=zstd:-3,compress-force=zlib:9").unwrap();
        for (list, word) in [
            ("foo", "`foo`"),
            ("compress=zip", "`zip` is no compression"),
            ("compress=zstd:16", "the levels of zstd are -15 to 15"),
            ("compress-force=lzo:3", "lzo has no levels"),
            ("subvol", "`subvol` needs a value: subvol=PATH"),
            ("subvol=", "subvol=PATH"),
            ("subvolid", "subvolid=ID"),
            ("max_inline=", "max_inline=BYTES"),
            ("nodatacow=1", "`nodatacow` takes no value"),
            ("max_inline=x", "max_inline=x"),
            ("max_inline=1G", "`max_inline=1G`: give a size from 0 B to 64.0 KiB"),
            ("subvolid=-1", "`subvolid=-1`: give the number of a subvolume"),
            ("discard=now", "sync, async or nothing"),
            ("autodefrag", "the kernel's btrfs"),
            ("rescue=all", "needs `ro`"),
            ("norecovery", "needs `ro`"),
            ("rescue=idatacsums", "`rescue` needs `ro`"),
            ("ro,rescue=imetacsums", "metadata is always verified"),
            ("ro,rescue=sorcery", "`rescue=sorcery`: usebackuproot"),
            ("rescue", "`rescue` needs a value"),
            ("space_cache=v1", "expected `v2`"),
            ("ssd=1", "`ssd` takes no value"),
            ("thread_pool=many", "expected `N`"),
            ("thread_pool", "`thread_pool` needs a value"),
            ("bg_reclaim_threshold", "bg_reclaim_threshold=PERCENT"),
            ("bg_reclaim_threshold=91", "a percentage from 0 to 90"),
            ("skip_balance=1", "`skip_balance` takes no value"),
            ("generation=17", "`generation` needs `ro`"),
            ("ro,generation=x", "`generation=x`: give a number"),
            ("nologreplay", "`nologreplay` needs `ro`"),
            ("ro,nologreplay,rw", "`nologreplay` needs `ro`"),
        ] {
            let error = check(list).unwrap_err().to_string();
            assert!(error.contains(word), "{list}: {error}");
        }
        #[cfg(not(feature = "lock-statistics"))]
        assert!(check("lock_statistics=x").unwrap_err().to_string().contains("unknown option `lock_statistics`"));
        let listed = |name: &&&str| OPTIONS_HELP.contains(&format!("  {name}"));
        assert_eq!(NAMES.iter().filter(listed).count(), 18);
    }

    #[test]
    #[cfg(feature = "ablation")]
    fn older_ways_of_sums_are_switched_by_name() {
        use ::btrfs::ablation::{Sums, set_sums, sums};
        check("older=pinned-batch-32").unwrap();
        assert_eq!(sums(), Sums::Batch(32));
        check("older=pinned-locked").unwrap();
        assert_eq!(sums(), Sums::Locked);
        set_sums(Sums::Chosen);
        for list in ["older=pinned-batch-", "older=pinned-batch-x", "older=new"] {
            assert!(check(list).unwrap_err().to_string().contains("pinned-locked or pinned-batch-BYTES"), "{list}");
        }
    }
}
