//! `spinney subvolume` on an image.

use crate::harness::Bench;

fn paths(bench: &Bench, line: &str) -> Vec<String> {
    let report = bench.json(line);
    let all = report["subvolumes"].as_array().unwrap();
    all.iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
}

/// `/a` with `/a/b` in it, and `/a/b/c` in that.
fn nested() -> Bench {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    for path in ["/a", "/a/b", "/a/b/c"] {
        bench.ok(&format!("subvolume create a.img {path}"));
    }
    std::fs::write(bench.path("text"), "deep").unwrap();
    bench.ok("put -q a.img text /a/b/c/text");
    bench
}

#[test]
fn snapshots_and_deletions_take_along_what_is_nested() {
    let bench = nested();
    bench.ok("subvolume snapshot a.img /a /plain");
    assert_eq!(bench.run("cat a.img /plain/b/c/text").status, 1);
    bench.ok("subvolume snapshot -r --recursive a.img /a /whole");
    assert_eq!(bench.ok("cat a.img /whole/b/c/text"), "deep");
    assert_eq!(bench.run("put a.img text /whole/b/c/more").status, 1);
    assert_eq!(paths(&bench, "subvolume list --json --read-only a.img"), ["whole", "whole/b", "whole/b/c"]);
    let run = bench.run("subvolume delete a.img /whole");
    assert_eq!(run.status, 1, "{}", run.err);
    let deleted = bench.json("subvolume delete --json --recursive a.img /whole /plain");
    assert_eq!(deleted["deleted"].as_array().unwrap().len(), 4);
    bench.check("a.img");
    assert_eq!(paths(&bench, "subvolume list --json a.img"), ["a", "a/b", "a/b/c"]);
    bench.ok("subvolume delete --id 258 a.img");
    assert_eq!(bench.run("subvolume delete --id 258 a.img").status, 1);
    assert_eq!(bench.run("subvolume delete --id 5 a.img").status, 1);
    assert_eq!(bench.run("subvolume delete a.img").status, 2);
    assert_eq!(paths(&bench, "subvolume list --json a.img"), ["a", "a/b"]);
    bench.check("a.img");
}

/// Paths of the list begin at the top level, those of arguments at the default subvolume.
#[test]
fn a_number_means_a_subvolume_wherever_it_is() {
    let bench = nested();
    bench.ok("subvolume set-default a.img /a/b");
    bench.ok("subvolume delete --id 258 a.img");
    assert_eq!(paths(&bench, "subvolume list --json a.img"), ["a", "a/b"]);
    bench.ok("subvolume create a.img /new");
    bench.ok("subvolume snapshot --recursive a.img / /copy");
    assert_eq!(paths(&bench, "subvolume list --json a.img"), ["a", "a/b", "a/b/new", "a/b/copy", "a/b/copy/new"]);
    let run = bench.run("subvolume delete --id 257 a.img");
    assert_eq!(run.status, 1, "{}", run.err);
    bench.check("a.img");
}

#[test]
fn lists_are_tables_or_trees_and_can_be_filtered() {
    let bench = nested();
    bench.ok("subvolume snapshot -r a.img /a/b /frozen");
    bench.ok("subvolume snapshot a.img / /everything");
    assert_eq!(paths(&bench, "subvolume list --json --snapshots a.img"), ["frozen", "everything"]);
    for source in ["/a/b", "257"] {
        assert_eq!(paths(&bench, &format!("subvolume list --json --snapshots-of {source} a.img")), ["frozen"]);
    }
    assert_eq!(paths(&bench, "subvolume list --json --snapshots-of / a.img"), ["everything"]);
    assert_eq!(bench.json("subvolume list --json --deleted a.img")["subvolumes"].as_array().unwrap().len(), 0);
    let table = bench.ok("subvolume list a.img");
    let title: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(title, ["ID", "In", "Generation", "Mode", "Created", "Path"]);
    let row = table.lines().find(|line| line.ends_with("/frozen")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[..2], ["259", "5"]);
    assert!(row.contains(" ro "), "{row}");
    let tree = bench.ok("subvolume list --tree a.img");
    let indents: Vec<usize> = tree.lines().map(|line| line.find('/').unwrap()).collect();
    assert_eq!(indents, [11, 13, 15, 11, 11], "{tree}");
}

#[test]
fn one_is_shown_found_renamed_and_closed() {
    let bench = nested();
    bench.ok("subvolume snapshot -r a.img /a/b /frozen");
    let show = bench.json("subvolume show --json a.img /a/b");
    assert_eq!((&show["id"], &show["snapshots"][0]["path"]), (&257.into(), &"frozen".into()));
    assert!(show["quota"].is_null() && show["received"].is_null());
    assert_eq!(show["is_default"], false);
    let uuid = show["uuid"].as_str().unwrap().to_owned();
    let text = bench.ok("subvolume show a.img /frozen");
    for word in ["Parent UUID:", &uuid, "readonly", "Gen at creation:", "Send transid:", "Snapshots:"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(bench.json("subvolume show --json a.img")["is_default"], true);
    for what in [uuid.as_str(), "257", "/a/b", "a/b"] {
        assert_eq!(paths(&bench, &format!("subvolume find --json a.img {what}")), ["a/b"], "{what}");
    }
    assert_eq!(paths(&bench, "subvolume find --json a.img 5"), [""]);
    assert_eq!(bench.run("subvolume find a.img nothing").status, 1);
    bench.ok("subvolume rename a.img /a/b /moved");
    assert_eq!(paths(&bench, "subvolume list --json a.img"), ["a", "moved", "moved/c", "frozen"]);
    assert_eq!(bench.run("subvolume rename a.img /moved/none /x").status, 1);
    assert_eq!(bench.ok("subvolume read-only a.img /frozen"), "on\n");
    bench.ok("subvolume read-only a.img /frozen off");
    bench.ok("subvolume read-only a.img /moved on");
    assert_eq!(bench.run("mkdir a.img /moved/x").status, 1);
    bench.ok("quota enable a.img");
    assert_eq!(bench.json("subvolume show --json a.img /a")["quota"]["id"], "0/256");
    bench.check("a.img");
}

/// A received and then changed subvolume differs from the sent one, and must not pass for it.
#[test]
fn what_was_received_is_opened_by_force_alone_and_loses_its_origin() {
    let bench = nested();
    bench.ok("subvolume snapshot -r a.img /a/b/c /sent");
    bench.ok("send -q -f a.stream a.img /sent");
    bench.ok("mkfs -q --size 256M b.img");
    bench.ok("receive -q -f a.stream b.img");
    let show = bench.json("subvolume show --json b.img /sent");
    let origin = show["received_uuid"].as_str().unwrap().to_owned();
    assert!(show["sent"].as_u64().unwrap() > 0 && show["rtime"]["sec"].as_i64().unwrap() > 0, "{show}");
    assert_eq!(paths(&bench, &format!("subvolume find --json b.img {origin}")), ["sent"]);
    let run = bench.run("subvolume read-only b.img /sent off");
    assert!(run.status == 1 && run.err.contains("--force"), "{}", run.err);
    let opened = bench.json("subvolume read-only --force --json b.img /sent off");
    assert!(opened["received_uuid"].is_null() && opened["read_only"] == false, "{opened}");
    assert_eq!(bench.run(&format!("subvolume find b.img {origin}")).status, 1);
    bench.check("b.img");
}
