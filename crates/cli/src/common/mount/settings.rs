//! What the words behind `-o` say.
//!
//! An option belongs to one of four: to the server, to the kernel (which is told unchanged), to
//! `mount(8)` (which is dropped here), or to the format, which alone can say whether it knows it.

use std::time::Duration;

use anyhow::Result;
use vfs::AtimeMode;

use crate::common::failure::{Failure, Status};
use crate::common::human;

/// Seconds between two commits nobody asked for, as the kernel has it.
const COMMIT_SECONDS_DEFAULT: u64 = 30;
/// A commit more rarely than this would lose too much in a crash to be what somebody wants.
const COMMIT_SECONDS_MAX: u64 = 3600;
/// More threads than this only wait for each other.
const WORKERS_MAX: usize = 256;
/// Less than a request's worth of data cannot wait in memory.
const DIRTY_BYTES_MIN: u64 = 1 << 20;
/// Dirty data beyond this is a mistake in the unit.
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
    "rw",
    "async",
    "loud",
    "silent",
    "nostrictatime",
    "default_permissions",
];
/// The same with a value, or as a prefix.
const DROPPED_PREFIXES: &[&str] = &["x-", "X-", "comment=", "uhelper=", "helper=", "uid_for="];
/// What the kernel is told as it stands.
const FOR_THE_KERNEL: &[&str] = &[
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "sync",
    "dirsync",
    "noatime",
    "diratime",
    "nodiratime",
];
/// What this program does not do, and why.
const REFUSED: &[(&str, &str)] = &[
    ("remount", "unmount, and mount again"),
    ("loop", "an image needs no loop device"),
    ("offset", "write IMAGE?offset=N"),
    ("allow_root", "use allow_other"),
];

/// What a format is told when its image is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Nothing may change.
    pub(crate) read_only: bool,
    /// Access times.
    pub(crate) atime: AtimeMode,
    /// Longest time between two commits.
    pub(crate) commit_interval: Duration,
    /// File data that may wait in memory; the format's default if not given.
    pub(crate) dirty_bytes: Option<usize>,
    /// Metadata kept in memory; the format's default if not given.
    pub(crate) cache_bytes: Option<usize>,
    /// Nodes that the kernel knows are to stay in memory: it opens files without asking.
    pub(crate) keep_known: bool,
    /// Options that only the format can know, in order.
    pub(crate) own: Vec<(String, Option<String>)>,
}

/// All that `-o` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// For the format.
    pub(crate) request: Request,
    /// Everybody may use the mount, not only who made it.
    pub(crate) allow_other: bool,
    /// The kernel collects small writes.
    pub(crate) writeback: bool,
    /// Files are opened without asking the server.
    pub(crate) zero_open: bool,
    /// Requests come over a ring, where the kernel has it.
    pub(crate) io_uring: bool,
    /// `sync` comes to the server, and unmounting waits for it, where that can be had.
    pub(crate) synced: bool,
    /// Threads that answer requests; as many as there are processors when 0.
    pub(crate) workers: usize,
    /// For the kernel, unchanged.
    pub(crate) for_the_kernel: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            request: Request {
                read_only: false,
                atime: AtimeMode::Relative,
                commit_interval: Duration::from_secs(COMMIT_SECONDS_DEFAULT),
                dirty_bytes: None,
                cache_bytes: None,
                keep_known: false,
                own: Vec::new(),
            },
            allow_other: false,
            writeback: false,
            zero_open: false,
            io_uring: false,
            synced: true,
            workers: 0,
            for_the_kernel: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads lists of options; where two contradict each other, the later one counts.
    pub(crate) fn parse<S: AsRef<str>>(lists: &[S]) -> Result<Self> {
        let mut settings = Self::default();
        for list in lists {
            for option in split(list.as_ref()) {
                settings.add(&option)?;
            }
        }
        settings.request.keep_known = settings.zero_open;
        Ok(settings)
    }

    fn add(&mut self, option: &str) -> Result<()> {
        if FOR_THE_KERNEL.contains(&option) {
            self.for_the_kernel.push(option.to_owned());
        }
        match option {
            "ro" => self.request.read_only = true,
            "rw" => self.request.read_only = false,
            "noatime" => self.request.atime = AtimeMode::No,
            "relatime" | "atime" | "norelatime" => {
                self.request.atime = AtimeMode::Relative;
            }
            "strictatime" => self.request.atime = AtimeMode::Strict,
            "allow_other" => self.allow_other = true,
            "writeback" => self.writeback = true,
            "nowriteback" => self.writeback = false,
            "zero_open" => self.zero_open = true,
            "nozero_open" => self.zero_open = false,
            "io_uring" => self.io_uring = true,
            "noio_uring" => self.io_uring = false,
            "synced" => self.synced = true,
            "nosynced" => self.synced = false,
            _ if FOR_THE_KERNEL.contains(&option) || is_dropped(option) => {}
            _ => return self.add_with_value(option),
        }
        Ok(())
    }

    fn add_with_value(&mut self, option: &str) -> Result<()> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if let Some((_, instead)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            let text = format!("option `{name}` is not supported: {instead}");
            return Err(Failure::new(Status::Unsupported, text).into());
        }
        match (name, value) {
            ("commit", Some(value)) => {
                let seconds = number(name, value, 1, COMMIT_SECONDS_MAX)?;
                self.request.commit_interval = Duration::from_secs(seconds);
            }
            ("workers", Some(value)) => {
                let count = number(name, value, 0, u64::try_from(WORKERS_MAX)?)?;
                self.workers = usize::try_from(count)?;
            }
            ("dirty", Some(value)) => self.request.dirty_bytes = Some(size(name, value)?),
            ("cache", Some(value)) => self.request.cache_bytes = Some(size(name, value)?),
            _ => {
                let value = value.map(ToOwned::to_owned);
                self.request.own.push((name.to_owned(), value));
            }
        }
        Ok(())
    }
}

/// The refusal of an option that nobody knows.
pub(crate) fn unknown(name: &str) -> anyhow::Error {
    Failure::usage(format!(
        "unknown option `{name}`; `spinney mount --help` lists them"
    ))
    .into()
}

/// A number in its range, or the refusal that says what is legal.
pub(crate) fn number(name: &str, value: &str, min: u64, max: u64) -> Result<u64> {
    let found = value.parse().ok().filter(|n| (min..=max).contains(n));
    found.ok_or_else(|| {
        let text = format!("option `{name}={value}`: give a number from {min} to {max}");
        Failure::usage(text).into()
    })
}

fn size(name: &str, value: &str) -> Result<usize> {
    let bytes = human::parse_bytes(value)
        .map_err(|text| Failure::usage(format!("option `{name}={value}`: {text}")))?;
    if !(DIRTY_BYTES_MIN..=DIRTY_BYTES_MAX).contains(&bytes) {
        let (min, max) = (human::bytes(DIRTY_BYTES_MIN), human::bytes(DIRTY_BYTES_MAX));
        let text = format!("option `{name}={value}`: give a size from {min} to {max}");
        return Err(Failure::usage(text).into());
    }
    Ok(usize::try_from(bytes)?)
}

fn is_dropped(option: &str) -> bool {
    DROPPED.contains(&option)
        || DROPPED_PREFIXES
            .iter()
            .any(|prefix| option.starts_with(prefix))
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
    use crate::common::failure::status_of;

    fn parse(list: &str) -> Settings {
        Settings::parse(&[list]).unwrap()
    }

    #[test]
    fn options_are_sorted_by_whom_they_concern() {
        let all = "ro,subvol=/home,noatime,nosuid,nodev,allow_other,writeback,commit=5,\
                   dirty=32M,workers=3,io_uring,_netdev,x-systemd.automount,user,nodatacow";
        let settings = parse(all);
        assert!(settings.request.read_only && settings.allow_other && settings.writeback);
        assert_eq!(settings.for_the_kernel, ["noatime", "nosuid", "nodev"]);
        assert_eq!(settings.request.atime, AtimeMode::No);
        assert_eq!(settings.request.commit_interval, Duration::from_secs(5));
        assert_eq!(settings.request.dirty_bytes, Some(32 << 20));
        assert_eq!((settings.workers, settings.io_uring), (3, true));
        let own = [
            ("subvol".to_owned(), Some("/home".to_owned())),
            ("nodatacow".to_owned(), None),
        ];
        assert_eq!(settings.request.own, own);
        assert_eq!(
            parse("rw,suid,dev,exec,auto,nouser,async,relatime")
                .request
                .own,
            []
        );
        assert_eq!(parse(""), Settings::default());
        assert!(!parse("synced,nosynced").synced);
    }

    #[test]
    fn the_later_option_counts_and_commas_can_be_escaped() {
        assert!(!parse("ro,rw").request.read_only);
        assert!(Settings::parse(&["rw", "ro"]).unwrap().request.read_only);
        let own = &parse(r"subvol=a\,b,c").request.own;
        assert_eq!(own[0].1.as_deref(), Some("a,b"));
        assert_eq!(own[1].0, "c");
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
        ] {
            let error = Settings::parse(&[list]).unwrap_err();
            assert_eq!(status_of(&error), status, "{list}");
            assert!(error.to_string().contains(word), "{list}: {error}");
        }
        assert!(unknown("foo").to_string().contains("`foo`"));
    }
}
