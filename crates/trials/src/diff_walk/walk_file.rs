//! Stores a walk as a file: one JSON object a line, so that walks of other kernels can be compared. Called by
//! `diff_walk`, `images/f2fs` and `guest`.
//!
//! In paths, targets and names of attributes each byte outside printable ASCII is escaped as in a Rust byte string;
//! values of attributes and hashes are hexadecimal; times are seconds and nanoseconds. An extent is its offset, length,
//! position and flags.

use super::record::{Extent, Record, Time, Walk};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Path of the walk of an image.
pub(crate) fn beside(image: &Path) -> PathBuf {
    image.with_extension("walk")
}

/// Writes a walk to `out`.
pub(crate) fn write(walk: &Walk, out: &mut impl Write) -> Result<()> {
    for (path, record) in walk {
        writeln!(out, "{}", line(path, record))?;
    }
    Ok(out.flush()?)
}

/// Reads what [`write()`] wrote.
pub(crate) fn read(file: &Path) -> Result<Walk> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let mut walk = Walk::new();
    for (index, line) in text.lines().enumerate() {
        let place = || format!("{}: line {}", file.display(), index.saturating_add(1));
        let (path, record) = parse(line).with_context(place)?;
        ensure!(walk.insert(path, record).is_none(), "{}: this path has been there", place());
    }
    ensure!(!walk.is_empty(), "{} is empty", file.display());
    Ok(walk)
}

/// One path's line.
pub(crate) fn line(path: &[u8], record: &Record) -> Value {
    let xattrs: Map<String, Value> =
        record.xattrs.iter().map(|(name, value)| (escaped(name), hex(value).into())).collect();
    let extents: Vec<Value> = record.extents.iter().map(extent).collect();
    json!({
        "path": escaped(path), "mode": format!("{:o}", record.mode), "ino": record.ino, "links": record.links,
        "uid": record.uid, "gid": record.gid, "size": record.size, "blocks": record.blocks, "rdev": record.rdev,
        "atime": record.atime, "mtime": record.mtime, "ctime": record.ctime, "btime": record.btime,
        "target": record.target.as_deref().map(escaped), "xattrs": xattrs,
        "sha256": record.sha256.map(|hash| hex(&hash)), "extents": extents, "flags": record.flags,
    })
}

fn extent(extent: &Extent) -> Value {
    let named =
        [(extent.is_inline, "inline"), (extent.is_unwritten, "unwritten"), (extent.is_compressed, "compressed")];
    let words: Vec<&str> = named.into_iter().filter_map(|(is_set, word)| is_set.then_some(word)).collect();
    json!([extent.offset, extent.len, extent.place, words.join(" ")])
}

/// Parses a line.
pub(crate) fn parse(line: &str) -> Result<(Vec<u8>, Record)> {
    let fields: Map<String, Value> = serde_json::from_str(line)?;
    let field = |name: &str| fields.get(name).with_context(|| format!("no {name}"));
    let number = |name: &str| field(name)?.as_u64().with_context(|| format!("{name} is no number"));
    let small = |name: &str| Ok::<u32, anyhow::Error>(u32::try_from(number(name)?)?);
    let text = |name: &str| field(name)?.as_str().with_context(|| format!("{name} is no text"));
    let time = |name: &str| Ok::<Time, anyhow::Error>(serde_json::from_value(field(name)?.clone())?);
    let target = field("target")?.as_str().map(unescaped).transpose()?;
    let sha256 = match field("sha256")?.as_str() {
        Some(text) => Some(bytes(text)?.try_into().map_err(|_| anyhow::anyhow!("sha256 has another length"))?),
        None => None,
    };
    let mut xattrs = BTreeMap::new();
    for (name, value) in field("xattrs")?.as_object().context("xattrs is no object")? {
        xattrs.insert(unescaped(name)?, bytes(value.as_str().context("a value is no text")?)?);
    }
    let extents: Vec<(u64, u64, u64, String)> = serde_json::from_value(field("extents")?.clone())?;
    let extents = extents.into_iter().map(|(offset, len, place, words)| {
        let has = |wanted| words.split(' ').any(|word| word == wanted);
        let (is_inline, is_unwritten, is_compressed) = (has("inline"), has("unwritten"), has("compressed"));
        Extent { offset, len, place, is_inline, is_unwritten, is_compressed }
    });
    let record = Record {
        mode: u32::from_str_radix(text("mode")?, 8)?,
        ino: number("ino")?,
        links: small("links")?,
        uid: small("uid")?,
        gid: small("gid")?,
        size: number("size")?,
        blocks: number("blocks")?,
        rdev: number("rdev")?,
        atime: time("atime")?,
        mtime: time("mtime")?,
        ctime: time("ctime")?,
        btime: time("btime")?,
        target,
        xattrs,
        sha256,
        extents: extents.collect(),
        flags: field("flags")?.as_u64().map(u32::try_from).transpose()?,
    };
    Ok((unescaped(text("path")?)?, record))
}

/// Bytes as text, with unprintable ones escaped.
fn escaped(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Reverses [`escaped`].
pub(crate) fn unescaped(text: &str) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            all.push(byte);
            continue;
        }
        all.push(match rest.next() {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(same @ (b'\\' | b'\'' | b'"')) => same,
            Some(b'x') => {
                let digits = [rest.next().unwrap_or(b' '), rest.next().unwrap_or(b' ')];
                u8::from_str_radix(std::str::from_utf8(&digits)?, 16)?
            }
            other => bail!("no escape: {other:?}"),
        });
    }
    Ok(all)
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(text: &str) -> Result<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Walk {
        let record = Record {
            mode: 0o100_644,
            ino: u64::MAX,
            size: 3,
            mtime: (-5, 999_999_999),
            target: Some(b"to\\\x00\xff\n\"'".to_vec()),
            xattrs: BTreeMap::from([(b"user.\xfe".to_vec(), vec![0, 1, 255])]),
            sha256: Some([7; 32]),
            extents: vec![
                Extent { offset: 0, len: 4096, place: 1, is_inline: true, is_unwritten: false, is_compressed: false },
                Extent { offset: 4096, len: 1, place: 2, is_inline: false, is_unwritten: true, is_compressed: true },
            ],
            flags: Some(0x1000_0000),
            ..Record::default()
        };
        Walk::from([(b"a b\x80\t\\x41".to_vec(), record), (Vec::new(), Record::default())])
    }

    #[test]
    fn a_walk_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sample.walk");
        write(&sample(), &mut std::fs::File::create(&file).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap(), sample());
    }

    #[test]
    fn a_line_that_was_cut_or_is_there_twice_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sample.walk");
        let mut text = Vec::new();
        write(&sample(), &mut text).unwrap();
        std::fs::write(&file, text.get(..text.len() - 20).unwrap()).unwrap();
        assert!(read(&file).is_err());
        std::fs::write(&file, text.repeat(2)).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("line 3"));
    }
}
