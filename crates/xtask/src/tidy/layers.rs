//! Checks the order of modules inside a crate, as `layers.toml` gives it. Called by `tidy::run`.

use super::Problem;
use super::paths::{self, Reference};
use super::source::SourceFile;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Crate name, or `crate/folder`, -> module name -> height. Modules side by side have the same height.
#[derive(Debug, Default)]
pub(super) struct Layers {
    crates: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Layers {
    /// Reads `name = [..]` lines; the arrays (which may run over several lines) hold strings or arrays of strings.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let mut layers = Self::default();
        let mut pending = String::new();
        for line in lines {
            pending.push_str(line);
            let is_open = pending.matches('[').count() != pending.matches(']').count();
            if is_open || pending.trim().is_empty() {
                continue;
            }
            let (name, array) = pending.split_once('=').with_context(|| format!("no `=` in `{pending}`"))?;
            layers.crates.insert(name.trim().to_owned(), heights(array)?);
            pending.clear();
        }
        if !pending.trim().is_empty() {
            bail!("layers.toml ends inside an array: `{pending}`");
        }
        Ok(layers)
    }

    /// Fails on imports that go up, on modules without a place, on places without a module, and on a crate of
    /// several modules that is not listed.
    pub(super) fn check(&self, crate_name: &str, files: &[&SourceFile]) -> Vec<Problem> {
        let modules: BTreeMap<&String, &String> =
            files.iter().filter_map(|file| Some((file.module.first()?, &file.path))).collect();
        let Some(heights) = self.crates.get(crate_name) else {
            return if modules.len() > 1 { vec![unlisted(crate_name, modules, files)] } else { Vec::new() };
        };
        let references = paths::references(files);
        let mut problems = check_folder(crate_name, &[], heights, files, &references);
        // A folder of a crate may have an order of its own.
        for (name, heights) in &self.crates {
            if let Some(folder) = name.strip_prefix(crate_name).and_then(|rest| rest.strip_prefix('/')) {
                problems.extend(check_folder(name, &[folder.to_owned()], heights, files, &references));
            }
        }
        let mut seen = BTreeSet::new();
        problems.retain(|problem| seen.insert(problem.clone()));
        problems
    }
}

/// Checks the modules of one folder, of the crate itself for an empty path.
fn check_folder(
    name: &str,
    folder: &[String],
    heights: &BTreeMap<String, usize>,
    files: &[&SourceFile],
    references: &[Reference],
) -> Vec<Problem> {
    let child = |module: &'_ [String]| module.strip_prefix(folder).and_then(<[String]>::first).cloned();
    let modules: BTreeMap<String, &String> =
        files.iter().filter_map(|file| Some((child(&file.module)?, &file.path))).collect();
    let mut problems = Vec::new();
    for (module, path) in &modules {
        if !heights.contains_key(module) {
            let text = format!("module `{module}` of {name} has no place in layers.toml");
            problems.push(Problem { path: (*path).clone(), line: 1, text });
        }
    }
    for module in heights.keys().filter(|module| !modules.contains_key(*module)) {
        let text = format!("{name} has no module `{module}`");
        problems.push(Problem { path: "layers.toml".to_owned(), line: 1, text });
    }
    for reference in references {
        let (Some(from), Some(to)) = (child(&reference.from), child(&reference.to)) else { continue };
        let (Some(low), Some(high)) = (heights.get(&from), heights.get(&to)) else { continue };
        if from != to && high >= low {
            let how = if high == low { "stands beside it" } else { "stands above it" };
            let text = format!("`{from}` imports `{to}`, which {how} in layers.toml");
            problems.push(Problem { path: reference.path.clone(), line: reference.line, text });
        }
    }
    problems
}

/// Says that a crate has no row, and which one its imports allow (modules in a cycle, if any, come last).
fn unlisted(crate_name: &str, mut modules: BTreeMap<&String, &String>, files: &[&SourceFile]) -> Problem {
    let references = paths::references(files);
    let mut order: Vec<String> = Vec::new();
    while !modules.is_empty() {
        let is_lowest = |module: &&String| {
            let mut own = references.iter().filter(|reference| reference.from.first() == Some(*module));
            own.all(|reference| reference.to.first().is_none_or(|to| to == *module || !modules.contains_key(to)))
        };
        let Some(&next) = modules.keys().find(|module| is_lowest(module)).or_else(|| modules.keys().next()) else {
            break;
        };
        modules.remove(next);
        order.push(format!("{next:?}"));
    }
    let text = format!("{crate_name} is missing; its imports allow: {crate_name} = [{}]", order.join(", "));
    Problem { path: "layers.toml".to_owned(), line: 1, text }
}

fn heights(array: &str) -> Result<BTreeMap<String, usize>> {
    let array = array.trim().replace(char::is_whitespace, "").replace(",]", "]");
    let Value::Array(rows) = serde_json::from_str(&array).with_context(|| format!("not an array: {array}"))? else {
        bail!("not an array: {array}");
    };
    let mut heights = BTreeMap::new();
    for (height, row) in rows.iter().enumerate() {
        let names = match row {
            Value::Array(names) => names.as_slice(),
            single => std::slice::from_ref(single),
        };
        for name in names {
            let name = name.as_str().with_context(|| format!("not a string: {name}"))?;
            if heights.insert(name.to_owned(), height).is_some() {
                bail!("`{name}` is listed twice");
            }
        }
    }
    Ok(heights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(layers: &str, files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> =
            files.iter().map(|(path, text)| SourceFile::sample(&format!("crates/a/src/{path}"), text)).collect();
        let files: Vec<&SourceFile> = files.iter().collect();
        let layers = Layers::parse(layers).expect("the sample parses");
        layers.check("a", &files).into_iter().map(|problem| problem.text).collect()
    }

    #[test]
    fn imports_go_down_only() {
        let down = [("low.rs", ""), ("high.rs", "use crate::low;")];
        assert_eq!(check("a = [\"low\", \"high\"]", &down), Vec::<String>::new());
        let up = [("low.rs", "use crate::high::H;"), ("high.rs", "pub struct H;")];
        assert_eq!(check("a = [\"low\", \"high\"]", &up).len(), 1);
        let hidden = [("lib.rs", "pub use high::H;"), ("low.rs", "fn f(_: crate::H) {}"), ("high.rs", "pub struct H;")];
        assert_eq!(check("a = [\"low\", \"high\"]", &hidden).len(), 1, "through a re-export");
    }

    #[test]
    fn modules_side_by_side_do_not_import_each_other() {
        let files = [("x.rs", "use crate::y;"), ("y.rs", ""), ("z.rs", "use crate::{x, y};")];
        assert_eq!(check("# two of a kind\na = [\n  [\"x\", \"y\"],\n  \"z\", # above\n]\n", &files).len(), 1);
    }

    #[test]
    fn the_list_agrees_with_the_modules() {
        assert_eq!(check("a = [\"low\"]", &[("low.rs", ""), ("new/mod.rs", "")]).len(), 1, "a module without a place");
        assert_eq!(check("a = [\"low\", \"gone\"]", &[("low.rs", "")]).len(), 1, "a place without a module");
    }

    #[test]
    fn a_crate_of_several_modules_is_listed() {
        let found = check("b = []", &[("a.rs", "use crate::z;"), ("z.rs", "")]);
        assert_eq!(found, ["a is missing; its imports allow: a = [\"z\", \"a\"]"]);
        assert_eq!(check("b = []", &[("lib.rs", ""), ("a.rs", "")]), Vec::<String>::new());
    }

    #[test]
    fn a_bad_list_is_an_error() {
        for text in ["a = [\"x\"", "a", "a = [1]", "a = [\"x\", [\"x\"]]", "a = 3"] {
            assert!(Layers::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_folder_may_have_an_order_of_its_own() {
        let layers = Layers::parse("a = [\"low\"]\na/low = [\"one\", \"two\"]").unwrap();
        let one = SourceFile::sample("crates/a/src/low/one.rs", "use crate::low::two::X;");
        let two = SourceFile::sample("crates/a/src/low/two.rs", "pub struct X;");
        let problems = layers.check("a", &[&one, &two]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].text.contains("`one` imports `two`, which stands above it"), "{problems:?}");
        let layers = Layers::parse("a = [\"low\"]\na/low = [\"one\"]").unwrap();
        assert!(layers.check("a", &[&one, &two])[0].text.contains("module `two` of a/low has no place"));
    }
}
