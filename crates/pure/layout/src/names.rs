//! The names of levels and layouts, as mdadm spells them, and the md numbers of layouts.
//!
//! Owns the names that a level is asked for by, and the two-way table for each level (numbers from `raid5.h` and `md_p.h`, names from mdadm's
//! manual). Does not know what a layout does. Invariant: a name given by [`layout_name`] leads back
//! to its number through [`layout_number`].

use std::str::FromStr;

use crate::{LayoutError, Level};

/// Names and numbers; the first name of a number is the one that is shown.
type Table = &'static [(&'static str, u32)];

const RAID0: Table = &[("original", 1), ("alternate", 2), ("1", 1), ("2", 2), ("default", 1)];

const RAID5: Table = &[
    ("left-asymmetric", 0),
    ("right-asymmetric", 1),
    ("left-symmetric", 2),
    ("right-symmetric", 3),
    ("parity-first", 4),
    ("parity-last", 5),
    ("la", 0),
    ("ra", 1),
    ("ls", 2),
    ("rs", 3),
    ("default", 2),
    // The RAID5 rotations of DDF are three of the native ones.
    ("ddf-zero-restart", 1),
    ("ddf-n-restart", 0),
    ("ddf-n-continue", 2),
];

const RAID6: Table = &[
    ("left-asymmetric", 0),
    ("right-asymmetric", 1),
    ("left-symmetric", 2),
    ("right-symmetric", 3),
    ("parity-first", 4),
    ("parity-last", 5),
    ("ddf-zero-restart", 8),
    ("ddf-N-restart", 9),
    ("ddf-N-continue", 10),
    ("left-asymmetric-6", 16),
    ("right-asymmetric-6", 17),
    ("left-symmetric-6", 18),
    ("right-symmetric-6", 19),
    ("parity-first-6", 20),
    ("la", 0),
    ("ra", 1),
    ("ls", 2),
    ("rs", 3),
    ("default", 2),
];

const RAID10_FORMS: &str = "n2, n3, ... (near), f2, f3, ... (far), o2, o3, ... (offset)";

/// Bit of a level 10 layout number that turns far copies into offset copies.
pub(crate) const RAID10_OFFSET: u32 = 1 << 16;

fn table(level: Level) -> Table {
    match level {
        Level::Raid0 => RAID0,
        Level::Raid5 => RAID5,
        Level::Raid6 => RAID6,
        Level::Linear | Level::Raid1 | Level::Raid4 | Level::Raid10 => &[],
    }
}

/// The md number of a layout name at this level: mdadm's names, in any case.
///
/// # Errors
/// [`LayoutError::UnknownLayoutName`], or [`LayoutError::NoLayouts`] for levels linear, 1 and 4.
pub fn layout_number(level: Level, name: &str) -> Result<u32, LayoutError> {
    let found = if level == Level::Raid10 {
        raid10_number(name)
    } else {
        table(level)
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|&(_, number)| number)
    };
    found.ok_or_else(|| match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => {
            LayoutError::NoLayouts { level, name: name.to_owned() }
        }
        Level::Raid10 => LayoutError::UnknownLayoutName {
            level,
            name: name.to_owned(),
            known: RAID10_FORMS.to_owned(),
        },
        _ => LayoutError::UnknownLayoutName {
            level,
            name: name.to_owned(),
            known: table(level).iter().map(|&(known, _)| known).collect::<Vec<_>>().join(", "),
        },
    })
}

/// mdadm's name of a layout number; `None` where the level has no layouts or the number no name.
pub fn layout_name(level: Level, layout: u32) -> Option<String> {
    if level == Level::Raid10 {
        return raid10_name(layout);
    }
    table(level).iter().find(|&&(_, number)| number == layout).map(|&(name, _)| name.to_owned())
}

/// The layout that mdadm gives a new array of this level; 0 where there is nothing to choose.
pub fn default_layout(level: Level) -> u32 {
    match level {
        Level::Raid0 => 1,
        Level::Raid5 | Level::Raid6 => 2,
        Level::Raid10 => 0x102,
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
    }
}

/// `n2`, `far=3` and so on: a kind and a number of copies, 1 to 255.
fn raid10_number(name: &str) -> Option<u32> {
    let lower = name.to_ascii_lowercase();
    if lower == "default" {
        return Some(default_layout(Level::Raid10));
    }
    let digits_from = lower.find(|c: char| c.is_ascii_digit())?;
    let (kind, digits) = lower.split_at(digits_from);
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let copies: u32 = digits.parse().ok().filter(|copies| (1..=255).contains(copies))?;
    match kind {
        "n" | "near=" => Some(0x100 + copies),
        "f" | "far=" => Some(0x001 + (copies << 8)),
        "o" | "offset=" => Some(RAID10_OFFSET + 0x001 + (copies << 8)),
        _ => None,
    }
}

fn raid10_name(layout: u32) -> Option<String> {
    let (near, far) = (layout & 0xff, (layout >> 8) & 0xff);
    match (layout & !0xffff, near, far) {
        (RAID10_OFFSET, 1, 1..) => Some(format!("o{far}")),
        (0, 1.., 1) => Some(format!("n{near}")),
        (0, 1, 1..) => Some(format!("f{far}")),
        _ => None,
    }
}

impl FromStr for Level {
    type Err = LayoutError;

    /// Takes the names that mdadm takes (`5`, `raid5`, `stripe`, `mirror`, `linear`), in any case.
    fn from_str(name: &str) -> Result<Self, LayoutError> {
        let lower = name.to_ascii_lowercase();
        Ok(match lower.as_str() {
            "linear" | "-1" => Level::Linear,
            "raid0" | "0" | "stripe" => Level::Raid0,
            "raid1" | "1" | "mirror" => Level::Raid1,
            "raid4" | "4" => Level::Raid4,
            "raid5" | "5" => Level::Raid5,
            "raid6" | "6" => Level::Raid6,
            "raid10" | "10" => Level::Raid10,
            _ => return Err(LayoutError::UnknownLevel { name: name.to_owned() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_name_leads_back_to_its_number() {
        for level in Level::ALL {
            for layout in 0..0x2_0000 {
                if let Some(name) = layout_name(level, layout) {
                    assert_eq!(layout_number(level, &name), Ok(layout), "{level} {name}");
                }
            }
        }
    }

    #[test]
    fn the_numbers_that_exist_are_those_of_md() {
        let named =
            |level| (0..64).filter(|&l| layout_name(level, l).is_some()).collect::<Vec<_>>();
        assert_eq!(named(Level::Raid0), [1, 2]);
        assert_eq!(named(Level::Raid5), [0, 1, 2, 3, 4, 5]);
        assert_eq!(named(Level::Raid6), [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20]);
        assert_eq!(named(Level::Raid4), [0; 0]);
    }

    #[test]
    fn names_are_taken_as_mdadm_takes_them() {
        for (level, name, number) in [
            (Level::Raid5, "ls", 2),
            (Level::Raid5, "left-symmetric", 2),
            (Level::Raid5, "ddf-N-continue", 2),
            (Level::Raid6, "ddf-N-continue", 10),
            (Level::Raid6, "ddf-zero-restart", 8),
            (Level::Raid6, "left-symmetric-6", 18),
            (Level::Raid0, "original", 1),
            (Level::Raid10, "n2", 0x102),
            (Level::Raid10, "near=2", 0x102),
            (Level::Raid10, "f2", 0x201),
            (Level::Raid10, "o3", 0x1_0301),
        ] {
            assert_eq!(layout_number(level, name), Ok(number), "{level} {name}");
        }
    }

    #[test]
    fn names_that_mean_nothing_are_refused() {
        for (level, name) in [
            (Level::Raid5, "left-symmetric-6"),
            (Level::Raid5, ""),
            (Level::Raid10, "n"),
            (Level::Raid10, "n0"),
            (Level::Raid10, "n256"),
            (Level::Raid10, "n2x"),
            (Level::Raid10, "x2"),
            (Level::Raid10, "2"),
            (Level::Raid10, "ls"),
        ] {
            assert!(
                matches!(layout_number(level, name), Err(LayoutError::UnknownLayoutName { .. })),
                "{level} {name:?}"
            );
        }
        assert!(matches!(layout_number(Level::Raid1, "n2"), Err(LayoutError::NoLayouts { .. })));
    }

    #[test]
    fn numbers_without_a_name_have_none() {
        for layout in [0, 0x202, 0x2_0201, 0x1_0102, 0x8_0102] {
            assert_eq!(layout_name(Level::Raid10, layout), None, "{layout:#x}");
        }
    }

    #[test]
    fn defaults_are_named_default() {
        for level in [Level::Raid0, Level::Raid5, Level::Raid6, Level::Raid10] {
            assert_eq!(layout_number(level, "default"), Ok(default_layout(level)));
        }
    }
}
