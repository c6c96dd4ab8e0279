//! `spinney qgroup` shows, limits and arranges quota groups. Called by `args`, and by `jobs` in the server of a mount.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use serde::Serialize;
use spinney::btrfs::{QgroupId, QgroupReport, QuotaChange, QuotaPage, QuotaReport, Volume};

use super::format;
use super::server_report::read_reply;
use crate::commands::failure::Failure;
use crate::commands::human;
use crate::commands::image::{ImageArgs, ReadArgs};
use crate::commands::on_mount::OnMount;
use crate::commands::output::Output;

/// Show, limit and arrange quota groups
///
/// A subvolume has the group 0/NUMBER. Groups of higher levels, as 1/100, have others as members.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Quotas are turned on with `spinney quota enable`. Groups of a mount are changed by root, and by the user who\n",
    "mounted it; paths begin at its directory.\n\n",
    "Examples:\n",
    "  spinney qgroup show site.img\n",
    "  spinney qgroup limit site.img /home 10G"
))]
pub(crate) struct Qgroup {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show referenced and exclusive bytes and limits of the groups, of an image or a mount
    #[command(after_help = concat!(
        "Referenced are the bytes that a group's subvolumes refer to, exclusive those that no other subvolume refers\n",
        "to: file data as it is on disk, and tree blocks.\n\n",
        "Examples:\n",
        "  spinney qgroup show site.img\n",
        "  spinney qgroup show ./mnt\n",
        "  spinney qgroup show --json site.img | jq .groups[].referenced"
    ))]
    Show {
        #[command(flatten)]
        image: ReadArgs,
        /// In bytes
        #[arg(long)]
        raw: bool,
        /// Report as JSON: {enabled, inconsistent, simple, groups: [{id, referenced, exclusive, max_referenced, ...}]}
        #[arg(long)]
        json: bool,
    },
    /// Limit the bytes that a group refers to, or holds exclusively
    #[command(after_help = concat!(
        "Writes beyond it fail with `disk quota exceeded`; files can still be deleted.\n\n",
        "Examples:\n",
        "  spinney qgroup limit site.img /home 10G\n",
        "  spinney qgroup limit ./mnt /home 10G              of what is mounted there\n",
        "  spinney qgroup limit -e site.img 1/100 500M\n",
        "  spinney qgroup limit site.img:/home 10G\n",
        "  spinney qgroup limit site.img 0/257 none"
    ))]
    Limit {
        #[command(flatten)]
        image: ImageArgs,
        /// A group, or the path of a subvolume in the image
        #[arg(value_name = "QGROUP|PATH")]
        group: PathBuf,
        /// Bytes, or `none`
        #[arg(value_name = "SIZE", value_parser = limit)]
        size: Limit,
        /// Limit its exclusive bytes
        #[arg(short, long)]
        exclusive: bool,
        /// Report as JSON: {id, referenced, exclusive, max_referenced, max_exclusive, ...}
        #[arg(long)]
        json: bool,
    },
    /// Make a group a member of another of a higher level
    #[command(after_help = "Example:\n  spinney qgroup assign site.img 0/257 1/100")]
    Assign(Relation),
    /// Take a group out of another
    #[command(after_help = "Example:\n  spinney qgroup remove site.img 0/257 1/100")]
    Remove(Relation),
    /// Make a group
    #[command(after_help = "Example:\n  spinney qgroup create site.img 1/100")]
    Create(One),
    /// Remove a group that has no members
    #[command(after_help = "Example:\n  spinney qgroup destroy site.img 1/100")]
    Destroy(One),
}

#[derive(Debug, Args)]
struct Relation {
    #[command(flatten)]
    image: ImageArgs,
    /// The member: a group, or the path of a subvolume in the image
    #[arg(value_name = "MEMBER")]
    member: PathBuf,
    /// The group to join, as 1/100
    parent: QgroupId,
    /// Report as JSON: {id, referenced, exclusive, parents, members, ...}, of the group of higher level
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct One {
    #[command(flatten)]
    image: ImageArgs,
    /// The group, as 1/100
    group: QgroupId,
    /// Report as JSON: {enabled, inconsistent, simple, groups: [...]}, as `qgroup show` has it
    #[arg(long)]
    json: bool,
}

/// Limit in bytes; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit(Option<u64>);

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        _ => human::parse_bytes(text).map(|bytes| Limit(Some(bytes))),
    }
}

#[derive(Serialize)]
struct Report {
    enabled: bool,
    /// The numbers are not to be trusted.
    inconsistent: bool,
    simple: bool,
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    id: String,
    referenced: u64,
    exclusive: u64,
    /// Null for no limit.
    max_referenced: Option<u64>,
    max_exclusive: Option<u64>,
    parents: Vec<String>,
    members: Vec<String>,
}

impl From<&QgroupReport> for Group {
    fn from(group: &QgroupReport) -> Self {
        let names = |ids: &[QgroupId]| ids.iter().map(ToString::to_string).collect();
        Self {
            id: group.id.to_string(),
            referenced: group.rfer,
            exclusive: group.excl,
            max_referenced: group.max_rfer,
            max_exclusive: group.max_excl,
            parents: names(&group.parents),
            members: names(&group.members),
        }
    }
}

impl Qgroup {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let image = match &self.command {
            Command::Show { image, raw, json } => return show(image, *raw, *json, out),
            Command::Limit { image, .. } => image,
            Command::Assign(relation) | Command::Remove(relation) => &relation.image,
            Command::Create(one) | Command::Destroy(one) => &one.image,
        };
        if let Some(dir) = image.mounted_dir()? {
            let mount = OnMount::connect(&dir)?;
            return mount.run("qgroup", self.words(&mount)?, out);
        }
        let volume = format::open_writable(image)?;
        self.run_on(&volume, out)?;
        Ok(volume.close()?)
    }

    /// The command line for the server of a mount.
    fn words(&self, mount: &OnMount) -> Result<Vec<String>> {
        // An argument that is not a group is a path, which begins at another directory there.
        let group_or_path = |group: &Path| match group.to_str().filter(|text| text.parse::<QgroupId>().is_ok()) {
            Some(text) => Ok(text.to_owned()),
            None => mount.word(group),
        };
        let (name, is_exclusive, json, rest) = match &self.command {
            Command::Show { json, .. } => ("show", false, *json, Vec::new()),
            Command::Limit { group, size, exclusive, json, .. } => {
                let size = size.0.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string());
                ("limit", *exclusive, *json, vec![group_or_path(group)?, size])
            }
            Command::Assign(relation) => ("assign", false, relation.json, relation.words(group_or_path)?),
            Command::Remove(relation) => ("remove", false, relation.json, relation.words(group_or_path)?),
            Command::Create(one) => ("create", false, one.json, vec![one.group.to_string()]),
            Command::Destroy(one) => ("destroy", false, one.json, vec![one.group.to_string()]),
        };
        let options = is_exclusive.then_some("--exclusive").into_iter().chain(json.then_some("--json"));
        let words = [name].into_iter().chain(options).chain(["--", "IMAGE"]).map(str::to_owned);
        Ok(words.chain(rest).collect())
    }

    /// Makes a durable change, and reports the result.
    pub(super) fn run_on(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Show { .. } => Err(Failure::refused("a mount tells of quota groups in another way").into()),
            Command::Limit { group, size, exclusive, json, .. } => {
                let group = group_at(volume, group)?;
                volume.change_quotas(QuotaChange::Limit { group, is_excl: *exclusive, bytes: size.0 })?;
                end(volume, group, *json, out)
            }
            Command::Assign(relation) => {
                relation.run(volume, |member, parent| QuotaChange::Assign { member, parent }, out)
            }
            Command::Remove(relation) => {
                relation.run(volume, |member, parent| QuotaChange::Remove { member, parent }, out)
            }
            Command::Create(one) => one.run(volume, QuotaChange::Create(one.group), out),
            Command::Destroy(one) => one.run(volume, QuotaChange::Destroy(one.group), out),
        }
    }
}

impl Relation {
    fn words(&self, group_or_path: impl Fn(&Path) -> Result<String>) -> Result<Vec<String>> {
        Ok(vec![group_or_path(&self.member)?, self.parent.to_string()])
    }

    fn run(
        &self,
        volume: &Volume,
        change: impl FnOnce(QgroupId, QgroupId) -> QuotaChange,
        out: &mut Output,
    ) -> Result<()> {
        let member = group_at(volume, &self.member)?;
        volume.change_quotas(change(member, self.parent))?;
        end(volume, self.parent, self.json, out)
    }
}

impl One {
    fn run(&self, volume: &Volume, change: QuotaChange, out: &mut Output) -> Result<()> {
        volume.change_quotas(change)?;
        volume.sync()?;
        if self.json { out.json(&report(volume.quotas()?.as_ref())) } else { Ok(()) }
    }
}

/// The group, by its number or by the path of a subvolume.
fn group_at(volume: &Volume, group: &Path) -> Result<QgroupId> {
    if let Some(id) = group.to_str().and_then(|text| text.parse().ok()) {
        return Ok(id);
    }
    Ok(QgroupId::of(volume.subvolume_at(group)?))
}

/// Makes a change durable and reports the group.
fn end(volume: &Volume, id: QgroupId, json: bool, out: &mut Output) -> Result<()> {
    volume.sync()?;
    if !json {
        return Ok(());
    }
    let quotas = volume.quotas()?;
    let group = quotas.iter().flat_map(|quotas| &quotas.groups).find(|group| group.id == id);
    out.json(&Group::from(group.ok_or_else(|| anyhow!("{id}: the group is gone"))?))
}

fn report(quotas: Option<&QuotaReport>) -> Report {
    Report {
        enabled: quotas.is_some(),
        inconsistent: quotas.is_some_and(QuotaReport::is_inconsistent),
        simple: quotas.is_some_and(QuotaReport::is_simple),
        groups: quotas.iter().flat_map(|quotas| &quotas.groups).map(Group::from).collect(),
    }
}

fn show(image: &ReadArgs, raw: bool, json: bool, out: &mut Output) -> Result<()> {
    let quotas = match image.mounted_dir()? {
        Some(dir) => read_quotas(&dir)?,
        None => format::open_read_only(image)?.quotas()?,
    };
    if json {
        return out.json(&report(quotas.as_ref()));
    }
    let Some(quotas) = quotas else {
        return Err(Failure::refused(format!("{}: quotas are off", image.image.image.display())).into());
    };
    if quotas.is_inconsistent() {
        writeln!(out, "The numbers are inconsistent: `spinney quota rescan` counts anew.\n")?;
    }
    print(out, &quotas, raw)
}

pub(super) fn read_quotas(dir: &Path) -> Result<Option<QuotaReport>> {
    let ask = |line: u64| -> Result<QuotaPage> {
        read_reply(dir, &format!("{}{line}", QuotaPage::XATTR_PREFIX), "tell of quota groups")
    };
    let mut all = ask(0)?;
    while let Some(line) = all.next {
        let page = ask(line)?;
        if page.next.is_some_and(|next| next <= line) {
            return Err(anyhow!("{}: the server's list of quota groups does not end", dir.display()));
        }
        all.add(page);
    }
    Ok(all.is_on.then_some(all.report))
}

/// A row of the table.
type Row = [String; 7];

fn print(out: &mut Output, quotas: &QuotaReport, raw: bool) -> Result<()> {
    let size = |bytes: u64| if raw { bytes.to_string() } else { human::bytes(bytes) };
    let most = |bytes: Option<u64>| bytes.map_or_else(|| "none".to_owned(), size);
    let list = |ids: &[QgroupId]| match ids {
        [] => "-".to_owned(),
        ids => ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    };
    let title: Row =
        ["Qgroup", "Referenced", "Exclusive", "Max referenced", "Max exclusive", "Parent", "Child"].map(str::to_owned);
    let rows = quotas.groups.iter().map(|group| {
        let (rfer, excl) = (size(group.rfer), size(group.excl));
        let (max_rfer, max_excl) = (most(group.max_rfer), most(group.max_excl));
        [group.id.to_string(), rfer, excl, max_rfer, max_excl, list(&group.parents), list(&group.members)]
    });
    let rows: Vec<Row> = std::iter::once(title).chain(rows).collect();
    let mut widths = [0; 7];
    for row in &rows {
        for (width, word) in widths.iter_mut().zip(row) {
            *width = word.len().max(*width);
        }
    }
    for row in &rows {
        let mut line = String::new();
        for (index, (word, width)) in row.iter().zip(widths).enumerate() {
            // Numbers are aligned to the right, names to the left.
            line.push_str(&match index {
                1..=4 => format!("{word:>width$}  "),
                _ => format!("{word:<width$}  "),
            });
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_size_or_none() {
        assert_eq!((limit("none"), limit("1M")), (Ok(Limit(None)), Ok(Limit(Some(1 << 20)))));
        assert!(limit("much").is_err());
    }
}
