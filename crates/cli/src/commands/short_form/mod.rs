//! Rewrites arguments that name paths in an image or a mount to an image, and paths in it: one syntax for the paths of
//! all commands.
//!
//! `spinney rm site.img:/old` becomes `spinney rm site.img /old`, and `spinney rm /mnt/site/old` becomes
//! `spinney rm /mnt/site /old`; one side of `put` and `get` is a host path. Arguments that can be read as an image
//! followed by paths are read so. An image that the caller has mounted is replaced by its mount point, so that the
//! server runs the command. A `Place` is a parsed argument; a `Rule` has the positions of paths among the arguments of
//! a command. Callers: `run` in `lib`, before clap parses, and `args` for a recorded command.

mod rules;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Command;

use crate::commands::failure::Failure;
use crate::commands::place::{Place, is_image, mounted_at};
use rules::{Behind, End, MANY, OF_IMAGES, Rule, Sides, WITHOUT_DIRECTORY};

/// Rewrites a command line to its long form, IMAGE PATH. `program` knows which options take a value.
///
/// # Errors
/// `Usage` for paths in several images.
pub(crate) fn lengthen(mut words: Vec<OsString>, program: &Command) -> Result<Vec<OsString>> {
    if leaves_out_create(&words) {
        words.insert(2, OsString::from("create"));
    }
    let Some(rule) = Rule::of(&words) else { return Ok(words) };
    let rule = rule.for_words(&words);
    let mut line = Line::new(words, rule, program);
    line.move_to_option();
    line.lengthen()?;
    line.go_through_mount();
    Ok(line.words)
}

/// True for `fork BASE`, which is short for `fork create BASE`.
fn leaves_out_create(words: &[OsString]) -> bool {
    const VERBS: &[&str] = &["create", "diff", "drop", "list", "merge", "status", "--help", "-h", "--version", "-V"];
    let is_fork = words.get(1).is_some_and(|word| word == "fork");
    is_fork && words.get(2).is_some_and(|word| VERBS.iter().all(|verb| word != verb))
}

/// A command line.
struct Line {
    words: Vec<OsString>,
    rule: Rule,
    /// Indices of the arguments that are neither options nor their values.
    plain: Vec<usize>,
    /// Indices of the option values that are paths in the image.
    values: Vec<usize>,
}

impl Line {
    fn new(words: Vec<OsString>, rule: Rule, program: &Command) -> Self {
        let mut line = Self { words, rule, plain: Vec::new(), values: Vec::new() };
        let (mut command, mut depth) = (program, 0);
        // Includes a subcommand that the rule does not name.
        while let Some(below) = line.words.get(1 + depth).and_then(|name| command.find_subcommand(name)) {
            (command, depth) = (below, depth + 1);
        }
        line.find(command, 1 + depth);
        line
    }

    /// Finds the arguments that are not options, from `at` on.
    fn find(&mut self, command: &Command, mut at: usize) {
        let takes_value = |word: &OsStr| {
            let word = word.to_string_lossy();
            let found = command.get_arguments().find(|argument| match word.strip_prefix("--") {
                Some(long) => {
                    let aliases = argument.get_all_aliases().unwrap_or_default();
                    argument.get_long() == Some(long) || aliases.contains(&long)
                }
                // Of grouped short options only the last takes a value.
                None => argument.get_short().is_some_and(|short| word.ends_with(short)),
            });
            found.is_some_and(|argument| argument.get_action().takes_values() && !argument.is_require_equals_set())
        };
        let mut has_ended = false;
        while let Some(word) = self.words.get(at) {
            let bytes = word.as_bytes();
            match bytes {
                b"--" if !has_ended => has_ended = true,
                [b'-', _, ..] if !has_ended => {
                    let has_value = !bytes.contains(&b'=') && takes_value(word);
                    if has_value && self.rule.options.iter().any(|option| word == option) {
                        self.values.push(at + 1);
                    }
                    at += usize::from(has_value);
                }
                _ => self.plain.push(at),
            }
            at += 1;
        }
    }

    fn has_option(&self, names: &[&str]) -> bool {
        let options = self.words.iter().filter_map(|word| word.as_bytes().split(|byte| *byte == b'=').next());
        options.into_iter().any(|word| names.iter().any(|name| name.as_bytes() == word))
    }

    fn word(&self, at: usize) -> &OsStr {
        self.words.get(at).map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// The place that an argument names; if that is in a mounted image, the place in the mount.
    fn place(&self, at: usize) -> Place {
        let place = Place::parse(self.word(at));
        if self.opens_image() || self.rule.sides == Sides::Whole { place } else { place.through_mount() }
    }

    /// True if the server of a mount cannot run the command.
    fn opens_image(&self) -> bool {
        self.rule.opens_image || self.has_option(OF_IMAGES) || self.has_option(self.rule.without)
    }

    fn replace(&mut self, at: usize, word: impl Into<OsString>) {
        if let Some(place) = self.words.get_mut(at) {
            *place = word.into();
        }
    }

    /// Inserts an argument at `at`.
    fn insert(&mut self, at: usize, word: impl Into<OsString>) {
        self.words.insert(at.min(self.words.len()), word.into());
        for place in self.plain.iter_mut().chain(&mut self.values).filter(|place| **place >= at) {
            *place += 1;
        }
    }

    /// For a command that takes the path in an image as an option: splits `IMAGE:/PATH` into the image and the option.
    fn move_to_option(&mut self) {
        let Some((end, option)) = self.rule.with_option else { return };
        let at = if end == End::First { self.plain.first() } else { self.plain.last() };
        let Some(at) = at.copied().filter(|_| end == End::First || self.plain.len() > 1) else { return };
        let Place::Image { image, path } = Place::parse(self.word(at)) else { return };
        self.replace(at, image);
        let start = 1 + self.rule.name.len();
        self.insert(start, path);
        self.insert(start, option);
    }

    /// Indices of the arguments that are paths in the short form.
    fn path_words(&self) -> &[usize] {
        let all = self.plain.as_slice();
        let without_last = all.split_last().map_or(all, |(_, rest)| rest);
        let last = all.last().map_or(&[][..], std::slice::from_ref);
        match (self.rule.sides, self.rule.behind) {
            (Sides::Whole, _) if self.rule.image_last => last,
            (Sides::Whole, _) => all.get(..1).unwrap_or_default(),
            (Sides::From, _) | (_, Behind::Word) => without_last,
            (Sides::To, _) => last,
            (Sides::All, Behind::OneOf(choices)) => {
                let is_choice = |at: &usize| choices.iter().any(|choice| self.word(*at) == *choice);
                if all.len() > 1 && all.last().is_some_and(is_choice) { without_last } else { all }
            }
            (Sides::All, Behind::Name) => self.without_name(all),
            // The target of a symbolic link is any text.
            (Sides::All, _) if self.rule.name == ["ln"] && self.is_symbolic() => last,
            (Sides::All, _) => all,
        }
    }

    /// The arguments without a name at the end: one that is no path, after the first argument.
    fn without_name<'a>(&self, all: &'a [usize]) -> &'a [usize] {
        let Some((last, rest @ [first, ..])) = all.split_last() else { return all };
        let is_beside = self.place(*last).is_beside(&self.place(*first));
        // IMAGE PATH and DIRECTORY PATH are the long form.
        let path = Path::new(self.word(*last));
        let path = path.strip_prefix("/").unwrap_or(path);
        let is_below = std::fs::symlink_metadata(Path::new(self.word(*first)).join(path)).is_ok();
        if is_beside || is_below { all } else { rest }
    }

    /// True for `-s`, also in a group of short options.
    fn is_symbolic(&self) -> bool {
        let is_short = |word: &OsString| {
            let bytes = word.as_bytes();
            bytes.starts_with(b"-") && !bytes.starts_with(b"--") && bytes.contains(&b's')
        };
        self.has_option(&["--symbolic"]) || self.words.iter().any(is_short)
    }

    fn lengthen(&mut self) -> Result<()> {
        let at = self.path_words().to_vec();
        let places: Vec<Place> = at.iter().map(|at| self.place(*at)).collect();
        let (Some(start), Some(first)) = (at.first(), places.first()) else { return Ok(()) };
        if self.rule.sides == Sides::Whole {
            self.take_values(*start);
        }
        let Some((image, path)) = first.within() else { return Ok(()) };
        let is_mount = matches!(first, Place::Mount { .. });
        if self.rule.sides == Sides::Whole {
            return if is_mount { Ok(()) } else { self.take_whole(*start, (image, path)) };
        }
        if is_mount && self.is_long_of_mount(&at, &places) {
            return Ok(());
        }
        let values: Vec<usize> = self.values.clone();
        let values = values.into_iter().map(|at| (at, self.place(at)));
        let mut inner = Vec::new();
        for (at, place) in at.iter().copied().zip(places.iter().cloned()).chain(values) {
            match place.within() {
                Some((_, path)) if place.is_beside(first) => inner.push((at, path.to_owned())),
                // The value may already be a path in the image.
                None if self.values.contains(&at) => {}
                _ => return Err(self.elsewhere(at, image)),
            }
        }
        inner.into_iter().for_each(|(at, path)| self.replace(at, path));
        let is_restored = self.rule.name == ["restore"];
        let begin = if is_restored { Some(*start) } else { self.plain.first().copied() };
        let begin = begin.unwrap_or_default();
        self.insert(begin, image);
        self.plain.push(begin);
        self.plain.sort_unstable();
        Ok(())
    }

    /// True if arguments that name places in a mount are already in the long form: a directory of the mount and paths
    /// from there, or another image and a path in it.
    fn is_long_of_mount(&self, at: &[usize], places: &[Place]) -> bool {
        let Some((first, rest)) = at.split_first() else { return true };
        let dir = Path::new(self.word(*first));
        if self.rule.sides == Sides::To {
            // In `put IMAGE SOURCE DEST`, DEST may also be a path below a mount.
            let image = self.plain.first().map(|at| Path::new(self.word(*at)));
            return self.plain.len() < 2 || (self.plain.len() > 2 && image.is_some_and(is_image));
        }
        // `backup` names its states after the path as given.
        if self.has_option(self.rule.without) || self.rule.name == ["backup"] {
            return true;
        }
        // `IMAGE:/PATH` names its image, so the first argument is not the directory of a mount.
        if at.iter().skip(1).any(|at| matches!(Place::parse(self.word(*at)), Place::Image { .. })) {
            return false;
        }
        let is_beside = |place: &Place| places.first().is_some_and(|first| place.is_beside(first));
        let is_one_mount = places.iter().all(is_beside);
        if !dir.is_dir() || self.rule.sides == Sides::From {
            return dir.is_dir() && !is_one_mount;
        }
        if 1 + rest.len() < self.rule.long_min {
            return false;
        }
        let is_in_dir = |at: &usize| {
            let path = Path::new(self.word(*at));
            path.is_relative() && std::fs::symlink_metadata(dir.join(path)).is_ok()
        };
        let takes_directory = self.rule.name.iter().all(|name| !WITHOUT_DIRECTORY.contains(name));
        rest.is_empty()
            || at.len() > self.rule.paths_max
            || !is_one_mount
            || (self.rule.paths_max == MANY && takes_directory && rest.iter().all(is_in_dir))
    }

    /// For a command on a whole image: rewrites option values `IMAGE:/PATH` to paths in it.
    fn take_values(&mut self, at: usize) {
        let image = match Place::parse(self.word(at)) {
            Place::Host(image) | Place::Image { image, .. } => image,
            Place::Mount { .. } => return,
        };
        let root = Place::Image { image, path: PathBuf::from("/") };
        for at in self.values.clone() {
            let place = self.place(at);
            if let Some((_, path)) = place.within().filter(|_| place.is_beside(&root)) {
                self.replace(at, path);
            }
        }
    }

    /// For a command on a whole image: rewrites `IMAGE:` and `IMAGE:/` to the image, and refuses other paths.
    fn take_whole(&mut self, at: usize, (image, path): (&Path, &Path)) -> Result<()> {
        if path != Path::new("/") {
            let (word, image) = (self.word(at).display(), image.display());
            let text = format!("{word}: this command takes no path in {image}, but the whole image");
            return Err(Failure::usage(text).into());
        }
        let image = image.to_owned();
        self.replace(at, image);
        Ok(())
    }

    fn elsewhere(&self, at: usize, image: &Path) -> anyhow::Error {
        let (word, image) = (self.word(at).display(), image.display());
        let text = format!("{word}: not in {image}, where the other paths are; `spinney cp` copies between images");
        Failure::usage(text).into()
    }

    /// Replaces a mounted image by its mount point.
    fn go_through_mount(&mut self) {
        let at = if self.rule.image_last { self.plain.last() } else { self.plain.first() };
        let Some(at) = at.copied().filter(|_| !self.opens_image()) else { return };
        if let Some(dir) = mounted_at(Path::new(self.word(at))) {
            self.replace(at, dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction};

    fn program() -> Command {
        let paths = || Arg::new("paths").action(ArgAction::Append);
        let plain = |name: &'static str| Command::new(name).arg(paths());
        Command::new("spinney")
            .subcommand(plain("rm"))
            .subcommand(plain("ln").arg(Arg::new("s").short('s').long("symbolic").action(ArgAction::SetTrue)))
            .subcommand(plain("put").arg(Arg::new("o").long("owner")))
            .subcommands([plain("get"), plain("info"), plain("backup"), plain("restore"), plain("resize")])
            .subcommand(plain("send").arg(Arg::new("p").short('p').long("parent")))
            .subcommand(Command::new("subvolume").subcommands([
                plain("snapshot"),
                plain("read-only"),
                plain("list").arg(Arg::new("of").long("snapshots-of")),
            ]))
            .subcommand(Command::new("fork").subcommands([
                plain("create"),
                plain("drop"),
                plain("merge").arg(Arg::new("into").long("into")),
            ]))
            .subcommand(Command::new("qgroup").subcommand(plain("limit")))
            .subcommand(Command::new("scrub").subcommand(plain("start")))
    }

    /// The long form, in which @ is the directory of the images.
    fn long(line: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.img", "b.img"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let base = format!("{}/", dir.path().display());
        let words = line.replace('@', &base);
        let words = ["spinney"].into_iter().chain(words.split(' ')).map(OsString::from).collect();
        let done = lengthen(words, &program()).map_err(|error| error.to_string().replace(&base, "@"))?;
        let text = done.iter().skip(1).map(|word| word.display().to_string()).collect::<Vec<_>>().join(" ");
        Ok(text.replace(&base, "@"))
    }

    #[test]
    fn an_image_with_a_colon_becomes_an_image_and_paths() {
        for (short, wanted) in [
            ("rm @a.img:/x @a.img:y", "rm @a.img /x /y"),
            ("rm @a.img /x", "rm @a.img /x"),
            ("ln -s ../any:/thing @a.img:/link", "ln -s @a.img ../any:/thing /link"),
            ("ln @a.img:/x @a.img:/y", "ln @a.img /x /y"),
            ("put --owner 0:0 notes @a.img:/docs/", "put --owner 0:0 @a.img notes /docs/"),
            ("put @a.img notes /docs", "put @a.img notes /docs"),
            ("put @a.img @b.img:/", "put @b.img @a.img /"),
            ("get @a.img:/x/. out", "get @a.img /x/. out"),
            ("info @a.img:", "info @a.img"),
            ("subvolume list --snapshots-of @a.img:/x @a.img", "subvolume list --snapshots-of /x @a.img"),
            ("resize min @a.img:/", "resize min @a.img"),
            ("scrub start @a.img:", "scrub start @a.img"),
            ("backup @a.img:/home @b.img:/kept", "backup --into /kept @a.img /home @b.img"),
            ("restore @b.img:/kept @a.img:/home", "restore --from-dir /kept @b.img @a.img /home"),
            ("send -p @a.img:/monday @a.img:/tuesday", "send -p /monday @a.img /tuesday"),
            ("send -p /monday @a.img:/tuesday", "send -p /monday @a.img /tuesday"),
            ("subvolume snapshot @a.img:/ @a.img:/s", "subvolume snapshot @a.img / /s"),
            ("subvolume read-only @a.img:/s off", "subvolume read-only @a.img /s off"),
            ("qgroup limit @a.img:/home 10G", "qgroup limit @a.img /home 10G"),
            ("fork @a.img:/base trial", "fork create @a.img /base trial"),
            ("fork @a.img:/base @a.img:/x/trial", "fork create @a.img /base /x/trial"),
            ("fork create @a.img:/base", "fork create @a.img /base"),
            ("fork @a.img /base trial", "fork create @a.img /base trial"),
            ("fork drop @a.img:/x @a.img:/y", "fork drop @a.img /x /y"),
            ("fork merge --into @a.img:/x @a.img:/y", "fork merge --into /x @a.img /y"),
            ("unknown @a.img:/home", "unknown @a.img:/home"),
        ] {
            assert_eq!(long(short).as_deref(), Ok(wanted), "{short}");
        }
        for line in ["rm @a.img:/x /y", "rm @a.img:/x @b.img:/y", "send -p @b.img:/x @a.img:/y", "info @a.img:/x"] {
            assert!(long(line).is_err(), "{line}");
        }
    }
}
