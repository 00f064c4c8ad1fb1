//! Access control lists as the reference knows them: drawn at random, and what acl(5) says of modes and new files.
//!
//! Written without a look at the engine's own reading of them, so that an error there is not repeated here.

use crate::rng::Rng;

/// The attribute with the list of a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory with the list that new files get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
/// Names nobody.
const NONE: u32 = u32::MAX;

/// Tag, permissions, user or group.
type Row = (u16, u16, u32);

/// A valid list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List(Vec<Row>);

/// The bytes are no valid list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoList;

/// True of the name of an attribute that is a list.
pub fn is_list(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// The value of an attribute: mostly a valid list, now and then one without entries, or none at all.
pub fn random_value(rng: &Rng) -> Vec<u8> {
    let perm = || rng.range(0..8) as u16;
    let mut rows = vec![(USER_OBJ, perm(), NONE)];
    rows.extend((0..rng.range(0..3)).map(|user| (USER, perm(), 1000 + user as u32)));
    rows.push((GROUP_OBJ, perm(), NONE));
    rows.extend((0..rng.range(0..3)).map(|group| (GROUP, perm(), 100 + group as u32)));
    if rows.len() > 2 || rng.percent(20) {
        rows.push((MASK, perm(), NONE));
    }
    rows.push((OTHER, perm(), NONE));
    match rng.range(0..24) {
        0 => rows.clear(),
        1 => drop(rows.remove(rng.below(rows.len()))),
        2 => rows.reverse(),
        3 => rows[0].1 = 8,
        _ => {}
    }
    let mut value = List(rows).value();
    if rng.percent(3) {
        value.pop();
    }
    value
}

impl List {
    /// The list that the value of an attribute is; `None`: one without entries.
    ///
    /// # Errors
    /// When it is none.
    pub fn of(value: &[u8]) -> Result<Option<List>, NoList> {
        if value.len() < 4 || value[..4] != [2, 0, 0, 0] || !(value.len() - 4).is_multiple_of(8) {
            return Err(NoList);
        }
        let two = |at: usize| u16::from_le_bytes([value[at], value[at + 1]]);
        let row = |at: usize| {
            (two(at), two(at + 2), u32::from(two(at + 4)) | u32::from(two(at + 6)) << 16)
        };
        let rows: Vec<Row> = (4..value.len()).step_by(8).map(row).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let count = |tag: u16| rows.iter().filter(|row| row.0 == tag).count();
        let names = count(USER) + count(GROUP);
        let masks = count(MASK);
        let known = names + masks + 3 == rows.len();
        let right = [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1)
            && masks <= 1
            && (masks == 1 || names == 0)
            && rows.is_sorted_by_key(|row| row.0)
            && rows.iter().all(|row| row.1 < 8)
            && rows.iter().all(|row| row.2 != NONE || !matches!(row.0, USER | GROUP));
        if known && right { Ok(Some(List(rows))) } else { Err(NoList) }
    }

    /// The value of the attribute.
    pub fn value(&self) -> Vec<u8> {
        let mut value = vec![2, 0, 0, 0];
        for (tag, perm, id) in &self.0 {
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// The mode says all of it.
    pub fn is_plain(&self) -> bool {
        self.0.len() == 3
    }

    /// Where its bits are in a mode; none: in none.
    fn shift(&self, tag: u16) -> Option<u16> {
        let is_masked = self.0.iter().any(|row| row.0 == MASK);
        match tag {
            USER_OBJ => Some(6),
            MASK => Some(3),
            GROUP_OBJ if !is_masked => Some(3),
            OTHER => Some(0),
            _ => None,
        }
    }

    /// The permission bits of a file with it.
    pub fn mode(&self) -> u16 {
        let bits = self.0.iter().filter_map(|row| Some(row.1 << self.shift(row.0)?));
        bits.fold(0, |mode, bits| mode | bits)
    }

    fn changed(&self, change: impl Fn(u16, u16) -> u16) -> List {
        let row = |row: &Row| match self.shift(row.0) {
            Some(shift) => (row.0, change(row.1, shift), row.2),
            None => *row,
        };
        List(self.0.iter().map(row).collect())
    }

    /// After a chmod to `mode`.
    pub fn with_mode(&self, mode: u16) -> List {
        self.changed(|_, shift| mode >> shift & 7)
    }

    /// The list of a file made with `mode` where this is the default one.
    pub fn for_new(&self, mode: u16) -> List {
        self.changed(|perm, shift| perm & mode >> shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_random_values_are_lists_which_are_written_back() {
        let rng = Rng::new(1, 1);
        let values: Vec<Vec<u8>> = (0..300).map(|_| random_value(&rng)).collect();
        let lists = values.iter().filter(|value| match List::of(value) {
            Ok(Some(list)) => {
                assert_eq!(list.value(), **value);
                true
            }
            _ => false,
        });
        assert!((200..300).contains(&lists.count()));
    }

    #[test]
    fn the_mask_stands_for_the_group_and_limits_a_new_file() {
        let rows = [(1, 7, NONE), (2, 6, 5), (4, 5, NONE), (16, 6, NONE), (32, 1, NONE)];
        let list = List(rows.to_vec());
        assert_eq!((list.mode(), list.is_plain()), (0o761, false));
        assert_eq!((list.for_new(0o640).mode(), list.with_mode(0o123).mode()), (0o640, 0o123));
        assert_eq!(list.with_mode(0).0[2].1, 5);
    }
}
