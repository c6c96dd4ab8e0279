//! Reads the quota groups of an open volume, and formats them as the text in which a mount's server reports them, page
//! by page. Called by `volume/quotas` and `vfs_impl/xattr`; the command `qgroup` parses the text.

use std::fmt::Write as _;

use btrfs_disk::QgroupId;
use btrfs_disk::flags::QgroupStatusFlags;
use btrfs_store::{QgroupReport, QuotaReport};

use super::OpenVolume;
use super::lines::words_of;
use crate::error::Result;

/// Lines of one page, which is far below the limit of an attribute.
const LINES_MAX: usize = 400;

/// A page of the quota groups of a mount, as its server reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaPage {
    /// Quotas are on.
    pub is_on: bool,
    /// The groups that begin on this page, and the rest of one that began before: a group may occur twice.
    pub report: QuotaReport,
    /// The line that the next page begins with.
    pub next: Option<u64>,
}

/// Not the text of a [`QuotaPage`].
///
/// To do: use the same version of the program as the server of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected lines of quota groups")]
pub struct NotQuotas;

impl QuotaPage {
    /// The extended attribute of any file in which a mount's server reports a page, as text; the number of its first
    /// line follows in decimal. It is stored nowhere.
    pub const XATTR_PREFIX: &str = "btrfs.qgroups.";

    /// The text of a page that begins with line `from`.
    pub(crate) fn text(report: Option<&QuotaReport>, from: usize) -> String {
        let Some(report) = report else { return "off\n".to_owned() };
        let mut text = format!("on {}\n", report.flags.bits());
        let lines = report.groups.iter().flat_map(lines_of);
        for (index, line) in lines.skip(from).enumerate() {
            if index == LINES_MAX {
                let _ = writeln!(text, "next {}", from.saturating_add(index));
                break;
            }
            text.push_str(&line);
        }
        text
    }

    /// Adds the next page.
    pub fn add(&mut self, other: Self) {
        for mut group in other.report.groups {
            match self.report.groups.last_mut().filter(|last| last.id == group.id) {
                Some(last) => {
                    last.parents.append(&mut group.parents);
                    last.members.append(&mut group.members);
                }
                None => self.report.groups.push(group),
            }
        }
        self.next = other.next;
    }
}

impl std::str::FromStr for QuotaPage {
    type Err = NotQuotas;

    /// Lines with unknown names are skipped: a later version may report more.
    fn from_str(text: &str) -> Result<Self, NotQuotas> {
        let mut page = Self::default();
        for line in text.lines() {
            let (name, numbers) = words_of(line).ok_or(NotQuotas)?;
            let groups = &mut page.report.groups;
            match (name, numbers.as_slice()) {
                ("off", _) => {}
                ("on", &[flags, ..]) => {
                    page.is_on = true;
                    page.report.flags = QgroupStatusFlags::from_bits_retain(flags);
                }
                ("group", &[id, rfer, excl, has_rfer, max_rfer, has_excl, max_excl, ..]) => {
                    let limit = |has: u64, max| (has != 0).then_some(max);
                    let (max_rfer, max_excl) = (limit(has_rfer, max_rfer), limit(has_excl, max_excl));
                    let id = QgroupId(id);
                    groups.push(QgroupReport { id, rfer, excl, max_rfer, max_excl, ..QgroupReport::default() });
                }
                ("parent" | "member", &[id, other, ..]) => {
                    let is_known = groups.last().is_some_and(|group| group.id.0 == id);
                    if !is_known {
                        groups.push(QgroupReport { id: QgroupId(id), ..QgroupReport::default() });
                    }
                    if let Some(group) = groups.last_mut() {
                        let list = if name == "parent" { &mut group.parents } else { &mut group.members };
                        list.push(QgroupId(other));
                    }
                }
                ("next", &[line, ..]) => page.next = Some(line),
                ("on" | "group" | "parent" | "member" | "next", _) => return Err(NotQuotas),
                _ => {}
            }
        }
        Ok(page)
    }
}

fn lines_of(group: &QgroupReport) -> Vec<String> {
    let limit = |max: Option<u64>| (u8::from(max.is_some()), max.unwrap_or(0));
    let ((has_rfer, max_rfer), (has_excl, max_excl)) = (limit(group.max_rfer), limit(group.max_excl));
    let QgroupReport { id, rfer, excl, .. } = group;
    let mut lines = vec![format!("group {} {rfer} {excl} {has_rfer} {max_rfer} {has_excl} {max_excl}\n", id.0)];
    lines.extend(group.parents.iter().map(|parent| format!("parent {} {}\n", id.0, parent.0)));
    lines.extend(group.members.iter().map(|member| format!("member {} {}\n", id.0, member.0)));
    lines
}

impl OpenVolume {
    /// The quota groups as the last commit left them; none where quotas are off.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn quotas(&self) -> Result<Option<QuotaReport>> {
        Ok(self.core().store.quotas()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: u64, parents: u64) -> QgroupReport {
        QgroupReport {
            id: QgroupId(id),
            rfer: id * 10,
            excl: id,
            max_rfer: Some(id),
            max_excl: None,
            parents: (0..parents).map(|parent| QgroupId(1 << 48 | parent)).collect(),
            members: vec![QgroupId(7)],
        }
    }

    #[test]
    fn the_pages_say_all_of_it() {
        let report =
            QuotaReport { flags: QgroupStatusFlags::ON, groups: vec![group(5, 0), group(256, 1000), group(257, 3)] };
        let mut all: QuotaPage = QuotaPage::text(Some(&report), 0).parse().unwrap();
        let mut pages = 1;
        while let Some(next) = all.next {
            all.add(QuotaPage::text(Some(&report), usize::try_from(next).unwrap()).parse().unwrap());
            pages += 1;
        }
        assert_eq!((all.is_on, pages), (true, 3));
        assert_eq!(all.report, report);
        let off: QuotaPage = QuotaPage::text(None, 0).parse().unwrap();
        assert_eq!(off, QuotaPage::default());
        for wrong in ["group 1\n", "on\n", "parent 1\n", "group 1 2 3 4 5 6 x\n"] {
            assert_eq!(wrong.parse::<QuotaPage>(), Err(NotQuotas), "{wrong:?}");
        }
    }
}
