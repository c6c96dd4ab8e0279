//! TLS, against nbdkit and qemu-nbd: what a good connection carries, and which ones are refused.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use blockdev::Access;
use nbd::wire::{Greeting, OptionReply, option, rep};

use crate::harness::{Other, Scripted, has, open, pattern, take, try_open};

/// Makes an authority in `dir`, and certificates by it for a server called `localhost` and for a client.
fn certify(dir: &Path) {
    let script = "set -e
        new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
        $new -x509 -days 2 -subj /CN=authority -keyout ca-key.pem -out ca-cert.pem
        for one in server client; do
            $new -subj /CN=$one -keyout $one-key.pem -out $one.csr
            printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' > $one.ext
            openssl x509 -req -in $one.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 \
                -extfile $one.ext -out $one-cert.pem
        done";
    let output = Command::new("bash").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn are_here(programs: &[&str]) -> bool {
    programs.iter().all(|program| has(program))
}

/// A server with certificates in its directory.
fn server(words: &[&str]) -> Other {
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path());
    Other::start_in(dir, words)
}

fn locator(server: &Other, query: &str) -> String {
    server.locator(query).replacen("nbd+unix", "nbds+unix", 1)
}

fn trusted(server: &Other) -> String {
    locator(server, &format!("&tls-certificates={}", server.path("").display()))
}

#[test]
fn nbdkit_is_written_and_read_through_tls() {
    if !are_here(&["nbdkit", "openssl"]) {
        return;
    }
    let server = server(&["--tls=require", "--tls-certificates=DIR", "--tls-verify-peer", "memory", "64M"]);
    let device = open(&trusted(&server));
    // Several times what a socket and a session hold.
    let bytes = pattern(24 << 20, 3);
    device.write_at(512, &[&bytes]).unwrap();
    device.flush().unwrap();
    let mut found = vec![0; bytes.len()];
    device.read_at(512, &mut found).unwrap();
    assert!(found == bytes);
    // Several threads at once.
    std::thread::scope(|scope| {
        for number in 0..4u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..20 {
                    let (at, bytes) = ((number << 20) + round * 8192, pattern(8192, number * 100 + round));
                    device.write_at(at, &[&bytes]).unwrap();
                    let mut found = vec![0; bytes.len()];
                    device.read_at(at, &mut found).unwrap();
                    assert!(found == bytes, "{number} {round}");
                }
            });
        }
    });
    device.flush().unwrap();
}

#[test]
fn qemu_nbd_is_written_and_read_through_tls() {
    if !are_here(&["qemu-nbd", "openssl"]) {
        return;
    }
    let server = Other::start(|dir| {
        certify(dir);
        std::fs::File::create(dir.join("disk")).unwrap().set_len(8 << 20).unwrap();
        let mut command = Command::new("qemu-nbd");
        let credentials = format!("tls-creds-x509,id=tls0,endpoint=server,dir={},verify-peer=no", dir.display());
        command.args(["--object", &credentials, "--tls-creds", "tls0", "-t", "-f", "raw", "-x", "", "-k"]);
        command.arg(dir.join("socket")).arg(dir.join("disk"));
        command
    });
    let device = open(&trusted(&server));
    let bytes = pattern(3 << 20, 5);
    device.write_at(4096, &[&bytes]).unwrap();
    device.flush().unwrap();
    let mut found = vec![0; bytes.len()];
    device.read_at(4096, &mut found).unwrap();
    assert!(found == bytes);
}

#[test]
fn what_cannot_be_trusted_is_refused() {
    if !are_here(&["nbdkit", "openssl"]) {
        return;
    }
    let refused = |locator: &str| try_open(locator, Access::WRITE).unwrap_err().to_string();
    let server = server(&["--tls=require", "--tls-certificates=DIR", "memory", "1M"]);
    // The authorities of the system do not know this one.
    assert!(refused(&locator(&server, "")).contains("certificate"), "{}", refused(&locator(&server, "")));
    let other = refused(&format!("{}&tls-hostname=elsewhere", trusted(&server)));
    assert!(other.contains("certificate") && other.contains("elsewhere"), "{other}");
    assert!(refused(&locator(&server, "&tls-certificates=/nonexistent")).contains("/nonexistent/ca-cert.pem"));
    // Without TLS this server gives nothing, and says so.
    assert!(refused(&server.locator("")).contains("nbds://"));
    // A server without TLS is not used instead.
    let plain = Other::nbdkit(&["memory", "1M"]);
    assert!(refused(&locator(&plain, "")).contains("the server has no TLS"));
}

#[test]
fn a_server_that_breaks_tls_is_an_error() {
    for (number, garbage) in
        [&b""[..], b"HTTP/1.0 400 Bad Request\r\n\r\n", &[22, 3, 3, 0xff, 0xff], &[0; 70_000]].into_iter().enumerate()
    {
        let server = Scripted::start(move |_, stream| {
            stream.write_all(&Greeting { flags: 3 }.encode()).unwrap();
            let Some(_) = take::<4>(stream) else { return };
            let Some(_) = take::<16>(stream) else { return };
            stream.write_all(&OptionReply::encode(option::STARTTLS, rep::ACK, b"")).unwrap();
            let _ = stream.write_all(garbage);
            if garbage.len() == 5 {
                // A record that never ends.
                std::thread::sleep(std::time::Duration::from_secs(3));
            }
        });
        let locator = server.locator("&timeout=1").replacen("nbd+unix", "nbds+unix", 1);
        let begun = std::time::Instant::now();
        let error = try_open(&locator, Access::WRITE).unwrap_err().to_string();
        assert!(begun.elapsed().as_secs() < 5, "{number}: {error}");
    }
}
