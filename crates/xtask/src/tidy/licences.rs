//! Checks licences and origins of the dependencies: those that `deny.toml` allows, without another tool. Called by
//! `tidy::run`.

use super::Problem;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// The only registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
const LIST: &str = "deny.toml";

/// Everything that `cargo metadata` names and `deny.toml` does not allow.
pub(super) fn check(root: &Path, metadata: &Value) -> Result<Vec<Problem>> {
    let text = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    let allowed = allowed(&text);
    let packages = metadata.get("packages").and_then(Value::as_array).context("cargo metadata: packages")?;
    Ok(packages.iter().filter_map(|package| problem(package, &allowed)).collect())
}

fn problem(package: &Value, allowed: &[&str]) -> Option<Problem> {
    let text = |field: &str| package.get(field).and_then(Value::as_str);
    let name = text("name").unwrap_or("a package without a name");
    let licence = text("license").unwrap_or_default();
    // A crate without a source is in the tree.
    let is_known = text("source").is_none_or(|source| source == REGISTRY);
    let text = if !is_known {
        format!("{name} comes from {}", text("source").unwrap_or_default())
    } else if !is_allowed(licence, allowed) {
        format!("{name} is under `{licence}`, which is not in the list")
    } else {
        return None;
    };
    Some(Problem { path: LIST.to_owned(), line: 1, text })
}

/// The names in `allow = [...]`.
fn allowed(text: &str) -> Vec<&str> {
    let list = text.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
    list.map_or_else(Vec::new, |(list, _)| list.split('"').skip(1).step_by(2).collect())
}

/// Whether the list allows a licence expression (SPDX; `/` is an old way to write OR). A side of AND is a name, or
/// several in parentheses.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let plain = expression.replace('/', " OR ");
    let (mut depth, mut sides, mut side) = (0_u32, Vec::new(), String::new());
    for word in plain.replace('(', " ( ").replace(')', " ) ").split_whitespace() {
        match word {
            "(" => depth = depth.saturating_add(1),
            ")" => depth = depth.saturating_sub(1),
            "AND" if depth == 0 => sides.push(std::mem::take(&mut side)),
            word => {
                side.push(' ');
                side.push_str(word);
            }
        }
    }
    sides.push(side);
    // AND within parentheses would need a parser; no licence has it, and an unparsed one is refused.
    sides.iter().all(|side| side.split(" OR ").any(|name| allowed.contains(&name.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged() {
        let text = "[licenses]\nallow = [\n  \"MIT\",\n  \"Apache-2.0\",\n  \"Unicode-3.0\",\n]\n[x]\ny = [\"GPL\"]";
        let list = allowed(text);
        assert_eq!(list, ["MIT", "Apache-2.0", "Unicode-3.0"]);
        for good in ["MIT", "Unlicense/MIT", "GPL-2.0 OR MIT", "(MIT OR GPL-2.0) AND Unicode-3.0"] {
            assert!(is_allowed(good, &list), "{good}");
        }
        for bad in ["", "GPL-2.0", "MIT AND GPL-2.0", "(MIT OR Apache-2.0) AND GPL-2.0", "MIT-0", "(MIT AND GPL-2.0)"] {
            assert!(!is_allowed(bad, &list), "{bad}");
        }
    }
}
