//! Checks the guide's table of errors: every wording that the program prints, with its meaning and what to do. Called
//! by `tidy::run`.
//!
//! Made from the sources: the wording is the `#[error("...")]` of a variant or type, the meaning the first paragraph of
//! its documentation, and what to do the paragraph that begins with `To do:`, of the variant or else of its type.
//! Fails where the page differs from the sources, and where an error says nothing of what to do.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};

use super::Problem;
use super::source::SourceFile;

/// The page.
const PAGE: &str = "docs/guide/src/errors.md";
/// Begins the paragraph that says what to do.
const TO_DO: &str = "To do: ";

const HEAD: &str = "\
# Errors and what to do

A message names what failed, on what, and the cause behind a colon: `spinney: site.img: <cause>`. Look the cause up
here; `…` stands for a name or a number. The table is made from the sources of the program, in alphabetical order.

Three words decide most cases. *Damaged*: run `spinney check IMAGE`, then the [rescue page](rescue.md). *Not supported*:
the image has a feature that this version lacks; nothing was changed. *Bug*: the program contradicts itself; it stops
writing, what was synced is safe; please report it with `spinney version --verbose`.

| Message | Meaning | To do |
|---|---|---|
";

/// Compares the page with the sources, or writes it.
pub(super) fn check(root: &Path, files: &[SourceFile], writes: bool) -> Result<Vec<Problem>> {
    let mut rows = BTreeMap::new();
    let mut problems = Vec::new();
    for file in files {
        for item in &file.syntax.items {
            collect(item, file, &mut rows, &mut problems);
        }
    }
    let rows: String = rows.iter().map(|(message, rest)| format!("| {message} | {rest} |\n")).collect();
    let page = format!("{HEAD}{rows}");
    let path = root.join(PAGE);
    if writes {
        std::fs::write(&path, page).context(PAGE)?;
    } else if std::fs::read_to_string(&path).context(PAGE)? != page {
        let text = "not what the sources say (`tidy --bless` writes it)".to_owned();
        problems.push(Problem { path: PAGE.to_owned(), line: 0, text });
    }
    Ok(problems)
}

fn collect(item: &Item, file: &SourceFile, rows: &mut BTreeMap<String, String>, problems: &mut Vec<Problem>) {
    let mut add = |attributes: &[Attribute], of_type: &[Attribute], name: String| {
        let Some(message) = message(attributes) else { return };
        let (own, outer) = (paragraphs(attributes), paragraphs(of_type));
        let to_do = own.iter().chain(&outer).find_map(|paragraph| paragraph.strip_prefix(TO_DO));
        match (own.first(), to_do) {
            (Some(meaning), Some(to_do)) => {
                rows.insert(cell(&message), format!("{} | {}", cell(meaning), cell(to_do)));
            }
            _ => {
                let text = format!("`{name}` is an error without meaning or a paragraph `{TO_DO}...`");
                problems.push(Problem { path: file.path.clone(), line: 0, text });
            }
        }
    };
    match item {
        Item::Enum(item) => {
            for variant in &item.variants {
                add(&variant.attrs, &item.attrs, format!("{}::{}", item.ident, variant.ident));
            }
        }
        Item::Struct(item) => add(&item.attrs, &item.attrs, item.ident.to_string()),
        _ => {}
    }
}

/// The wording of an error, with `…` for what is filled in; none where it only passes its cause on.
fn message(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("error"))?;
    let Meta::List(list) = &attribute.meta else { return None };
    let literal = list.tokens.clone().into_iter().next()?;
    let Ok(Lit::Str(text)) = syn::parse_str::<Lit>(&literal.to_string()) else { return None };
    let mut message = String::new();
    let mut depth = 0u32;
    for character in text.value().chars() {
        match character {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                message.push('…');
            }
            _ if depth == 0 => message.push(character),
            _ => {}
        }
    }
    message.chars().any(char::is_alphabetic).then_some(message)
}

/// The paragraphs of the documentation, each in one line.
fn paragraphs(attributes: &[Attribute]) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let Meta::NameValue(pair) = &attribute.meta else { continue };
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { continue };
        let line = text.value();
        match (line.trim(), paragraphs.last_mut()) {
            ("", _) => paragraphs.push(String::new()),
            (line, Some(last)) => {
                if !last.is_empty() {
                    last.push(' ');
                }
                last.push_str(line);
            }
            (_, None) => {}
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// Text for a cell: without links to code, and without what would end the cell or be taken for HTML.
fn cell(text: &str) -> String {
    let text = text.replace("[`", "`").replace("`]", "`");
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_made_of_documentation_and_wording() {
        let source = "/// Errors.\n///\n/// To do: ask.\nenum E {\n    /// It has [`Gone`].\n    \
                      #[error(\"{0} is gone: {}\", x)]\n    Gone(u8),\n    #[error(transparent)]\n    Other(E),\n    \
                      #[error(\"bare\")]\n    Bare,\n}\n";
        let file = SourceFile {
            path: "a.rs".to_owned(),
            crate_name: "a".to_owned(),
            module: Vec::new(),
            text: source.to_owned(),
            syntax: syn::parse_file(source).unwrap(),
        };
        let (mut rows, mut problems) = (BTreeMap::new(), Vec::new());
        for item in &file.syntax.items {
            collect(item, &file, &mut rows, &mut problems);
        }
        assert_eq!(
            rows.into_iter().collect::<Vec<_>>(),
            [("… is gone: …".to_owned(), "It has `Gone`. | ask.".to_owned())]
        );
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].text.contains("E::Bare"), "{problems:?}");
    }
}
