//! Stores that lie: objects that are missing, cut, changed or too long, and manifests that no backup writes.

use btrfs_backup::{Error, Repository};

use crate::bucket::Bucket;
use crate::support::{backup, inspect, restore, run, source, writing};

/// A manifest of another program.
const OTHER: &str = "{\"format\":\"x\",\"version\":1,\"serial\":1,\"writer\":null,\"streams\":[],\
    \"pending\":null,\"garbage\":[]}";

fn filled() -> Bucket {
    let bucket = Bucket::default();
    run(&backup(1), &source(), bucket.clone(), writing(1)).unwrap();
    bucket
}

#[test]
fn an_object_that_does_not_fit_is_named() {
    let part = ".00000002";
    type Change = fn(Vec<u8>) -> Option<Vec<u8>>;
    let changes: [(&str, Change, &str); 8] = [
        (part, |_| None, "is missing"),
        (part, |bytes| Some(bytes[1..].to_vec()), "its length"),
        (
            part,
            |mut bytes| {
                bytes[9] ^= 1;
                Some(bytes)
            },
            "its digest",
        ),
        (part, |bytes| Some([bytes, vec![0]].concat()), "at most"),
        (part, |_| Some(vec![0; 1 << 22]), "at most"),
        (".list", |_| None, "is missing"),
        (".list", |_| Some(b"[]".to_vec()), "its digest"),
        (".list", |bytes| Some(bytes[..9].to_vec()), "its digest"),
    ];
    for (text, change, expected) in changes {
        let bucket = filled();
        let key = bucket.key(text);
        let bytes = bucket.bytes(&key);
        bucket.set(&key, change(bytes));
        let error = restore(bucket.clone(), None).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(&key), "{error}");
        if expected != "at most" {
            let faults = inspect(bucket).faults.join("\n");
            assert!(faults.contains(expected) && faults.contains(&key), "{faults}");
        }
    }
}

#[test]
fn a_lost_state_is_no_parent() {
    let (source, bucket) = (source(), Bucket::default());
    run(&backup(1), &source, bucket.clone(), writing(1)).unwrap();
    bucket.set(&bucket.key(".list"), None);
    let report = run(&backup(2), &source, bucket.clone(), writing(2)).unwrap();
    assert!(report.warnings[0].contains("is missing"), "{report:?}");
    assert!(report.actions.iter().all(|action| action.parent.is_none()), "{report:?}");
    crate::support::assert_restored(&source, bucket);
}

#[test]
fn a_manifest_that_no_backup_writes_is_refused() {
    for (manifest, expected) in [
        (&b""[..], "no manifest"),
        (b"{}", "no manifest"),
        (b"[[[[[[[[[[", "no manifest"),
        (b"<html>", "no manifest"),
        (OTHER.as_bytes(), "expected spinney-repository"),
    ] {
        let bucket = Bucket::default();
        bucket.set("manifest.json", Some(manifest.to_vec()));
        let error = Repository::read(Box::new(bucket)).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }) && error.to_string().contains(expected), "{error}");
    }
    let deep = "[".repeat(100_000);
    let bucket = Bucket::default();
    bucket.set("manifest.json", Some(deep.into_bytes()));
    assert!(Repository::read(Box::new(bucket)).is_err());
}

/// A frame that becomes longer than the list says is cut off, not unpacked.
#[test]
fn a_part_never_becomes_longer_than_it_says() {
    use sha2::{Digest as _, Sha256};
    let hex = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let bucket = filled();
    let (part, list) = (bucket.key(".00000000"), bucket.key(".list"));
    let bomb = zstd::bulk::compress(&vec![0; 100 << 20], 1).unwrap();
    let text = |key: &str| String::from_utf8(bucket.bytes(key)).unwrap();
    let (old, old_len) = (hex(&bucket.bytes(&part)), bucket.bytes(&part).len());
    // Parts of one length are many; the first one is first.
    let [from, to] = [old_len, bomb.len()].map(|len| format!("\"stored\":{len}"));
    let lists = text(&list).replace(&old, &hex(&bomb)).replacen(&from, &to, 1);
    let manifest = text("manifest.json").replace(&hex(&bucket.bytes(&list)), &hex(lists.as_bytes()));
    let stored: u64 = manifest.split("\"stored\": ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    let now = stored - u64::try_from(old_len).unwrap() + u64::try_from(bomb.len()).unwrap();
    let manifest = manifest.replace(&format!("\"stored\": {stored}"), &format!("\"stored\": {now}"));
    bucket.set(&part, Some(bomb));
    bucket.set(&list, Some(lists.into_bytes()));
    bucket.set("manifest.json", Some(manifest.into_bytes()));
    let error = restore(bucket, None).unwrap_err().to_string();
    assert!(error.contains("found more"), "{error}");
}
