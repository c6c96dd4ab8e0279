//! Joins and divides device numbers, as Linux keeps them in 32 bits: 12 bits for the driver, 20 for its device. Readers
//! and writers of both formats call it.

const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;

/// The number in `Metadata::rdev`; `None` if a part is too large.
#[must_use]
pub fn number(major: u32, minor: u32) -> Option<u32> {
    let fits = major <= MAJOR_MAX && minor <= MINOR_MAX;
    fits.then_some((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

/// Major and minor number.
pub(crate) const fn parts(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & MAJOR_MAX, (rdev & 0xff) | ((rdev >> 12) & !0xff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_host_joins_them() {
        for (major, minor) in [(1, 3), (5, 300), (4095, 0xf_ffff), (7, 200)] {
            let rdev = number(major, minor).unwrap();
            assert_eq!(u64::from(rdev), rustix::fs::makedev(major, minor));
            assert_eq!(parts(rdev), (major, minor));
        }
        assert_eq!(number(4096, 0), None);
        assert_eq!(number(0, 1 << 20), None);
    }
}
