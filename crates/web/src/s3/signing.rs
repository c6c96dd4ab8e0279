//! Computes AWS Signature Version 4 (the rules are in AWS's "Authenticating Requests" for S3). Pure.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::credentials::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";

/// The signed parts of a request.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// Percent-encoded, as it is sent.
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    /// In lower case and in order.
    pub(super) headers: &'a [(String, String)],
    pub(super) body_sha256: &'a str,
}

/// The value of the header `Authorization`; `now` is `YYYYMMDDTHHMMSSZ`.
pub(super) fn authorization(request: &Request<'_>, credentials: &Credentials, region: &str, now: &str) -> String {
    let day = now.split('T').next().unwrap_or_default();
    let scope = format!("{day}/{region}/{SERVICE}/aws4_request");
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let lines: String = request.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let Request { method, path, query, body_sha256, .. } = request;
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body_sha256}");
    let to_sign = format!("{ALGORITHM}\n{now}\n{scope}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
    let first = format!("AWS4{}", credentials.secret.reveal());
    let steps = [day, region, SERVICE, "aws4_request", to_sign.as_str()];
    let signature = steps.iter().fold(first.into_bytes(), |key, text| mac(&key, text));
    let key = &credentials.key;
    format!("{ALGORITHM} Credential={key}/{scope},SignedHeaders={names},Signature={}", hex(&signature))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{NO_BODY, Secret};
    use super::*;

    /// The example "GET Object" of AWS's documentation.
    #[test]
    fn the_example_of_the_documentation_has_its_signature() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let request = Request {
            method: "GET",
            path: "/test.txt",
            query: "",
            headers: &[
                header("host", "examplebucket.s3.amazonaws.com"),
                header("range", "bytes=0-9"),
                header("x-amz-content-sha256", NO_BODY),
                header("x-amz-date", "20130524T000000Z"),
            ],
            body_sha256: NO_BODY,
        };
        let credentials = Credentials {
            key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            token: None,
        };
        let found = authorization(&request, &credentials, "us-east-1", "20130524T000000Z");
        assert_eq!(
            found,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }
}
