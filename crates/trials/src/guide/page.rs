//! Parses the commands of a page of Markdown, with the output that the page shows.
//!
//! In a block marked `console` a line that begins with `$ ` is a command, lines that begin with `> ` continue it, and
//! the lines behind are its output, standard error included. A last line `? N` says that the command ends with status
//! N; without it the status is 0. In output `[..]` stands for any text of a line, and a line `...` for any lines.
//! Lines between `<!-- run:` and `-->` are commands that prepare what follows; the page does not show their output.
//! `guide` runs what this module finds, and writes pages anew with [`Page::render`].

/// Begins commands that a reader does not see.
const HIDDEN: &str = "<!-- run:";

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// Its line of the page, counted from 1.
    pub(super) line: usize,
    /// As a shell takes it; it may have several lines.
    pub(super) command: String,
    /// The output that the page shows.
    pub(super) shown: Vec<String>,
    /// The exit status that the page shows.
    pub(super) status: i32,
    /// The page shows neither the command nor its output.
    pub(super) is_hidden: bool,
}

/// A page, taken apart.
#[derive(Debug)]
pub(super) struct Page {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Command(Step),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Text,
    OtherBlock,
    Console,
    Hidden,
}

impl Page {
    pub(super) fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut within = Within::Text;
        for (index, line) in text.lines().enumerate() {
            let is_fence = line.starts_with("```");
            match within {
                Within::Text if line == "```console" => within = Within::Console,
                Within::Text if is_fence => within = Within::OtherBlock,
                Within::Text if line == HIDDEN => within = Within::Hidden,
                Within::OtherBlock | Within::Console if is_fence => within = Within::Text,
                Within::Hidden if line == "-->" => within = Within::Text,
                Within::Console => {
                    take_console(line, index + 1, &mut parts);
                    continue;
                }
                Within::Hidden => {
                    parts.push(Part::Command(step(line, index + 1, true)));
                    continue;
                }
                Within::Text | Within::OtherBlock => {}
            }
            parts.push(Part::Text(line.to_owned()));
        }
        Self { parts }
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.parts.iter().filter_map(|part| match part {
            Part::Command(step) => Some(step),
            Part::Text(_) => None,
        })
    }

    /// Replaces the output and status of the command at this index.
    pub(super) fn set(&mut self, index: usize, shown: Vec<String>, status: i32) {
        let steps = self.parts.iter_mut().filter_map(|part| match part {
            Part::Command(step) => Some(step),
            Part::Text(_) => None,
        });
        if let Some(step) = steps.into_iter().nth(index) {
            step.shown = shown;
            step.status = status;
        }
    }

    /// The page as Markdown.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(line) => push(&mut text, "", line),
                Part::Command(step) if step.is_hidden => push(&mut text, "", &step.command),
                Part::Command(step) => {
                    for (index, line) in step.command.lines().enumerate() {
                        push(&mut text, if index == 0 { "$ " } else { "> " }, line);
                    }
                    step.shown.iter().for_each(|line| push(&mut text, "", line));
                    if step.status != 0 {
                        push(&mut text, "? ", &step.status.to_string());
                    }
                }
            }
        }
        text
    }
}

fn push(text: &mut String, before: &str, line: &str) {
    text.push_str(before);
    text.push_str(line);
    text.push('\n');
}

fn step(command: &str, line: usize, is_hidden: bool) -> Step {
    Step { line, command: command.to_owned(), shown: Vec::new(), status: 0, is_hidden }
}

fn take_console(line: &str, number: usize, parts: &mut Vec<Part>) {
    if let Some(command) = line.strip_prefix("$ ") {
        parts.push(Part::Command(step(command, number, false)));
        return;
    }
    let Some(Part::Command(last)) = parts.last_mut() else {
        return parts.push(Part::Text(line.to_owned()));
    };
    let status = line.strip_prefix("? ").and_then(|status| status.parse().ok());
    match (line.strip_prefix("> "), status) {
        (Some(more), _) if last.shown.is_empty() => {
            last.command.push('\n');
            last.command.push_str(more);
        }
        (_, Some(status)) => last.status = status,
        _ => last.shown.push(line.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title\n\n    $ no block\n\n```console\n$ one\nout\n$ two \\\n> more\n? 2\n```\n\n<!-- run:\n\
                        mkdir x\n-->\n\n```sh\n$ another block\n```\n";

    #[test]
    fn commands_are_found_and_pages_come_back_as_they_were() {
        let page = Page::parse(PAGE);
        let steps: Vec<_> = page.steps().cloned().collect();
        assert_eq!(steps.len(), 3, "{steps:?}");
        assert_eq!((steps[0].command.as_str(), steps[0].line), ("one", 6));
        assert_eq!(steps[0].shown, ["out"]);
        assert_eq!((steps[1].command.as_str(), steps[1].status), ("two \\\nmore", 2));
        assert!(steps[2].is_hidden);
        assert_eq!(page.render(), PAGE);
    }

    #[test]
    fn output_is_replaced() {
        let mut page = Page::parse(PAGE);
        page.set(1, vec!["new".to_owned()], 0);
        assert!(page.render().contains("$ two \\\n> more\nnew\n```"), "{}", page.render());
    }
}
