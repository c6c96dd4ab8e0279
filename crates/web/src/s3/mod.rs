//! S3: where a bucket is, and how requests to it are signed.
//!
//! * [`credentials`] finds keys and settings in variables and files, as the tools of AWS do.
//! * [`signing`] computes signatures (AWS Signature Version 4). Pure.
//!
//! Invariant: secrets are in no message and no `Debug` output.
//!
//! Left out: roles, single sign-on and the metadata services of machines, which need requests of their own; `aws
//! configure export-credentials --format env` prints what they give as variables. Caller: `client`.

pub(crate) mod credentials;
mod signing;

use std::sync::Arc;
use std::time::SystemTime;

use ureq::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

use self::credentials::{Credentials, Settings};
use crate::date::Date;
use crate::error::{Error, Result};
use crate::percent;

/// The scheme of locators.
pub(crate) const SCHEME: &str = "s3";
/// The region of a bucket if no setting names one.
const REGION: &str = "us-east-1";
/// The SHA-256 of an empty body.
pub(crate) const NO_BODY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Signs requests to one bucket.
#[derive(Debug)]
pub(crate) struct Signer {
    /// Without them requests are not signed: public buckets.
    credentials: Option<Credentials>,
    region: String,
}

/// The address of the object that `BUCKET/KEY` names, and the signer for it.
///
/// # Errors
/// [`Error::Address`], [`Error::Credentials`].
pub(crate) fn locate(target: &str) -> Result<(Uri, Option<Signer>)> {
    place(target, Settings::find()?)
}

fn place(target: &str, settings: Settings) -> Result<(Uri, Option<Signer>)> {
    let (bucket, key) = target.split_once('/').unwrap_or((target, ""));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if bucket.is_empty() || !bucket.bytes().all(is_name) || bucket.contains("..") {
        return Err(Error::Address { why: "the name of a bucket has letters, digits, `.`, `-` and `_`" });
    }
    if key.is_empty() {
        return Err(Error::Address { why: "a key is missing: s3://BUCKET/KEY" });
    }
    let Settings { credentials, region, endpoint } = settings;
    let region = region.unwrap_or_else(|| REGION.to_owned());
    let key = percent::encode_path(key.as_bytes());
    let address = match endpoint {
        Some(endpoint) => {
            let endpoint = endpoint.trim_end_matches('/');
            let endpoint = without_default_port(endpoint);
            format!("{endpoint}/{bucket}/{key}")
        }
        // A dot in the name would not fit the certificate of the server.
        None if bucket.contains(['.', '_']) => format!("https://s3.{region}.amazonaws.com/{bucket}/{key}"),
        None => format!("https://{bucket}.s3.{region}.amazonaws.com/{key}"),
    };
    let address: Uri =
        address.parse().map_err(|_| Error::Address { why: "AWS_ENDPOINT_URL or AWS_REGION is malformed" })?;
    if !matches!(address.scheme_str(), Some("http" | "https")) || address.authority().is_none() {
        return Err(Error::Address { why: "AWS_ENDPOINT_URL: expected http://HOST or https://HOST" });
    }
    Ok((address, Some(Signer { credentials, region })))
}

/// The client does not send it in `Host`, which is signed.
fn without_default_port(endpoint: &str) -> &str {
    let (https, http) = (endpoint.strip_suffix(":443"), endpoint.strip_suffix(":80"));
    match (https, http) {
        (Some(plain), _) if endpoint.starts_with("https://") => plain,
        (_, Some(plain)) if endpoint.starts_with("http://") => plain,
        _ => endpoint,
    }
}

impl Signer {
    pub(crate) fn is_anonymous(&self) -> bool {
        self.credentials.is_none()
    }

    /// Adds the signature to the headers of a request whose body has this SHA-256.
    ///
    /// # Errors
    /// [`Error::Credentials`] for a token that is no header.
    pub(crate) fn sign(&self, method: &str, address: &Uri, headers: &mut HeaderMap, body_sha256: &str) -> Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = Date::from_seconds(i64::try_from(now).unwrap_or(i64::MAX)).basic();
        self.sign_at(method, address, headers, body_sha256, &now)
    }

    fn sign_at(
        &self,
        method: &str,
        address: &Uri,
        headers: &mut HeaderMap,
        body_sha256: &str,
        now: &str,
    ) -> Result<()> {
        let Some(credentials) = &self.credentials else { return Ok(()) };
        let text = |text: &str| {
            let value = HeaderValue::from_str(text);
            value.map_err(|_| Error::Credentials("a key or token has control characters".to_owned()))
        };
        headers.insert(HeaderName::from_static("x-amz-date"), text(now)?);
        headers.insert(HeaderName::from_static("x-amz-content-sha256"), text(body_sha256)?);
        if let Some(token) = &credentials.token {
            let mut token = text(token)?;
            token.set_sensitive(true);
            headers.insert(HeaderName::from_static("x-amz-security-token"), token);
        }
        let mut signed = vec![("host".to_owned(), address.authority().map_or("", |host| host.as_str()).to_owned())];
        let is_signed = |name: &HeaderName| name.as_str().starts_with("x-amz-") || *name == header::RANGE;
        for (name, value) in headers.iter().filter(|(name, _)| is_signed(name)) {
            signed.push((name.as_str().to_owned(), value.to_str().unwrap_or_default().to_owned()));
        }
        signed.sort();
        let request = signing::Request {
            method,
            path: address.path(),
            query: address.query().unwrap_or_default(),
            headers: &signed,
            body_sha256,
        };
        let authorization = signing::authorization(&request, credentials, &self.region, now);
        let mut authorization = text(&authorization)?;
        authorization.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, authorization);
        Ok(())
    }
}

/// The words of an error of S3 (`<Code>` and `<Message>`).
pub(crate) fn reason(body: &str) -> Option<String> {
    let between = |tag: &str| {
        let (_, rest) = body.split_once(&format!("<{tag}>"))?;
        Some(rest.split_once(&format!("</{tag}>"))?.0.to_owned())
    };
    let code = between("Code")?;
    Some(between("Message").map_or_else(|| code.clone(), |message| format!("{code}: {message}")))
}

/// A shared text that shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Arc<str>);

impl Secret {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

impl std::ops::Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        self.reveal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(endpoint: Option<&str>) -> Settings {
        let key = Some(Credentials { key: "AKIDEXAMPLE".to_owned(), secret: Secret::new("hush"), token: None });
        Settings { credentials: key, region: Some("eu-west-1".to_owned()), endpoint: endpoint.map(str::to_owned) }
    }

    fn address(target: &str, endpoint: Option<&str>) -> String {
        place(target, settings(endpoint)).unwrap().0.to_string()
    }

    #[test]
    fn buckets_have_a_host_or_a_path() {
        assert_eq!(address("pics/a b/c.img", None), "https://pics.s3.eu-west-1.amazonaws.com/a%20b/c.img");
        assert_eq!(address("my.pics/c", None), "https://s3.eu-west-1.amazonaws.com/my.pics/c");
        assert_eq!(address("pics/c+d", Some("http://[::1]:9000/")), "http://[::1]:9000/pics/c%2Bd");
        assert_eq!(address("pics/c", Some("https://store:443")), "https://store/pics/c");
        for wrong in ["", "/key", "pics", "pics/", "pi cs/key", "pics@evil/key", "a..b/key", "pi:cs/key"] {
            assert!(matches!(place(wrong, settings(None)), Err(Error::Address { .. })), "{wrong}");
        }
        for endpoint in ["ftp://host", "host", "http://", "http://a b"] {
            assert!(place("pics/key", settings(Some(endpoint))).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        let (address, signer) = place("pics/key", settings(None)).unwrap();
        let (mut headers, signer) = (HeaderMap::new(), signer.unwrap());
        signer.sign_at("GET", &address, &mut headers, NO_BODY, "20130524T000000Z").unwrap();
        let shown = format!("{signer:?} {headers:?}");
        assert!(!shown.contains("hush") && !shown.contains("Signature="), "{shown}");
    }

    #[test]
    fn reasons_of_errors_are_found() {
        let xml = "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code><Message>No such key.</Message></Error>";
        assert_eq!(reason(xml).as_deref(), Some("NoSuchKey: No such key."));
        assert_eq!(reason("<Code>a"), None);
        assert_eq!(reason("<Code>AccessDenied</Code>").as_deref(), Some("AccessDenied"));
    }
}
