//! Reads mtree(5): paths, keywords, and the values that `/set` gives to the lines after it. `manifest::apply` calls it.
//!
//! A name without a slash is relative to the current directory: a line of a directory enters it, `..` leaves it. A name
//! with a slash is relative to the root, and changes no current directory.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::PathBuf;

use vfs::file_system::NodeKind;

use super::description::Description;
use super::escape::without_vis;
use super::{ManifestOptions, Target, keyword, plain_path};
use crate::error::Result;
use crate::line::{Lines, Problem};

/// Most keywords that `/set` keeps.
const SET_MAX: usize = 1000;
/// Deepest current directory.
const DEPTH_MAX: usize = 1024;

struct Parser<'a> {
    options: &'a ManifestOptions,
    /// Words of `/set`, by their keywords.
    set: BTreeMap<Vec<u8>, Vec<u8>>,
    current: PathBuf,
    /// The directories that were entered, and whether each has a name below the one before: `.` has none.
    entered: Vec<bool>,
}

/// Applies all lines to the target.
pub(super) fn apply(target: &mut Target<'_>, input: impl BufRead, options: &ManifestOptions) -> Result<()> {
    let mut lines = Lines::new(input, &options.name);
    let mut parser = Parser { options, set: BTreeMap::new(), current: PathBuf::new(), entered: Vec::new() };
    while let Some((number, mut line)) = lines.next()? {
        // A comment has no continuation.
        while !line.trim_ascii_start().starts_with(b"#") && continues(&line) {
            line.pop();
            let Some((_, next)) = lines.next()? else { break };
            line.extend(next);
            lines.check_length(&line, number)?;
        }
        parser.take(target, &line).map_err(|problem| problem.at(&options.name, number))?;
    }
    Ok(())
}

/// True for a line that ends in a backslash which no other backslash escapes.
fn continues(line: &[u8]) -> bool {
    line.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

impl Parser<'_> {
    fn take(&mut self, target: &mut Target<'_>, line: &[u8]) -> Result<(), Problem> {
        let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let words: Vec<&[u8]> = words.collect();
        let Some((first, words)) = words.split_first() else { return Ok(()) };
        match *first {
            b"/set" => self.set(words),
            b"/unset" => {
                self.unset(words);
                Ok(())
            }
            b".." if words.is_empty() => self.leave(),
            first if first.starts_with(b"#") => Ok(()),
            name => self.node(target, name, words),
        }
    }

    fn set(&mut self, words: &[&[u8]]) -> Result<(), Problem> {
        for word in words {
            // Wrong values are found where they stand, not where they are used.
            keyword::read(word, &mut Description::default(), self.options)?;
            self.set.insert(key(word).to_vec(), word.to_vec());
        }
        if self.set.len() > SET_MAX {
            return Err(Problem::told("/set", format!("at most {SET_MAX} keywords"), "more"));
        }
        Ok(())
    }

    fn unset(&mut self, words: &[&[u8]]) {
        for word in words {
            if *word == b"all" {
                self.set.clear();
            }
            self.set.remove(key(word));
        }
    }

    fn leave(&mut self) -> Result<(), Problem> {
        let left = self.entered.pop();
        if left.ok_or_else(|| Problem::told("`..`", "a directory that was entered", "the root"))? {
            self.current.pop();
        }
        Ok(())
    }

    fn node(&mut self, target: &mut Target<'_>, name: &[u8], words: &[&[u8]]) -> Result<(), Problem> {
        let expected = "a name with the escapes of vis(3)";
        let plain = without_vis(name).ok_or_else(|| Problem::new("name", expected, name))?;
        let path = plain_path(&plain)?;
        let is_relative = !name.contains(&b'/');
        let path = if is_relative { self.current.join(path) } else { path };
        let mut line = Description { path: path.clone(), ..Description::default() };
        let all: Vec<&[u8]> = self.set.values().map(Vec::as_slice).chain(words.iter().copied()).collect();
        for word in &all {
            keyword::read(word, &mut line, self.options)?;
        }
        keyword::resolve_names(&all, &mut line, self.options)?;
        if let Some(xattrs) = &mut line.xattrs {
            xattrs.sort_unstable();
            xattrs.dedup_by(|a, b| a.0 == b.0);
        }
        // Some write what `/set` says for files into lines of other kinds, too.
        if line.kind.is_some_and(|kind| kind != NodeKind::File) {
            line.size = None;
        }
        if is_relative && line.kind == Some(NodeKind::Directory) {
            self.entered.push(path != self.current);
            if self.entered.len() > DEPTH_MAX {
                return Err(Problem::told("name", format!("at most {DEPTH_MAX} directories to enter"), "more"));
            }
            self.current = path;
        }
        target.apply(line)
    }
}

/// The keyword of a word.
fn key(word: &[u8]) -> &[u8] {
    word.split(|byte| *byte == b'=').next().unwrap_or_default()
}
