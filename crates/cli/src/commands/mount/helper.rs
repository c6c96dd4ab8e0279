//! Rewrites command lines that `mount(8)` and `umount(8)` pass to their helpers into those of `spinney mount` and
//! `spinney umount`.
//!
//! Under the names `mount.spinney` and `mount.fuse.spinney` the program is called as
//! `NAME IMAGE DIR [-sfnv] [-r] [-w] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`, and by `mount.fuse`, for the type
//! `fuse.spinney`, as `spinney IMAGE DIR -o OPTIONS`. `umount.spinney` and `umount.fuse.spinney` (or `.fuseblk.`) are
//! called as `NAME DIR [-flnrv] [-t TYPE]`. Caller: `run` in `lib`, before the command line is parsed.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// A person asks for it, under any name of the program.
const HELP: &str = "--help";

/// Rewrites a helper's command line; any other stays as it is. `is_command` knows the names of
/// commands, which are no images.
pub(crate) fn rewrite(args: Vec<OsString>, is_command: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
    let name = args.first().map(Path::new).and_then(Path::file_name);
    let rest = args.get(1..).unwrap_or_default();
    match name.and_then(OsStr::to_str) {
        Some("mount.spinney" | "mount.fuse.spinney") => mount(rest),
        Some("umount.spinney" | "umount.fuse.spinney" | "umount.fuseblk.spinney") => umount(rest),
        _ if is_called_by_mount_fuse(rest, is_command) => mount(rest),
        _ => args,
    }
}

fn is_called_by_mount_fuse(rest: &[OsString], is_command: impl Fn(&OsStr) -> bool) -> bool {
    let is_word = |word: &OsString| !word.to_string_lossy().starts_with('-');
    match rest {
        [image, dir, o, ..] => is_word(image) && is_word(dir) && o == "-o" && !is_command(image.as_os_str()),
        _ => false,
    }
}

fn mount(rest: &[OsString]) -> Vec<OsString> {
    let mut words = Words::new("mount");
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-o") => words.value("-o", rest.next()),
            Some(HELP) => words.flag(HELP),
            // The type is in the name; the caller sets the namespace.
            Some("-t" | "-N") => drop(rest.next()),
            Some(flags) if is_flags(flags) => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        'v' => words.flag("-v"),
                        'f' => words.flag("--fake"),
                        's' => words.flag("--sloppy"),
                        'r' => words.value("-o", Some(&OsString::from("ro"))),
                        'w' => words.value("-o", Some(&OsString::from("rw"))),
                        'n' | 'i' => {}
                        other => words.flag(&format!("-{other}")),
                    }
                }
            }
            _ => words.plain(word),
        }
    }
    words.finish()
}

fn umount(rest: &[OsString]) -> Vec<OsString> {
    let mut words = Words::new("umount");
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-t" | "-N" | "-O") => drop(rest.next()),
            Some(HELP) => words.flag(HELP),
            Some(flags) if is_flags(flags) => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        'l' => words.flag("--lazy"),
                        // These are given anyway, or do not exist here.
                        'f' | 'n' | 'r' | 'v' | 'i' => {}
                        other => words.flag(&format!("-{other}")),
                    }
                }
            }
            _ => words.plain(word),
        }
    }
    words.finish()
}

fn is_flags(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && !word.starts_with("--")
}

/// A command line in the making: options first, so that no path is parsed as one.
struct Words {
    options: Vec<OsString>,
    plain: Vec<OsString>,
}

impl Words {
    fn new(command: &str) -> Self {
        Self { options: vec!["spinney".into(), command.into()], plain: Vec::new() }
    }

    fn flag(&mut self, flag: &str) {
        self.options.push(flag.into());
    }

    fn value(&mut self, flag: &str, value: Option<&OsString>) {
        self.options.push(flag.into());
        self.options.extend(value.cloned());
    }

    fn plain(&mut self, word: &OsStr) {
        self.plain.push(word.to_owned());
    }

    fn finish(mut self) -> Vec<OsString> {
        self.options.push("--".into());
        self.options.append(&mut self.plain);
        self.options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        let words = rewrite(args, |word| word == "mount" || word == "ls");
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn helpers_become_commands() {
        for (line, wanted) in [
            ("/sbin/mount.spinney /a.img /mnt -o rw,noatime", "spinney mount -o rw,noatime -- /a.img /mnt"),
            (
                "mount.fuse.spinney /a.img /mnt -sfnv -o ro -t fuse.spinney",
                "spinney mount --sloppy --fake -v -o ro -- /a.img /mnt",
            ),
            ("mount.spinney -r -n /a.img /mnt -N /proc/1/ns/mnt", "spinney mount -o ro -- /a.img /mnt"),
            ("spinney /a.img /mnt -o rw,dev", "spinney mount -o rw,dev -- /a.img /mnt"),
            ("umount.fuse.spinney /mnt -l -v", "spinney umount --lazy -- /mnt"),
            ("umount.spinney -fn /mnt", "spinney umount -- /mnt"),
            ("mount.spinney -x /a.img /mnt", "spinney mount -x -- /a.img /mnt"),
            ("mount.spinney --help", "spinney mount --help --"),
            ("umount.spinney --help", "spinney umount --help --"),
        ] {
            assert_eq!(rewritten(line), wanted);
        }
        for line in ["spinney mount /a.img -o ro /mnt", "spinney ls a.img /", "spinney"] {
            assert_eq!(rewritten(line), line);
        }
    }
}
