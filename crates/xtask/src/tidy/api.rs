//! Checks the list of the public interface that is kept beside the code: a change to the interface shows up in review
//! as a change of `crates/spinney/api.list`. Called by `tidy::run`.
//!
//! Listed are the types that `spinney` exports and everything that `vfs` makes public: fields, variants, methods and
//! functions with their signatures. Traits that are derived or implemented are not.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use quote::ToTokens;
use syn::{Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use super::Problem;
use super::source::SourceFile;

/// The list.
const LIST: &str = "crates/spinney/api.list";

/// Compares the interface with the list, or writes the list.
pub(super) fn check(root: &Path, files: &[SourceFile], writes: bool) -> Result<Vec<Problem>> {
    let now = list(files);
    let path = root.join(LIST);
    if writes {
        let text: String = now.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).context(LIST)?;
        return Ok(Vec::new());
    }
    let before = std::fs::read_to_string(&path).context(LIST)?;
    let before: BTreeSet<String> = before.lines().map(str::to_owned).collect();
    Ok(differences(&before, &now))
}

fn differences(before: &BTreeSet<String>, now: &BTreeSet<String>) -> Vec<Problem> {
    let problem = |text: String| Problem { path: LIST.to_owned(), line: 0, text };
    let gone = before.difference(now).map(|line| problem(format!("no longer public: {line}")));
    let new = now.difference(before).map(|line| problem(format!("not in the list (`tidy --bless` adds it): {line}")));
    gone.chain(new).collect()
}

/// All that is public, a line each.
fn list(files: &[SourceFile]) -> BTreeSet<String> {
    let exported = exported(files);
    let mut lines = BTreeSet::new();
    for file in files {
        let prefix = match file.crate_name.as_str() {
            "vfs" => "vfs",
            "btrfs" => "spinney",
            _ => continue,
        };
        let counts = |name: &str| prefix == "vfs" || exported.contains(name);
        for item in &file.syntax.items {
            add(item, prefix, &counts, &mut lines);
        }
    }
    lines
}

/// Names that `spinney` takes from the engine.
fn exported(files: &[SourceFile]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let library = files.iter().filter(|file| file.crate_name == "spinney" && file.module.is_empty());
    for item in library.flat_map(|file| &file.syntax.items) {
        if let Item::Use(item) = item
            && is_public(&item.vis)
        {
            flatten(&item.tree, &mut names);
        }
    }
    names
}

fn flatten(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => flatten(&path.tree, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, names)),
        UseTree::Name(name) => {
            names.insert(name.ident.to_string());
        }
        UseTree::Rename(rename) => {
            names.insert(rename.ident.to_string());
        }
        UseTree::Glob(_) => {
            names.insert("*".to_owned());
        }
    }
}

fn add(item: &Item, prefix: &str, counts: &dyn Fn(&str) -> bool, lines: &mut BTreeSet<String>) {
    match item {
        Item::Struct(item) if is_public(&item.vis) && counts(&item.ident.to_string()) => {
            let name = format!("{prefix}::{}", item.ident);
            lines.insert(format!("struct {name}{}", text(&item.generics)));
            add_fields(&item.fields, &name, lines);
        }
        Item::Enum(item) if is_public(&item.vis) && counts(&item.ident.to_string()) => {
            let name = format!("{prefix}::{}", item.ident);
            lines.insert(format!("enum {name}"));
            for variant in &item.variants {
                lines.insert(format!("{name}::{}{}", variant.ident, text(&variant.fields)));
            }
        }
        Item::Trait(item) if is_public(&item.vis) && counts(&item.ident.to_string()) => {
            let name = format!("{prefix}::{}", item.ident);
            lines.insert(format!("trait {name}"));
            for method in &item.items {
                if let TraitItem::Fn(method) = method {
                    lines.insert(format!("{name}: {}", text(&method.sig)));
                }
            }
        }
        Item::Fn(item) if is_public(&item.vis) && counts(&item.sig.ident.to_string()) => {
            lines.insert(format!("{prefix}: {}", text(&item.sig)));
        }
        Item::Type(item) if is_public(&item.vis) && counts(&item.ident.to_string()) => {
            lines.insert(format!("type {prefix}::{} = {}", item.ident, text(&item.ty)));
        }
        Item::Impl(item) if item.trait_.is_none() => {
            let name = text(&item.self_ty);
            if !counts(name.split('<').next().unwrap_or_default()) {
                return;
            }
            for inner in &item.items {
                match inner {
                    ImplItem::Fn(method) if is_public(&method.vis) => {
                        lines.insert(format!("{prefix}::{name}: {}", text(&method.sig)));
                    }
                    ImplItem::Const(constant) if is_public(&constant.vis) => {
                        lines.insert(format!("{prefix}::{name}: const {}: {}", constant.ident, text(&constant.ty)));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn add_fields(fields: &Fields, name: &str, lines: &mut BTreeSet<String>) {
    for (number, field) in fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis)) {
        let field_name = field.ident.as_ref().map_or_else(|| number.to_string(), ToString::to_string);
        lines.insert(format!("{name}.{field_name}: {}", text(&field.ty)));
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The tokens as they are usually written, without comments and attributes.
fn text(tokens: &impl ToTokens) -> String {
    let mut text = String::new();
    let without_docs = tokens.to_token_stream().to_string();
    let mut rest = without_docs.as_str();
    while let Some((before, behind)) = rest.split_once("# [") {
        text.push_str(before);
        // Attributes hold text that may have brackets; those of documentation end with a quote before theirs.
        rest = behind.split_once("\"]").or_else(|| behind.split_once(']')).map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    let glue = [(" :: ", "::"), (" < ", "<"), (" >", ">"), ("& ", "&"), (" (", "("), ("( ", "("), (" )", ")")];
    let more =
        [(" ,", ","), (" :", ":"), ("  ", " "), ("< ", "<"), ("[ ", "["), (" ]", "]"), (" ;", ";"), ("-> ", "-> ")];
    let text = glue.iter().chain(&more).fold(text, |text, (from, to)| text.replace(from, to));
    text.replace("->", " ->").replace("  ->", " ->").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = "pub use btrfs::{Kept, Sum};";
    const ENGINE: &str = "pub struct Kept { pub a: Vec<u8>, b: u8 } pub struct Hidden; \
        impl Kept { /// Says [this].\n pub fn get(&self, at: usize) -> Option<&u8> { None } fn own(&self) {} } \
        pub enum Sum { /// One.\n One(u8), Two } impl Hidden { pub fn no(&self) {} }";

    fn lines(engine: &str) -> BTreeSet<String> {
        list(&[
            SourceFile::sample("crates/spinney/src/lib.rs", LIBRARY),
            SourceFile::sample("crates/btrfs/src/x.rs", engine),
        ])
    }

    #[test]
    fn what_is_exported_is_listed_with_its_parts() {
        let expected = [
            "enum spinney::Sum",
            "spinney::Kept.a: Vec<u8>",
            "spinney::Kept: fn get(&self, at: usize) -> Option<&u8>",
            "spinney::Sum::One(u8)",
            "spinney::Sum::Two",
            "struct spinney::Kept",
        ];
        assert_eq!(lines(ENGINE).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_change_is_a_problem() {
        let (before, now) = (lines(ENGINE), lines(&ENGINE.replace("at: usize", "at: u64")));
        let problems = differences(&before, &now);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].text.contains("no longer public") && problems[1].text.contains("at: u64"));
    }
}
