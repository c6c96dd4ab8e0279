//! Parses where an image is (`oci:DIR[:TAG]`, `oci-archive:FILE[:TAG]`, `docker-archive:FILE[:TAG]`) and for which
//! platform it is wanted (`OS/ARCHITECTURE[/VARIANT]`). `oci` opens images by them; commands read them from arguments.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How an image is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// A directory in the OCI image layout.
    Layout,
    /// The OCI image layout in a tar archive, compressed or not.
    LayoutArchive,
    /// The archive that `docker save` writes, compressed or not.
    DockerArchive,
}

/// Where an image is. The path ends at the first colon; a path that contains one is given as `Place` itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// How it is stored.
    pub storage: Storage,
    /// The directory or file.
    pub path: PathBuf,
    /// The tag, where there are several images.
    pub tag: Option<String>,
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let forms = "oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker-archive:FILE[:TAG]";
            Error::rule("image", forms, text)
        };
        let (storage, rest) = text.split_once(':').ok_or_else(wrong)?;
        let storage = match storage {
            "oci" => Storage::Layout,
            "oci-archive" => Storage::LayoutArchive,
            "docker-archive" => Storage::DockerArchive,
            _ => return Err(wrong()),
        };
        let (path, tag) = rest.split_once(':').map_or((rest, None), |(path, tag)| (path, Some(tag)));
        if path.is_empty() || tag == Some("") {
            return Err(wrong());
        }
        Ok(Self { storage, path: path.into(), tag: tag.map(str::to_owned) })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let storage = match self.storage {
            Storage::Layout => "oci",
            Storage::LayoutArchive => "oci-archive",
            Storage::DockerArchive => "docker-archive",
        };
        write!(f, "{storage}:{}", self.path.display())?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))
    }
}

/// The platform that an image is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// Operating system, as Go calls it.
    pub os: String,
    /// Architecture, as Go calls it.
    pub architecture: String,
    /// Variant of the architecture; `None` where any will do.
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of the machine that this program was built for.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86" => "386",
            "powerpc64" => "ppc64le",
            "loongarch64" => "loong64",
            other => go_architecture(other),
        };
        Self { os: std::env::consts::OS.to_owned(), architecture: architecture.to_owned(), variant: None }
    }

    /// True if an image of `other` is one for this platform.
    #[must_use]
    pub fn accepts(&self, other: &Self) -> bool {
        let variants = match (self.architecture.as_str(), self.variant.as_deref(), other.variant.as_deref()) {
            (_, None, _) => true,
            // The only variant is often left out.
            ("arm64", wanted, found) => wanted.unwrap_or("v8") == found.unwrap_or("v8"),
            (_, wanted, found) => wanted == found,
        };
        self.os == other.os && self.architecture == other.architecture && variants
    }
}

/// The name that Go has for an architecture.
fn go_architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl FromStr for Platform {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split('/').map(|part| Some(part).filter(|part| !part.is_empty()));
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Some(os)), Some(Some(architecture)), variant @ (None | Some(Some(_))), None) => Ok(Self {
                os: os.to_owned(),
                architecture: go_architecture(architecture).to_owned(),
                variant: variant.flatten().map(str::to_owned),
            }),
            _ => Err(Error::rule("platform", "OS/ARCHITECTURE[/VARIANT]", text)),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_platforms_are_read() {
        let place: Place = "oci:/a/b:docker.io/c:1".parse().unwrap();
        assert_eq!((place.path, place.tag.as_deref()), ("/a/b".into(), Some("docker.io/c:1")));
        for text in ["oci:x", "oci-archive:x.tar:t", "docker-archive:x.tar"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for bad in ["", "oci", "oci:", "oci::t", "oci:x:", "docker:x"] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
        for text in ["linux/amd64", "linux/arm/v7"] {
            assert_eq!(text.parse::<Platform>().unwrap().to_string(), text);
        }
        for bad in ["", "linux", "linux/", "/amd64", "linux/arm/", "linux/arm/v7/x"] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
        let [arm, v8, v9] = ["linux/aarch64", "linux/arm64/v8", "linux/arm64/v9"].map(|text| text.parse().unwrap());
        assert!(Platform::accepts(&arm, &v9) && Platform::accepts(&v8, &arm) && !Platform::accepts(&v9, &arm));
    }
}
