//! Knows the numbers of users and groups that access lists in archives name. Callers give them in `ReadOptions`; `acl`
//! asks for them.

use std::collections::BTreeMap;

/// Names of users and groups with their numbers.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    users: BTreeMap<String, u32>,
    groups: BTreeMap<String, u32>,
}

impl Accounts {
    /// The accounts in the host's `/etc/passwd` and `/etc/group`; none where these cannot be read.
    #[must_use]
    pub fn of_host() -> Self {
        let text = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Self::parse(&text("/etc/passwd").unwrap_or_default(), &text("/etc/group").unwrap_or_default())
    }

    /// The accounts in the texts of `/etc/passwd` and `/etc/group`. Lines of another form are passed over.
    #[must_use]
    pub fn parse(passwd: &str, group: &str) -> Self {
        Self { users: numbers(passwd), groups: numbers(group) }
    }

    pub(crate) fn user(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied()
    }

    pub(crate) fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied()
    }
}

/// The first and the third field of each line.
fn numbers(text: &str) -> BTreeMap<String, u32> {
    let line = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}
