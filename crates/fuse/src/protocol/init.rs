//! Negotiates version and features between kernel and server in the first request. Called by `session` and by the
//! worker of the device.

use super::replies::InitOut;
use super::requests::InitIn;
use bitflags::bitflags;
use zerocopy::{FromBytes, IntoBytes};

/// Major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// Newest known minor version.
pub(crate) const MINOR: u32 = 45;
/// Oldest minor version with the known sizes of structures (Linux 5.17).
pub(crate) const MINOR_MIN: u32 = 36;

/// First minor version with [`notify::INC_EPOCH`](super::replies::notify::INC_EPOCH) (Linux 6.16).
const MINOR_WITH_EPOCHS: u32 = 44;

bitflags! {
    /// Capabilities of kernel and server. `ATOMIC_O_TRUNC` is not among them: it would truncate a file by opening it,
    /// before the kernel refuses to write to a running program (`ETXTBSY`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct InitFlags: u64 {
        const ASYNC_READ = 1 << 0;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const HAS_IOCTL_DIR = 1 << 11;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const ALLOW_IDMAP = 1 << 40;
        const OVER_IO_URING = 1 << 41;
    }
}

/// The features that the server asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// The kernel may keep dirty pages.
    pub(crate) writeback: bool,
    /// Files are opened without a request.
    pub(crate) zero_open: bool,
    /// Requests come through rings too.
    pub(crate) ring: bool,
    /// The mount may be idmapped.
    pub(crate) idmap: bool,
    /// Largest read or write in bytes.
    pub(crate) request_bytes_max: u32,
    /// Size of a page in bytes.
    pub(crate) page_bytes: u32,
    /// Most background requests of the kernel, for which no process waits.
    pub(crate) background_max: u16,
}

/// The result of the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Common capabilities.
    pub(crate) flags: InitFlags,
    /// Minor version of the protocol.
    pub(crate) minor: u32,
}

impl Agreement {
    /// Whether the kernel can be told to look up all names again.
    pub(crate) const fn has_epochs(&self) -> bool {
        self.minor >= MINOR_WITH_EPOCHS
    }
}

impl Wish {
    fn flags(&self) -> InitFlags {
        let mut flags = InitFlags::all()
            - InitFlags::WRITEBACK_CACHE
            - InitFlags::NO_OPEN_SUPPORT
            - InitFlags::ALLOW_IDMAP
            - InitFlags::OVER_IO_URING;
        flags.set(InitFlags::WRITEBACK_CACHE, self.writeback);
        flags.set(InitFlags::NO_OPEN_SUPPORT, self.zero_open);
        // Without opens the server cannot drop a file's pages when it is opened (see `session::direct`).
        flags.set(InitFlags::ASYNC_DIO, !self.zero_open);
        flags.set(InitFlags::OVER_IO_URING, self.ring);
        flags.set(InitFlags::ALLOW_IDMAP, self.idmap);
        flags
    }

    /// Writes the reply to the first request into `out`. Returns its length, and the agreement.
    ///
    /// # Errors
    /// The offer, if the kernel is too old, or there is no room for the reply.
    pub(crate) fn answer_into(&self, body: &[u8], out: &mut [u8]) -> Result<(usize, Agreement), InitIn> {
        let offer = InitIn::read_from_prefix(body).map(|(offer, _)| offer).unwrap_or_default();
        let Some((reply, agreement)) = self.answer(&offer) else { return Err(offer) };
        reply.write_to_prefix(out).map_err(|_| offer)?;
        Ok((size_of::<InitOut>(), agreement))
    }

    /// The reply to an offer, and the agreement. `None` if the kernel is too old.
    fn answer(&self, offer: &InitIn) -> Option<(InitOut, Agreement)> {
        if offer.major != MAJOR || offer.minor < MINOR_MIN {
            return None;
        }
        let offered = u64::from(offer.flags) | (u64::from(offer.flags2) << 32);
        let flags = InitFlags::from_bits_truncate(offered) & self.flags();
        let bits = flags.bits();
        let low = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        let pages = self.request_bytes_max.div_ceil(self.page_bytes.max(1));
        let minor = offer.minor.min(MINOR);
        let reply = InitOut {
            major: MAJOR,
            minor,
            max_readahead: offer.max_readahead.min(self.request_bytes_max),
            flags: low(bits),
            flags2: low(bits >> 32),
            max_background: self.background_max,
            congestion_threshold: self.background_max / 4 * 3,
            max_write: self.request_bytes_max,
            time_gran: 1,
            max_pages: u16::try_from(pages).unwrap_or(u16::MAX),
            ..InitOut::default()
        };
        Some((reply, Agreement { flags, minor }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        Wish {
            writeback: false,
            zero_open: false,
            ring: false,
            idmap: false,
            request_bytes_max: 1 << 20,
            page_bytes: 4096,
            background_max: 64,
        }
    }

    #[test]
    fn only_what_both_have_is_agreed_on() {
        let offer = InitIn {
            major: 7,
            minor: 50,
            max_readahead: 1 << 17,
            flags: u32::MAX,
            flags2: u32::MAX,
            ..InitIn::default()
        };
        let (reply, agreement) = wish().answer(&offer).unwrap();
        assert_eq!((reply.minor, reply.max_pages, reply.max_readahead), (45, 256, 1 << 17));
        assert!(agreement.flags.contains(InitFlags::SETXATTR_EXT));
        assert!(
            !agreement.flags.intersects(InitFlags::WRITEBACK_CACHE | InitFlags::OVER_IO_URING | InitFlags::ALLOW_IDMAP)
        );
        assert_eq!(reply.flags2, 1 << 4);
        let zero_open = Wish { zero_open: true, ..wish() };
        let (_, agreement) = zero_open.answer(&offer).unwrap();
        assert!(agreement.flags.contains(InitFlags::NO_OPEN_SUPPORT));
    }

    #[test]
    fn an_old_or_foreign_kernel_is_refused() {
        for (major, minor) in [(6, 45), (8, 0), (7, 35)] {
            let offer = InitIn { major, minor, ..InitIn::default() };
            assert!(wish().answer(&offer).is_none());
        }
    }
}
