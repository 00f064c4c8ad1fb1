//! The few ioctls that a file system answers: attributes of files as chattr(1) and xfs_io(8) set them, and fstrim(8). The
//! kernel checks who may change attributes, and asks us for both forms of them (linux/fs.h).

use super::fields::{Fields, Out};
use crate::work::{Form, NewFlags, Work};
use braid_filesystem::{Caller, FileFlags, Ino, TrimRange};
use rustix::io::Errno;

// Numbers of linux/fs.h, as most machines encode them: direction, size, group, number.
const READ: u32 = 2 << 30;
const WRITE: u32 = 1 << 30;
/// The argument is declared as a `long`, and is an `int`.
const LONG: u32 = (size_of::<usize>() as u32) << 16;
const FSXATTR: u32 = 28 << 16;
const GETFLAGS: u32 = READ | LONG | (b'f' as u32) << 8 | 1;
const SETFLAGS: u32 = WRITE | LONG | (b'f' as u32) << 8 | 2;
const FSGETXATTR: u32 = READ | FSXATTR | (b'X' as u32) << 8 | 31;
const FSSETXATTR: u32 = WRITE | FSXATTR | (b'X' as u32) << 8 | 32;
const FITRIM: u32 = READ | WRITE | 24 << 16 | (b'X' as u32) << 8 | 121;

/// The bits of immutable, append, no time of reading, no dump, inherits the project.
fn bits(form: Form) -> [u32; 5] {
    match form {
        Form::Flags => [0x10, 0x20, 0x80, 0x40, 0x2000_0000],
        Form::Extended => [0x8, 0x10, 0x40, 0x80, 0x200],
    }
}

fn word(form: Form, flags: FileFlags) -> u32 {
    let FileFlags { immutable, append, no_atime, no_dump, inherits_project, .. } = flags;
    let set = [immutable, append, no_atime, no_dump, inherits_project];
    let pairs = bits(form).into_iter().zip(set);
    pairs.fold(0, |word, (bit, is_set)| if is_set { word | bit } else { word })
}

/// The attributes of a word, without a project. `None`: a bit is set that means nothing here.
fn flags_of(form: Form, word: u32) -> Option<FileFlags> {
    let bits = bits(form);
    if word & !bits.into_iter().fold(0, |all, bit| all | bit) != 0 {
        return None;
    }
    let [immutable, append, no_atime, no_dump, inherits_project] = bits.map(|bit| word & bit != 0);
    Some(FileFlags { immutable, append, no_atime, no_dump, inherits_project, project: 0 })
}

/// The ioctl that `fields`, `fuse_ioctl_in` and what comes with it, ask for. `None`: it is too short.
pub(crate) fn parse(
    caller: Caller,
    ino: Ino,
    fields: &mut Fields<'_>,
) -> Option<Result<Work, Errno>> {
    fields.skip(8 + 4)?;
    let command = fields.u32()?;
    fields.skip(8 + 4 + 4)?;
    Some(Ok(match command {
        GETFLAGS => Work::Flags { ino, form: Form::Flags },
        FSGETXATTR => Work::Flags { ino, form: Form::Extended },
        SETFLAGS => {
            let form = Form::Flags;
            let Some(flags) = flags_of(form, fields.u32()?) else {
                return Some(Err(Errno::OPNOTSUPP));
            };
            Work::SetFlags { ino, new: NewFlags { form, flags } }
        }
        FSSETXATTR => {
            let form = Form::Extended;
            let parsed = flags_of(form, fields.u32()?);
            // Sizes of extents, which only XFS has, and their number, which cannot be set.
            let hint = fields.u32()?;
            fields.skip(4)?;
            let project = fields.u32()?;
            let Some(flags) = parsed.filter(|_| hint == 0) else {
                return Some(Err(Errno::OPNOTSUPP));
            };
            Work::SetFlags { ino, new: NewFlags { form, flags: FileFlags { project, ..flags } } }
        }
        FITRIM => {
            let (start, len, min_len) = (fields.u64()?, fields.u64()?, fields.u64()?);
            Work::Trim { caller, range: TrimRange { start, len, min_len } }
        }
        _ => return Some(Err(Errno::NOTTY)),
    }))
}

fn done() -> Out {
    // The result, and three fields that only ioctls without a fixed size need.
    Out::new().u32(0).u32(0).u32(0).u32(0)
}

/// An ioctl was done that gives nothing.
pub(crate) fn nothing() -> Out {
    done()
}

/// The attributes in that form.
pub(crate) fn flags(flags: FileFlags, form: Form) -> Out {
    let out = done().u32(word(form, flags));
    match form {
        Form::Flags => out,
        Form::Extended => out.u32(0).u32(0).u32(flags.project).u32(0).u64(0),
    }
}

/// So many bytes were trimmed of what `range` asked for.
pub(crate) fn trimmed(range: TrimRange, bytes: u64) -> Out {
    done().u64(range.start).u64(bytes).u64(range.min_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn numbers_are_those_of_linux_fs_h() {
        assert_eq!((GETFLAGS, SETFLAGS), (0x8008_6601, 0x4008_6602));
        assert_eq!((FSGETXATTR, FSSETXATTR, FITRIM), (0x801c_581f, 0x401c_5820, 0xc018_5879));
    }

    fn request(command: u32, data: &[u32]) -> Vec<u8> {
        let words = [&[0, 0, 0, command, 0, 0, 0, 0][..], data].concat();
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn parsed(command: u32, data: &[u32]) -> Option<Result<Work, Errno>> {
        parse(Caller::default(), 5, &mut Fields(&request(command, data)))
    }

    #[test]
    fn both_forms_mean_the_same_attributes() {
        let all = FileFlags {
            immutable: true,
            append: false,
            no_atime: true,
            no_dump: false,
            inherits_project: true,
            project: 7,
        };
        for (form, len) in [(Form::Flags, 20), (Form::Extended, 44)] {
            assert_eq!(flags_of(form, word(form, all)), Some(FileFlags { project: 0, ..all }));
            assert_eq!(flags(all, form).bytes().len(), len);
        }
        let Some(Ok(Work::SetFlags { ino: 5, new })) =
            parsed(FSSETXATTR, &[word(Form::Extended, all), 0, 0, 7, 0, 0, 0])
        else {
            panic!("it is a change of attributes");
        };
        assert_eq!(new, NewFlags { form: Form::Extended, flags: all });
    }

    #[test]
    fn what_is_not_known_is_refused() {
        // FS_COMPR_FL, an extent size, another command, too few bytes.
        assert!(matches!(parsed(SETFLAGS, &[4]), Some(Err(Errno::OPNOTSUPP))));
        assert!(matches!(parsed(FSSETXATTR, &[0, 1, 0, 0, 0, 0, 0]), Some(Err(Errno::OPNOTSUPP))));
        assert!(matches!(parsed(0x1234, &[]), Some(Err(Errno::NOTTY))));
        assert!(parsed(SETFLAGS, &[]).is_none() && parsed(FITRIM, &[0, 0, 0]).is_none());
    }
}
