//! File handles. A handle names a node and carries a seal: a message authentication code (MAC) which proves that a
//! server with our key made it.
//!
//! ```text
//!  bytes   4  version, zeros
//!          8  volume       first half of its UUID
//!          8  node         the file system's number
//!         24  home         subvolume, inode, generation: these differ if another node has the number by now
//!         16  seal         truncated HMAC-SHA-256 over the above, the volume's whole UUID and the exported directory
//! ```
//!
//! A handle contains everything that is needed to find its node, so it stays valid when the server restarts with the
//! same key. The key is the caller's secret; without it a client cannot forge a handle. A handle of one exported
//! directory is not valid for another export of the same volume.
//!
//! The seal does not prove that the node is still below the exported directory: if another program moves the node out
//! of it while the server is down, its handles stay valid.
//!
//! Failure: [`Status::BADHANDLE`] for bytes of another length or version; [`Status::STALE`] for a wrong seal or volume,
//! so that the client looks the path up again. Callers: `server`.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use vfs::NodeId;
use vfs::file_system::Home;

use crate::wire::{Reader, Status, Writer};

/// Length of a handle.
pub const HANDLE_BYTES: usize = 60;
/// Length of the secret key.
pub const KEY_BYTES: usize = 32;
const SEAL_BYTES: usize = 16;
const SEALED_BYTES: usize = HANDLE_BYTES - SEAL_BYTES;
const VERSION: u32 = 1 << 24;
/// Domain separation: a MAC that the key makes for another purpose is never a valid seal.
const ROLE: &[u8] = b"spinney nfs handle\0";

/// The node that a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: NodeId,
    pub(crate) home: Home,
}

/// Makes and verifies handles.
#[derive(Clone)]
pub(crate) struct Handles {
    seal: Hmac<Sha256>,
    volume: u64,
}

impl Handles {
    /// Makes handles for one exported directory of a volume.
    pub(crate) fn new(key: &[u8; KEY_BYTES], uuid: &[u8; 16], base: Home) -> Self {
        let mut seal = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        seal.update(ROLE);
        seal.update(uuid);
        for number in [base.subvolume, base.ino, base.generation] {
            seal.update(&number.to_be_bytes());
        }
        let (half, _) = uuid.split_first_chunk().expect("a UUID has 16 bytes");
        Self { seal, volume: u64::from_be_bytes(*half) }
    }

    /// The `fsid` of the volume.
    pub(crate) const fn volume(&self) -> u64 {
        self.volume
    }

    /// The handle of a node.
    pub(crate) fn make(&self, place: Place) -> Vec<u8> {
        let Home { subvolume, ino, generation } = place.home;
        let mut out = Writer::default();
        out.u32(VERSION);
        for number in [self.volume, place.node.0, subvolume, ino, generation] {
            out.u64(number);
        }
        let mut bytes = out.into_bytes();
        let seal = self.seal.clone().chain_update(&bytes).finalize().into_bytes();
        bytes.extend(seal.iter().take(SEAL_BYTES));
        bytes
    }

    /// Checks the seal of a handle, and returns its node.
    ///
    /// # Errors
    /// `BADHANDLE`, `STALE`.
    pub(crate) fn verify(&self, handle: &[u8]) -> Result<Place, Status> {
        let bytes: &[u8; HANDLE_BYTES] = handle.try_into().map_err(|_| Status::BADHANDLE)?;
        let (sealed, seal) = bytes.split_at(SEALED_BYTES);
        let mut read = Reader::new("handle", sealed);
        if read.u32() != Ok(VERSION) {
            return Err(Status::BADHANDLE);
        }
        self.seal.clone().chain_update(sealed).verify_truncated_left(seal).map_err(|_| Status::STALE)?;
        let mut next = || read.u64().map_err(|_| Status::BADHANDLE);
        let (volume, node) = (next()?, NodeId(next()?));
        let home = Home { subvolume: next()?, ino: next()?, generation: next()? };
        if volume == self.volume { Ok(Place { node, home }) } else { Err(Status::STALE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Home = Home { subvolume: 5, ino: 257, generation: 9 };
    const PLACE: Place = Place { node: NodeId(300), home: HOME };

    #[test]
    fn a_handle_outlives_its_server_and_leads_nowhere_else() {
        let handles = || Handles::new(&[1; KEY_BYTES], &[2; 16], HOME);
        let handle = handles().make(PLACE);
        assert_eq!(handle.len(), HANDLE_BYTES);
        assert_eq!(handles().verify(&handle), Ok(PLACE));
        let other_base = Home { ino: 256, ..HOME };
        for other in [
            Handles::new(&[3; KEY_BYTES], &[2; 16], HOME),
            Handles::new(&[1; KEY_BYTES], &[4; 16], HOME),
            Handles::new(&[1; KEY_BYTES], &[2; 16], other_base),
        ] {
            assert_eq!(other.verify(&handle), Err(Status::STALE));
        }
    }

    #[test]
    fn a_handle_that_was_changed_is_refused() {
        let handles = Handles::new(&[1; KEY_BYTES], &[2; 16], HOME);
        let handle = handles.make(PLACE);
        for at in 0..HANDLE_BYTES {
            let mut changed = handle.clone();
            changed[at] ^= 1;
            let expected = if at < 4 { Status::BADHANDLE } else { Status::STALE };
            assert_eq!(handles.verify(&changed), Err(expected), "{at}");
        }
        assert_eq!(handles.verify(&handle[..59]), Err(Status::BADHANDLE));
        assert_eq!(handles.verify(b""), Err(Status::BADHANDLE));
    }
}
