//! Computes the rows of the table of metrics. Called by `metrics`.

use super::super::source::SourceFile;
use super::super::{Problem, by_crate, cycles, words};
use super::code::{Code, Measured, TypeKind};
use super::{duplicates, locks};
use serde_json::{Value, json};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const PARAMETERS_MAX: usize = 10;
const FIELDS_MAX: usize = 10;
/// Crates that test, measure or check the others, and are not released.
const TOOL_CRATES: &[&str] = &["bench", "testkit", "trials", "vfs-conformance", "xtask"];
/// Where the commands that serve every format are, in older trees and now.
const COMMON_COMMANDS: &[&str] = &["crates/cli/src/commands/"];
/// Folders of crate vfs that only tests use, in older trees.
const VFS_TESTS: &[&str] = &["crates/vfs/src/conformance/", "crates/vfs/src/memory/"];

/// One number of the table, with the places behind it where it counts places.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) product: usize,
    pub(super) tools: usize,
    pub(super) places: Vec<Problem>,
}

impl Row {
    /// How many places there are.
    fn places(name: impl Into<String>, places: Vec<Problem>) -> Self {
        let tools = places.iter().filter(|place| is_tool(&place.path)).count();
        let product = places.len().saturating_sub(tools);
        Self { name: name.into(), product, tools, places }
    }

    /// One number of all `counts`, such as the largest.
    fn of(name: impl Into<String>, counts: &[Measured], number: fn(Vec<usize>) -> usize) -> Self {
        let side = |tools: bool| {
            let wanted = counts.iter().filter(|measured| is_tool(&measured.place.path) == tools);
            number(wanted.map(|measured| measured.count).collect())
        };
        Self { name: name.into(), product: side(false), tools: side(true), places: Vec::new() }
    }

    fn over(name: impl Into<String>, counts: &[Measured], max: usize) -> Self {
        let over = counts.iter().filter(|measured| measured.count > max);
        Self::places(name, over.map(|measured| measured.place.clone()).collect())
    }

    pub(super) fn to_json(&self) -> Value {
        let places: Vec<String> = self.places.iter().map(ToString::to_string).collect();
        json!({ "name": self.name, "product": self.product, "tools": self.tools, "places": places })
    }
}

fn is_tool(path: &str) -> bool {
    TOOL_CRATES.iter().any(|name| path.starts_with(&format!("crates/{name}/")))
}

fn largest(counts: Vec<usize>) -> usize {
    counts.into_iter().max().unwrap_or_default()
}

fn median(mut counts: Vec<usize>) -> usize {
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or_default()
}

fn sum(counts: Vec<usize>) -> usize {
    counts.into_iter().sum()
}

/// Measures all files of a tree.
pub(super) fn measure(files: &[SourceFile]) -> Vec<Row> {
    let codes: Vec<Code<'_>> = files.iter().map(Code::of).collect();
    let pairs: Vec<(&SourceFile, &Code<'_>)> = files.iter().zip(&codes).collect();
    let found = |pick: for<'a> fn(&'a Code<'_>) -> &'a Vec<Problem>| -> Vec<Problem> {
        codes.iter().flat_map(|code| pick(code).iter().cloned()).collect()
    };
    let mut rows = sizes(&pairs, &codes);
    rows.extend([
        Row::places("unsafe blocks, functions and impls", found(|code| &code.unsafe_blocks)),
        Row::places("pub items without documentation", found(|code| &code.undocumented_public)),
        Row::places("pub(crate) and narrower items without documentation", found(|code| &code.undocumented_inner)),
        Row::places(
            "import cycles",
            by_crate(files).iter().flat_map(|(name, files)| cycles::check(name, files)).collect(),
        ),
        Row::places("locks without a rank in the engine", files.iter().flat_map(locks::unranked).collect()),
        Row::places("sleeps", found(|code| &code.sleeps)),
        Row::places("places that repeat 8 or more lines of another", duplicates::find(&pairs)),
    ]);
    rows.extend(neutral(files));
    rows
}

fn sizes(pairs: &[(&SourceFile, &Code<'_>)], codes: &[Code<'_>]) -> Vec<Row> {
    let file_lines: Vec<Measured> = pairs
        .iter()
        .map(|(file, code)| {
            let count = code.line_count();
            let place = Problem { path: file.path.clone(), line: 1, text: format!("{count} lines") };
            Measured { place, count }
        })
        .collect();
    let again = |measured: &Measured| Measured { place: measured.place.clone(), count: measured.count };
    let functions: Vec<Measured> = codes.iter().flat_map(|code| code.function_lines.iter().map(again)).collect();
    let parameters: Vec<Measured> = codes.iter().flat_map(|code| code.parameters.iter().map(again)).collect();
    let fields = |wanted: TypeKind| -> Vec<Measured> {
        let all = codes.iter().flat_map(|code| &code.fields);
        all.filter(|(kind, _)| *kind == wanted).map(|(_, measured)| again(measured)).collect()
    };
    let over_fields =
        |what: &str, kind| Row::over(format!("types over {FIELDS_MAX} fields: {what}"), &fields(kind), FIELDS_MAX);
    vec![
        Row::of("files", &file_lines, |counts| counts.len()),
        Row::of("lines without tests", &file_lines, sum),
        Row::of("longest file, lines without tests", &file_lines, largest),
        Row::over(format!("files over {FILE_LINES_MAX} lines"), &file_lines, FILE_LINES_MAX),
        Row::of("functions", &functions, |counts| counts.len()),
        Row::of("median function, lines of code", &functions, median),
        Row::of("longest function, lines of code", &functions, largest),
        Row::over(format!("functions over {FUNCTION_LINES_MAX} lines"), &functions, FUNCTION_LINES_MAX),
        Row::of("most parameters of a function, self counted", &parameters, largest),
        Row::over(format!("functions over {PARAMETERS_MAX} parameters"), &parameters, PARAMETERS_MAX),
        Row::of("most fields of a type", &fields(TypeKind::Ordinary), largest),
        over_fields("state and values", TypeKind::Ordinary),
        over_fields("layouts of disk and protocol (repr(C))", TypeKind::Layout),
        over_fields("options of a command (clap)", TypeKind::CommandOptions),
    ]
}

/// How far the crates that serve every format do only that.
fn neutral(files: &[SourceFile]) -> [Row; 3] {
    let is_below = |path: &str, folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    let common: Vec<&SourceFile> = files.iter().filter(|file| is_below(&file.path, COMMON_COMMANDS)).collect();
    let named = common.iter().filter_map(|file| {
        let line = file.text.lines().position(words::names_a_format)?;
        let text = "names a format".to_owned();
        Some(Problem { path: file.path.clone(), line: line.saturating_add(1), text })
    });
    let named = Row::places("  of them with the name of a format in them", named.collect());
    let not_runtime = files.iter().filter(|file| is_below(&file.path, VFS_TESTS));
    let vfs_lines = not_runtime.map(|file| file.text.lines().count()).sum();
    let row = |name: &str, product| Row { name: name.to_owned(), product, tools: 0, places: Vec::new() };
    [
        row("files of the common commands", common.len()),
        named,
        row("lines of crate vfs that are not runtime", vfs_lines),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_and_tools_are_told_apart() {
        let files = [
            SourceFile::sample("crates/btrfs/src/x.rs", "fn f() { sleep(A) }"),
            SourceFile::sample("crates/xtask/src/x.rs", "fn f() { sleep(A); sleep(B) }"),
            SourceFile::sample("crates/cli/src/commands/ls.rs", "// Btrfs only.\n"),
        ];
        let rows = measure(&files);
        let row = |name: &str| rows.iter().find(|row| row.name.contains(name)).map(|row| (row.product, row.tools));
        assert_eq!(row("sleeps"), Some((1, 2)));
        assert_eq!(row("name of a format"), Some((1, 0)));
        assert_eq!(row("files of the common"), Some((1, 0)));
    }
}
