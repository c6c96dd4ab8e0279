//! Parses the rule `hourly=24,daily=7`, and decides which states it drops. The destinations and `backup` apply it.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::stamp::Stamp;

/// Most states of one period that can be asked for.
const COUNT_MAX: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Period {
    /// Each state is one of its own.
    Last,
    Hour,
    Day,
    /// Begins on Monday.
    Week,
    Month,
    Year,
}

const PERIODS: [(&str, Period); 6] = [
    ("last", Period::Last),
    ("hourly", Period::Hour),
    ("daily", Period::Day),
    ("weekly", Period::Week),
    ("monthly", Period::Month),
    ("yearly", Period::Year),
];

impl Period {
    /// A number that two states of one period share.
    fn of(self, stamp: Stamp) -> i64 {
        let civil = stamp.civil();
        match self {
            Self::Last => stamp.seconds(),
            Self::Hour => stamp.seconds() / 3600,
            Self::Day => stamp.day_number(),
            // The first day of 1970 was a Thursday.
            Self::Week => (stamp.day_number() + 3) / 7,
            Self::Month => civil.year * 12 + civil.month,
            Self::Year => civil.year,
        }
    }
}

/// The number of periods of each length that keep their last state. It is parsed from a list as `hourly=24,daily=7`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule(Vec<(Period, usize)>);

impl Rule {
    /// The states that it drops. `newest`, which need not be among `stamps`, always stays.
    pub(crate) fn dropped(&self, stamps: impl Iterator<Item = Stamp>, newest: Stamp) -> BTreeSet<Stamp> {
        let all: BTreeSet<Stamp> = stamps.chain([newest]).collect();
        let kept = self.kept(&all);
        all.into_iter().filter(|stamp| *stamp != newest && !kept.contains(stamp)).collect()
    }

    /// The states that stay: of the last periods that have any, the last state of each.
    fn kept(&self, stamps: &BTreeSet<Stamp>) -> BTreeSet<Stamp> {
        let mut kept = BTreeSet::new();
        for (period, count) in &self.0 {
            let mut periods = BTreeSet::new();
            for stamp in stamps.iter().rev() {
                if periods.len() >= *count {
                    break;
                }
                if periods.insert(period.of(*stamp)) {
                    kept.insert(*stamp);
                }
            }
        }
        kept
    }
}

/// The text is no [`Rule`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotRule(String);

impl FromStr for Rule {
    type Err = NotRule;

    fn from_str(text: &str) -> Result<Self, NotRule> {
        let mut rule = Vec::new();
        for part in text.split(',') {
            let wrong = || {
                let text = "expected last, hourly, daily, weekly, monthly or yearly, `=`, a number";
                NotRule(format!("{part:?}: {text}"))
            };
            let (name, count) = part.trim().split_once('=').ok_or_else(wrong)?;
            let (_, period) = PERIODS.iter().find(|(known, _)| *known == name).ok_or_else(wrong)?;
            let count = count.parse::<usize>().ok().filter(|count| *count <= COUNT_MAX).ok_or_else(wrong)?;
            if rule.iter().any(|(known, _)| known == period) {
                return Err(NotRule(format!("{name} is there twice")));
            }
            rule.push((*period, count));
        }
        if rule.iter().all(|(_, count)| *count == 0) {
            return Err(NotRule("the rule keeps nothing".to_owned()));
        }
        Ok(Self(rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(texts: &[&str]) -> BTreeSet<Stamp> {
        texts.iter().map(|text| Stamp::parse(text).unwrap()).collect()
    }

    #[test]
    fn the_last_of_each_period_stays() {
        let all = stamps(&[
            "2026-11-23T100000Z",
            "2026-11-24T100000Z",
            "2026-11-24T235959Z",
            "2026-11-25T000000Z",
            "2026-11-25T005900Z",
            "2026-11-25T010000Z",
        ]);
        let kept = |rule: &str| {
            let kept = rule.parse::<Rule>().unwrap().kept(&all);
            kept.into_iter().map(|stamp| stamp.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(kept("hourly=2"), ["2026-11-25T005900Z", "2026-11-25T010000Z"]);
        assert_eq!(kept("daily=2"), ["2026-11-24T235959Z", "2026-11-25T010000Z"]);
        assert_eq!(kept("daily=9").len(), 3);
        assert_eq!(kept("last=1,daily=2"), kept("daily=2"));
        assert_eq!(kept("weekly=5"), ["2026-11-25T010000Z"]);
        assert_eq!(kept("hourly=1,yearly=1"), ["2026-11-25T010000Z"]);
    }

    #[test]
    fn other_texts_are_no_rules() {
        for text in ["", "daily", "daily=", "daily=-1", "sometimes=3", "daily=1,daily=2", "daily=0", "daily=1000000"] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }
}
