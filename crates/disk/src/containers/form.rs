//! Names the forms of an image. Called by `write` and by everyone who chooses a form.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How an image of a disk is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Form {
    /// The bytes of the disk; zeros are holes where the output has holes.
    Raw,
    /// The copy-on-write form of QEMU, version 3.
    Qcow2,
    /// The sparse form of Android's flashing tools.
    #[serde(rename = "simg")]
    AndroidSparse,
    /// Zstandard frames of 2 MiB with a seek table.
    Zstd,
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Qcow2, Self::AndroidSparse, Self::Zstd];

    /// The name in descriptions and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::AndroidSparse => "simg",
            Self::Zstd => "zstd",
        }
    }

    /// The form that the end of a file's name says: `.qcow2`, `.simg`, `.zst`; raw for all others.
    #[must_use]
    pub fn of_name(path: &Path) -> Self {
        let end = path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
        match end.as_deref() {
            Some("qcow2") => Self::Qcow2,
            Some("simg") => Self::AndroidSparse,
            Some("zst") => Self::Zstd,
            _ => Self::Raw,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Form {
    type Err = String;

    /// The form of a name, as [`Form::name`] tells it.
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|form| form.name() == name);
        found.ok_or_else(|| format!("form `{name}`: expected raw, qcow2, simg or zstd"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_their_form() {
        for (name, form) in [
            ("disk.qcow2", Form::Qcow2),
            ("a.b/DISK.QCOW2", Form::Qcow2),
            ("super.simg", Form::AndroidSparse),
            ("disk.img.zst", Form::Zstd),
            ("disk.img", Form::Raw),
            ("qcow2", Form::Raw),
        ] {
            assert_eq!(Form::of_name(Path::new(name)), form, "{name}");
        }
        for form in Form::ALL {
            assert_eq!(form.name().parse(), Ok(form));
        }
        assert!("vmdk".parse::<Form>().is_err());
    }
}
