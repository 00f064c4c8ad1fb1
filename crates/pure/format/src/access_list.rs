//! Access control lists (POSIX.1e, draft 17) in the form of the extended attributes `system.posix_acl_access` and
//! `system.posix_acl_default`, in which Linux hands them to a file system, and in which volumes keep them:
//!
//! ```text
//! version u32 = 2 | for each entry: tag u16 | permissions u16 | user or group u32
//! ```
//! All little-endian. Source of the format: Linux `include/uapi/linux/posix_acl_xattr.h`; of the rules for new files and changed
//! modes: acl(5) and Linux `fs/posix_acl.c`.

/// The attribute with the list by which access to a file is judged.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the list that new files of a directory get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_LEN: usize = 4;
const ENTRY_LEN: usize = 8;
/// The user or group of entries that name none (`ACL_UNDEFINED_ID`).
const NOBODY: u32 = u32::MAX;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The bytes are no valid list: of another version, torn, or without an entry that each list must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an access control list is damaged: {0}; set it anew with setfacl, or remove it with setfacl -b"
)]
pub struct AccessListError(&'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    /// Read 4, write 2, execute 1.
    perm: u16,
    id: u32,
}

/// A valid list: an owner, an owning group, others, and a mask if a user or group is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList {
    entries: Vec<Entry>,
}

impl AccessList {
    /// The list that the value of an attribute holds; `None` for one without entries, which means that there is no list.
    ///
    /// # Errors
    /// When it is not a valid list, by the rules of acl_valid(3), or its entries are in another order than Linux gives them.
    pub fn parse(value: &[u8]) -> Result<Option<AccessList>, AccessListError> {
        let Some((version, rest)) = value.split_first_chunk::<HEADER_LEN>() else {
            return Err(AccessListError("it is too short"));
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(AccessListError("its version is not 2"));
        }
        let (rows, []) = rest.as_chunks::<ENTRY_LEN>() else {
            return Err(AccessListError("its length is not that of whole entries"));
        };
        if rows.is_empty() {
            return Ok(None);
        }
        let entries = rows.iter().map(|&[t0, t1, p0, p1, i0, i1, i2, i3]| Entry {
            tag: u16::from_le_bytes([t0, t1]),
            perm: u16::from_le_bytes([p0, p1]),
            id: u32::from_le_bytes([i0, i1, i2, i3]),
        });
        let list = AccessList { entries: entries.collect() };
        list.check()?;
        Ok(Some(list))
    }

    fn check(&self) -> Result<(), AccessListError> {
        let mut before = 0;
        let mut named = false;
        let mut seen = 0;
        for entry in &self.entries {
            let is_known = matches!(entry.tag, OWNER | USER | OWNING_GROUP | GROUP | MASK | OTHER);
            if !is_known || entry.perm > 7 {
                return Err(AccessListError("an entry has an unknown tag or permission"));
            }
            let repeats = matches!(entry.tag, USER | GROUP);
            if entry.tag < before || (entry.tag == before && !repeats) {
                return Err(AccessListError("its entries are out of order"));
            }
            if repeats && entry.id == NOBODY {
                return Err(AccessListError("an entry names no user or group"));
            }
            named |= repeats;
            seen |= entry.tag;
            before = entry.tag;
        }
        let needed = OWNER | OWNING_GROUP | OTHER | if named { MASK } else { 0 };
        if seen & needed != needed {
            return Err(AccessListError("an entry is missing that each list has"));
        }
        Ok(())
    }

    /// The value of the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEADER_LEN + self.entries.len() * ENTRY_LEN);
        value.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.entries {
            let names = matches!(entry.tag, USER | GROUP);
            value.extend_from_slice(&entry.tag.to_le_bytes());
            value.extend_from_slice(&entry.perm.to_le_bytes());
            value.extend_from_slice(&(if names { entry.id } else { NOBODY }).to_le_bytes());
        }
        value
    }

    fn perm(&self, tag: u16) -> Option<u16> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    /// The tag of the entry that the group's bits of a mode stand for: the mask where there is one.
    fn group_tag(&self) -> u16 {
        if self.perm(MASK).is_some() { MASK } else { OWNING_GROUP }
    }

    /// The nine permission bits of the mode of a file that has this list.
    pub fn mode(&self) -> u16 {
        // A valid list has all three.
        let of = |tag| self.perm(tag).unwrap_or(0);
        of(OWNER) << 6 | of(self.group_tag()) << 3 | of(OTHER)
    }

    /// The mode says all that the list does, so that the list need not be kept.
    pub fn is_just_a_mode(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.tag, OWNER | OWNING_GROUP | OTHER))
    }

    /// Changes the entries that the permission bits of `mode` stand for, as chmod(2) does.
    pub fn set_mode(&mut self, mode: u16) {
        let group = self.group_tag();
        for entry in &mut self.entries {
            match entry.tag {
                OWNER => entry.perm = mode >> 6 & 7,
                OTHER => entry.perm = mode & 7,
                tag if tag == group => entry.perm = mode >> 3 & 7,
                _ => {}
            }
        }
    }

    /// The access list of a new file that is made with `mode` in a directory whose default list this is: no entry that the
    /// mode stands for allows more than the mode. The mode of the file is the list's.
    #[must_use]
    pub fn for_new(&self, mode: u16) -> AccessList {
        let mut list = self.clone();
        list.set_mode(self.mode() & mode);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&perm.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    const ALL: [(u16, u16, u32); 6] = [
        (OWNER, 7, NOBODY),
        (USER, 6, 1000),
        (OWNING_GROUP, 5, NOBODY),
        (GROUP, 7, 50),
        (MASK, 6, NOBODY),
        (OTHER, 1, NOBODY),
    ];

    fn list(entries: &[(u16, u16, u32)]) -> AccessList {
        AccessList::parse(&value(entries)).expect("it is valid").expect("it has entries")
    }

    #[test]
    fn parse_and_encode_are_inverse() {
        assert_eq!(list(&ALL).encode(), value(&ALL));
        assert_eq!(AccessList::parse(&VERSION.to_le_bytes()), Ok(None));
    }

    #[test]
    fn the_group_bits_of_the_mode_are_the_mask() {
        assert_eq!((list(&ALL).mode(), list(&ALL).is_just_a_mode()), (0o761, false));
        let plain = list(&[(OWNER, 6, NOBODY), (OWNING_GROUP, 4, NOBODY), (OTHER, 0, NOBODY)]);
        assert_eq!((plain.mode(), plain.is_just_a_mode()), (0o640, true));
    }

    #[test]
    fn chmod_changes_the_mask_and_leaves_the_owning_group() {
        let mut changed = list(&ALL);
        changed.set_mode(0o640);
        assert_eq!(changed.mode(), 0o640);
        assert_eq!((changed.perm(OWNING_GROUP), changed.perm(MASK)), (Some(5), Some(4)));
    }

    #[test]
    fn a_new_file_gets_no_more_than_its_mode_and_the_default_list_allow() {
        let new = list(&ALL).for_new(0o666);
        assert_eq!((new.mode(), new.perm(USER), new.perm(GROUP)), (0o660, Some(6), Some(7)));
        assert_eq!(list(&ALL).for_new(0o711).mode(), 0o701);
    }

    #[test]
    fn damaged_lists_are_refused() {
        let mut reversed = ALL;
        reversed.reverse();
        let without =
            |gone: u16| -> Vec<_> { ALL.into_iter().filter(|(tag, ..)| *tag != gone).collect() };
        let twice = [&ALL[..], &ALL[5..]].concat();
        let unknown = [&ALL[..], &[(0x40, 7, NOBODY)]].concat();
        let bad =
            [reversed.to_vec(), without(OWNER), without(MASK), without(OTHER), twice, unknown];
        for entries in bad {
            assert!(AccessList::parse(&value(&entries)).is_err(), "{entries:?}");
        }
        for (tag, perm, id) in [(USER, 8, 1), (USER, 7, NOBODY)] {
            let entries = [&ALL[..1], &[(tag, perm, id)], &ALL[2..]].concat();
            assert!(AccessList::parse(&value(&entries)).is_err(), "{entries:?}");
        }
        for bytes in [&b""[..], b"\x02\0\0", b"\x03\0\0\0", &value(&ALL)[..50]] {
            assert!(AccessList::parse(bytes).is_err(), "{bytes:?}");
        }
    }

    /// All short lists that two tags, permissions and an id can make: none panics, and what is taken is written back.
    #[test]
    fn any_bytes_are_refused_or_written_back() {
        for seed in 0..20_000_u32 {
            let mut at = seed;
            let mut next = |below: u32| {
                at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (at >> 16) % below
            };
            let entries: Vec<(u16, u16, u32)> = (0..next(7))
                .map(|_| {
                    let tag = 1 << next(7);
                    let id = if tag == USER || tag == GROUP { next(3) } else { NOBODY };
                    (tag, next(9) as u16, id)
                })
                .collect();
            if let Ok(Some(list)) = AccessList::parse(&value(&entries)) {
                assert_eq!(list.encode(), value(&entries));
                assert!(list.mode() <= 0o777);
                assert_eq!(list.for_new(0o777), list);
            }
        }
    }
}
