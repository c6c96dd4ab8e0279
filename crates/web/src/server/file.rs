//! Sends a file, whole or in ranges (RFC 9110, sections 13 and 14).

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;

use vfs::{File, Metadata};

use super::Site;
use super::content_type;
use super::head::Head;
use super::reply::{Reply, refusal_of, refuse};
use crate::date::Date;
use crate::number::{to_u64, to_usize};
use crate::range::Wanted;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Separates the parts of an answer with several ranges. It need not be absent from the contents: the lengths of parts
/// are in their heads, and a client that asks for several ranges knows them.
const BOUNDARY: &str = "spinney-part-5d1f0c";

/// Answers a request for the file with these attributes.
///
/// # Errors
/// Those of the connection; a failed read in the middle of the answer.
pub(super) fn send(site: &Site, head: &Head, metadata: &Metadata, out: &mut impl Write) -> io::Result<()> {
    let (is_head, keeps) = (head.is_head, head.keeps_connection);
    let file = match File::open(&site.volume, &head.target.path) {
        Ok(file) => file,
        Err(error) => return refuse(out, refusal_of(&error), is_head, keeps),
    };
    let (size, etag, modified) = (metadata.size, etag(metadata), Date::from_seconds(metadata.mtime.sec).http());
    let name = head.target.path.file_name().unwrap_or_default();
    let kind = content_type::of(name.as_bytes());
    let described = |status: u16| {
        let reply = Reply::new(status)
            .with("ETag", &etag)
            .with("Last-Modified", &modified)
            .with("Accept-Ranges", "bytes")
            .with("Cache-Control", "no-cache");
        // Pages of an image may be hostile: their scripts see no other file.
        if content_type::can_run(kind) { reply.with("Content-Security-Policy", "sandbox allow-scripts") } else { reply }
    };
    if is_known(head, &etag, &modified) {
        return described(304).send(out, keeps);
    }
    let is_current = head.if_range.as_ref().is_none_or(|known| *known == etag || *known == modified);
    let wanted = match head.range.as_deref().filter(|_| is_current) {
        Some(range) => Wanted::parse(range, size),
        None => Wanted::Whole,
    };
    let copy = |out: &mut dyn Write, first, len| copy(&file, first, len, out);
    match wanted {
        Wanted::Nothing => {
            let reply = described(416).with("Content-Range", format!("bytes */{size}")).with("Content-Length", 0);
            reply.send(out, keeps)
        }
        Wanted::Whole => {
            described(200).with("Content-Type", kind).with("Content-Length", size).send(out, keeps)?;
            if is_head { Ok(()) } else { copy(out, 0, size) }
        }
        Wanted::Parts(parts) => match parts.as_slice() {
            [(first, len)] => {
                let reply = described(206).with("Content-Type", kind).with("Content-Length", len);
                reply.with("Content-Range", content_range(*first, *len, size)).send(out, keeps)?;
                if is_head { Ok(()) } else { copy(out, *first, *len) }
            }
            parts => {
                let heads: Vec<String> = parts.iter().map(|(first, len)| part_head(kind, *first, *len, size)).collect();
                let end = format!("\r\n--{BOUNDARY}--\r\n");
                let bytes: u64 = heads.iter().zip(parts).map(|(head, (_, len))| to_u64(head.len()) + len).sum();
                let reply = described(206).with("Content-Length", bytes + to_u64(end.len()));
                reply.with("Content-Type", format!("multipart/byteranges; boundary={BOUNDARY}")).send(out, keeps)?;
                if is_head {
                    return Ok(());
                }
                for (head, (first, len)) in heads.iter().zip(parts) {
                    out.write_all(head.as_bytes())?;
                    copy(out, *first, *len)?;
                }
                out.write_all(end.as_bytes())
            }
        },
    }
}

fn content_range(first: u64, len: u64, size: u64) -> String {
    format!("bytes {first}-{}/{size}", first.saturating_add(len).saturating_sub(1))
}

fn part_head(kind: &str, first: u64, len: u64, size: u64) -> String {
    let range = content_range(first, len, size);
    format!("\r\n--{BOUNDARY}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n")
}

/// Changes with every change of the file: its number, size, and the times of its last changes.
fn etag(metadata: &Metadata) -> String {
    let Metadata { ino, size, mtime, ctime, home, .. } = metadata;
    let (subvolume, generation) = (home.subvolume, home.generation);
    let times = format!("{:x}.{:x}-{:x}.{:x}", mtime.sec, mtime.nsec, ctime.sec, ctime.nsec);
    format!("\"{subvolume:x}-{ino:x}-{generation:x}-{size:x}-{times}\"")
}

/// True if the client has this version.
fn is_known(head: &Head, etag: &str, modified: &str) -> bool {
    if let Some(known) = &head.if_none_match {
        let is_same = |one: &str| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag;
        return known.split(',').any(|one| is_same(one.trim()));
    }
    // Only the date that was sent: others would have to be compared with clocks elsewhere.
    head.if_modified_since.as_ref().is_some_and(|known| known == modified)
}

/// Copies exactly `len` bytes of the file.
fn copy(file: &File, first: u64, len: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES.min(to_usize(len))];
    let mut at = first;
    let end = first.saturating_add(len);
    while at < end {
        let wanted = buffer.len().min(to_usize(end - at));
        let piece = buffer.get_mut(..wanted).unwrap_or_default();
        let count = file.read_at(piece, at).map_err(io::Error::other)?;
        if count == 0 {
            // It became shorter; the length was announced.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.write_all(piece.get(..count).unwrap_or_default())?;
        at = at.saturating_add(to_u64(count));
    }
    Ok(())
}
