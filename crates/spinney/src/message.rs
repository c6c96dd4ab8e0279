//! Formats an error as one line, with its causes. The program and the bindings of other languages show the same line.

use std::error::Error;
use std::iter::successors;

/// The error and its causes on one line, without repetitions and control characters: the line that the program prints.
#[must_use]
pub fn message(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for cause in successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source()) {
        let text = cause.to_string();
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    without_echo(&line).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The line without its first part, if a device's error repeats the name of the image.
fn without_echo(line: &str) -> &str {
    let mut rest = line;
    while let Some((first, behind)) = rest.split_once(": ") {
        if first.is_empty() || !behind.starts_with(&format!("{first}: ")) {
            break;
        }
        rest = behind;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::{Blame, Errno};

    #[test]
    fn a_line_has_each_cause_once_and_no_control_characters() {
        let cause = std::io::Error::other("a.img: cannot read:\nbad sector");
        let error = vfs::Error::new(Errno::EIO, Blame::Device, cause).at("a.img");
        assert_eq!(message(&error), "a.img: cannot read: bad sector");
    }
}
