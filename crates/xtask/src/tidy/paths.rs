//! Finds which module refers to which: every path of a crate's files, resolved through `use` and `pub use`. Called by
//! `cycles` and `layers`.

use super::source::{SourceFile, is_test};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// A module of one crate: `["tree", "cow"]`. The crate's root is empty.
pub(super) type Module = Vec<String>;

/// A path in `from` that names something of module `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) from: Module,
    pub(super) to: Module,
}

/// How many re-exports a path may pass through.
const REEXPORT_DEPTH_MAX: usize = 16;

/// Every reference between different modules of one crate.
pub(super) fn references(files: &[&SourceFile]) -> Vec<Reference> {
    let modules: BTreeSet<Module> = files.iter().map(|file| file.module.clone()).collect();
    let mut scans = Vec::new();
    for file in files {
        let mut scan = Scan { module: file.module.clone(), ..Scan::default() };
        scan.visit_file(&file.syntax);
        scans.push((file, scan));
    }
    let mut imports = Imports { modules, names: BTreeMap::new() };
    for (_, scan) in &scans {
        for (module, path, name) in &scan.uses {
            if let Some(target) = imports.absolute(module, path) {
                imports.names.entry(module.clone()).or_default().insert(name.clone(), target);
            }
        }
    }
    let mut found = Vec::new();
    for (file, scan) in &scans {
        for (module, path, line) in &scan.paths {
            let Some(absolute) = imports.absolute(module, path) else {
                continue;
            };
            let to = imports.module_of(absolute);
            if to != file.module {
                found.push(Reference { path: file.path.clone(), line: *line, from: file.module.clone(), to });
            }
        }
    }
    found
}

/// The names of each module.
struct Imports {
    modules: BTreeSet<Module>,
    names: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Imports {
    /// The path from the crate's root, or none where it leads out of the crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module.split_last().map(|(_, parent)| parent.to_vec())?,
            child => {
                let mut inner = module.clone();
                inner.push(child.to_owned());
                return self.modules.contains(&inner).then(|| [inner, rest.to_vec()].concat());
            }
        };
        let mut rest = rest;
        while let Some((first, after)) = rest.split_first().filter(|(first, _)| *first == "super") {
            debug_assert_eq!(first, "super");
            base.pop();
            rest = after;
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// The module that an absolute path's item lives in, re-exports followed.
    fn module_of(&self, mut path: Module) -> Module {
        for _ in 0..REEXPORT_DEPTH_MAX {
            let len = (0..=path.len())
                .rev()
                .find(|len| *len == 0 || path.get(..*len).is_some_and(|prefix| self.modules.contains(prefix)))
                .unwrap_or(0);
            let (module, rest) = path.split_at(len);
            let target = rest.split_first().and_then(|(name, after)| {
                let target = self.names.get(module)?.get(name)?;
                Some([target.clone(), after.to_vec()].concat())
            });
            match target {
                Some(target) if target != path => path = target,
                _ => return module.to_vec(),
            }
        }
        path
    }
}

#[derive(Default)]
struct Scan {
    /// Where the visit is: the file's module, then inline modules.
    module: Module,
    /// Module, path, line.
    paths: Vec<(Module, Vec<String>, usize)>,
    /// Module, path, the name it gets there.
    uses: Vec<(Module, Vec<String>, String)>,
}

impl Scan {
    fn add_use(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [prefix.to_vec(), vec![name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_use(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) if name.ident == "self" => {
                let own = prefix.last().cloned().unwrap_or_default();
                self.add_import(prefix.to_vec(), own, name.ident.span().start().line);
            }
            syn::UseTree::Name(name) => {
                self.add_import(with(&name.ident), name.ident.to_string(), name.ident.span().start().line);
            }
            syn::UseTree::Rename(name) => {
                let path = if name.ident == "self" { prefix.to_vec() } else { with(&name.ident) };
                self.add_import(path, name.rename.to_string(), name.ident.span().start().line);
            }
            syn::UseTree::Glob(glob) => {
                self.add_import(prefix.to_vec(), "*".to_owned(), glob.star_token.spans[0].start().line);
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(prefix, tree)),
        }
    }

    fn add_import(&mut self, path: Vec<String>, name: String, line: usize) {
        self.paths.push((self.module.clone(), path.clone(), line));
        self.uses.push((self.module.clone(), path, name));
    }

    /// Paths inside a macro call, where there is no syntax yet: `crate :: a :: b`.
    fn scan_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut after_colons = false;
        for token in
            tokens.into_iter().chain([TokenTree::Punct(proc_macro2::Punct::new(';', proc_macro2::Spacing::Alone))])
        {
            match token {
                TokenTree::Ident(ident) if after_colons && !path.is_empty() => {
                    path.push(ident.to_string());
                    after_colons = false;
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    after_colons = true;
                    continue;
                }
                TokenTree::Ident(ident) => {
                    self.end_path(&mut path, line);
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                }
                TokenTree::Group(group) => {
                    self.end_path(&mut path, line);
                    self.scan_tokens(group.stream());
                }
                _ => self.end_path(&mut path, line),
            }
            after_colons = false;
        }
    }

    fn end_path(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        if path.len() > 1 && path.first().is_some_and(|first| is_anchor(first)) {
            self.paths.push((self.module.clone(), path, line));
        }
    }
}

fn is_anchor(segment: &str) -> bool {
    matches!(segment, "crate" | "super" | "self")
}

impl<'ast> Visit<'ast> for Scan {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_test(&module.attrs) {
            return;
        }
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.add_use(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
        if segments.len() > 1 && segments.first().is_some_and(|first| is_anchor(first)) {
            self.paths.push((self.module.clone(), segments, line));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.scan_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    /// `pub(in crate::x)` grants, it does not import.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let files: Vec<SourceFile> =
            files.iter().map(|(path, text)| SourceFile::sample(&format!("crates/a/src/{path}"), text)).collect();
        let files: Vec<&SourceFile> = files.iter().collect();
        references(&files).into_iter().map(|found| (found.from.join("::"), found.to.join("::"))).collect()
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn every_form_of_path_is_seen() {
        let up = ("up.rs", "pub struct U;");
        for text in [
            "use crate::up::U;",
            "use crate::{up::{self, U as V}};",
            "use crate::up::*;",
            "use super::up::U;",
            "fn f() -> crate::up::U { loop {} }",
            "fn f() { println!(\"{}\", crate::up::U); }",
            "mod inner { use super::super::up::U; }",
        ] {
            let pairs = found(&[up, ("low.rs", text)]);
            assert!(!pairs.is_empty() && pairs.iter().all(|found| *found == pair("low", "up")), "{text}: {pairs:?}");
        }
    }

    #[test]
    fn re_exports_are_followed() {
        let files = [
            ("lib.rs", "pub use tree::Tree;"),
            ("tree/mod.rs", "pub use cow::Tree;"),
            ("tree/cow.rs", "pub struct Tree;"),
            ("low.rs", "use crate::Tree;"),
        ];
        assert!(found(&files).contains(&pair("low", "tree::cow")));
    }

    #[test]
    fn other_crates_and_tests_are_not_references() {
        let text = "use std::fmt; use other::up::U; pub(in crate::up) struct A;\n\
            #[cfg(test)] mod tests { use crate::up::U; }";
        assert_eq!(found(&[("up.rs", ""), ("low.rs", text)]), []);
    }
}
