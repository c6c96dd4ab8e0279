//! Parses the outcome of an attempt, and lists the differences between two outcomes. Called by `attack`.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Steps with their results: the name of an error, or a value.
pub(super) type Steps = Vec<Step>;
/// Attributes and contents of each path.
pub(super) type State = BTreeMap<String, BTreeMap<String, Value>>;

/// A step of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    label: String,
    end: Value,
}

impl Step {
    /// True when it ended with an error.
    pub(super) fn is_refused(&self) -> bool {
        is_error(&self.end)
    }

    /// Label and result.
    pub(super) fn to_json(&self) -> Value {
        Value::from(vec![Value::from(self.label.as_str()), self.end.clone()])
    }
}

/// An attempt on one side.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) attempt: String,
    pub(super) identity: String,
    /// Its directory, below the root of the mount.
    pub(super) folder: String,
    /// When it began, in seconds.
    pub(super) since: f64,
    pub(super) steps: Steps,
    before: State,
    pub(super) after: State,
}

impl Outcome {
    /// Reads a line of the script's output.
    pub(super) fn parse(line: &str) -> Result<Self> {
        let mut line: Value = serde_json::from_str(line).with_context(|| format!("the script said: {line}"))?;
        let text = |line: &Value, name: &str| {
            let value = line.get(name).and_then(Value::as_str);
            value.map(str::to_owned).with_context(|| format!("no `{name}`"))
        };
        let steps = line.get("steps").and_then(Value::as_array).context("no steps")?.iter().map(|step| {
            let label = step.get(0).and_then(Value::as_str).context("a step has no label")?;
            let end = step.get(1).cloned().context("a step has no end")?;
            Ok(Step { label: label.to_owned(), end })
        });
        let steps = steps.collect::<Result<Steps>>()?;
        Ok(Self {
            attempt: text(&line, "attempt")?,
            identity: text(&line, "identity")?,
            folder: text(&line, "folder")?,
            since: line.get("since").and_then(Value::as_f64).context("no time")?,
            steps,
            before: state(&mut line, "before")?,
            after: state(&mut line, "after")?,
        })
    }
}

/// Takes the state with this name out of a line of output.
pub(super) fn state(line: &mut Value, name: &str) -> Result<State> {
    let value = line.get_mut(name).map(Value::take).with_context(|| format!("no `{name}`"))?;
    serde_json::from_value(value).with_context(|| name.to_owned())
}

/// A difference between the sides.
#[derive(Debug)]
pub(super) struct Difference {
    /// A step's label after `step`, or a path and a field after `before` or `after`.
    what: String,
    kernel: Option<Value>,
    ours: Option<Value>,
    /// Ours is the same as before the attempt.
    is_unchanged: bool,
}

impl Difference {
    /// The text that the patterns of accepted differences match.
    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// True if ours grants less: an error instead of success, fewer permission bits, no change.
    pub(super) fn is_stricter(&self) -> bool {
        let (kernel, ours) = (self.kernel.as_ref(), self.ours.as_ref());
        let bits = |value: Option<&Value>| {
            let text = value.and_then(Value::as_str)?.strip_prefix("0o")?;
            u32::from_str_radix(text, 8).ok()
        };
        let has_fewer_bits = match (bits(kernel), bits(ours)) {
            (Some(kernel), Some(ours)) => ours & !kernel == 0,
            _ => false,
        };
        self.is_unchanged || has_fewer_bits || (self.what.starts_with("step ") && ours.is_some_and(is_error))
    }

    /// True for a step that both sides refuse.
    pub(super) fn is_refused_by_both(&self) -> bool {
        let is_refused = |value: &Option<Value>| value.as_ref().is_some_and(is_error);
        self.what.starts_with("step ") && is_refused(&self.kernel) && is_refused(&self.ours)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), short);
        write!(out, "{}: kernel {}, spinney {}", self.what, shown(&self.kernel), shown(&self.ours))
    }
}

/// Most characters of a value that are shown.
const VALUE_CHARACTERS: usize = 200;

fn short(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.chars().take(VALUE_CHARACTERS).collect()
}

/// True for the name of an error, as in `errno`.
fn is_error(value: &Value) -> bool {
    value.as_str().is_some_and(|text| {
        let mut rest = text.strip_prefix('E').into_iter().flat_map(str::chars).peekable();
        rest.peek().is_some() && rest.all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit())
    })
}

/// The same attempt on both sides.
#[derive(Debug)]
pub(super) struct Compared<'a> {
    pub(super) kernel: &'a Outcome,
    pub(super) ours: &'a Outcome,
    pub(super) differences: Vec<Difference>,
}

impl<'a> Compared<'a> {
    pub(super) fn new(kernel: &'a Outcome, ours: &'a Outcome) -> Self {
        let mut differences = steps(&kernel.steps, ours);
        differences.extend(states("before", &kernel.before, &ours.before, None));
        differences.extend(states("after", &kernel.after, &ours.after, Some(&ours.before)));
        Self { kernel, ours, differences }
    }
}

fn steps(kernel: &[Step], ours: &Outcome) -> Vec<Difference> {
    let count = kernel.len().max(ours.steps.len());
    let pairs = (0..count).map(|index| (kernel.get(index), ours.steps.get(index)));
    // A step that reads the permission bits of a path.
    let is_old_mode = |step: &Step| {
        let path = step.label.strip_suffix(" mode");
        let entry = path.and_then(|path| ours.before.get(path));
        entry.and_then(|entry| entry.get("mode")) == Some(&step.end)
    };
    let differing = pairs.filter(|(kernel, ours)| kernel != ours || is_script(*kernel));
    differing
        .map(|(kernel, ours)| Difference {
            what: format!("step {}", ours.or(kernel).map_or("", |step| step.label.as_str())),
            kernel: kernel.map(|step| step.end.clone()),
            ours: ours.map(|step| step.end.clone()),
            is_unchanged: ours.is_some_and(is_old_mode),
        })
        .collect()
}

/// A failure of the script itself, which is no outcome, not even on both sides.
fn is_script(step: Option<&Step>) -> bool {
    step.is_some_and(|step| step.label == "script" || step.label == "end")
}

/// Differences of two states; `old` is an earlier one of the second.
pub(super) fn states(when: &str, kernel: &State, ours: &State, old: Option<&State>) -> Vec<Difference> {
    let mut differences = Vec::new();
    let paths: BTreeSet<&String> = kernel.keys().chain(ours.keys()).collect();
    for path in paths {
        let was = old.map(|old| old.get(path));
        let (Some(theirs), Some(own)) = (kernel.get(path), ours.get(path)) else {
            let kind = |state: &State| state.get(path).and_then(|entry| entry.get("kind")).cloned();
            differences.push(Difference {
                what: format!("{when} {path}"),
                kernel: kind(kernel),
                ours: kind(ours),
                is_unchanged: was.is_some_and(|was| was.is_some() == ours.contains_key(path)),
            });
            continue;
        };
        let fields: BTreeSet<&String> = theirs.keys().chain(own.keys()).collect();
        for field in fields.into_iter().filter(|field| theirs.get(*field) != own.get(*field)) {
            let was = was.flatten().and_then(|was| was.get(field));
            differences.push(Difference {
                what: format!("{when} {path} {field}"),
                kernel: theirs.get(field).cloned(),
                ours: own.get(field).cloned(),
                is_unchanged: was.is_some() && was == own.get(field),
            });
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(end: &str, mode: &str) -> Outcome {
        let state = format!(r#"{{"f": {{"mode": "{mode}"}}}}"#);
        let line = format!(
            r#"{{"attempt": "a", "identity": "stranger", "folder": "1", "since": 5.5,
                "steps": [["open", "{end}"]], "before": {{"f": {{"mode": "0o777"}}}}, "after": {state}}}"#
        );
        Outcome::parse(&line).unwrap()
    }

    #[test]
    fn only_what_gives_less_is_stricter() {
        let kernel = outcome("done", "0o2666");
        for (end, mode, is_stricter) in [
            ("EPERM", "0o2666", true),
            ("done", "0o666", true),
            ("done", "0o777", true), // As it was.
            ("done", "0o4666", false),
            ("somebody", "0o2666", false),
        ] {
            let ours = outcome(end, mode);
            let compared = Compared::new(&kernel, &ours);
            assert_eq!(compared.differences.len(), 1, "{end} {mode}");
            assert!(compared.differences.iter().all(|each| each.is_stricter() == is_stricter), "{end} {mode}");
        }
        let same = outcome("done", "0o2666");
        assert!(Compared::new(&kernel, &same).differences.is_empty());
    }

    #[test]
    fn a_script_that_fails_on_both_sides_is_no_agreement() {
        let mut both = outcome("done", "0o777");
        both.steps.push(Step { label: "script".to_owned(), end: Value::from("Traceback") });
        assert_eq!(Compared::new(&both, &both).differences.len(), 1);
    }

    #[test]
    fn what_both_refuse_may_have_another_reason() {
        let (kernel, ours) = (outcome("EROFS", "0o777"), outcome("EPERM", "0o777"));
        let compared = Compared::new(&kernel, &ours);
        assert!(compared.differences.iter().all(Difference::is_refused_by_both));
        let allowed = outcome("done", "0o777");
        let compared = Compared::new(&kernel, &allowed);
        assert!(!compared.differences.iter().any(|each| each.is_refused_by_both() || each.is_stricter()));
    }
}
