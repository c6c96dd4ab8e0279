//! Measures one file: lengths, parameters, fields, documentation, sleeps. Called by `rows` and `duplicates`.

use super::super::Problem;
use super::super::source::{SourceFile, is_test};
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A number with its place.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) place: Problem,
    pub(super) count: usize,
}

/// The use of a type's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeKind {
    /// `repr(C)`: its fields are given by the disk format or by a protocol.
    Layout,
    /// Derived from by clap: one field for each option.
    CommandOptions,
    /// Everything else.
    Ordinary,
}

/// The measures of one file, tests not counted.
#[derive(Debug)]
pub(super) struct Code<'a> {
    file: &'a SourceFile,
    lines: Vec<&'a str>,
    /// Line ranges that are tests or imports, which `duplicates` leaves out.
    pub(super) tests: Vec<RangeInclusive<usize>>,
    pub(super) imports: Vec<RangeInclusive<usize>>,
    pub(super) function_lines: Vec<Measured>,
    pub(super) parameters: Vec<Measured>,
    pub(super) fields: Vec<(TypeKind, Measured)>,
    pub(super) unsafe_blocks: Vec<Problem>,
    /// Items that are `pub` and have no documentation.
    pub(super) undocumented_public: Vec<Problem>,
    /// The same for `pub(crate)`, `pub(super)` and `pub(in ..)`.
    pub(super) undocumented_inner: Vec<Problem>,
    pub(super) sleeps: Vec<Problem>,
}

impl<'a> Code<'a> {
    pub(super) fn of(file: &'a SourceFile) -> Self {
        let mut code = Self {
            file,
            lines: file.text.lines().collect(),
            tests: Vec::new(),
            imports: Vec::new(),
            function_lines: Vec::new(),
            parameters: Vec::new(),
            fields: Vec::new(),
            unsafe_blocks: Vec::new(),
            undocumented_public: Vec::new(),
            undocumented_inner: Vec::new(),
            sleeps: Vec::new(),
        };
        code.visit_file(&file.syntax);
        code
    }

    /// Lines of the file without its tests.
    pub(super) fn line_count(&self) -> usize {
        let tests: usize = self.tests.iter().map(|range| range.clone().count()).sum();
        self.lines.len().saturating_sub(tests)
    }

    fn place(&self, line: usize, text: &str) -> Problem {
        Problem { path: self.file.path.clone(), line, text: text.to_owned() }
    }

    fn function(&mut self, signature: &syn::Signature, block: Option<&syn::Block>) {
        let name = signature.ident.to_string();
        let line = signature.ident.span().start().line;
        let count = signature.inputs.len();
        self.parameters.push(Measured { place: self.place(line, &format!("{name}: {count} parameters")), count });
        if signature.unsafety.is_some() {
            self.unsafe_blocks.push(self.place(line, &name));
        }
        let Some(block) = block else { return };
        let (first, last) = (block.span().start().line, block.span().end().line);
        let inner = self.lines.get(first..last.saturating_sub(1)).unwrap_or_default();
        let count = inner.iter().filter(|line| is_code(line)).count();
        self.function_lines.push(Measured { place: self.place(line, &format!("{name}: {count} lines")), count });
    }

    fn documentation(&mut self, attributes: &[syn::Attribute], visibility: &syn::Visibility, name: &syn::Ident) {
        if attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
            return;
        }
        let place = self.place(name.span().start().line, &name.to_string());
        match visibility {
            syn::Visibility::Public(_) => self.undocumented_public.push(place),
            syn::Visibility::Restricted(_) => self.undocumented_inner.push(place),
            syn::Visibility::Inherited => {}
        }
    }
}

/// Neither blank nor a comment.
pub(super) fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

fn lines_of(spanned: &impl Spanned) -> RangeInclusive<usize> {
    spanned.span().start().line..=spanned.span().end().line
}

fn kind_of(item: &syn::ItemStruct) -> TypeKind {
    let has = |path: &str, words: &[&str]| {
        item.attrs.iter().filter(|attribute| attribute.path().is_ident(path)).any(|attribute| {
            let syn::Meta::List(list) = &attribute.meta else { return false };
            let text = list.tokens.to_string();
            text.split(|c: char| !c.is_alphanumeric()).any(|word| words.contains(&word))
        })
    };
    if has("repr", &["C"]) {
        TypeKind::Layout
    } else if has("derive", &["Parser", "Args"]) {
        TypeKind::CommandOptions
    } else {
        TypeKind::Ordinary
    }
}

impl<'ast> Visit<'ast> for Code<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Mod(inner) if is_test(&inner.attrs) => self.tests.push(lines_of(inner)),
            syn::Item::Fn(inner) if is_test(&inner.attrs) => self.tests.push(lines_of(inner)),
            syn::Item::Impl(inner) if is_test(&inner.attrs) => self.tests.push(lines_of(inner)),
            syn::Item::Use(inner) => self.imports.push(lines_of(inner)),
            syn::Item::Enum(inner) => self.documentation(&inner.attrs, &inner.vis, &inner.ident),
            syn::Item::Trait(inner) => {
                self.documentation(&inner.attrs, &inner.vis, &inner.ident);
                visit::visit_item(self, item);
            }
            syn::Item::Type(inner) => self.documentation(&inner.attrs, &inner.vis, &inner.ident),
            syn::Item::Const(inner) => self.documentation(&inner.attrs, &inner.vis, &inner.ident),
            syn::Item::Static(inner) => self.documentation(&inner.attrs, &inner.vis, &inner.ident),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.documentation(&item.attrs, &item.vis, &item.ident);
        let count = item.fields.len();
        let text = format!("{}: {count} fields", item.ident);
        let place = self.place(item.ident.span().start().line, &text);
        self.fields.push((kind_of(item), Measured { place, count }));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.documentation(&item.attrs, &item.vis, &item.sig.ident);
        self.function(&item.sig, Some(&item.block));
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.unsafety.is_some() {
            self.unsafe_blocks.push(self.place(item.span().start().line, "impl"));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_test(&item.attrs) {
            self.tests.push(lines_of(item));
            return;
        }
        self.documentation(&item.attrs, &item.vis, &item.sig.ident);
        self.function(&item.sig, Some(&item.block));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.unsafe_blocks.push(self.place(block.span().start().line, "block"));
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func
            && path.path.segments.last().is_some_and(|last| last.ident == "sleep")
        {
            self.sleeps.push(self.place(call.span().start().line, "sleep"));
        }
        visit::visit_expr_call(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_do_not_count() {
        let tests = "#[cfg(test)]\nmod tests {\n    fn c() { sleep(X) }\n}\n";
        let text = format!("fn a() {{\n    sleep(X);\n\n    // why\n    b();\n}}\n{tests}");
        let file = SourceFile::sample("crates/a/src/x.rs", &text);
        let code = Code::of(&file);
        assert_eq!((code.line_count(), code.sleeps.len()), (6, 1));
        assert_eq!(code.function_lines.iter().map(|function| function.count).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn types_are_told_apart_and_documentation_is_missed() {
        let text =
            "#[repr(C)]\npub struct A { a: u8 }\n#[derive(Debug, Args)]\npub(crate) struct B;\n/// C.\npub struct C;";
        let file = SourceFile::sample("crates/a/src/x.rs", text);
        let code = Code::of(&file);
        let kinds: Vec<TypeKind> = code.fields.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [TypeKind::Layout, TypeKind::CommandOptions, TypeKind::Ordinary]);
        assert_eq!((code.undocumented_public.len(), code.undocumented_inner.len()), (1, 1));
    }

    #[test]
    fn unsafe_blocks_functions_and_impls_count() {
        let file =
            SourceFile::sample("crates/a/src/x.rs", "unsafe impl Send for A {}\nunsafe fn f() { unsafe { g() } }");
        assert_eq!(Code::of(&file).unsafe_blocks.len(), 3);
    }
}
