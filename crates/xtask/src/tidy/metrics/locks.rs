//! Finds locks of the engine that have no rank: fields and statics whose type is a lock of another crate. Called by
//! `rows`.

use super::super::Problem;
use super::super::source::{SourceFile, is_test};
use quote::ToTokens;
use std::collections::BTreeSet;
use syn::visit::{self, Visit};

/// The crates whose locks must have ranks.
const RANKED_CRATES: &[&str] = &["btrfs-store", "btrfs"];
const LOCKS: &[&str] = &["Mutex", "RwLock", "Condvar"];
/// Where locks without a rank come from.
const ORIGINS: &[&str] = &["parking_lot", "sync"];

/// Every field or static that is a lock without a rank, in a crate that ranks its locks.
pub(super) fn unranked(file: &SourceFile) -> Vec<Problem> {
    if !RANKED_CRATES.contains(&file.crate_name.as_str()) {
        return Vec::new();
    }
    let mut finder = Finder { path: &file.path, plain: BTreeSet::new(), found: Vec::new() };
    for item in &file.syntax.items {
        if let syn::Item::Use(import) = item {
            finder.import(&import.tree, false);
        }
    }
    finder.visit_file(&file.syntax);
    finder.found
}

struct Finder<'a> {
    path: &'a str,
    /// Names in this file that stand for a lock without a rank.
    plain: BTreeSet<String>,
    found: Vec<Problem>,
}

impl Finder<'_> {
    fn import(&mut self, tree: &syn::UseTree, is_plain: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                let is_plain = is_plain || ORIGINS.contains(&path.ident.to_string().as_str());
                self.import(&path.tree, is_plain);
            }
            syn::UseTree::Name(name) if is_plain && LOCKS.contains(&name.ident.to_string().as_str()) => {
                self.plain.insert(name.ident.to_string());
            }
            syn::UseTree::Rename(name) if is_plain && LOCKS.contains(&name.ident.to_string().as_str()) => {
                self.plain.insert(name.rename.to_string());
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, is_plain)),
            _ => {}
        }
    }

    fn judge(&mut self, kind: &syn::Type, name: &str, line: usize) {
        let text = kind.to_token_stream().to_string();
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let by_name = words.iter().any(|word| self.plain.contains(*word));
        let by_path = words.contains(&"parking_lot") && words.iter().any(|word| LOCKS.contains(word));
        if by_name || by_path {
            self.found.push(Problem { path: self.path.to_owned(), line, text: format!("{name}: {text}") });
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let name = item.ident.to_string();
        // The ranked locks themselves are made of a lock without a rank.
        if LOCKS.iter().any(|lock| name.ends_with(lock)) && item.to_token_stream().to_string().contains("Position")
            || name == "Condvar"
        {
            return;
        }
        for field in &item.fields {
            let field_name = field.ident.as_ref().map_or_else(|| "0".to_owned(), ToString::to_string);
            self.judge(&field.ty, &format!("{name}.{field_name}"), line_of(&field.ty));
        }
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.judge(&item.ty, &item.ident.to_string(), item.ident.span().start().line);
    }
}

fn line_of(kind: &syn::Type) -> usize {
    syn::spanned::Spanned::span(kind).start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        unranked(&SourceFile::sample("crates/btrfs/src/x.rs", text)).len()
    }

    #[test]
    fn locks_of_other_crates_are_found() {
        assert_eq!(found("use parking_lot::{Mutex, RwLock};\nstruct A { a: Mutex<u8>, b: Vec<RwLock<u8>>, c: u8 }"), 2);
        assert_eq!(found("use std::sync::Mutex as Plain;\nstatic A: Plain<u8> = X;"), 1);
        assert_eq!(found("struct A(parking_lot::Mutex<u8>);"), 1);
    }

    #[test]
    fn ranked_locks_and_tests_are_not() {
        assert_eq!(found("use crate::locks::Mutex;\nstruct A { a: Mutex<u8> }"), 0);
        assert_eq!(found("pub struct Mutex<T> { order: order::Position, inner: parking_lot::Mutex<T> }"), 0);
        assert_eq!(found("#[cfg(test)]\nmod tests { struct A(parking_lot::Mutex<u8>); }"), 0);
    }
}
