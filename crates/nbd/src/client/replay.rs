//! Gives a client the bytes of a fuzzer in place of a server's replies. Called by the fuzz target `nbd_replies`.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::handshake::Agreed;
use super::link::Link;
use crate::stream::Stream;
use crate::wire::Command;

/// Gives a client bytes in place of a server's replies: the first byte chooses what was agreed. For the fuzz target.
///
/// # Panics
/// Where the system has no sockets.
pub(super) fn replay(bytes: &[u8]) {
    let Some((choice, replies)) = bytes.split_first() else { return };
    let (own, mut server) = UnixStream::pair().expect("a pair of sockets");
    // Both sides are full of what is sent here at most.
    server.set_nonblocking(true).expect("a socket");
    let _ = server.write_all(replies);
    let _ = server.shutdown(std::net::Shutdown::Write);
    let sizes = crate::wire::BlockSizes { minimum: 1, preferred: 4096, maximum: 1 << 20 };
    let agreed = Agreed {
        size: 1 << 30,
        flags: u16::MAX,
        sizes,
        is_structured: choice & 1 == 1,
        context: (choice & 2 == 2).then_some(1),
    };
    let link = Link::new(Stream::new(Arc::new(own.into())), agreed, Duration::from_secs(1));
    let requests = [
        (Command::Read, 4096_u32, &[][..]),
        (Command::BlockStatus, 1 << 20, &[]),
        (Command::Write, 4, &[b"data".as_slice()]),
        (Command::Read, 64, &[]),
        (Command::Flush, 0, &[]),
    ];
    let begun: Vec<_> = requests.iter().map(|(command, len, data)| link.begin(*command, 0, (0, *len), data)).collect();
    for ticket in begun.into_iter().flatten() {
        let _ = ticket.wait();
    }
}
