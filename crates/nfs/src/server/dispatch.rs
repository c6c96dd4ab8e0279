//! Decodes a record, runs the procedure that it calls, and makes the reply; or rejects the call. Called by
//! `connection`.

use std::time::Instant;

use super::attributes::Attributes;
use super::budget::Share;
use super::contents::Contents;
use super::list::Listings;
use super::mount::Mounts;
use super::names::Names;
use super::session::Session;
use super::{Ended, Peer, STALL_MAX, Shared};
use crate::number::{to_u32, to_usize};
use crate::wire::{
    Arguments, AuthFailure, Call, Credential, DATA_BYTES_MAX, Mark, MountArguments, Program, Refusal, Writer, refuse,
    success,
};

/// A reply with its record mark, and its reservation in the memory budget.
pub(super) struct Reply<'a> {
    pub(super) bytes: Vec<u8>,
    _share: Option<Share<'a>>,
}

/// Answers a record.
///
/// # Errors
/// [`Ended`] for a record that is no call, and if no memory for the reply was free in time.
pub(super) fn answer<'a>(shared: &'a Shared, peer: Peer, record: &[u8]) -> Result<Reply<'a>, Ended> {
    let call = Call::decode(record)?;
    let share = match share_of(shared, &call) {
        Ok(share) => share,
        // The connection ends; the client reconnects, and repeats the call.
        Err(()) => return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    };
    let bytes = match carry_out(shared, peer, record, &call) {
        Ok(bytes) => bytes,
        Err(refusal) => reply(|out| refuse(call.xid, refusal, out)),
    };
    Ok(Reply { bytes, _share: share })
}

/// Reserves memory for a long reply; short ones are not counted.
fn share_of<'a>(shared: &'a Shared, call: &Call<'_>) -> Result<Option<Share<'a>>, ()> {
    if call.program != Program::Nfs.number() {
        return Ok(None);
    }
    let bytes = match Arguments::decode(call.procedure, call.arguments) {
        Ok(Some(Arguments::Read { count, .. } | Arguments::ReadDir { count, .. })) => count,
        Ok(Some(Arguments::ReadDirPlus { max_count, .. })) => max_count,
        _ => return Ok(None),
    };
    let bytes = to_usize(bytes.min(DATA_BYTES_MAX));
    shared.budget.take(bytes, Instant::now() + STALL_MAX).map(Some).ok_or(())
}

/// Makes a record with its mark; `put` writes the contents.
fn reply(put: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer::default();
    out.u32(0);
    put(&mut out);
    let len = to_u32(out.len().saturating_sub(Mark::BYTES));
    out.set_u32(0, u32::from_be_bytes(Mark { is_last: true, len }.encode()));
    out.into_bytes()
}

fn carry_out(shared: &Shared, peer: Peer, record: &[u8], call: &Call<'_>) -> Result<Vec<u8>, Refusal> {
    if !call.is_current() {
        return Err(Refusal::RpcMismatch);
    }
    let program = Program::from_number(call.program).ok_or(Refusal::ProgramUnavailable)?;
    if call.version != Program::VERSION {
        return Err(Refusal::ProgramMismatch);
    }
    // Procedure 0 (NULL, a ping) needs no credential.
    if call.procedure != 0 {
        match &call.credential {
            Credential::Other(_) => return Err(Refusal::Auth(AuthFailure::TooWeak)),
            Credential::Malformed => return Err(Refusal::Auth(AuthFailure::BadCredential)),
            Credential::None | Credential::Sys(_) => {}
        }
    }
    let session = || Session::new(shared, &call.credential);
    match program {
        Program::Mount => {
            let arguments = MountArguments::decode(call.procedure, call.arguments).map_err(garbage)?;
            let arguments = arguments.ok_or(Refusal::ProcedureUnavailable)?;
            Ok(reply(|out| {
                success(call.xid, out);
                Mounts(&session()).answer(&arguments, out);
            }))
        }
        Program::Nfs => {
            let arguments = Arguments::decode(call.procedure, call.arguments).map_err(garbage)?;
            let arguments = arguments.ok_or(Refusal::ProcedureUnavailable)?;
            let answer = || {
                reply(|out| {
                    success(call.xid, out);
                    run(&session(), &arguments, out);
                })
            };
            Ok(match arguments.needs_kept_reply() {
                true => shared.replies.once(peer, record, answer),
                false => answer(),
            })
        }
    }
}

fn garbage(error: crate::wire::Malformed) -> Refusal {
    tracing::debug!(%error, "a call was refused");
    Refusal::GarbageArguments
}

fn run(session: &Session<'_>, arguments: &Arguments<'_>, out: &mut Writer) {
    let (attributes, contents) = (Attributes(session), Contents(session));
    let (names, listings) = (Names(session), Listings(session));
    match *arguments {
        Arguments::Null => {}
        Arguments::GetAttr { node } => attributes.get_attr(node, out),
        Arguments::SetAttr { node, ref changes, guard } => attributes.set_attr(node, changes, guard, out),
        Arguments::Lookup(at) => names.lookup(at, out),
        Arguments::Access { node, wanted } => attributes.access(node, wanted, out),
        Arguments::ReadLink { node } => contents.read_link(node, out),
        Arguments::Read { node, offset, count } => contents.read(node, offset, count, out),
        Arguments::Write { node, offset, stability, data } => contents.write(node, offset, stability, data, out),
        Arguments::Create { at, how } => names.create(at, &how, out),
        Arguments::MkDir { at, attributes: ref set } => names.make_dir(at, set, out),
        Arguments::SymLink { at, attributes: ref set, target } => names.make_link(at, set, target, out),
        Arguments::MkNod { at, kind, attributes: ref set, device } => names.make_node(at, kind, set, device, out),
        Arguments::Remove(at) => names.remove(at, out),
        Arguments::RmDir(at) => names.remove_dir(at, out),
        Arguments::Rename { from, to } => names.rename(from, to, out),
        Arguments::Link { node, at } => names.link(node, at, out),
        Arguments::ReadDir { dir, cookie, count, .. } => listings.read_dir(dir, cookie, count, out),
        Arguments::ReadDirPlus { dir, cookie, dir_count, max_count, .. } => {
            listings.read_dir_plus(dir, cookie, dir_count, max_count, out);
        }
        Arguments::FsStat { node } => attributes.fs_stat(node, out),
        Arguments::FsInfo { node } => attributes.fs_info(node, out),
        Arguments::PathConf { node } => attributes.path_conf(node, out),
        Arguments::Commit { node, .. } => contents.commit(node, out),
    }
}
