//! Lays out the texts behind the options in `--help`, for a terminal's width, and in the manual, as a page. Called by
//! `lib` for `--help`, by `manual` for pages.
//!
//! They are written as they read in a window of about 100 columns, and understood by their shape:
//!
//! * a line at the margin that ends in a colon, with indented lines below, is a heading;
//! * an indented line with two spaces inside is a row of a table: a term and what is said about it, which goes on in
//!   lines that are indented further. A term too long for its column stands alone in its line;
//! * below a heading that begins with `Example`, every line is a command, and a row where something is said about it;
//! * where a line below a heading has more than two columns, all lines there stay as they are;
//! * all other lines are prose, and a paragraph with their neighbours of the same indentation.

use clap::Command;
use clap_mangen::roff::{Roff, bold, roman};

/// The second column of a row begins here at most; a longer term has a line of its own.
const COLUMN_MAX: usize = 32;
/// Indentation of an explanation that has lines of its own.
const BELOW: usize = 8;
/// Width in columns if the window is unknown, and the greatest width used in a wide one.
const WIDTH: usize = 100;
/// Help is not laid out for windows narrower than this.
const WIDTH_MIN: usize = 40;

#[derive(Debug, PartialEq, Eq)]
enum Block<'a> {
    Blank,
    Heading(&'a str),
    Prose {
        indent: usize,
        text: String,
    },
    Row {
        indent: usize,
        term: &'a str,
        column: usize,
        about: String,
    },
    /// Printed unchanged.
    Line {
        indent: usize,
        text: &'a str,
    },
}

/// How indented lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Text,
    Examples,
    Literal,
}

/// The columns of the window in which help is read.
pub(crate) fn width() -> usize {
    let window = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let asked = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    window.filter(|width| *width > 0).or_else(asked).unwrap_or(WIDTH).clamp(WIDTH_MIN, WIDTH)
}

/// The program with its texts laid out for `width` columns.
pub(crate) fn laid_out(mut program: Command, width: usize) -> Command {
    if let Some(text) = program.get_after_help().map(ToString::to_string) {
        program = program.after_help(fill(&text, width));
    }
    if let Some(text) = program.get_after_long_help().map(ToString::to_string) {
        program = program.after_long_help(fill(&text, width));
    }
    program.term_width(width).mut_subcommands(|command| laid_out(command, width))
}

/// Adds a text to a page of the manual.
pub(crate) fn render(text: &str, page: &mut Roff) {
    let blocks = parse(text);
    if !matches!(blocks.first(), Some(Block::Heading(_)) | None) {
        page.control("SH", ["Notes"]);
    }
    let mut is_literal = false;
    for block in blocks {
        let stays = matches!(block, Block::Line { .. });
        match (is_literal, stays) {
            (false, true) => {
                page.control("PP", []).control("RS", ["4"]).control("nf", []);
            }
            (true, false) => {
                page.control("fi", []).control("RE", []);
            }
            _ => {}
        }
        is_literal = stays;
        match block {
            Block::Blank => {}
            Block::Heading(text) => {
                page.control("SH", [text]);
            }
            Block::Prose { text, .. } => {
                page.control("PP", []).text([roman(text)]);
            }
            Block::Row { term, about, .. } => {
                page.control("TP", []).text([bold(term)]).text([roman(about)]);
            }
            Block::Line { text, .. } => {
                page.text([roman(text)]);
            }
        }
    }
    if is_literal {
        page.control("fi", []).control("RE", []);
    }
}

/// True for a line of more than two columns.
fn has_columns(line: &str) -> bool {
    let gaps = line.trim().split("  ").filter(|part| !part.trim().is_empty());
    gaps.count() > 2
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn parse(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut section = Section::Text;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (indent, words) = (indent_of(line), line.trim());
        let next_indent = lines.peek().map_or(0, |next| indent_of(next));
        if words.is_empty() {
            blocks.push(Block::Blank);
            continue;
        }
        if indent == 0 && words.ends_with(':') && next_indent > 0 {
            let is_table = lines.clone().take_while(|line| !line.is_empty()).any(has_columns);
            section = match words.starts_with("Example") {
                true => Section::Examples,
                false if is_table => Section::Literal,
                false => Section::Text,
            };
            blocks.push(Block::Heading(words.trim_end_matches(':')));
            continue;
        }
        if continues(blocks.last_mut(), indent, words, section) {
            continue;
        }
        let parts = words.split_once("  ").map(|(term, about)| (term, about.trim_start()));
        blocks.push(match parts {
            _ if indent > 0 && section == Section::Literal => Block::Line { indent, text: words },
            // A comment is a part of its line.
            Some((term, about)) if indent > 0 && !about.starts_with('#') => {
                let column = indent + words.len() - about.len();
                Block::Row { indent, term, column, about: about.to_owned() }
            }
            None if indent > 0 && next_indent >= indent + 4 && section == Section::Text => {
                Block::Row { indent, term: words, column: next_indent, about: String::new() }
            }
            _ if indent > 0 && section == Section::Examples => Block::Line { indent, text: words },
            _ => Block::Prose { indent, text: words.to_owned() },
        });
    }
    blocks
}

/// Adds a line to the block before it, if it belongs to that.
fn continues(last: Option<&mut Block<'_>>, indent: usize, words: &str, section: Section) -> bool {
    // In other sections only lines at the margin are prose.
    let section = if indent == 0 { Section::Text } else { section };
    let text = match last {
        Some(Block::Row { indent: row, about, .. }) if indent >= *row + 4 => about,
        Some(Block::Prose { indent: prose, text })
            if indent == *prose && section == Section::Text && !words.contains("  ") =>
        {
            text
        }
        _ => return false,
    };
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(words);
    true
}

/// The text with every line at most `width` columns long, but for words that are longer and lines that have to stay.
fn fill(text: &str, width: usize) -> String {
    let mut filled = String::new();
    for block in parse(text) {
        match block {
            Block::Blank => filled.push('\n'),
            Block::Heading(text) => wrap(&mut filled, &format!("{text}:"), 0, width),
            Block::Prose { indent, text } => wrap(&mut filled, &text, indent, width),
            Block::Line { indent, text } => filled.push_str(&format!("{:indent$}{text}\n", "")),
            Block::Row { indent, term, column, about } => {
                filled.push_str(&format!("{:indent$}{term}", ""));
                let end = indent + term.chars().count();
                let is_narrow = column > COLUMN_MAX || column * 2 > width;
                let fits = end + 2 <= column && column + about.chars().count() <= width;
                if fits || (end + 2 <= column && !is_narrow) {
                    let mut lines = String::new();
                    wrap(&mut lines, &about, column, width);
                    filled.push_str(lines.get(end..).unwrap_or_default());
                } else {
                    filled.push('\n');
                    wrap(&mut filled, &about, if is_narrow { indent + BELOW } else { column }, width);
                }
            }
        }
    }
    filled.truncate(filled.trim_end().len());
    filled
}

/// Adds a paragraph.
fn wrap(filled: &mut String, text: &str, indent: usize, width: usize) {
    let mut at = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if at > indent && at + 1 + len > width {
            filled.push('\n');
            at = 0;
        }
        if at == 0 {
            filled.push_str(&" ".repeat(indent));
            at = indent;
        } else {
            filled.push(' ');
            at += 1;
        }
        filled.push_str(word);
        at += len;
    }
    filled.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Some prose that is
one paragraph.

Options for -o:
  ro, rw      change nothing at all, or
              everything
  a very long name of an option
              what it does

Hints:
  Prose below a heading,
  in two lines. Do:
    kill -9 PID     of the process
  and then more.

Examples:
  spinney one a
  spinney two b     a comment

Commands:
  one A    two      three B
  four     five";

    #[test]
    fn rows_keep_their_columns_and_prose_is_filled() {
        assert_eq!(
            fill(TEXT, 100),
            TEXT.replace("is\none", "is one")
                .replace("or\n              ", "or ")
                .replace("heading,\n  in", "heading, in")
        );
        assert_eq!(
            fill("T:\n  ro, rw      change nothing at all, or everything", 40),
            "T:\n  ro, rw      change nothing at all, or\n              everything"
        );
        assert_eq!(
            fill("Examples:\n  a command of a certain len      of note", 40),
            "Examples:\n  a command of a certain len\n          of note"
        );
    }

    #[test]
    fn pages_have_paragraphs_for_rows() {
        let mut page = Roff::new();
        render(TEXT, &mut page);
        let page = page.to_roff();
        assert!(page.contains(".TP\n\\fBro, rw\\fR\nchange nothing at all, or everything\n"), "{page}");
        assert!(page.contains(".SH Notes\n.PP\nSome prose"), "{page}");
        assert!(page.contains(".nf\nspinney one a\n.fi\n"), "{page}");
        assert!(page.contains(".nf\none A    two      three B\nfour     five\n.fi\n"), "{page}");
    }

    /// The terminal wrapped lines in the middle of tables, and what followed began at the margin.
    #[test]
    fn the_terminal_wraps_no_line_of_the_help() {
        fn check(command: &mut Command, width: usize) {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            let longest = texts.into_iter().flatten().flat_map(|text| {
                let lines: Vec<String> = text.to_string().lines().map(ToOwned::to_owned).collect();
                lines
            });
            for line in longest {
                let is_literal = line.contains("spinney ") || line.contains("  ") || line.contains("spinney.img");
                assert!(line.chars().count() <= width || is_literal, "{}: {line}", command.get_name());
            }
            command.get_subcommands_mut().for_each(|sub| check(sub, width));
        }
        for width in [60, 80, 100] {
            let mut program = laid_out(crate::args::program(), width);
            program.build();
            check(&mut program, width);
            let mount = program.find_subcommand_mut("mount").unwrap().render_long_help().to_string();
            assert!(mount.contains("\n  subvol=PATH         the subvolume"), "{mount}");
            for name in ["near, nonear", "user_subvol_ioctls", "idmap"] {
                let mut rest = mount.lines().skip_while(|line| !line.starts_with(&format!("  {name}  ")));
                assert!(rest.next().is_some(), "{name}: {mount}");
                let column = " ".repeat(22);
                assert!(rest.next().is_some_and(|line| line.starts_with(&column)), "{name}: {mount}");
            }
        }
    }
}
