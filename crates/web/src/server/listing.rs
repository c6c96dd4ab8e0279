//! The page of a directory: one table, without scripts, in light and dark.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use vfs::{Metadata, Result};

use super::Site;
use super::download::Form;
use super::head::Target;
use crate::date::Date;
use crate::percent;

/// Names on a page; the others are counted.
const NAMES_MAX: usize = 20_000;

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8883;--dim:#777;--link:#0b57d0;--hover:#8881}\
@media(prefers-color-scheme:dark){:root{--dim:#999;--link:#8ab4f8}}\
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}\
h1{font-size:1.25rem;font-weight:600;overflow-wrap:anywhere}h1 a+a::before{content:'/';color:var(--dim);margin:0 .3em}\
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}\
table{border-collapse:collapse;width:100%}\
th{text-align:left;font-weight:500;color:var(--dim);font-size:.85rem}\
th,td{padding:.3rem .5rem;border-bottom:1px solid var(--line)}tbody tr:hover{background:var(--hover)}\
td:first-child{overflow-wrap:anywhere}.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\
.t{white-space:nowrap;color:var(--dim);font-variant-numeric:tabular-nums}.d{font-weight:600}\
small{color:var(--dim);margin-left:.5em}footer{color:var(--dim);font-size:.85rem;margin-top:1rem}\
@media(max-width:36rem){.t{display:none}}";

/// The property by which rows are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Name,
    Size,
    Time,
}

/// One name.
struct Row {
    name: OsString,
    metadata: Metadata,
    /// The target of a symbolic link.
    target: Option<OsString>,
    /// A link to a directory counts as one.
    is_dir: bool,
    is_subvolume: bool,
}

/// The page for the directory that a target names.
///
/// # Errors
/// Those of reading the directory.
pub(super) fn page(site: &Site, target: &Target) -> Result<String> {
    let own = site.volume.metadata(&target.path)?;
    let mut rows = Vec::new();
    let mut left_out = 0_usize;
    for entry in site.volume.read_dir(&target.path)? {
        let entry = entry?;
        if rows.len() >= NAMES_MAX {
            left_out += 1;
            continue;
        }
        let path = target.path.join(entry.file_name());
        // A name that goes meanwhile, or that may not be looked at, is not shown.
        let Ok(metadata) = site.volume.symlink_metadata(&path) else { continue };
        rows.push(row(site, &path, entry.file_name().to_owned(), metadata, &own));
    }
    let order = match target.query.as_str() {
        "size" => Order::Size,
        "time" => Order::Time,
        _ => Order::Name,
    };
    rows.sort_by(|one, other| compare(order, one, other));
    Ok(render(site, &target.path, &rows, left_out))
}

fn row(site: &Site, path: &Path, name: OsString, metadata: Metadata, dir: &Metadata) -> Row {
    let target = match metadata.is_symlink() {
        true => site.volume.read_link(path).ok().map(OsString::from),
        false => None,
    };
    let is_dir = match target {
        Some(_) => site.volume.metadata(path).is_ok_and(|found| found.is_dir()),
        None => metadata.is_dir(),
    };
    let is_subvolume = metadata.is_dir() && metadata.home.subvolume != dir.home.subvolume;
    Row { name, metadata, target, is_dir, is_subvolume }
}

fn compare(order: Order, one: &Row, other: &Row) -> Ordering {
    let by_name = || one.name.cmp(&other.name);
    let by = match order {
        Order::Name => Ordering::Equal,
        Order::Size => other.metadata.size.cmp(&one.metadata.size),
        Order::Time => {
            let time = |row: &Row| (row.metadata.mtime.sec, row.metadata.mtime.nsec);
            time(other).cmp(&time(one))
        }
    };
    other.is_dir.cmp(&one.is_dir).then(by).then_with(by_name)
}

fn render(site: &Site, path: &Path, rows: &[Row], left_out: usize) -> String {
    let shown = escaped(&path.as_os_str().to_string_lossy());
    let title = escaped(&site.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{shown} · {title}</title>\n<style>{STYLE}</style>\n<h1>{}</h1>\n",
        crumbs(&title, path)
    );
    page.push_str(
        "<table>\n<thead><tr><th><a href=\"./\">Name</a><th class=\"n\"><a href=\"?size\">Size</a>\
         <th class=\"t\"><a href=\"?time\">Changed (UTC)</a></thead>\n<tbody>\n",
    );
    if path.parent().is_some() {
        page.push_str("<tr><td class=\"d\"><a href=\"../\">../</a><td class=\"n\"><td class=\"t\">\n");
    }
    for row in rows {
        write_row(&mut page, row);
    }
    page.push_str("</tbody>\n</table>\n<footer>");
    if left_out > 0 {
        let _ = write!(page, "{left_out} more names are not shown. ");
    }
    let (dirs, files) = (rows.iter().filter(|row| row.is_dir).count(), rows.iter().filter(|row| !row.is_dir).count());
    let bytes =
        rows.iter().filter(|row| row.metadata.is_file()).fold(0, |sum: u64, row| sum.saturating_add(row.metadata.size));
    let _ = write!(page, "{dirs} directories, {files} files, {}. Download all of it:", size(bytes));
    for form in Form::ALL {
        let _ = write!(page, " <a href=\"?{0}\">.{0}</a>", form.end());
    }
    page.push_str("</footer>\n</html>\n");
    page
}

/// The names of the path, each a link.
fn crumbs(title: &str, path: &Path) -> String {
    let names: Vec<_> = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let link = |above: usize, text: &str| format!("<a href=\"./{}\">{text}</a>", "../".repeat(above));
    let mut text = link(names.len(), title);
    for (index, name) in names.iter().enumerate() {
        let above = names.len().saturating_sub(index + 1);
        text.push_str(&link(above, &escaped(&name.as_os_str().to_string_lossy())));
    }
    text
}

fn write_row(page: &mut String, row: &Row) {
    let slash = if row.is_dir { "/" } else { "" };
    let href = percent::encode_path(row.name.as_bytes());
    let name = escaped(&row.name.to_string_lossy());
    let class = if row.is_dir { " class=\"d\"" } else { "" };
    let has_contents = row.is_dir || row.metadata.is_file() || row.target.is_some();
    let name = if has_contents { format!("<a href=\"./{href}{slash}\">{name}{slash}</a>") } else { name };
    let note = match &row.target {
        Some(target) => format!("<small>→ {}</small>", escaped(&target.to_string_lossy())),
        None if row.is_subvolume => "<small>subvolume</small>".to_owned(),
        None if !has_contents => "<small>special file</small>".to_owned(),
        None => String::new(),
    };
    let size = if row.metadata.is_file() { size(row.metadata.size) } else { String::new() };
    let time = Date::from_seconds(row.metadata.mtime.sec).short();
    let _ = writeln!(page, "<tr><td{class}>{name}{note}<td class=\"n\">{size}<td class=\"t\">{time}");
}

/// A size for people: `7 B`, `1.2 MiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut units) = (u128::from(bytes) * 10 / 1024, UNITS.iter());
    let mut unit = units.next().copied().unwrap_or_default();
    while tenths >= 10_240 {
        tenths /= 1024;
        unit = units.next().copied().unwrap_or_default();
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// Text for a page, where nothing in it is markup.
fn escaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '"' => plain.push_str("&quot;"),
            '\'' => plain.push_str("&#39;"),
            // Control characters, and those that turn the direction of text, show as what they are.
            '\u{0}'..='\u{1f}'
            | '\u{7f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                plain.push('\u{fffd}');
            }
            one => plain.push(one),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_300_000, "1.2 MiB"), (u64::MAX, "15.9 EiB")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn names_are_no_markup() {
        assert_eq!(escaped("<b a=\"'\">&\u{202e}\n"), "&lt;b a=&quot;&#39;&quot;&gt;&amp;\u{fffd}\u{fffd}");
        assert_eq!(
            crumbs("img", Path::new("/a&/b")),
            "<a href=\"./../../\">img</a><a href=\"./../\">a&amp;</a><a href=\"./\">b</a>"
        );
    }
}
