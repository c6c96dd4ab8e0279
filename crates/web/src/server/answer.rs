//! Decides how a request is answered: a file, the page of a directory, an archive of it, or the way to one of them.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use vfs::Metadata;

use super::Site;
use super::download::{self, Form};
use super::file;
use super::head::{Head, Refusal, Target};
use super::listing;
use super::reply::{Reply, refusal_of, refuse};
use super::stream::Body;
use crate::percent;

/// The thing that a target names.
enum Found {
    /// A regular file.
    File(Metadata),
    /// A directory, named with its slash.
    Directory,
    /// The archive of a directory.
    Archive(PathBuf, Form),
    /// A directory that was named without its slash.
    WithoutSlash,
}

/// Answers one request.
///
/// # Errors
/// Those of the connection; a file that cannot be read in the middle of its answer.
pub(super) fn answer(site: &Site, head: &Head, out: &mut impl Write) -> io::Result<()> {
    let (is_head, keeps) = (head.is_head, head.keeps_connection);
    match find(site, &head.target) {
        Ok(Found::File(metadata)) => file::send(site, head, &metadata, out),
        Ok(Found::Directory) => send_listing(site, head, out),
        Ok(Found::Archive(dir, form)) => send_archive(site, head, (&dir, form), out),
        Ok(Found::WithoutSlash) => {
            let mut to = percent::encode_path(head.target.path.as_os_str().as_bytes());
            to.push('/');
            if !head.target.query.is_empty() {
                to.push_str(&format!("?{}", head.target.query));
            }
            let reply = Reply::new(301).with("Location", to).with("Content-Length", 0);
            reply.send(out, keeps)
        }
        Err(refusal) => refuse(out, refusal, is_head, keeps),
    }
}

fn find(site: &Site, target: &Target) -> Result<Found, Refusal> {
    let metadata = match site.volume.metadata(&target.path) {
        Ok(metadata) => metadata,
        Err(error) if error.is_not_found() && !target.is_dir => {
            return archive_of(site, &target.path).ok_or(Refusal::NotFound);
        }
        Err(error) => return Err(refusal_of(&error)),
    };
    if metadata.is_dir() {
        let form = Form::ALL.into_iter().find(|form| target.query == form.end());
        return Ok(match (target.is_dir, form) {
            (false, _) => Found::WithoutSlash,
            (true, Some(form)) => Found::Archive(target.path.clone(), form),
            (true, None) => Found::Directory,
        });
    }
    match metadata.is_file() {
        _ if target.is_dir => Err(Refusal::NotFound),
        true => Ok(Found::File(metadata)),
        false => Err(Refusal::NoContents),
    }
}

/// The directory DIR and the form, for a path `DIR.tar` or `DIR.zip` without a file.
fn archive_of(site: &Site, path: &Path) -> Option<Found> {
    let name = path.file_name()?.as_bytes();
    Form::ALL.into_iter().find_map(|form| {
        let name = name.strip_suffix(form.end().as_bytes())?.strip_suffix(b".").filter(|name| !name.is_empty())?;
        let dir = path.with_file_name(OsStr::from_bytes(name));
        let is_dir = site.volume.metadata(&dir).is_ok_and(|found| found.is_dir());
        is_dir.then_some(Found::Archive(dir, form))
    })
}

fn send_listing(site: &Site, head: &Head, out: &mut impl Write) -> io::Result<()> {
    let page = match listing::page(site, &head.target) {
        Ok(page) => page,
        Err(error) => return refuse(out, refusal_of(&error), head.is_head, head.keeps_connection),
    };
    let reply = Reply::new(200)
        .with("Content-Type", "text/html; charset=utf-8")
        .with("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'")
        .with("Cache-Control", "no-cache")
        .with("Content-Length", page.len());
    reply.send(out, head.keeps_connection)?;
    if head.is_head { Ok(()) } else { out.write_all(page.as_bytes()) }
}

fn send_archive(site: &Site, head: &Head, (dir, form): (&Path, Form), out: &mut impl Write) -> io::Result<()> {
    // A directory that may not be read is refused before an archive begins.
    if let Err(error) = site.volume.read_dir(dir) {
        return refuse(out, refusal_of(&error), head.is_head, head.keeps_connection);
    }
    let Some(_place) = site.take_archive() else {
        return refuse(out, Refusal::Busy, head.is_head, head.keeps_connection);
    };
    let name = dir.file_name().unwrap_or(OsStr::new("files"));
    let name = percent::encode_path(name.as_bytes());
    let reply = Reply::new(200)
        .with("Content-Type", form.content_type())
        .with("Content-Disposition", format!("attachment; filename*=UTF-8''{name}.{}", form.end()))
        .with("Cache-Control", "no-cache");
    let in_chunks = head.takes_chunks;
    let reply = if in_chunks { reply.with("Transfer-Encoding", "chunked") } else { reply };
    // Without chunks, the end of the connection is the end of the body.
    reply.send(out, head.keeps_connection && in_chunks)?;
    if head.is_head {
        return Ok(());
    }
    let mut body = Body::new(out, in_chunks);
    download::write(&site.volume, dir, form, &mut body)?;
    body.finish()?;
    if in_chunks { Ok(()) } else { Err(io::ErrorKind::ConnectionAborted.into()) }
}
