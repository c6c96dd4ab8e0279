//! Each code of the table is found where the damage that it stands for is planted: one field is changed in an image,
//! and checksums are made right where the damage is not the checksum. A code that nothing plants fails the test, so
//! that the table is complete; an image in which nothing is planted has to be clean.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::as_conversions,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests fail by panicking; another test uses all of the editor"
)]

mod image;
mod names;
mod nodes;
mod sealed;
mod tables;

use std::collections::BTreeSet;

use f2fs_check::{Code, CodeTable as _, Options, Pass, PassTable as _, Report, check};
use image::{Base, Editor, bases};

/// Changes an image; `None` where that cannot be done in it.
type Plant = (Code, &'static str, fn(&mut Editor) -> Option<()>);

fn report(base: &Base, plant: fn(&mut Editor) -> Option<()>) -> Option<Report> {
    let mut editor = Editor::new(base);
    plant(&mut editor)?;
    Some(check(&editor.finish(), &Options { data: true, ..Options::default() }, &()).unwrap())
}

#[test]
fn nothing_is_found_where_nothing_is_planted() {
    for base in bases() {
        let report = report(&base, |_| Some(())).unwrap();
        assert_eq!(report.findings, [], "{}", base.name);
        assert_eq!(report.passes.len(), Pass::all().len());
        let has_fsyncs = report.notes.iter().any(|note| note.contains("fsyncs of 3 files"));
        assert_eq!(has_fsyncs, base.name.contains("cut"), "{}: {:?}", base.name, report.notes);
    }
}

#[test]
fn each_code_is_found_where_it_is_planted() {
    let bases = bases();
    let (mut missed, mut planted, mut pairs) = (Vec::new(), BTreeSet::new(), 0);
    let plants: Vec<Plant> = [tables::PLANTS, nodes::PLANTS, names::PLANTS, sealed::PLANTS].concat();
    for (code, name, plant) in &plants {
        let mut count = 0;
        for base in &bases {
            let Some(report) = report(base, *plant) else { continue };
            count += 1;
            let codes: Vec<_> = report.counts.iter().map(|(code, _)| *code).collect();
            if codes.contains(code) {
                planted.insert(*code);
            } else {
                missed.push(format!("{code} ({name}) in {}: {codes:?}", base.name));
            }
        }
        if count == 0 {
            missed.push(format!("{code} ({name}) could be planted nowhere"));
        }
        pairs += count;
    }
    missed.extend(
        Code::all().iter().filter(|info| !planted.contains(&info.code)).map(|info| format!("{}: never", info.id)),
    );
    println!("{} kinds of damage, {} codes, {pairs} pairs of code and image", plants.len(), planted.len());
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn what_was_sealed_is_right() {
    let mut count = 0;
    for base in bases() {
        let Some(report) = report(&base, |editor| sealed::seal(editor, |_| ())) else { continue };
        assert_eq!(report.findings, [], "{}", base.name);
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn a_file_is_named_by_its_path() {
    let base = bases().into_iter().find(|base| base.name == "all").unwrap();
    let report = report(&base, |editor| {
        let ino = editor.ino("/deep/er")?;
        editor.edit_node(ino, |block| f2fs_disk::inode::fields_mut(block).i_links = 9.into());
        Some(())
    });
    let report = report.unwrap();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert_eq!(report.findings[0].place.path.as_deref(), Some("/deep/er"));
    assert_eq!((report.findings[0].expected.as_str(), report.findings[0].found.as_str()), ("3", "9"));
}

#[test]
fn only_the_passes_that_are_asked_for_report() {
    let base = bases().into_iter().find(|base| base.name == "all").unwrap();
    let editor = Editor::new(&base);
    let small = editor.ino("/small").unwrap();
    editor.edit_node(small, |block| f2fs_disk::inode::fields_mut(block).i_links = 9.into());
    editor.super_copy(1, true, |fields| fields.volume_name[0] = 7.into());
    let device = editor.finish();
    for (passes, codes) in [
        (vec![Pass::Super], vec![Code::SuperMirror]),
        (vec![Pass::Tables], vec![Code::SuperMirror]),
        (vec![], vec![Code::SuperMirror, Code::InodeLinks]),
    ] {
        let report = check(&device, &Options { passes, data: false }, &()).unwrap();
        let found: Vec<_> = report.counts.iter().map(|(code, _)| *code).collect();
        assert_eq!(found, codes);
    }
}

#[test]
fn without_a_superblock_or_a_checkpoint_there_is_no_check() {
    let base = bases().into_iter().next().unwrap();
    let editor = Editor::new(&base);
    (0..2).for_each(|copy| editor.super_copy(copy, true, |fields| fields.magic = 5.into()));
    let error = check(&editor.finish(), &Options::default(), &()).unwrap_err();
    assert!(error.to_string().starts_with("no superblock: corrupt superblock magic"), "{error}");
    let editor = Editor::new(&base);
    (0..2).for_each(|number| editor.edit(editor.geometry().pack(number), |block| block[0] ^= 1));
    let error = check(&editor.finish(), &Options::default(), &()).unwrap_err();
    assert!(error.to_string().starts_with("no checkpoint: corrupt checkpoint checksum"), "{error}");
}
