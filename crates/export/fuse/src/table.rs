//! The kernel's table of mounts: what is mounted where, read from /proc/self/mountinfo (proc(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Major and minor number of the file system's device.
    pub device: (u32, u32),
    /// Where.
    pub dir: PathBuf,
    /// Type, as `fuse.braid`.
    pub kind: String,
    /// What.
    pub source: String,
}

/// The file system that is mounted at exactly `dir`, the topmost where there are several.
pub(crate) fn at(dir: &Path) -> std::io::Result<Option<Mounted>> {
    // As bytes: names of mount points need not be UTF-8.
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(parse(&table).filter(|mounted| mounted.dir == dir).last())
}

fn parse(table: &[u8]) -> impl Iterator<Item = Mounted> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line)
}

fn parse_line(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let dir = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    // Optional fields, then a dash.
    fields.find(|field| *field == b"-")?;
    let text = |field| String::from_utf8_lossy(&unescape(field)).into_owned();
    Some(Mounted { device, dir, kind: text(fields.next()?), source: text(fields.next()?) })
}

/// Space, tab, newline and backslash stand there as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'\\').then(|| octal(after.get(..3)?)).flatten();
        plain.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    plain
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_optional_fields_are_read() {
        let table = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:7 - ext3 /dev/root rw\n\
            40 35 0:52 / /mnt/a\\040b\\134 rw - fuse.braid braid:v\\0401 rw,user_id=0\n";
        let all: Vec<Mounted> = parse(table).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].device, all[0].dir.as_path()), ((98, 0), Path::new("/mnt2")));
        assert_eq!((all[0].kind.as_str(), all[0].source.as_str()), ("ext3", "/dev/root"));
        assert_eq!(all[1].dir, Path::new("/mnt/a b\\"));
        assert_eq!((all[1].kind.as_str(), all[1].source.as_str()), ("fuse.braid", "braid:v 1"));
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        for line in
            ["", "1 2 3", "1 2 a:b / /x rw - t s", "1 2 0:1 / /x rw t s", "1 2 0:1 / /x rw - t"]
        {
            assert_eq!(parse_line(line.as_bytes()), None, "{line}");
        }
        assert_eq!(unescape(b"a\\04"), b"a\\04");
        assert_eq!(unescape(b"\\999"), b"\\999");
    }
}
