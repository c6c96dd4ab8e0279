//! Defines the failures of reading images, manifests and owners. All modules of the crate return it; commands show it.

use std::io;
use std::path::{Path, PathBuf};

/// The result of a step.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Most characters of what was found that a message repeats.
const FOUND_SHOWN_MAX: usize = 120;

/// Why an image, a manifest or the owners of a tree could not be read or applied.
///
/// To do: see each of the failures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tree, its source or the observer refused a step.
    ///
    /// To do: see the cause, which names the path.
    #[error("{0}")]
    Transfer(#[from] transfer::Error),
    /// The host failed or refused to read or write a file.
    ///
    /// To do: see the cause behind the colon.
    #[error("{}: {cause}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// The host's answer.
        #[source]
        cause: io::Error,
    },
    /// An archive, or a layer of an image, could not be read or written.
    ///
    /// To do: see the cause behind the colon, which names the member.
    #[error("{place}: {cause}")]
    Archive {
        /// The archive or layer.
        place: String,
        /// The failure of reading or writing it.
        #[source]
        cause: archive::Error,
    },
    /// A line of a manifest, or of the saved state of fakeroot, is wrong.
    ///
    /// To do: correct the line, or write the file again with the tool that made it.
    #[error("{file}, line {line}: {what}: expected {expected}, found {found}")]
    Line {
        /// Name of the file.
        file: String,
        /// The number of the line, from 1.
        line: u64,
        /// The keyword or field.
        what: String,
        /// The right form.
        expected: String,
        /// The bytes that are there.
        found: String,
    },
    /// A rule that a person gave cannot be read or contradicts another one.
    ///
    /// To do: write the rule in the form that is expected.
    #[error("{what}: expected {expected}, found `{found}`")]
    Rule {
        /// The kind of rule.
        what: &'static str,
        /// The form of such a rule.
        expected: String,
        /// The rule.
        found: String,
    },
    /// A node has an owner or a group that no range maps.
    ///
    /// To do: add a range that contains the id, or keep ids that are not mapped.
    #[error("{}: {kind} {id}: expected an id that a range maps, found none", path.display())]
    Unmapped {
        /// The first such node.
        path: PathBuf,
        /// `user` or `group`.
        kind: &'static str,
        /// The id.
        id: u32,
    },
    /// A part of an image differs from what the image says of it.
    ///
    /// To do: the image is damaged or was changed: copy it again.
    #[error("{place}: {what}: expected {expected}, found {found}")]
    Mismatch {
        /// The file, blob or layer.
        place: String,
        /// The part that differs.
        what: &'static str,
        /// The image's own statement.
        expected: String,
        /// The bytes that are there.
        found: String,
    },
    /// A document of an image is no JSON of its kind.
    ///
    /// To do: the image is damaged, or is none: copy it again.
    #[error("{place}: expected {expected}, found other JSON: {cause}")]
    Json {
        /// The file or blob.
        place: String,
        /// The kind of document.
        expected: &'static str,
        /// Where in the document it went wrong.
        #[source]
        cause: serde_json::Error,
    },
    /// An image uses something that is not read.
    ///
    /// To do: convert the image with another tool, for example `skopeo copy`.
    #[error("{place}: {what}: expected {expected}, found `{found}`")]
    Unsupported {
        /// The file, blob or layer.
        place: String,
        /// The feature that is not supported.
        what: &'static str,
        /// The forms that are.
        expected: &'static str,
        /// The form that the image has.
        found: String,
    },
    /// Something that an image names is not there.
    ///
    /// To do: copy the image again, with all its parts.
    #[error("{place}: {what}: expected it to be there, found nothing")]
    Missing {
        /// The image, file or layer.
        place: String,
        /// The missing part.
        what: String,
    },
    /// No image, or several, match the tag and the platform.
    ///
    /// To do: give one of the tags or platforms that the message names.
    #[error("{place}: expected one image for {wanted}, found {found}")]
    Choice {
        /// The image's place.
        place: String,
        /// Tag and platform.
        wanted: String,
        /// The images that there are.
        found: String,
    },
    /// Something exceeds a limit of this program.
    ///
    /// To do: if the input is trusted, raise the limit where there is an option; else do not use it.
    #[error("{place}: {what}: expected {limit} at most, found more")]
    Limit {
        /// The file, blob or layer.
        place: String,
        /// The part that is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
}

impl Error {
    /// A failure of the host with the file that it is about.
    pub(crate) fn host(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Host { path: path.as_ref().to_owned(), cause }
    }

    /// A failure of an archive with its place.
    pub(crate) fn archive(place: &str) -> impl FnOnce(archive::Error) -> Self + use<> {
        let place = place.to_owned();
        move |cause| Self::Archive { place, cause }
    }

    /// A wrong rule.
    pub(crate) fn rule(what: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Rule { what, expected: expected.into(), found: found.into() }
    }
}

/// Bytes of an untrusted file as a message shows them: short, and without control characters.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text.chars().take(FOUND_SHOWN_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(FOUND_SHOWN_MAX).is_some() {
        shown.push_str("...");
    }
    format!("`{shown}`")
}
