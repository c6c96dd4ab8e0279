//! Answers requests on extended attributes. Called by `service`.

use super::control::is_ours;
use super::encode::{put, put_bytes};
use crate::protocol::Request;
use crate::protocol::replies::GetxattrOut;
use crate::protocol::requests::{GetxattrIn, SETXATTR_ACL_KILL_SGID, SetxattrIn};
use crate::shutdown::Ending;
use vfs::FileSystem;
use vfs::file_system::{Errno, Result, XattrMode};

/// Requests about extended attributes.
pub(super) struct Xattrs<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) ending: &'a Ending,
}

impl Xattrs<'_> {
    pub(super) fn getxattr(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let args: GetxattrIn = request.args()?;
        let value = self.fs.get_xattr(request.node(), request.name()?)?;
        put_sized(out, args.size, value.len(), |out| put_bytes(out, &value))
    }

    pub(super) fn listxattr(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let args: GetxattrIn = request.args()?;
        let names = self.fs.list_xattrs(request.node())?;
        let len = names.iter().map(|name| name.len() + 1).sum();
        put_sized(out, args.size, len, |mut out| {
            for name in &names {
                let (place, rest) = out.split_at_mut_checked(name.len() + 1).ok_or(Errno::ERANGE)?;
                put_bytes(place, name)?;
                if let Some(end) = place.last_mut() {
                    *end = 0;
                }
                out = rest;
            }
            Ok(len)
        })
    }

    pub(super) fn setxattr(&self, request: &Request<'_>) -> Result<usize> {
        let args: SetxattrIn = request.args()?;
        let (name, value) = request.name_and_data()?;
        if usize::try_from(args.size) != Ok(value.len()) {
            return Err(Errno::EINVAL);
        }
        let mode = match args.flags {
            0 => XattrMode::Either,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let clear_set_group = args.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
        if self.fs.maintenance().is_some_and(|fs| fs.is_order(name)) {
            if !is_ours(&request.caller()) {
                return Err(Errno::EPERM);
            }
            self.fs.maintained()?.order(name, value)?;
            // The order may start background work.
            self.ending.want_step();
            return Ok(0);
        }
        self.fs.set_xattr(request.node(), name, value, mode, clear_set_group)?;
        Ok(0)
    }

    pub(super) fn removexattr(&self, request: &Request<'_>) -> Result<usize> {
        self.fs.remove_xattr(request.node(), request.name()?)?;
        Ok(0)
    }
}

/// Answers with bytes, or with their count if the caller has no room.
fn put_sized(out: &mut [u8], room: u32, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<usize> {
    let size = u32::try_from(len).map_err(|_| Errno::E2BIG)?;
    match room {
        0 => put(out, &GetxattrOut { size, padding: 0 }),
        room if room < size => Err(Errno::ERANGE),
        _ => fill(out),
    }
}
