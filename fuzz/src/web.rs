//! Heads and headers of HTTP that servers and clients send, and files with settings for S3.

use std::os::unix::ffi::OsStrExt;

use ::web::range::{ContentRange, Wanted};
use ::web::server::{HEAD_BYTES_MAX, Head};

/// The head of a request: its path never leads up, and has no separators that were hidden.
pub fn web_request(data: &[u8]) {
    let Ok(Some((head, len))) = Head::parse(data) else { return };
    assert!(len <= data.len() && len <= HEAD_BYTES_MAX);
    let path = head.target.path.as_os_str().as_bytes();
    assert!(path.starts_with(b"/") && !path.contains(&0));
    assert!(path.split(|byte| *byte == b'/').all(|name| name != b".." && name != b"."));
    // Bytes behind the head change nothing.
    assert_eq!(Head::parse(&data[..len]), Ok(Some((head, len))));
}

/// `Range` and `Content-Range`; the first 8 bytes are the size of the file.
pub fn web_range(data: &[u8]) {
    let Some((size, text)) = data.split_first_chunk::<8>() else { return };
    let (size, text) = (u64::from_le_bytes(*size), String::from_utf8_lossy(text));
    if let Wanted::Parts(parts) = Wanted::parse(&text, size) {
        assert!(!parts.is_empty());
        for (first, len) in parts {
            assert!(len > 0 && first.checked_add(len).is_some_and(|end| end <= size));
        }
    }
    if let Some(ContentRange { bytes: Some((first, last)), total }) = ContentRange::parse(&text) {
        assert!(first <= last && total.is_none_or(|total| last < total));
    }
}

/// Files with credentials and settings; a name stands before the first line break. Secrets show nowhere.
pub fn web_settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some((name, text)) = text.split_once('\n') else { return };
    if let Some(profile) = ::web::parse_profile(text, name) {
        assert!(format!("{profile:?}").len() <= 200 + 8 * text.len());
    }
}
