//! Holds the options of a mount, and writes them as each way of mounting needs them. `direct` and `helper` read them;
//! front ends fill them.

use rustix::mount::{MountAttrFlags, MountFlags};

/// Options of a mount.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// The mount's source in the table of mounts.
    pub source: String,
    /// Shown as `fuse.SUBTYPE`.
    pub subtype: String,
    /// The mount is read-only.
    pub read_only: bool,
    /// Users other than the one who mounts may access it.
    pub allow_other: bool,
    /// The kernel checks permission bits and access control lists.
    pub default_permissions: bool,
    /// Further options, each as `name` or `name=value`: those of every mount (`nosuid`,
    /// `noexec`, ...) and those of FUSE.
    pub extra: Vec<String>,
}

/// Options that are flags of `mount(2)`: name, flag, and whether the name sets it.
const FLAGS: &[(&str, MountFlags, bool)] = &[
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("noatime", MountFlags::NOATIME, true),
    ("atime", MountFlags::NOATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("relatime", MountFlags::RELATIME, true),
    ("norelatime", MountFlags::RELATIME, false),
    ("strictatime", MountFlags::STRICTATIME, true),
    ("nostrictatime", MountFlags::STRICTATIME, false),
    ("nosymfollow", MountFlags::NOSYMFOLLOW, true),
    ("symfollow", MountFlags::NOSYMFOLLOW, false),
];

impl MountOptions {
    /// The flags of `mount(2)`, and the other options.
    pub(super) fn flags_and_rest(&self) -> (MountFlags, Vec<&str>) {
        let mut flags = MountFlags::empty();
        let mut rest = Vec::new();
        for option in &self.extra {
            match FLAGS.iter().find(|(name, ..)| name == option) {
                Some((_, flag, sets)) => flags.set(*flag, *sets),
                None => rest.push(option.as_str()),
            }
        }
        flags.set(MountFlags::RDONLY, self.read_only || flags.contains(MountFlags::RDONLY));
        if self.allow_other {
            rest.push("allow_other");
        }
        if self.default_permissions {
            rest.push("default_permissions");
        }
        (flags, rest)
    }

    /// Options of the whole file system, and attributes of the mount alone.
    pub(super) fn words(&self) -> (Vec<&str>, MountAttrFlags) {
        let (flags, mut words) = self.flags_and_rest();
        let of_all = [(MountFlags::RDONLY, "ro"), (MountFlags::SYNCHRONOUS, "sync"), (MountFlags::DIRSYNC, "dirsync")];
        words.extend(of_all.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, word)| *word));
        let of_mount = [
            (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
            (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
            (MountFlags::NOSYMFOLLOW, MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
        ];
        let mut attributes: MountAttrFlags =
            of_mount.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, attribute)| *attribute).collect();
        // These exclude each other; the one without a bit is the default.
        if flags.contains(MountFlags::NOATIME) {
            attributes |= MountAttrFlags::MOUNT_ATTR_NOATIME;
        } else if flags.contains(MountFlags::STRICTATIME) {
            attributes |= MountAttrFlags::MOUNT_ATTR_STRICTATIME;
        }
        (words, attributes)
    }

    /// The options as one string for `fusermount3`.
    pub(super) fn helper_text(&self) -> String {
        let mut parts = vec![if self.read_only { "ro" } else { "rw" }.to_owned()];
        if !self.source.is_empty() {
            parts.push(format!("fsname={}", escape(&self.source)));
        }
        if !self.subtype.is_empty() {
            parts.push(format!("subtype={}", escape(&self.subtype)));
        }
        if self.allow_other {
            parts.push("allow_other".to_owned());
        }
        if self.default_permissions {
            parts.push("default_permissions".to_owned());
        }
        // `fusermount3` does not know `symfollow`, which is the default.
        parts.extend(self.extra.iter().filter(|option| *option != "symfollow").map(|option| escape(option)));
        parts.join(",")
    }
}

/// Escapes commas and backslashes, which would end a value.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> MountOptions {
        MountOptions {
            source: "a,b\\c".to_owned(),
            subtype: "spinney".to_owned(),
            allow_other: true,
            default_permissions: true,
            extra: ["nosuid", "noexec", "exec", "max_read=4096"].map(String::from).to_vec(),
            ..MountOptions::default()
        }
    }

    #[test]
    fn flags_are_told_from_options() {
        let options = options();
        let (flags, rest) = options.flags_and_rest();
        assert_eq!(flags, MountFlags::NOSUID);
        assert_eq!(rest, ["max_read=4096", "allow_other", "default_permissions"]);
    }

    #[test]
    fn both_ways_to_mount_say_the_same() {
        let mut options = options();
        options.read_only = true;
        options.extra = ["noatime", "nodev", "dirsync", "max_read=4096"].map(String::from).to_vec();
        let (words, attributes) = options.words();
        assert_eq!(words, ["max_read=4096", "allow_other", "default_permissions", "ro", "dirsync"]);
        let expected =
            MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOATIME;
        assert_eq!(attributes, expected);
    }

    #[test]
    fn values_with_commas_stay_whole() {
        assert_eq!(
            options().helper_text(),
            "rw,fsname=a\\,b\\\\c,subtype=spinney,allow_other,default_permissions,\
             nosuid,noexec,exec,max_read=4096"
        );
    }
}
