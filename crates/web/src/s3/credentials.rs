//! Finds keys, region and endpoint for S3 where the tools of AWS look: variables first, then the profile in
//! `~/.aws/credentials` and `~/.aws/config`.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::PathBuf;

use super::Secret;
use crate::error::{Error, Result};
use crate::number::to_u64;

/// Longest file of settings.
const FILE_BYTES_MAX: usize = 1 << 20;
/// The profile without `AWS_PROFILE`.
const DEFAULT: &str = "default";

/// The keys of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) key: String,
    pub(crate) secret: Secret,
    pub(crate) token: Option<Secret>,
}

/// All that is known about where S3 is and who asks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) credentials: Option<Credentials>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

/// The settings of one profile in a file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Profile {
    /// `aws_access_key_id`.
    pub key: Option<String>,
    /// `aws_secret_access_key`; it shows nothing.
    secret: Option<Secret>,
    /// `aws_session_token`; it shows nothing.
    token: Option<Secret>,
    /// `region`.
    pub region: Option<String>,
    /// `endpoint_url`.
    pub endpoint: Option<String>,
}

impl Settings {
    /// Reads variables and files.
    ///
    /// # Errors
    /// [`Error::Credentials`] for a profile that was asked for and is missing, for half a key, and for a file that
    /// cannot be read.
    pub(crate) fn find() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let file = |name: &str, default: &str| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.or_else(|| Some(home.as_ref()?.join(default))).map_or(Ok(None), |path| read(&path.into()))
        };
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")?;
        let config = file("AWS_CONFIG_FILE", ".aws/config")?;
        Self::of(variable, credentials.as_deref(), config.as_deref())
    }

    /// The settings by variables and by the texts of the two files.
    fn of(variable: impl Fn(&str) -> Option<String>, credentials: Option<&str>, config: Option<&str>) -> Result<Self> {
        let asked = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
        let name = asked.as_deref().unwrap_or(DEFAULT);
        let own = credentials.and_then(|text| parse_profile(text, name));
        let title = if name == DEFAULT { DEFAULT.to_owned() } else { format!("profile {name}") };
        let other = config.and_then(|text| parse_profile(text, &title));
        let own_key =
            keys(variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"), || variable("AWS_SESSION_TOKEN"))?;
        if own.is_none() && other.is_none() && asked.is_some() && own_key.is_none() {
            return Err(Error::Credentials(format!("the profile `{name}` is in neither file of AWS settings")));
        }
        let (own, other) = (own.unwrap_or_default(), other.unwrap_or_default());
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let endpoint = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
        let credentials = match own_key {
            Some(found) => Some(found),
            None => own.credentials()?.map_or_else(|| other.credentials(), |found| Ok(Some(found)))?,
        };
        Ok(Self {
            credentials,
            region: region.or(own.region).or(other.region),
            endpoint: endpoint.or(own.endpoint).or(other.endpoint),
        })
    }
}

impl Profile {
    fn credentials(&self) -> Result<Option<Credentials>> {
        let reveal = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.reveal().to_owned());
        keys(self.key.clone(), reveal(&self.secret), || reveal(&self.token))
    }
}

fn keys(
    key: Option<String>,
    secret: Option<String>,
    token: impl FnOnce() -> Option<String>,
) -> Result<Option<Credentials>> {
    match (key, secret) {
        (Some(key), Some(secret)) => {
            let token = token().map(|token| Secret::new(&token));
            Ok(Some(Credentials { key, secret: Secret::new(&secret), token }))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::Credentials("an access key without its secret".to_owned())),
        (None, Some(_)) => Err(Error::Credentials("a secret without its access key".to_owned())),
    }
}

/// The text of a file; `None` if there is none.
fn read(path: &OsString) -> Result<Option<String>> {
    let failed = |error: &dyn std::fmt::Display| Error::Credentials(format!("{}: {error}", path.display()));
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let mut text = String::new();
    let limit = to_u64(FILE_BYTES_MAX).saturating_add(1);
    file.take(limit).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() > FILE_BYTES_MAX {
        return Err(failed(&"longer than 1 MiB"));
    }
    Ok(Some(text))
}

/// The settings below the title `[NAME]` of a file; `None` without that title. Lines that are no setting, and settings
/// of other purposes, are passed over. Indented lines belong to a setting with parts, none of which is used.
#[must_use]
pub fn parse_profile(text: &str, name: &str) -> Option<Profile> {
    let mut found: Option<Profile> = None;
    let mut is_ours = false;
    for line in text.lines() {
        let plain = line.trim();
        if let Some(title) = plain.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            is_ours = title.split_whitespace().eq(name.split_whitespace());
            if is_ours {
                found.get_or_insert_default();
            }
            continue;
        }
        let is_comment = plain.starts_with('#') || plain.starts_with(';');
        if !is_ours || is_comment || line.starts_with([' ', '\t']) {
            continue;
        }
        let Some((key, value)) = plain.split_once('=') else { continue };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        let Some(profile) = found.as_mut().filter(|_| !value.is_empty()) else { continue };
        match key.as_str() {
            "aws_access_key_id" => profile.key = Some(value.to_owned()),
            "aws_secret_access_key" => profile.secret = Some(Secret::new(value)),
            "aws_session_token" => profile.token = Some(Secret::new(value)),
            "region" => profile.region = Some(value.to_owned()),
            "endpoint_url" => profile.endpoint = Some(value.to_owned()),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = AKID\naws_secret_access_key=abc=/+\n\n\
        [work]\nAWS_ACCESS_KEY_ID=WORK\naws_secret_access_key = w\naws_session_token = t\n\
        [half]\naws_access_key_id=H\n";
    const CONFIG: &str = "[default]\nregion = eu-north-1\ns3 =\n  region = wrong\n[profile work]\n\
        region=us-west-2\nendpoint_url = http://127.0.0.1:9000\n";

    fn settings(variables: &[(&str, &str)]) -> Result<Settings> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Settings::of(variable, Some(CREDENTIALS), Some(CONFIG))
    }

    #[test]
    fn variables_count_before_files_and_the_profile_can_be_chosen() {
        let found = settings(&[]).unwrap();
        let key = found.credentials.unwrap();
        assert_eq!((key.key.as_str(), key.secret.reveal(), key.token), ("AKID", "abc=/+", None));
        assert_eq!((found.region.as_deref(), found.endpoint), (Some("eu-north-1"), None));

        let work = settings(&[("AWS_PROFILE", "work"), ("AWS_REGION", "here")]).unwrap();
        assert_eq!((work.region.as_deref(), work.endpoint.as_deref()), (Some("here"), Some("http://127.0.0.1:9000")));
        assert_eq!(work.credentials.unwrap().token.unwrap().reveal(), "t");

        let own = [("AWS_ACCESS_KEY_ID", "K"), ("AWS_SECRET_ACCESS_KEY", "S"), ("AWS_PROFILE", "none")];
        assert_eq!(settings(&own).unwrap().credentials.unwrap().key, "K");
    }

    #[test]
    fn what_is_missing_is_named_without_its_secret() {
        for (variables, words) in [
            (&[("AWS_PROFILE", "none")][..], "profile `none`"),
            (&[("AWS_PROFILE", "half")], "without its secret"),
            (&[("AWS_SECRET_ACCESS_KEY", "hush")], "without its access key"),
        ] {
            let error = settings(variables).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("hush"), "{error}");
        }
        assert_eq!(Settings::of(|_| None, None, None).unwrap(), Settings::default());
    }
}
