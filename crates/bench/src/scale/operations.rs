//! Cuts a recording of locks into operations. Called by `mod`; `simulation` repeats them.

use std::collections::HashMap;

use host::statistics::trace::{Event, Step};

/// A part of what one worker does, without waiting: work, and then one step with a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) work_ns: u64,
    pub(super) action: Action,
}

/// A step with a lock, which has a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Take {
        lock: usize,
        is_shared: bool,
    },
    LetGo {
        lock: usize,
    },
    Touch {
        lock: usize,
    },
    /// The operation has ended.
    End,
}

/// One call, by the worker with a number.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) worker: usize,
    pub(super) parts: Vec<Part>,
}

/// Beginning and end of a call, on the clock of the events.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) worker: usize,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// All operations, and the names of the locks' classes by their numbers.
#[derive(Debug, Default)]
pub(super) struct Operations {
    pub(super) list: Vec<Operation>,
    pub(super) classes: Vec<&'static str>,
    /// Steps of all operations.
    pub(super) steps: usize,
}

impl Operations {
    /// Cuts the events of the calling thread at the spans, which follow each other. Waiting is left out, and `extra_ns`
    /// for each step, which the recording itself took.
    pub(super) fn cut(events: &[Event], spans: &[Span], extra_ns: u64) -> Self {
        let mut cut = Self::default();
        let mut numbers = HashMap::new();
        let mut events = events.iter().peekable();
        for span in spans {
            while events.next_if(|event| event.at_ns < span.from_ns).is_some() {}
            let mut parts = Vec::new();
            let mut last_ns = span.from_ns;
            while let Some(event) = events.next_if(|event| event.at_ns <= span.to_ns) {
                let number = cut.classes.len();
                let lock = *numbers.entry((event.lock, event.class)).or_insert(number);
                if lock == number {
                    cut.classes.push(event.class);
                }
                let (action, waited_ns) = match event.step {
                    Step::Took(waited) => (Action::Take { lock, is_shared: false }, waited),
                    Step::Shared(waited) => (Action::Take { lock, is_shared: true }, waited),
                    Step::LetGo => (Action::LetGo { lock }, 0),
                    Step::Touched => (Action::Touch { lock }, 0),
                };
                let work_ns = event.at_ns.saturating_sub(last_ns).saturating_sub(waited_ns + extra_ns);
                parts.push(Part { work_ns, action });
                last_ns = event.at_ns;
            }
            cut.steps += parts.len();
            parts.push(Part { work_ns: span.to_ns.saturating_sub(last_ns), action: Action::End });
            cut.list.push(Operation { worker: span.worker, parts });
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_cut_at_the_calls_and_waiting_is_left_out() {
        let event = |at_ns, lock, step| Event { at_ns, lock, class: "A", step };
        let events = [
            event(5, 70, Step::Touched),
            event(130, 70, Step::Took(20)),
            event(150, 70, Step::LetGo),
            event(230, 80, Step::Shared(0)),
            event(240, 80, Step::LetGo),
        ];
        let spans = [Span { worker: 3, from_ns: 100, to_ns: 190 }, Span { worker: 4, from_ns: 200, to_ns: 260 }];
        let cut = Operations::cut(&events, &spans, 3);
        let part = |work_ns, action| Part { work_ns, action };
        assert_eq!((cut.steps, cut.classes.as_slice()), (4, ["A", "A"].as_slice()));
        assert_eq!(cut.list[0].worker, 3);
        assert_eq!(
            cut.list[0].parts,
            [
                part(7, Action::Take { lock: 0, is_shared: false }),
                part(17, Action::LetGo { lock: 0 }),
                part(40, Action::End),
            ]
        );
        assert_eq!(cut.list[1].parts[0], part(27, Action::Take { lock: 1, is_shared: true }));
    }
}
