//! A bucket that wants signatures: the server of these tests computes them from what it received, and refuses others.
//!
//! Credentials are variables of a process, so each case runs this program again: its ignored test [`reads_as_told`].

use std::process::Command;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::fake::{Fake, Reply, Request};
use crate::support::{open, pattern, read_all};

pub(crate) const KEY: &str = "AKIATESTS";
pub(crate) const SECRET: &str = "not/so+secret";
const LEN: usize = 1_000_001;

#[test]
fn names_are_checked_before_anything_is_sent() {
    for (locator, words) in
        [("s3://bucket", "a key is missing"), ("s3://b u/k", "the name of a bucket"), ("s3:///k", "bucket")]
    {
        let error = open(locator).unwrap_err().to_string();
        assert!(error.contains(words), "{locator}: {error}");
    }
}

/// Opens the locator in `SPINNEY_TEST_S3`, and prints the digest of its bytes or the error.
#[test]
#[ignore = "called by the other tests"]
fn reads_as_told() {
    let locator = std::env::var("SPINNEY_TEST_S3").unwrap();
    match open(&locator) {
        Ok(device) => println!("read {}", hex(&Sha256::digest(read_all(&device)))),
        Err(error) => println!("failed {error}"),
    }
}

/// The line that a process with these variables prints.
fn read_with(locator: &str, variables: &[(&str, &str)]) -> String {
    told_with("s3::reads_as_told", locator, variables)
}

/// The line that an ignored test prints in a process with these variables.
pub(crate) fn told_with(test: &str, locator: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent").env("SPINNEY_TEST_S3", locator).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line =
        text.lines().find_map(|line| line.find("read ").or(line.find("failed ")).map(|at| line[at..].to_owned()));
    line.unwrap_or_else(|| panic!("{text}"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// The signature that the request should have (AWS Signature Version 4).
pub(crate) fn signature(request: &Request, scope: &str, names: &str) -> String {
    let header = |name: &str| request.header(name).unwrap_or_default();
    let lines: String = names.split(';').map(|name| format!("{name}:{}\n", header(name))).collect();
    let whole = format!("{}\n{}\n\n{lines}\n{names}\n{}", request.method, request.path, header("x-amz-content-sha256"));
    let digest = hex(&Sha256::digest(whole.as_bytes()));
    let to_sign = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{digest}", header("x-amz-date"));
    let first = format!("AWS4{SECRET}").into_bytes();
    hex(&scope.split('/').chain([to_sign.as_str()]).fold(first, |key, text| mac(&key, text)))
}

/// A bucket `pics` with the object `a b.img`, for those who sign.
fn bucket(token: Option<&'static str>) -> Fake {
    let file = pattern(LEN);
    Fake::start(move |request, _| {
        let refuse = |code: &str| {
            let body = format!("<Error><Code>{code}</Code><Message>no</Message><Other>{SECRET}</Other></Error>");
            Reply::new(403).body(body)
        };
        let Some(header) = request.header("authorization") else { return refuse("AccessDenied") };
        let part = |name: &str| {
            let (_, rest) = header.split_once(&format!("{name}=")).unwrap();
            rest.split(',').next().unwrap()
        };
        let Some((key, scope)) = part("Credential").split_once('/') else { return refuse("Malformed") };
        let names = part("SignedHeaders");
        let has_all = ["host", "range", "x-amz-date"].iter().all(|name| names.split(';').any(|found| found == *name));
        if key != KEY || !has_all || request.header("x-amz-security-token") != token {
            return refuse("InvalidAccessKeyId");
        }
        if part("Signature") != signature(request, scope, names) {
            return refuse("SignatureDoesNotMatch");
        }
        match request.path.as_str() {
            "/pics/a%20b.img" => Reply::part(&file, request, "\"one\""),
            _ => Reply::new(404).body("<Error><Code>NoSuchKey</Code></Error>"),
        }
    })
}

fn good() -> String {
    format!("read {}", hex(&Sha256::digest(pattern(LEN))))
}

#[test]
fn signed_requests_are_accepted() {
    let server = bucket(None);
    let endpoint = server.url("");
    let keys = [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_ENDPOINT_URL", endpoint.as_str())];
    assert_eq!(read_with("s3://pics/a b.img", &keys), good());
    let elsewhere = [&keys[..], &[("AWS_REGION", "eu-west-1")]].concat();
    assert_eq!(read_with("s3://pics/a b.img?timeout=9", &elsewhere), good());
    let missing = read_with("s3://pics/none", &keys);
    assert!(missing.contains("answered 404 (NoSuchKey)"), "{missing}");
    let with_token = [&keys[..], &[("AWS_SESSION_TOKEN", "t")]].concat();
    assert!(read_with("s3://pics/a b.img", &with_token).contains("InvalidAccessKeyId"));
    assert_eq!(bucket_with_token(&keys), good());
}

fn bucket_with_token(keys: &[(&str, &str)]) -> String {
    let server = bucket(Some("t/+="));
    let endpoint = server.url("");
    let own = [&keys[..2], &[("AWS_SESSION_TOKEN", "t/+="), ("AWS_ENDPOINT_URL_S3", endpoint.as_str())]].concat();
    read_with("s3://pics/a b.img", &own)
}

#[test]
fn files_of_settings_are_read() {
    let server = bucket(None);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".aws")).unwrap();
    let credentials = format!("[work]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
    std::fs::write(dir.path().join(".aws/credentials"), credentials).unwrap();
    let config = format!("[profile work]\nregion = eu-north-1\nendpoint_url = {}\n", server.url(""));
    std::fs::write(dir.path().join(".aws/config"), config).unwrap();
    let home = dir.path().to_str().unwrap();
    assert_eq!(read_with("s3://pics/a b.img", &[("HOME", home), ("AWS_PROFILE", "work")]), good());
    let other = read_with("s3://pics/a b.img", &[("HOME", home), ("AWS_PROFILE", "other")]);
    assert!(other.contains("profile `other`"), "{other}");
}

#[test]
fn refusals_say_why_and_show_no_secret() {
    let server = bucket(None);
    let endpoint = server.url("");
    let wrong =
        [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_ENDPOINT_URL", endpoint.as_str())];
    let text = read_with("s3://pics/a b.img", &wrong);
    assert!(text.contains("SignatureDoesNotMatch: no") && !text.contains("hush") && !text.contains(SECRET), "{text}");
    let text = read_with("s3://pics/a b.img", &[("AWS_ENDPOINT_URL", endpoint.as_str())]);
    assert!(text.contains("AccessDenied: no; no credentials were found"), "{text}");
}
