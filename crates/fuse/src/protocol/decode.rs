//! Parses requests, which are untrusted bytes. The transports and `session` call it.

use super::opcode;
use super::requests::InHeader;
use std::sync::Arc;
use vfs::file_system::{Caller, Errno, NodeId, Result};
use zerocopy::FromBytes;

/// A request, divided into its three parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    fixed: &'a [u8],
    rest: &'a [u8],
}

/// A request that outlives its buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedRequest {
    header: InHeader,
    fixed: Vec<u8>,
    rest: Vec<u8>,
    /// Counts requests of a limited kind.
    _counted: Option<Arc<()>>,
}

impl OwnedRequest {
    /// The same, with a counter that is released when it is answered.
    pub(crate) fn counted(self, one: Arc<()>) -> Self {
        Self { _counted: Some(one), ..self }
    }

    pub(crate) fn borrow(&self) -> Request<'_> {
        Request { header: self.header, fixed: &self.fixed, rest: &self.rest }
    }
}

impl<'a> Request<'a> {
    /// A copy to be answered later.
    pub(crate) fn keep(&self) -> OwnedRequest {
        OwnedRequest { header: self.header, fixed: self.fixed.to_vec(), rest: self.rest.to_vec(), _counted: None }
    }

    /// The header alone. `None` if there are too few bytes: then there is no request number to answer.
    pub(crate) fn header(bytes: &[u8]) -> Option<InHeader> {
        InHeader::read_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    /// Parses a request that lies in one piece.
    ///
    /// # Errors
    /// `ENOSYS` for an unknown request; `EINVAL` for a wrong length.
    pub(crate) fn parse(header: InHeader, bytes: &'a [u8]) -> Result<Self> {
        let body = bytes.get(size_of::<InHeader>()..).ok_or(Errno::EINVAL)?;
        if usize::try_from(header.len) != Ok(bytes.len()) {
            return Err(Errno::EINVAL);
        }
        let fixed_bytes = opcode::fixed_bytes(header.opcode).ok_or(Errno::ENOSYS)?;
        let (fixed, rest) = body.split_at_checked(fixed_bytes).ok_or(Errno::EINVAL)?;
        Self::from_parts(header, fixed, rest)
    }

    /// A request whose parts are separate; `fixed` may be longer than its structure.
    ///
    /// # Errors
    /// As [`Request::parse`].
    pub(crate) fn from_parts(header: InHeader, fixed: &'a [u8], rest: &'a [u8]) -> Result<Self> {
        // Extensions come last. None was requested; any are skipped.
        let ext_bytes = usize::from(header.total_extlen) * 8;
        let len = rest.len().checked_sub(ext_bytes).ok_or(Errno::EINVAL)?;
        let rest = rest.get(..len).ok_or(Errno::EINVAL)?;
        Ok(Self { header, fixed, rest })
    }

    /// The node of the request.
    pub(crate) fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    /// The user and group that own a new file.
    ///
    /// # Errors
    /// `EOVERFLOW` if the kernel left them out: a new file must not get an invalid owner.
    pub(crate) fn creator(&self) -> Result<Caller> {
        Some(self.caller()).filter(Caller::is_known).ok_or(Errno::EOVERFLOW)
    }

    /// The calling user, if known.
    pub(crate) fn caller(&self) -> Caller {
        Caller { uid: self.header.uid, gid: self.header.gid, pid: self.header.pid }
    }

    /// The structure at the beginning of the request.
    ///
    /// # Errors
    /// `EINVAL` if it is missing.
    pub(crate) fn args<T: FromBytes>(&self) -> Result<T> {
        T::read_from_prefix(self.fixed).map(|(args, _)| args).map_err(|_| Errno::EINVAL)
    }

    /// The bytes behind that structure.
    pub(crate) fn data(&self) -> &'a [u8] {
        self.rest
    }

    /// The only name of the request.
    ///
    /// # Errors
    /// `EINVAL` if there is none, or more than one.
    pub(crate) fn name(&self) -> Result<&'a [u8]> {
        match split_name(self.rest)? {
            (name, []) => Ok(name),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The two names of the request.
    ///
    /// # Errors
    /// `EINVAL` if there are not two.
    pub(crate) fn two_names(&self) -> Result<(&'a [u8], &'a [u8])> {
        let (first, rest) = split_name(self.rest)?;
        match split_name(rest)? {
            (second, []) => Ok((first, second)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// A name and the bytes behind it.
    ///
    /// # Errors
    /// `EINVAL` if there is no name.
    pub(crate) fn name_and_data(&self) -> Result<(&'a [u8], &'a [u8])> {
        split_name(self.rest)
    }
}

/// A name is not empty and ends with a zero byte.
fn split_name(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
    match bytes.split_at_checked(end) {
        Some((name, rest)) if !name.is_empty() => Ok((name, rest.get(1..).unwrap_or_default())),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::super::requests::{MkdirIn, WriteIn};
    use super::*;
    use zerocopy::IntoBytes;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
            opcode,
            unique: 7,
            nodeid: 1,
            ..InHeader::default()
        };
        [header.as_bytes(), body].concat()
    }

    fn parse(bytes: &[u8]) -> Result<Request<'_>> {
        Request::parse(Request::header(bytes).unwrap(), bytes)
    }

    #[test]
    fn parts_are_found() {
        let args = MkdirIn { mode: 0o755, umask: 0o22 };
        let bytes = request(opcode::MKDIR, &[args.as_bytes(), b"name\0"].concat());
        let request = parse(&bytes).unwrap();
        assert_eq!(request.name(), Ok(&b"name"[..]));
        assert_eq!(request.args::<MkdirIn>().unwrap().umask, 0o22);
    }

    #[test]
    fn two_names_are_two() {
        let bytes = request(opcode::SYMLINK, b"name\0target\0");
        assert_eq!(parse(&bytes).unwrap().two_names(), Ok((&b"name"[..], &b"target"[..])));
        for body in [&b"name\0"[..], b"name\0\0", b"name\0a\0b\0", b"name\0target", b"", b"\0\0"] {
            let bytes = request(opcode::SYMLINK, body);
            assert_eq!(parse(&bytes).unwrap().two_names(), Err(Errno::EINVAL), "{body:?}");
        }
    }

    #[test]
    fn a_name_ends_and_stands_alone() {
        for body in [&b"name"[..], b"", b"\0", b"a\0b"] {
            let bytes = request(opcode::LOOKUP, body);
            assert_eq!(parse(&bytes).unwrap().name(), Err(Errno::EINVAL), "{body:?}");
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let whole = request(opcode::WRITE, WriteIn::default().as_bytes());
        for len in size_of::<InHeader>()..whole.len() {
            assert_eq!(parse(&whole[..len]).map(|_| ()), Err(Errno::EINVAL));
            let shorter = request(opcode::WRITE, &whole[size_of::<InHeader>()..len]);
            assert_eq!(parse(&shorter).map(|_| ()), Err(Errno::EINVAL));
        }
        for len in 0..size_of::<InHeader>() {
            assert!(Request::header(&whole[..len]).is_none());
        }
        assert_eq!(parse(&request(9999, b"")).map(|_| ()), Err(Errno::ENOSYS));
    }

    #[test]
    fn extensions_longer_than_the_request_are_refused() {
        let mut bytes = request(opcode::LOOKUP, b"name\0\0\0\0");
        bytes[36] = 1;
        assert_eq!(parse(&bytes).unwrap().name().map(|_| ()), Err(Errno::EINVAL));
        bytes[36] = 2;
        assert_eq!(parse(&bytes).map(|_| ()), Err(Errno::EINVAL));
    }
}
