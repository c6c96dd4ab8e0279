//! Compares the dependencies between our crates in `ARCHITECTURE.md` with those in the manifests. Called by
//! `tidy::run`.
//!
//! The block under `## 3 Allowed dependencies` has a line for each crate, `name: dependencies`. Dev-dependencies do not
//! count.

use super::Problem;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADING: &str = "## 3 Allowed dependencies";

/// The crates that each crate depends on, by the names of their folders.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The differences between the document and the manifests.
pub(super) fn check(root: &Path, metadata: &Value) -> Result<Vec<Problem>> {
    let text = std::fs::read_to_string(root.join(DOCUMENT)).context(DOCUMENT)?;
    Ok(compare(&documented(&text), &actual(metadata)?))
}

/// The graph in the document, each crate with its line.
fn documented(text: &str) -> BTreeMap<String, (usize, BTreeSet<String>)> {
    let lines = (1..).zip(text.lines()).skip_while(|(_, line)| *line != HEADING).skip(1);
    let section = lines.take_while(|(_, line)| !line.starts_with("## "));
    let rows = section.filter_map(|(number, line)| {
        let (name, rest) = line.strip_prefix("    ")?.split_once(':')?;
        let needs = rest.split([',', ' ']).filter(|word| !word.is_empty()).map(ToOwned::to_owned);
        Some((name.to_owned(), (number, needs.collect())))
    });
    rows.collect()
}

/// The graph of the manifests.
fn actual(metadata: &Value) -> Result<Graph> {
    let packages = metadata.get("packages").and_then(Value::as_array).context("cargo metadata: packages")?;
    let ours = packages.iter().filter(|package| package.get("source").is_some_and(Value::is_null));
    let rows = ours.map(|package| {
        let folder = |path: &Value, up: usize| {
            let path = Path::new(path.as_str()?);
            Some(path.ancestors().nth(up)?.file_name()?.to_string_lossy().into_owned())
        };
        let name =
            package.get("manifest_path").and_then(|path| folder(path, 1)).context("a package without a folder")?;
        let all = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        let normal = all.filter(|needed| needed.get("kind").is_some_and(Value::is_null));
        let needs = normal.filter_map(|needed| needed.get("path").and_then(|path| folder(path, 0)));
        Ok((name, needs.collect()))
    });
    rows.collect()
}

fn compare(documented: &BTreeMap<String, (usize, BTreeSet<String>)>, actual: &Graph) -> Vec<Problem> {
    let problem = |line, text: String| Problem { path: DOCUMENT.to_owned(), line, text };
    let mut problems = Vec::new();
    for (name, (line, said)) in documented {
        let Some(needs) = actual.get(name) else {
            problems.push(problem(*line, format!("there is no crate `{name}`")));
            continue;
        };
        for missing in needs.difference(said) {
            problems.push(problem(*line, format!("`{name}` depends on `{missing}`, which its line does not name")));
        }
        for beyond in said.difference(needs) {
            problems.push(problem(*line, format!("`{name}` does not depend on `{beyond}`, which its line names")));
        }
    }
    for name in actual.keys().filter(|name| !documented.contains_key(*name)) {
        problems.push(problem(1, format!("the crate `{name}` has no line under `{HEADING}`")));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_document_and_the_manifests_say_differently_is_found() {
        let text = "# A\n    low: none, of this section\n\n## 3 Allowed dependencies\n\nText: of no crate.\n\n    \
                    low:\n    high: low, gone\n    past: low\n\n## 4\n    other: low\n";
        let package = |name: &str, needs: &[(&str, Value)]| {
            let needs: Vec<Value> =
                needs.iter().map(|(name, kind)| json!({"path": format!("/x/crates/{name}"), "kind": kind})).collect();
            json!({"source": null, "manifest_path": format!("/x/crates/{name}/Cargo.toml"), "dependencies": needs})
        };
        let metadata = json!({"packages": [
            package("low", &[("tests", json!("dev"))]),
            package("high", &[("low", Value::Null), ("middle", Value::Null)]),
            package("middle", &[]),
            {"source": "registry", "manifest_path": "/y/other/Cargo.toml", "dependencies": []},
        ]});
        let found = compare(&documented(text), &actual(&metadata).unwrap());
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "ARCHITECTURE.md:9: `high` depends on `middle`, which its line does not name",
            "ARCHITECTURE.md:9: `high` does not depend on `gone`, which its line names",
            "ARCHITECTURE.md:10: there is no crate `past`",
            "ARCHITECTURE.md:1: the crate `middle` has no line under `## 3 Allowed dependencies`",
        ];
        assert_eq!(texts, expected);
    }
}
