//! Parses the options of `mount -o`.
//!
//! An option belongs to the server, to the kernel (passed on unchanged), to `mount(8)` (ignored here), or to the
//! format, which alone can tell whether it knows it. Caller: `mount`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use spinney::VolumeOptions;
use spinney::options::{needs_value, size, takes_no_value};
use spinney::vfs::AtimeMode;

use crate::commands::failure::{Failure, Status};

/// Longest commit interval: a crash would lose too much.
const COMMIT_SECONDS_MAX: u64 = 3600;
/// Longest watchdog timeout: a day.
const WATCHDOG_SECONDS_MAX: u64 = 86_400;
/// Most workers: more only wait for each other.
const WORKERS_MAX: usize = 256;
/// Fewest dirty bytes: the data of one request.
const DIRTY_BYTES_MIN: u64 = 1 << 20;
/// Most dirty bytes: more is a mistake in the unit.
const DIRTY_BYTES_MAX: u64 = 64 << 30;

/// Options of `mount(8)` and fstab which do not concern a running mount.
const DROPPED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "_netdev",
    "nofail",
    "loud",
    "silent",
    "norelatime",
    // Times are written with the commit, in the inode item with all other fields: `lazytime` would save nothing.
    "lazytime",
    "nolazytime",
    // Every change increments an inode's version anyway.
    "iversion",
    "noiversion",
    // Linux has had no mandatory locks since 5.15, and ignores these.
    "mand",
    "nomand",
    "default_permissions",
];
/// Options dropped with a value, or by their prefix.
const DROPPED_PREFIXES: &[&str] = &["x-", "X-", "comment=", "uhelper=", "helper=", "uid_for=", "user="];
/// Options passed to the kernel unchanged, each with the option that it reverses.
const FOR_THE_KERNEL: &[(&str, &str)] = &[
    ("suid", "nosuid"),
    ("nosuid", "suid"),
    ("dev", "nodev"),
    ("nodev", "dev"),
    ("exec", "noexec"),
    ("noexec", "exec"),
    ("sync", "async"),
    ("async", "sync"),
    ("dirsync", "async"),
    ("diratime", "nodiratime"),
    ("nodiratime", "diratime"),
    ("symfollow", "nosymfollow"),
    ("nosymfollow", "symfollow"),
];
/// Options that each mount of a file system has for itself.
const OF_EACH_MOUNT: &[&str] = &[
    "ro",
    "rw",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "diratime",
    "nodiratime",
    "symfollow",
    "nosymfollow",
];
/// Options of this program with a value, and the kind of value.
const WITH_VALUE: &[(&str, &str)] = &[
    ("commit", "SECONDS"),
    ("workers", "N"),
    ("dirty", "SIZE"),
    ("cache", "SIZE"),
    ("watchdog", "SECONDS"),
    ("trace", "FILE"),
    ("device", "DEVICE"),
    #[cfg(feature = "lock-statistics")]
    ("lock_statistics", "FILE"),
    #[cfg(feature = "lock-statistics")]
    ("lock_class", "CLASS[:CLASS...]"),
];
/// Unsupported options, and the reason.
const REFUSED: &[(&str, &str)] = &[
    ("remount", "unmount, and mount again"),
    ("loop", "an image needs no loop device"),
    ("offset", "write IMAGE?offset=N"),
    ("allow_root", "use allow_other"),
];

/// All options of `-o`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Options of the format.
    pub(crate) request: VolumeOptions,
    /// Users other than the one who mounted may use the mount.
    pub(crate) allow_other: bool,
    /// The kernel collects small writes.
    pub(crate) writeback: bool,
    /// Files are opened without asking the server.
    pub(crate) zero_open: bool,
    /// Requests come over a ring, if the kernel has it.
    pub(crate) io_uring: bool,
    /// The mount may be idmapped.
    pub(crate) idmap: bool,
    /// One thread answers requests that follow each other quickly, near the program that makes them.
    pub(crate) near: bool,
    /// `sync` reaches the server, and unmounting waits for it, if the kernel supports it.
    pub(crate) synced: bool,
    /// Threads that answer requests; 0 for the number of processors.
    pub(crate) workers: usize,
    /// The mount is aborted if the server does not answer for this time.
    pub(crate) watchdog: Option<Duration>,
    /// Further devices of the volume.
    pub(crate) devices: Vec<PathBuf>,
    /// File of a recording of the requests to the device.
    pub(crate) trace: Option<PathBuf>,
    /// File of lock statistics, written at the end, in builds that measure them.
    pub(crate) lock_statistics: Option<PathBuf>,
    /// Classes of locks that are measured; all if empty.
    pub(crate) lock_classes: Vec<String>,
    /// Passed to the kernel unchanged.
    pub(crate) for_the_kernel: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            request: VolumeOptions::default(),
            allow_other: false,
            writeback: false,
            zero_open: false,
            io_uring: false,
            idmap: false,
            near: true,
            synced: true,
            workers: 0,
            watchdog: None,
            devices: Vec::new(),
            trace: None,
            lock_statistics: None,
            lock_classes: Vec::new(),
            for_the_kernel: Vec::new(),
        }
    }
}

impl Settings {
    /// Parses lists of options; of contradicting ones the later counts.
    pub(crate) fn parse<S: AsRef<str>>(lists: &[S]) -> Result<Self> {
        let mut settings = Self::default();
        for list in lists {
            for option in split(list.as_ref()) {
                settings.add(&option)?;
            }
        }
        settings.request.keep_known = settings.zero_open;
        if settings.request.atime == AtimeMode::No {
            settings.for_the_kernel.push("noatime".to_owned());
        }
        Ok(settings)
    }

    /// The first option in `lists` that a further mount cannot have, because its server runs with other settings. The
    /// format checks options that choose the visible part of an image.
    pub(super) fn contradiction<S: AsRef<str>>(
        &self,
        lists: &[S],
        chooses: impl Fn(&str) -> bool,
    ) -> Result<Option<String>> {
        for option in lists.iter().flat_map(|list| split(list.as_ref())) {
            let name = option.split('=').next().unwrap_or_default();
            if OF_EACH_MOUNT.contains(&name) || chooses(name) {
                continue;
            }
            let mut with = self.clone();
            with.add(&option)?;
            if with.request.own.last().is_some_and(|own| self.request.own.contains(own)) {
                with.request.own.clone_from(&self.request.own);
            }
            if with.for_the_kernel.iter().all(|told| self.for_the_kernel.contains(told)) {
                with.for_the_kernel.clone_from(&self.for_the_kernel);
            }
            if with != *self {
                return Ok(Some(option));
            }
        }
        Ok(None)
    }

    fn add(&mut self, option: &str) -> Result<()> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if name.is_empty() || name.trim() != name {
            let text = format!("option `{option}`: give NAME or NAME=VALUE, without spaces around the name");
            return Err(Failure::usage(text).into());
        }
        match value {
            _ if is_dropped(option) => Ok(()),
            None if self.add_word(name) => Ok(()),
            Some(_) if Self::default().add_word(name) => Err(takes_no_value(name).into()),
            value => self.add_with_value(name, value),
        }
    }

    /// Adds an option without a value; false for an unknown one.
    fn add_word(&mut self, name: &str) -> bool {
        let forbids_atime = self.request.atime == AtimeMode::No;
        match name {
            "ro" => self.request.read_only = true,
            "rw" => self.request.read_only = false,
            "noatime" => self.request.atime = AtimeMode::No,
            "relatime" => self.request.atime = AtimeMode::Relative,
            "strictatime" => self.request.atime = AtimeMode::Strict,
            // These reverse an option, and leave others.
            "atime" if forbids_atime => self.request.atime = AtimeMode::Relative,
            "nostrictatime" if !forbids_atime => self.request.atime = AtimeMode::Relative,
            "atime" | "nostrictatime" => {}
            "allow_other" => self.allow_other = true,
            "writeback" => self.writeback = true,
            "nowriteback" => self.writeback = false,
            "zero_open" => self.zero_open = true,
            "nozero_open" => self.zero_open = false,
            "io_uring" => self.io_uring = true,
            "noio_uring" => self.io_uring = false,
            "idmap" => self.idmap = true,
            "noidmap" => self.idmap = false,
            // `poll` and `nopoll` are the names of an older way to the same end.
            "near" | "poll" => self.near = true,
            "nonear" | "nopoll" => self.near = false,
            "synced" => self.synced = true,
            "nosynced" => self.synced = false,
            _ => return self.add_for_the_kernel(name) || DROPPED.contains(&name),
        }
        true
    }

    fn add_for_the_kernel(&mut self, name: &str) -> bool {
        let found = FOR_THE_KERNEL.iter().find(|(known, _)| *known == name);
        if let Some((_, undone)) = found {
            self.for_the_kernel.retain(|told| told != name && told != undone);
            self.for_the_kernel.push(name.to_owned());
        }
        found.is_some()
    }

    fn add_with_value(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        if let Some((_, instead)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            let text = format!("option `{name}` is not supported: {instead}");
            return Err(Failure::new(Status::Unsupported, text).into());
        }
        let wanted = WITH_VALUE.iter().find(|(known, _)| *known == name);
        match (name, value) {
            (_, None | Some("")) if let Some((_, what)) = wanted => return Err(needs_value(name, what).into()),
            ("commit", Some(value)) => {
                let seconds = number(name, value, "seconds", 1..=COMMIT_SECONDS_MAX)?;
                self.request.commit_interval = Duration::from_secs(seconds);
            }
            ("workers", Some(value)) => {
                let count = number(name, value, "threads", 0..=u64::try_from(WORKERS_MAX)?)?;
                self.workers = usize::try_from(count)?;
            }
            ("watchdog", Some(value)) => {
                let seconds = number(name, value, "seconds", 1..=WATCHDOG_SECONDS_MAX)?;
                self.watchdog = Some(Duration::from_secs(seconds));
            }
            ("trace", Some(value)) => self.trace = Some(PathBuf::from(value)),
            ("device", Some(value)) => self.devices.push(PathBuf::from(value)),
            #[cfg(feature = "lock-statistics")]
            ("lock_statistics", Some(value)) => self.lock_statistics = Some(PathBuf::from(value)),
            #[cfg(feature = "lock-statistics")]
            ("lock_class", Some(value)) => self.lock_classes.extend(value.split(':').map(ToOwned::to_owned)),
            ("dirty", Some(value)) => self.request.dirty_bytes = Some(memory(name, value)?),
            ("cache", Some(value)) => self.request.cache_bytes = Some(memory(name, value)?),
            _ => {
                let value = value.map(Into::into);
                self.request.own.push((name.to_owned(), value));
            }
        }
        Ok(())
    }
}

/// A number of `unit` in its range, or a refusal that names the range.
fn number(name: &str, value: &str, unit: &str, range: RangeInclusive<u64>) -> Result<u64> {
    let found = value.parse().ok().filter(|n| range.contains(n));
    found.ok_or_else(|| {
        let (min, max) = range.into_inner();
        let text = format!("option `{name}={value}`: give a number of {unit} from {min} to {max}");
        Failure::usage(text).into()
    })
}

fn memory(name: &str, value: &str) -> Result<usize> {
    Ok(usize::try_from(size(name, value, DIRTY_BYTES_MIN..=DIRTY_BYTES_MAX)?)?)
}

fn is_dropped(option: &str) -> bool {
    DROPPED_PREFIXES.iter().any(|prefix| option.starts_with(prefix))
}

/// The options of a list; `\,` is a comma inside one.
fn split(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut chars = list.chars().peekable();
    while let Some(c) = chars.next() {
        let last = options.last_mut();
        match c {
            ',' => options.push(String::new()),
            '\\' if chars.peek() == Some(&',') => {
                chars.next();
                last.into_iter().for_each(|option| option.push(','));
            }
            c => last.into_iter().for_each(|option| option.push(c)),
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::failure::status_of;

    fn parse(list: &str) -> Settings {
        Settings::parse(&[list]).unwrap()
    }

    #[test]
    fn options_are_sorted_by_whom_they_concern() {
        let all = "ro,subvol=/home,noatime,nosuid,nodev,allow_other,writeback,commit=5,\
                   dirty=32M,workers=3,io_uring,_netdev,x-systemd.automount,user=me,user,nodatacow";
        let settings = parse(all);
        assert!(settings.request.read_only && settings.allow_other && settings.writeback);
        assert_eq!(settings.for_the_kernel, ["nosuid", "nodev", "noatime"]);
        assert_eq!(settings.request.atime, AtimeMode::No);
        assert_eq!(settings.request.commit_interval, Duration::from_secs(5));
        assert_eq!(settings.request.dirty_bytes, Some(32 << 20));
        assert_eq!((settings.workers, settings.io_uring), (3, true));
        let own = [("subvol".to_owned(), Some("/home".into())), ("nodatacow".to_owned(), None)];
        assert_eq!(settings.request.own, own);
        assert_eq!(parse("rw,suid,dev,exec,auto,nouser,async,relatime").request.own, []);
        assert_eq!(parse(""), Settings::default());
        assert!(!parse("synced,nosynced").synced);
    }

    #[test]
    fn a_further_mount_cannot_be_served_in_another_way() {
        let first = parse("noatime,commit=5,writeback,subvol=/a,nodatacow,nosuid,sync");
        for (list, expected) in [
            ("", None),
            ("ro,nosuid,suid,nodev,noexec,nodiratime,defaults,nofail,x-a", None),
            ("commit=5,writeback,nodatacow,noatime,sync,subvol=/b", None),
            ("nodev,commit=6", Some("commit=6")),
            ("nowriteback", Some("nowriteback")),
            ("zero_open", Some("zero_open")),
            ("relatime", Some("relatime")),
            ("max_inline=0", Some("max_inline=0")),
            ("datacow", Some("datacow")),
            ("dirsync", Some("dirsync")),
            ("allow_other", Some("allow_other")),
        ] {
            let found = first.contradiction(&[list], |name| name == "subvol").unwrap();
            assert_eq!(found.as_deref(), expected, "{list}");
        }
        assert!(first.contradiction(&["commit=x"], |_| false).is_err());
    }

    #[test]
    fn the_later_option_counts_and_commas_can_be_escaped() {
        assert!(!parse("ro,rw").request.read_only);
        assert!(Settings::parse(&["rw", "ro"]).unwrap().request.read_only);
        let own = &parse(r"subvol=a\,b,c").request.own;
        assert_eq!(own[0].1.as_deref(), Some("a,b".as_ref()));
        assert_eq!(own[1].0, "c");
    }

    #[test]
    fn of_opposites_the_last_one_counts() {
        for (list, atime, told) in [
            ("noatime,strictatime", AtimeMode::Strict, ""),
            ("strictatime,noatime", AtimeMode::No, "noatime"),
            ("noatime,relatime", AtimeMode::Relative, ""),
            ("strictatime,relatime,norelatime", AtimeMode::Relative, ""),
            ("noatime,atime", AtimeMode::Relative, ""),
            ("strictatime,atime", AtimeMode::Strict, ""),
            ("strictatime,nostrictatime", AtimeMode::Relative, ""),
            ("noatime,nostrictatime,norelatime", AtimeMode::No, "noatime"),
            ("noatime,noatime", AtimeMode::No, "noatime"),
            ("sync,async", AtimeMode::Relative, "async"),
            ("dirsync,async,sync", AtimeMode::Relative, "dirsync,sync"),
            ("nosuid,dev,nosuid,suid,nodev", AtimeMode::Relative, "suid,nodev"),
            ("noexec,exec,diratime,nodiratime", AtimeMode::Relative, "exec,nodiratime"),
        ] {
            let settings = parse(list);
            assert_eq!(settings.request.atime, atime, "{list}");
            assert_eq!(settings.for_the_kernel.join(","), told, "{list}");
        }
        let both = |list: &str| parse(&format!("{list},no{list}")) == Settings::default();
        assert!(["writeback", "zero_open", "io_uring"].into_iter().all(both));
    }

    #[test]
    #[cfg(feature = "lock-statistics")]
    fn locks_are_measured_where_that_is_built_in() {
        let settings = parse("lock_statistics=/tmp/locks.json,lock_class=Cache:pinned bytes,lock_class=Group");
        assert_eq!(settings.lock_statistics, Some(PathBuf::from("/tmp/locks.json")));
        assert_eq!(settings.lock_classes, ["Cache", "pinned bytes", "Group"]);
        assert!(Settings::parse(&["lock_statistics"]).unwrap_err().to_string().contains("lock_statistics=FILE"));
        assert!(Settings::parse(&["lock_class="]).unwrap_err().to_string().contains("lock_class=CLASS[:CLASS...]"));
    }

    #[test]
    #[cfg(not(feature = "lock-statistics"))]
    fn other_builds_leave_options_about_locks_to_the_format_which_refuses_them() {
        let settings = parse("lock_statistics=/tmp/locks.json");
        assert_eq!((settings.lock_statistics, settings.request.own.len()), (None, 1));
    }

    #[test]
    fn refusals_name_the_option() {
        for (list, status, word) in [
            ("remount,ro", Status::Unsupported, "`remount`"),
            ("commit=0", Status::Usage, "commit=0"),
            ("commit=x", Status::Usage, "commit=x"),
            ("dirty=12", Status::Usage, "dirty=12"),
            ("dirty=abc", Status::Usage, "abc"),
            ("workers=9999", Status::Usage, "workers"),
            ("allow_root", Status::Unsupported, "allow_other"),
            ("commit", Status::Usage, "`commit` needs a value: commit=SECONDS"),
            ("commit=", Status::Usage, "commit=SECONDS"),
            ("commit=-1", Status::Usage, "seconds from 1 to 3600"),
            ("workers", Status::Usage, "workers=N"),
            ("watchdog=0", Status::Usage, "seconds from 1 to 86400"),
            ("dirty", Status::Usage, "dirty=SIZE"),
            ("cache=", Status::Usage, "cache=SIZE"),
            ("cache=64X", Status::Usage, "write for instance 512M"),
            ("ro=1", Status::Usage, "`ro` takes no value"),
            ("nosuid=1", Status::Usage, "`nosuid` takes no value"),
            ("defaults=", Status::Usage, "`defaults` takes no value"),
            ("ro, noatime", Status::Usage, "` noatime`: give NAME or NAME=VALUE, without spaces"),
            ("=5", Status::Usage, "`=5`: give NAME or NAME=VALUE"),
        ] {
            let error = Settings::parse(&[list]).unwrap_err();
            assert_eq!(status_of(&error), status, "{list}");
            assert!(error.to_string().contains(word), "{list}: {error}");
        }
    }
}
