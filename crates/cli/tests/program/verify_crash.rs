//! `verify-crash`: the states that power cuts leave of a user's workload.

use crate::harness::{Bench, Run};

fn tried(bench: &Bench, workload: &str, more: &str) -> Run {
    std::fs::write(bench.path("work.txt"), workload).unwrap();
    bench.run(&format!("verify-crash a.img --workload work.txt {more}"))
}

#[test]
fn a_workload_is_tried_on_a_copy() {
    let bench = Bench::new();
    bench.filled_image();
    let before = std::fs::read(bench.path("a.img")).unwrap();
    let workload = "# settings that are replaced\n\
        creat sub/new\nwrite sub/new 0 4096\nfsync sub/new\nrename sub/new a.txt\nfsync /\n\
        setxattr a.txt user.note x\\x20y\nfsync a.txt\nunlink middle\ntruncate sub/large 100000\nsync\n";
    let run = tried(&bench, workload, "--states 300 --json");
    assert_eq!(run.status, 0, "{}", run.err);
    let report: serde_json::Value = serde_json::from_slice(&run.out).unwrap();
    assert!(report["states"].as_u64().unwrap() >= 100, "{report}");
    assert!(report["states_with_log"].as_u64().unwrap() > 10, "{report}");
    assert_eq!((&report["failure_count"], &report["seed"]), (&0.into(), &1.into()));
    assert!(std::fs::read(bench.path("a.img")).unwrap() == before, "the image was written to");
    let run = tried(&bench, workload, "--states 300");
    let text = String::from_utf8(run.out).unwrap();
    assert!(text.contains(" states, ") && text.contains("0 wrong"), "{text}");
    let run = tried(&bench, workload, "--state 1:first-1");
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.out.starts_with(b"1 states"), "{}", String::from_utf8_lossy(&run.out));
}

#[test]
fn workloads_that_make_no_sense_are_refused_by_line() {
    let bench = Bench::new();
    bench.filled_image();
    for (workload, status, words) in [
        ("sync\nsink\n", 2, "work.txt: line 2: `sink` is no operation"),
        ("write a.txt 0\n", 2, "line 1: write it as `write PATH OFFSET LEN`"),
        ("write a.txt 0 99999999999\n", 2, "line 1: the file would be larger"),
        ("", 2, "no operation"),
        ("# nothing\n", 2, "no operation"),
        ("\u{1b}[31m\n", 2, "line 1"),
        ("sync\nunlink no/such\n", 1, "line 2: unlink no/such"),
        ("mkdir sub\n", 1, "line 1: mkdir sub"),
        ("rmdir sub\n", 1, "line 1: rmdir sub"),
        ("fsync sub/link\n", 1, "line 1: fsync sub/link"),
    ] {
        let run = tried(&bench, workload, "");
        assert_eq!(run.status, status, "{workload:?}: {}", run.err);
        assert!(run.err.contains(words), "{workload:?}: {}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        assert!(!run.err.contains('\u{1b}'), "{:?}", run.err);
    }
    let run = tried(&bench, "sync\n", "--state 7:first-99");
    assert_eq!(run.status, 1, "{}", run.err);
    let run = bench.run("verify-crash a.img --workload no-such.txt");
    assert!(run.status != 0 && run.err.contains("no-such.txt"), "{}", run.err);
    std::fs::write(bench.path("text.img"), "no image").unwrap();
    let run = bench.run("verify-crash text.img --workload work.txt");
    assert!(run.status != 0 && run.err.contains("text.img"), "{}", run.err);
}
