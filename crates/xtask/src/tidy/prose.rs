//! Checks prose: no sentence opens with What, Who, Whose, Whoever, Nobody or Somebody.
//!
//! Such a sentence hides who acts. Help texts (`clap`) and error texts (`thiserror`) may have none. Comment lines and
//! sentences of documents are counted, against the limits in `crates/xtask/prose.limit`, which may only fall: a count
//! above its limit is a problem, and `tidy --bless` lowers a limit to a smaller count. Called by `tidy::run`.

use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};

use super::Problem;
use super::source::{SourceFile, TextFile};

/// The limits: lines of a name and a number.
const LIMITS: &str = "crates/xtask/prose.limit";
const WORDS: &[&str] = &["What", "Who", "Whose", "Whoever", "Nobody", "Somebody"];
/// Derives whose doc comments `--help` prints.
const HELP_DERIVES: &[&str] = &["Args", "Parser", "Subcommand", "ValueEnum"];

/// Checks help and error texts, and compares the counts with the limits, which `lowers` lowers. Returns the problems
/// and a line with the counts.
pub(super) fn check(
    root: &Path,
    texts: &[TextFile],
    files: &[SourceFile],
    lowers: bool,
) -> Result<(Vec<Problem>, String)> {
    let path = root.join(LIMITS);
    let before = std::fs::read_to_string(&path).context(LIMITS)?;
    let rust = texts.iter().filter(|file| file.path.ends_with(".rs"));
    let documents = texts.iter().filter(|file| file.path.ends_with(".md"));
    let counts = [
        ("comments", rust.map(|file| comment_lines(&file.text)).sum::<usize>()),
        ("documents", documents.map(|file| document_lines(&file.text).len()).sum()),
    ];
    let mut problems: Vec<Problem> = files.iter().flat_map(program_texts).collect();
    let mut lowered = String::new();
    let mut summary = Vec::new();
    for (name, count) in counts {
        let limit = limit(&before, name).with_context(|| format!("{LIMITS}: no number for `{name}`"))?;
        if count > limit {
            let text = format!("{count} {name} open with {}, more than {limit}", WORDS.join(", "));
            problems.push(Problem { path: LIMITS.to_owned(), line: 0, text });
        }
        lowered.push_str(&format!("{name} {}\n", count.min(limit)));
        summary.push(format!("{name} {count} of {limit}"));
    }
    if lowers {
        std::fs::write(&path, lowered).context(LIMITS)?;
    }
    Ok((problems, format!("sentences that open with {}: {}", WORDS.join(", "), summary.join(", "))))
}

fn limit(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok())
}

/// The word of the list that `text` begins with.
fn word(text: &str) -> Option<&'static str> {
    let is_whole = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    WORDS.iter().copied().find(|word| text.strip_prefix(word).is_some_and(is_whole))
}

/// The first sentence in a line that opens with such a word. `begins`: a sentence begins with the line.
fn opening(line: &str, begins: bool) -> Option<&'static str> {
    let mut pieces = line.split(['.', '?', '!', ':', '|']);
    let first = pieces.next().filter(|_| begins).and_then(word);
    let is_closing = |next: char| matches!(next, ')' | '"' | '*' | '`');
    let later = |piece: &str| word(piece.trim_start_matches(is_closing).strip_prefix(' ')?.trim_start());
    first.or_else(|| pieces.find_map(later))
}

/// The number of comment lines that begin with such a word.
fn comment_lines(text: &str) -> usize {
    let begins = |line: &&str| {
        let comment = line.trim_start().strip_prefix("//")?;
        word(comment.strip_prefix(['/', '!']).unwrap_or(comment).strip_prefix(' ')?)
    };
    text.lines().filter(|line| begins(line).is_some()).count()
}

/// The numbers of the lines of a document with such a sentence, without headings and code.
fn document_lines(text: &str) -> Vec<usize> {
    let (mut found, mut is_code, mut begins) = (Vec::new(), false, true);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with('#') {
            let content = line.trim_start_matches(['-', '*', '>', ' ']);
            if opening(content, begins || content != line).is_some() {
                found.push(number.saturating_add(1));
            }
        }
        begins = line.is_empty() || line.ends_with(['.', '?', '!', ':', '`']);
    }
    found
}

/// Help and error texts of a file with such a sentence.
fn program_texts(file: &SourceFile) -> Vec<Problem> {
    let mut visitor = ProgramTexts::default();
    visitor.visit_file(&file.syntax);
    let problem = |(line, word)| {
        let text = format!("a sentence of a help or error text opens with `{word}`");
        Problem { path: file.path.clone(), line, text }
    };
    visitor.found.into_iter().map(problem).collect()
}

#[derive(Default)]
struct ProgramTexts {
    /// Whether the item prints its doc comments as help.
    is_help: bool,
    found: Vec<(usize, &'static str)>,
}

impl<'ast> Visit<'ast> for ProgramTexts {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.is_help = prints_help(&item.attrs);
        visit::visit_item_struct(self, item);
        self.is_help = false;
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.is_help = prints_help(&item.attrs);
        visit::visit_item_enum(self, item);
        self.is_help = false;
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let is = |name| attribute.path().is_ident(name);
        if is("error") || self.is_help && (is("doc") || is("arg") || is("command")) {
            literals(attribute.meta.to_token_stream(), &mut self.found);
        }
    }
}

fn prints_help(attributes: &[syn::Attribute]) -> bool {
    let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    derives
        .flat_map(|attribute| {
            attribute
                .meta
                .to_token_stream()
                .to_string()
                .split([' ', '(', ')', ','])
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .any(|name| HELP_DERIVES.contains(&name.as_str()))
}

/// Line and word of each string that has such a sentence.
fn literals(tokens: TokenStream, found: &mut Vec<(usize, &'static str)>) {
    for token in tokens {
        match token {
            TokenTree::Literal(literal) => {
                let line = literal.span().start().line;
                if let Ok(text) = syn::parse2::<syn::LitStr>(TokenTree::from(literal).into())
                    && let Some(word) = text.value().lines().find_map(|line| opening(line.trim(), true))
                {
                    found.push((line, word));
                }
            }
            TokenTree::Group(group) => literals(group.stream(), found),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_counted_by_their_first_word() {
        let text = "//! What it is.\n    // Whose turn.\n/// Whatever.\n//Who\nlet a = 1; // Who\n/// Nobody's.\n";
        assert_eq!(comment_lines(text), 3);
    }

    #[test]
    fn sentences_of_documents_are_found_in_lines_lists_and_cells() {
        let text = "# What it is\n\nText. Who asks\nWhat no sentence begins with.\nWhat one does.\n- Nobody\n\
            | a | Whoever |\n```\nWhat code\n```\n(See.) Somebody\n";
        assert_eq!(document_lines(text), [3, 5, 6, 7, 11]);
    }

    #[test]
    fn help_and_error_texts_are_refused() {
        let lines = |text: &str| {
            let found = program_texts(&SourceFile::sample("crates/a/src/x.rs", text));
            found.into_iter().map(|problem| problem.line).collect::<Vec<_>>()
        };
        let help =
            "#[derive(Debug, clap::Args)]\nstruct A {\n/// Name. Who has it.\na: u8,\n#[arg(help = \"What\")]\nb: u8 }";
        assert_eq!(lines(help), [3, 5]);
        assert_eq!(
            lines("/// What.\n#[derive(Debug)]\nenum E {\n/// Who.\n#[error(\"nobody: {0}\")]\nA(u8) }"),
            Vec::<usize>::new()
        );
        assert_eq!(lines("enum E {\n#[error(\"{0}: Nobody\")]\nA(u8) }"), [2]);
    }

    #[test]
    fn limits_have_a_name_and_a_number() {
        assert_eq!(limit("comments 12\ndocuments 3\n", "documents"), Some(3));
        assert_eq!(limit("comments many\n", "comments"), None);
    }
}
