//! Maps the user of a client to a user of the volume.

use access::User;

use crate::wire::{Credential, UserCredential};

/// User and group of squashed users, and of clients that name no user: those of `nobody`, who owns no files.
pub const NOBODY: u32 = 65_534;

/// Which user IDs of clients are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Squash {
    /// Only root, which becomes [`NOBODY`].
    #[default]
    Root,
    /// No user: root too is trusted.
    None,
    /// Every user: all clients act as this user and group.
    All {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
    },
}

impl Squash {
    /// The user of the volume for whom a call runs.
    pub(super) fn user(self, credential: &Credential) -> User {
        // The largest number stands for no user: nothing may belong to it.
        let valid = |number| if number == u32::MAX { NOBODY } else { number };
        let user = |uid, gid, groups| User { uid: valid(uid), gid: valid(gid), groups, serves: false };
        match (self, credential) {
            (Self::All { uid, gid }, _) => user(uid, gid, Vec::new()),
            (Self::None, Credential::Sys(UserCredential { uid, gid, groups })) => user(*uid, *gid, groups.clone()),
            (Self::Root, Credential::Sys(UserCredential { uid, gid, groups })) => {
                let squashed = |number: u32| if number == 0 { NOBODY } else { number };
                // A squashed root loses its groups too.
                let groups = if *uid == 0 { &[] } else { groups.as_slice() };
                let groups = groups.iter().copied().filter(|group| *group != 0).collect();
                user(squashed(*uid), if *uid == 0 { NOBODY } else { squashed(*gid) }, groups)
            }
            _ => user(NOBODY, NOBODY, Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sys(uid: u32, gid: u32, groups: &[u32]) -> Credential {
        Credential::Sys(UserCredential { uid, gid, groups: groups.to_vec() })
    }

    #[test]
    fn root_is_nobody_unless_it_is_believed() {
        let numbers = |squash: Squash, credential| {
            let user = squash.user(&credential);
            assert!(!user.serves);
            (user.uid, user.gid, user.groups)
        };
        assert_eq!(numbers(Squash::Root, sys(0, 0, &[0, 7])), (NOBODY, NOBODY, vec![]));
        assert_eq!(numbers(Squash::Root, sys(5, 0, &[0, 7])), (5, NOBODY, vec![7]));
        assert_eq!(numbers(Squash::None, sys(0, 0, &[0, 7])), (0, 0, vec![0, 7]));
        let all = Squash::All { uid: 3, gid: 4 };
        for credential in [sys(0, 0, &[0]), Credential::None, sys(5, 6, &[7])] {
            assert_eq!(numbers(all, credential), (3, 4, vec![]));
        }
        assert_eq!(numbers(Squash::None, Credential::None), (NOBODY, NOBODY, vec![]));
        assert_eq!(numbers(Squash::None, sys(u32::MAX, u32::MAX, &[])), (NOBODY, NOBODY, vec![]));
    }
}
