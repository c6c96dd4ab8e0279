//! Formats commands as `btrfs receive --dump` does: one line each, with name, path and fields. The command `receive
//! --dump` calls it.
//!
//! Times are in UTC. Bytes that could break a line are escaped, in xattr names and values too.

use crate::command::Command;
use crate::value::Time;
use std::io::{Result, Write};

/// Width of the name column.
const NAME_WIDTH: usize = 16;
/// Width of the path column; longer paths shift the rest to the right.
const PATH_WIDTH: usize = 32;

/// Formats the commands of streams, with paths below `./` and the name of the subvolume.
#[derive(Debug, Default)]
pub struct Dump {
    /// The subvolume of the last stream.
    subvolume: Vec<u8>,
}

impl Dump {
    /// An empty dump.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes one line. The end command has none.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn line(&mut self, command: &Command<'_>, out: &mut impl Write) -> Result<()> {
        let Some(path) = command.path() else {
            return Ok(());
        };
        let full = if matches!(command, Command::Subvol { .. } | Command::Snapshot { .. }) {
            self.subvolume = below(b".", path);
            self.subvolume.clone()
        } else {
            below(&self.subvolume, path)
        };
        let escaped = escaped(&full);
        let rest = self.rest(command);
        write!(out, "{:<NAME_WIDTH$}", command.name())?;
        match rest {
            Some(rest) => writeln!(out, "{escaped:<width$} {rest}", width = PATH_WIDTH.saturating_sub(1)),
            None => writeln!(out, "{escaped}"),
        }
    }

    /// The fields after the path.
    fn rest(&self, command: &Command<'_>) -> Option<String> {
        Some(match *command {
            Command::Subvol { uuid, ctransid, .. } => format!("uuid={} transid={ctransid}", btrfs_disk::Uuid(uuid)),
            Command::Snapshot { uuid, ctransid, parent_uuid, parent_ctransid, .. } => format!(
                "uuid={} transid={ctransid} parent_uuid={} parent_transid={parent_ctransid}",
                btrfs_disk::Uuid(uuid),
                btrfs_disk::Uuid(parent_uuid)
            ),
            Command::Mknod(special) => format!("mode={:o} dev={:#x}", special.mode, special.rdev),
            Command::Symlink { target, .. } => format!("dest={}", escaped(target)),
            Command::Rename { to, .. } => format!("dest={}", escaped(&below(&self.subvolume, to))),
            Command::Link { existing, .. } => format!("dest={}", escaped(existing)),
            Command::SetXattr { name, value, .. } => xattr(name, value),
            Command::RemoveXattr { name, .. } => format!("name={}", escaped(name)),
            Command::Write { offset, data, .. } => format!("offset={offset} len={}", data.len()),
            Command::Clone(range) => {
                let from = escaped(&below(&self.subvolume, range.from_path));
                format!("offset={} len={} from={from} clone_offset={}", range.offset, range.len, range.from_offset)
            }
            Command::Truncate { size, .. } => format!("size={size}"),
            Command::Chmod { mode, .. } => format!("mode={mode:o}"),
            Command::Chown { uid, gid, .. } => format!("gid={gid} uid={uid}"),
            Command::Utimes { atime, mtime, ctime, .. } => {
                format!("atime={} mtime={} ctime={}", local(atime), local(mtime), local(ctime))
            }
            Command::UpdateExtent { offset, size, .. } => format!("offset={offset} len={size}"),
            Command::Fallocate { mode, offset, size, .. } => format!("mode={mode} offset={offset} len={size}"),
            Command::Fileattr { flags, .. } => format!("fileattr=0x{flags:x}"),
            Command::EncodedWrite(write) => format!(
                "offset={} len={}, unencoded_file_len={}, unencoded_len={}, unencoded_offset={}, compression={}, \
                 encryption=0",
                write.offset,
                write.data.len(),
                write.unencoded_file_len,
                write.unencoded_len,
                write.unencoded_offset,
                write.compression.to_raw()
            ),
            _ => return None,
        })
    }
}

fn xattr(name: &[u8], value: &[u8]) -> String {
    // Like C strings: the value ends at the first NUL.
    let printed = value.split(|byte| *byte == 0).next().unwrap_or_default();
    format!("name={} data={} len={}", escaped(name), escaped(printed), value.len())
}

/// `path` below `directory`, joined like the reference tool: an empty path leaves a slash.
fn below(directory: &[u8], path: &[u8]) -> Vec<u8> {
    [directory, b"/", path].concat()
}

/// Escapes bytes of `path` that could break a line, as in C.
fn escaped(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path {
        match byte {
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            0x1b => out.push_str("\\e"),
            0x0c => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x0b => out.push_str("\\v"),
            b' ' => out.push_str("\\ "),
            b'\\' => out.push_str("\\\\"),
            0x21..=0x7e => out.push(char::from(*byte)),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out
}

/// A time in the `%FT%T%z` form of strftime, in UTC.
fn local(time: Time) -> String {
    let (days, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    let (year, month, day) = date(i128::from(days));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+0000")
}

/// The Gregorian date of a day number counted from 1970.
#[expect(clippy::arithmetic_side_effects, reason = "days of 64-bit seconds are far below 128 bits")]
fn date(days: i128) -> (i128, i128, i128) {
    // Years begin in March here, so a leap day comes last in its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i128::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        let cases = [
            (0, "1970-01-01T00:00:00+0000"),
            (951_827_696, "2000-02-29T12:34:56+0000"),
            (-1, "1969-12-31T23:59:59+0000"),
            (4_107_542_400, "2100-03-01T00:00:00+0000"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(local(Time { seconds, nanoseconds: 0 }), expected);
        }
        for seconds in [i64::MIN, i64::MAX] {
            local(Time { seconds, nanoseconds: 0 });
        }
    }

    /// The lines equal those of btrfs-progs 6.2 for the same commands.
    #[test]
    fn lines_are_those_of_the_reference_tool() {
        let mut uuid = [0; 16];
        uuid.iter_mut().zip(0..).for_each(|(to, byte)| *to = byte);
        let time = |seconds| Time { seconds, nanoseconds: 5 };
        let long: &[u8] = &[b'x'; 40];
        let (atime, mtime, ctime) = (time(100), time(1 << 33), time(100));
        let cases = [
            (
                Command::Subvol { path: b"sub", uuid, ctransid: 9 },
                "subvol          ./sub                           uuid=00010203-0405-0607-0809-0a0b0c0d0e0f transid=9",
            ),
            (Command::Mkfile { path: b"a b\x01", ino: None }, "mkfile          ./sub/a\\ b\\001"),
            (
                Command::Fallocate { path: b"f", mode: 3, offset: 4096, size: 8192 },
                "fallocate       ./sub/f                         mode=3 offset=4096 len=8192",
            ),
            (
                Command::Utimes { path: b"", atime, mtime, ctime, otime: None },
                "utimes          ./sub/                          atime=1970-01-01T00:01:40+0000 \
                 mtime=2242-03-16T12:56:32+0000 ctime=1970-01-01T00:01:40+0000",
            ),
            (
                Command::SetXattr { path: b"f", name: b"user.x", value: b"ab\0c\n" },
                "set_xattr       ./sub/f                         name=user.x data=ab len=5",
            ),
            (
                Command::Rename { path: b"x y", to: b"z z" },
                "rename          ./sub/x\\ y                      dest=./sub/z\\ z",
            ),
            (
                Command::Link { path: b"x y", existing: b"z z" },
                "link            ./sub/x\\ y                      dest=z\\ z",
            ),
            (
                Command::Write { path: long, offset: 5, data: b"abcd" },
                "write           ./sub/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx offset=5 len=4",
            ),
        ];
        let mut dump = Dump::new();
        for (command, expected) in cases {
            let mut line = Vec::new();
            dump.line(&command, &mut line).unwrap();
            assert_eq!(String::from_utf8(line).unwrap(), format!("{expected}\n"));
        }
    }

    #[test]
    fn paths_cannot_break_a_line() {
        assert_eq!(escaped(b"a b\n\\\x01\xff"), "a\\ b\\n\\\\\\001\\377");
    }
}
