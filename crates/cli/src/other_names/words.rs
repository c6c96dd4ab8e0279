//! Splits a command line as `getopt_long(3)` does: options with their values, and the other words. Called for each of
//! the other names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// An option of another program.
pub(super) struct Known {
    /// Its letter, if it has one.
    pub(super) letter: Option<u8>,
    /// Its long name, or empty.
    pub(super) long: &'static str,
    /// It is followed by a value.
    pub(super) has_value: bool,
}

/// An option with a letter and a long name.
pub(super) const fn known(letter: Option<u8>, long: &'static str, has_value: bool) -> Known {
    Known { letter, long, has_value }
}

/// A part of a command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// An option: its index in the table, and its value, which is empty for one that has none.
    Option(usize, OsString),
    /// A word that is no option.
    Plain(OsString),
}

/// Splits a command line.
///
/// # Errors
/// An unknown option, or one without its value, in words.
pub(super) fn split(args: &[OsString], table: &[Known]) -> Result<Vec<Word>, String> {
    let (mut words, mut rest) = (Vec::new(), args.iter());
    while let Some(arg) = rest.next() {
        match arg.as_bytes() {
            b"--" => words.extend(rest.by_ref().cloned().map(Word::Plain)),
            [b'-', b'-', long @ ..] => words.push(long_option(long, table, &mut rest)?),
            [b'-', letters @ ..] if !letters.is_empty() => short_options(letters, table, &mut rest, &mut words)?,
            _ => words.push(Word::Plain(arg.clone())),
        }
    }
    Ok(words)
}

type Rest<'a> = std::slice::Iter<'a, OsString>;

fn long_option(text: &[u8], table: &[Known], rest: &mut Rest<'_>) -> Result<Word, String> {
    let mut parts = text.splitn(2, |byte| *byte == b'=');
    let (name, value) = (parts.next().unwrap_or_default(), parts.next());
    let shown = String::from_utf8_lossy(name).into_owned();
    let is_named = |option: &&Known| !option.long.is_empty() && option.long.as_bytes() == name;
    // A beginning is enough where only one name has it.
    let mut begun = table.iter().filter(|option| option.long.as_bytes().starts_with(name));
    let found = table.iter().find(is_named).or_else(|| begun.next().filter(|_| begun.next().is_none()));
    let found = found.ok_or_else(|| format!("unrecognized option '--{shown}'"))?;
    let index = table.iter().position(|option| std::ptr::eq(option, found)).unwrap_or_default();
    let value = match (found.has_value, value) {
        (true, Some(value)) => OsString::from_vec(value.to_vec()),
        (true, None) => rest.next().cloned().ok_or_else(|| format!("option '--{shown}' requires an argument"))?,
        (false, Some(_)) => return Err(format!("option '--{shown}' doesn't allow an argument")),
        (false, None) => OsString::new(),
    };
    Ok(Word::Option(index, value))
}

fn short_options(letters: &[u8], table: &[Known], rest: &mut Rest<'_>, words: &mut Vec<Word>) -> Result<(), String> {
    for (at, letter) in letters.iter().enumerate() {
        let shown = char::from(*letter);
        let index = table.iter().position(|option| option.letter == Some(*letter));
        let index = index.ok_or_else(|| format!("invalid option -- '{shown}'"))?;
        if !table.get(index).is_some_and(|option| option.has_value) {
            words.push(Word::Option(index, OsString::new()));
            continue;
        }
        let value = match letters.get(at + 1..).unwrap_or_default() {
            [] => rest.next().cloned().ok_or_else(|| format!("option requires an argument -- '{shown}'"))?,
            value => OsStr::from_bytes(value).to_owned(),
        };
        words.push(Word::Option(index, value));
        break;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Known] =
        &[known(Some(b'L'), "label", true), known(Some(b'f'), "force", false), known(None, "features", true)];

    fn shown(line: &str) -> Result<String, String> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let words = split(&args, TABLE)?.into_iter().map(|word| match word {
            Word::Option(index, value) => format!("{index}={}", value.display()),
            Word::Plain(word) => word.display().to_string(),
        });
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn options_are_found_in_every_form() {
        for (line, expected) in [
            ("-fLx a", "1= 0=x a"),
            ("-L x a -f", "0=x a 1="),
            ("--label=x --feat y a", "0=x 2=y a"),
            ("-- -f --x", "-f --x"),
            ("- a", "- a"),
        ] {
            assert_eq!(shown(line).as_deref(), Ok(expected), "{line}");
        }
        for (line, expected) in [
            ("-x", "invalid option -- 'x'"),
            ("--f a", "unrecognized option '--f'"),
            ("--fo=1", "option '--fo' doesn't allow an argument"),
            ("-L", "option requires an argument -- 'L'"),
            ("--label", "option '--label' requires an argument"),
        ] {
            assert_eq!(shown(line), Err(expected.to_owned()), "{line}");
        }
    }
}
