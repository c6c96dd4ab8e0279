//! Checks that no module of a crate imports itself, over whatever detour, among the modules of each folder. Called by
//! `tidy::run`; `metrics` counts the cycles.

use super::Problem;
use super::paths::{self, Module, Reference};
use super::source::SourceFile;
use std::collections::{BTreeMap, BTreeSet};

/// Imports among the children of one folder, each with one place that shows it.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a Reference>>;

/// Fails on each cycle, once.
pub(super) fn check(crate_name: &str, files: &[&SourceFile]) -> Vec<Problem> {
    let references = paths::references(files);
    let folders: BTreeSet<&[String]> =
        files.iter().flat_map(|file| (0..file.module.len()).filter_map(|len| file.module.get(..len))).collect();
    let mut problems = Vec::new();
    for folder in folders {
        let graph = graph_of(folder, &references);
        if let Some(cycle) = find_cycle(&graph) {
            problems.push(describe(crate_name, folder, &cycle));
        }
    }
    problems
}

fn graph_of<'a>(folder: &[String], references: &'a [Reference]) -> Graph<'a> {
    let child_of = |module: &'a Module| -> Option<&'a str> {
        module.strip_prefix(folder).and_then(<[String]>::first).map(String::as_str)
    };
    let mut graph = Graph::new();
    for reference in references {
        if let (Some(from), Some(to)) = (child_of(&reference.from), child_of(&reference.to))
            && from != to
        {
            graph.entry(from).or_default().entry(to).or_insert(reference);
        }
    }
    graph
}

/// The references along one cycle. Modules from which no cycle was found are not entered again.
fn find_cycle<'a>(graph: &Graph<'a>) -> Option<Vec<&'a Reference>> {
    let mut finished = BTreeSet::new();
    graph.keys().find_map(|start| follow(graph, start, &mut Vec::new(), &mut finished))
}

fn follow<'a>(
    graph: &Graph<'a>,
    module: &'a str,
    trail: &mut Vec<(&'a str, &'a Reference)>,
    finished: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a Reference>> {
    if let Some(start) = trail.iter().position(|(from, _)| *from == module) {
        return Some(trail.iter().skip(start).map(|(_, reference)| *reference).collect());
    }
    if finished.contains(module) {
        return None;
    }
    for (next, reference) in graph.get(module).into_iter().flatten() {
        trail.push((module, reference));
        if let Some(cycle) = follow(graph, next, trail, finished) {
            return Some(cycle);
        }
        trail.pop();
    }
    finished.insert(module);
    None
}

fn describe(crate_name: &str, folder: &[String], cycle: &[&Reference]) -> Problem {
    let steps: Vec<String> = cycle
        .iter()
        .map(|step| format!("{} -> {} ({}:{})", step.from.join("::"), step.to.join("::"), step.path, step.line))
        .collect();
    let first = cycle.first();
    Problem {
        path: first.map_or_else(|| crate_name.to_owned(), |step| step.path.clone()),
        line: first.map_or(1, |step| step.line),
        text: format!("import cycle in {crate_name}::{}: {}", folder.join("::"), steps.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> usize {
        let files: Vec<SourceFile> =
            files.iter().map(|(path, text)| SourceFile::sample(&format!("crates/a/src/{path}"), text)).collect();
        check("a", &files.iter().collect::<Vec<_>>()).len()
    }

    #[test]
    fn a_detour_is_still_a_cycle() {
        assert_eq!(cycles(&[("x.rs", "use crate::y;"), ("y.rs", "use crate::z;"), ("z.rs", "use crate::x;")]), 1);
        assert_eq!(cycles(&[("x.rs", "use crate::{y, z};"), ("y.rs", "use crate::z;"), ("z.rs", "")]), 0);
    }

    #[test]
    fn siblings_inside_a_folder_are_checked_through_their_parent() {
        let files = [
            ("t/mod.rs", "pub use p::P; pub use q::Q;"),
            ("t/p.rs", "use super::Q; pub struct P;"),
            ("t/q.rs", "use crate::t::P; pub struct Q;"),
        ];
        assert_eq!(cycles(&files), 1);
    }

    #[test]
    fn a_child_may_use_its_parents_types() {
        assert_eq!(cycles(&[("t/mod.rs", "use p::P; pub struct T;"), ("t/p.rs", "use super::T;")]), 0);
    }
}
