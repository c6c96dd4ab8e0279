//! Parses a workload from text: one operation a line.
//!
//! ```text
//! # anything behind a '#' is ignored
//! creat PATH                     mkdir PATH                    sync
//! write PATH OFFSET LEN          dwrite PATH OFFSET LEN        mmapwrite PATH OFFSET LEN
//! falloc PATH OFFSET LEN [keep-size | punch | zero]            truncate PATH LEN
//! link OLD NEW                   symlink TARGET PATH           rename OLD NEW
//! unlink PATH                    rmdir PATH                    fsync PATH
//! setxattr PATH NAME VALUE       removexattr PATH NAME         fdatasync PATH
//! chmod PATH MODE                chown PATH UID GID            utimes PATH ATIME MTIME
//! chattr PATH =[AdS]             exchange OLD NEW              tmpfile PATH LEN
//! reflink SOURCE OFFSET PATH OFFSET LEN                        copy SOURCE OFFSET PATH OFFSET LEN
//! subvol PATH                    snapshot SOURCE PATH          delsubvol PATH
//! hold PATH                      release                       defrag PATH [zlib | lzo | zstd]
//! trim
//! ```
//!
//! Callers of `parse`: `spinney verify-crash`, `cargo trials crash-explore`, and tests.

use super::step::{CloneHow, Reserve, Step, WriteHow};
use std::fmt;

/// Lines of a workload: all of its writes are kept in memory.
const STEPS_MAX: usize = 10_000;
/// Files are read whole at every state.
const FILE_BYTES_MAX: u64 = 16 << 20;
const NAME_BYTES_MAX: usize = 255;
const TARGET_BYTES_MAX: usize = 4095;
const XATTR_BYTES_MAX: usize = 2048;

/// A fault of a workload, and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: usize,
    /// The fault.
    pub reason: String,
}

impl std::error::Error for SyntaxError {}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// The operations of a text, with their lines.
///
/// # Errors
/// The first line that is none.
pub fn parse(text: &[u8]) -> Result<Vec<(usize, Step)>, SyntaxError> {
    let mut steps = Vec::new();
    for (line, bytes) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let error = |reason: String| SyntaxError { line, reason };
        let text = std::str::from_utf8(bytes).map_err(|_| error("is not UTF-8".to_owned()))?;
        let text = text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        if let Some((name, arguments)) = words.split_first() {
            steps.push((line, step(name, arguments).map_err(error)?));
        }
        if steps.len() > STEPS_MAX {
            return Err(error(format!("more than {STEPS_MAX} operations")));
        }
    }
    Ok(steps)
}

fn step(name: &str, arguments: &[&str]) -> Result<Step, String> {
    let write = |how| {
        let [path, offset, len] = three(name, "PATH OFFSET LEN", arguments)?;
        let (offset, len) = range(offset, len)?;
        Ok(Step::Write { how, path: self::path(path)?, offset, len })
    };
    match name {
        "creat" => Ok(Step::Create { path: lower(name, arguments)? }),
        "mkdir" => Ok(Step::CreateDir { path: lower(name, arguments)? }),
        "unlink" => Ok(Step::Remove { path: lower(name, arguments)? }),
        "rmdir" => Ok(Step::RemoveDir { path: lower(name, arguments)? }),
        "fsync" => Ok(Step::Fsync { path: path(one(name, arguments)?)? }),
        "fdatasync" => Ok(Step::Fdatasync { path: path(one(name, arguments)?)? }),
        "write" => write(WriteHow::Buffered),
        "dwrite" => write(WriteHow::Direct),
        "mmapwrite" => write(WriteHow::Mapped),
        "falloc" => falloc(arguments),
        "defrag" => defrag(arguments),
        "link" => {
            let [original, new] = two(name, "OLD NEW", arguments)?;
            Ok(Step::Link { original: below(original)?, path: below(new)? })
        }
        "rename" => {
            let [from, to] = two(name, "OLD NEW", arguments)?;
            Ok(Step::Rename { from: below(from)?, to: below(to)? })
        }
        "symlink" => {
            let [target, path] = two(name, "TARGET PATH", arguments)?;
            let target = short(target, "target", TARGET_BYTES_MAX)?;
            Ok(Step::Symlink { target, path: below(path)? })
        }
        "truncate" => {
            let [path, len] = two(name, "PATH LEN", arguments)?;
            Ok(Step::Truncate { path: self::path(path)?, len: range("0", len)?.1 })
        }
        "setxattr" => {
            let [path, attribute, value] = three(name, "PATH NAME VALUE", arguments)?;
            let value = short(value, "value", XATTR_BYTES_MAX)?;
            Ok(Step::SetXattr { path: self::path(path)?, name: xattr(attribute)?, value })
        }
        "removexattr" => {
            let [path, attribute] = two(name, "PATH NAME", arguments)?;
            Ok(Step::RemoveXattr { path: self::path(path)?, name: xattr(attribute)? })
        }
        "sync" if arguments.is_empty() => Ok(Step::Sync),
        "trim" if arguments.is_empty() => Ok(Step::Trim),
        "resize" if arguments == ["min"] => Ok(Step::Resize { bytes: None }),
        "resize" => match arguments {
            [bytes] => Ok(Step::Resize { bytes: Some(number(bytes)?) }),
            _ => Err("`resize` takes `min` or a number of bytes".to_owned()),
        },
        "order" => match arguments {
            [name, value @ ..] if !value.is_empty() => {
                let value = value.join(" ");
                let value = short(&value, "order", XATTR_BYTES_MAX)?;
                Ok(Step::Order { name: short(name, "name", XATTR_BYTES_MAX)?, value })
            }
            _ => Err("`order` takes a name and the words of the order".to_owned()),
        },
        "release" if arguments.is_empty() => Ok(Step::Release),
        "sync" | "trim" | "release" => Err(format!("`{name}` takes no arguments")),
        _ => attribute(name, arguments).unwrap_or_else(|| more(name, arguments)),
    }
}

fn defrag(arguments: &[&str]) -> Result<Step, String> {
    const ALGORITHMS: [&str; 3] = ["zlib", "lzo", "zstd"];
    let (path, compression) = match arguments {
        [path] => (path, None),
        [path, name] => match ALGORITHMS.into_iter().find(|known| known == name) {
            Some(known) => (path, Some(known)),
            None => return Err(format!("`{name}` is no compression; there are zlib, lzo and zstd")),
        },
        _ => return Err("`defrag` takes PATH [zlib | lzo | zstd]".to_owned()),
    };
    Ok(Step::Defrag { path: self::path(path)?, compression })
}

/// Parses operations that change the result of `stat`.
fn attribute(name: &str, arguments: &[&str]) -> Option<Result<Step, String>> {
    let parsed = |form, parse: &dyn Fn([&str; 3]) -> Result<Step, String>| three(name, form, arguments).and_then(parse);
    Some(match name {
        "chmod" => two(name, "PATH MODE", arguments).and_then(|[path, mode]| {
            let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777);
            let mode = mode.ok_or("a mode has at most four octal digits")?;
            Ok(Step::Chmod { path: self::path(path)?, mode })
        }),
        "chown" => parsed("PATH UID GID", &|[path, uid, gid]| {
            Ok(Step::Chown { path: self::path(path)?, uid: small(uid)?, gid: small(gid)? })
        }),
        "utimes" => parsed("PATH ATIME MTIME", &|[path, atime, mtime]| {
            Ok(Step::Utimes { path: self::path(path)?, atime: small(atime)?, mtime: small(mtime)? })
        }),
        "chattr" => two(name, "PATH =FLAGS", arguments).and_then(|[path, flags]| {
            let flags = flags.strip_prefix('=').filter(|flags| flags.chars().all(|flag| "AdS".contains(flag)));
            let flags = flags.ok_or("flags are written as `=`, and then some of A, d and S")?;
            Ok(Step::Chattr { path: self::path(path)?, flags: flags.to_owned() })
        }),
        _ => return None,
    })
}

fn more(name: &str, arguments: &[&str]) -> Result<Step, String> {
    let clone = |how| {
        let form = "SOURCE OFFSET PATH OFFSET LEN";
        let five: [&str; 5] = arguments.try_into().or_else(|_| wants(name, form))?;
        let [source, source_offset, path, offset, len] = five;
        let (source_offset, _) = range(source_offset, len)?;
        let (offset, len) = range(offset, len)?;
        Ok(Step::Clone { how, source: below(source)?, source_offset, path: below(path)?, offset, len })
    };
    match name {
        "reflink" => clone(CloneHow::Reflink),
        "copy" => clone(CloneHow::Copy),
        "tmpfile" => {
            let [path, len] = two(name, "PATH LEN", arguments)?;
            Ok(Step::Unnamed { path: below(path)?, len: range("0", len)?.1 })
        }
        "exchange" => {
            let [from, to] = two(name, "OLD NEW", arguments)?;
            Ok(Step::Exchange { from: below(from)?, to: below(to)? })
        }
        "hold" => Ok(Step::Hold { path: lower(name, arguments)? }),
        "subvol" => Ok(Step::Subvolume { path: lower(name, arguments)? }),
        "delsubvol" => Ok(Step::DeleteSubvolume { path: lower(name, arguments)? }),
        "snapshot" => {
            let [source, path] = two(name, "SOURCE PATH", arguments)?;
            Ok(Step::Snapshot { source: below(source)?, path: below(path)? })
        }
        _ => Err(format!("`{}` is no operation", name.escape_debug())),
    }
}

fn small<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{}` is no number that fits", word.escape_debug()))
}

fn falloc(arguments: &[&str]) -> Result<Step, String> {
    let form = "PATH OFFSET LEN [keep-size | punch | zero]";
    let (reserve, arguments) = match arguments {
        [rest @ .., "keep-size"] => (Reserve::KeepSize, rest),
        [rest @ .., "punch"] => (Reserve::Punch, rest),
        [rest @ .., "zero"] => (Reserve::Zero, rest),
        _ => (Reserve::Grow, arguments),
    };
    let [path, offset, len] = three("falloc", form, arguments)?;
    let (offset, len) = range(offset, len)?;
    Ok(Step::Allocate { reserve, path: self::path(path)?, offset, len })
}

fn wants<T>(name: &str, form: &str) -> Result<T, String> {
    Err(format!("write it as `{name} {form}`"))
}

fn one<'a>(name: &str, arguments: &[&'a str]) -> Result<&'a str, String> {
    if let [path] = arguments { Ok(path) } else { wants(name, "PATH") }
}

fn two<'a>(name: &str, form: &str, arguments: &[&'a str]) -> Result<[&'a str; 2], String> {
    arguments.try_into().or_else(|_| wants(name, form))
}

fn three<'a>(name: &str, form: &str, arguments: &[&'a str]) -> Result<[&'a str; 3], String> {
    arguments.try_into().or_else(|_| wants(name, form))
}

/// Resolves `\xNN`.
fn unescape(word: &str) -> Result<String, String> {
    let wrong = || format!("`{}`: behind a backslash comes x and two hexadecimal digits", word.escape_debug());
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = match rest {
            [b'x', digits @ ..] if digits.len() >= 2 => digits.split_at(2),
            _ => return Err(wrong()),
        };
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| format!("`{}` is not UTF-8", word.escape_debug()))
}

fn path(word: &str) -> Result<String, String> {
    let path = unescape(word)?;
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    for name in &names {
        let shown = name.escape_debug();
        match *name {
            "." | ".." => return Err(format!("`{shown}` cannot be part of a path here")),
            _ if name.contains('\0') => return Err(format!("`{shown}`: a name cannot have a NUL")),
            _ if name.len() > NAME_BYTES_MAX => {
                return Err(format!("a name has {} bytes, at most {NAME_BYTES_MAX} are allowed", name.len()));
            }
            _ => {}
        }
    }
    Ok(names.join("/"))
}

/// A path that is not the top itself.
fn below(word: &str) -> Result<String, String> {
    let path = path(word)?;
    if path.is_empty() { Err("the top of the volume cannot be used here".to_owned()) } else { Ok(path) }
}

fn lower(name: &str, arguments: &[&str]) -> Result<String, String> {
    below(one(name, arguments)?)
}

fn short(word: &str, what: &str, bytes_max: usize) -> Result<String, String> {
    let text = unescape(word)?;
    match text.len() {
        _ if text.contains('\0') => Err(format!("a {what} cannot have a NUL")),
        len if len > bytes_max => Err(format!("a {what} has {len} bytes, at most {bytes_max} are allowed")),
        _ => Ok(text),
    }
}

fn xattr(word: &str) -> Result<String, String> {
    let name = short(word, "name", NAME_BYTES_MAX)?;
    match name.split_once('.') {
        Some(("user" | "trusted" | "security", rest)) if !rest.is_empty() => Ok(name),
        _ => Err(format!("`{}`: names of attributes begin with `user.`", name.escape_debug())),
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("`{}` is no number of bytes", word.escape_debug()))
}

fn range(offset: &str, len: &str) -> Result<(u64, u64), String> {
    let (offset, len) = (number(offset)?, number(len)?);
    match offset.checked_add(len) {
        Some(end) if end <= FILE_BYTES_MAX => Ok((offset, len)),
        _ => Err(format!("the file would be larger than {FILE_BYTES_MAX} bytes, which is too much here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let text = "creat A/foo\nmkdir B\nwrite A/foo 0 4096\ndwrite A/foo 1 2\nmmapwrite A/foo 3 4\n\
            falloc foo 0 8192\nfalloc foo 0 8192 keep-size\nfalloc foo 0 8192 punch\nfalloc foo 0 8192 zero\n\
            link foo bar\nsymlink ../foo A/bar\nunlink bar\nrmdir B\nrename A/foo A/b\\x20r\\x23\ntruncate foo 100\n\
            setxattr foo user.a b\nremovexattr foo user.a\nfsync /\nfdatasync foo\nsync\ntrim\n\
            chmod foo 4750\nchown foo 1 4294967295\nutimes foo -1 99\nchattr foo =Ad\nchattr foo =\n\
            defrag foo\ndefrag bar zstd\n\
            reflink a/b 0 foo 4096 8192\ncopy foo 1 bar 2 3\ntmpfile A/x 100\nexchange foo bar\n\
            hold foo\nrelease\nsubvol S\nsnapshot S A/N\ndelsubvol S\n";
        let steps = parse(text.as_bytes()).unwrap();
        assert_eq!(steps.len(), 37);
        let printed: Vec<String> = steps.iter().map(|(_, step)| format!("{step}\n")).collect();
        assert_eq!(printed.concat(), text);
        assert_eq!(steps[13].1, Step::Rename { from: "A/foo".to_owned(), to: "A/b r#".to_owned() });
    }

    #[test]
    fn comments_and_empty_lines_are_counted_as_lines() {
        let steps = parse(b"# nothing\n\n  sync # all\r\n").unwrap();
        assert_eq!(steps, [(3, Step::Sync)]);
    }

    #[test]
    fn hostile_lines_are_refused_by_number() {
        let long = "x".repeat(256);
        for (line, reason) in [
            ("sink", "is no operation"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("sync now", "no arguments"),
            ("write foo 0", "PATH OFFSET LEN"),
            ("write foo 0 1 2", "PATH OFFSET LEN"),
            ("write foo -1 2", "no number"),
            ("write foo 0 18446744073709551616", "no number"),
            ("write foo 18446744073709551615 1", "too much"),
            ("write foo 0 999999999999", "too much"),
            ("falloc foo 0 1 both", "keep-size"),
            ("unlink ..", "cannot be part"),
            ("unlink A/./foo", "cannot be part"),
            ("unlink /", "top of the volume"),
            ("creat a\\x00", "NUL"),
            ("creat a\\y", "backslash"),
            ("creat a\\x4", "backslash"),
            ("creat \\xff", "not UTF-8"),
            (&format!("creat {long}"), "256 bytes"),
            ("setxattr foo name value", "user."),
            ("setxattr foo user. value", "user."),
            ("chmod foo 77777", "four octal digits"),
            ("chmod foo 8", "four octal digits"),
            ("chown foo -1 0", "no number that fits"),
            ("utimes foo 1", "PATH ATIME MTIME"),
            ("chattr foo =i", "some of A, d and S"),
            ("reflink foo 0 bar 0", "SOURCE OFFSET PATH OFFSET LEN"),
            ("release all", "no arguments"),
            ("delsubvol /", "top of the volume"),
        ] {
            let error = parse(format!("sync\n{line}\n").as_bytes()).unwrap_err();
            assert_eq!(error.line, 2, "{line}");
            assert!(error.to_string().contains(reason), "{line}: {error}");
        }
        assert!(parse(b"creat \xff").unwrap_err().reason.contains("UTF-8"));
        assert!(parse(&b"sync\n".repeat(10_001)).unwrap_err().reason.contains("10000"));
    }
}
