//! Which spare goes where: to the array of a group that lacks most, from the one that has most to spare, the smallest that is
//! large enough.
//!
//! Does not know how a spare gets there, nor who is asked whether it is large enough.

use crate::settings::group::SpareGroup;

/// An array of a group, as far as the choice depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The array.
    pub uuid: [u8; 16],
    /// Its group.
    pub group: SpareGroup,
    /// Slots for which it has neither a member nor a spare.
    pub lacks: usize,
    /// Spares that it can do without, each with its name and size in bytes; none as long as it needs any itself.
    pub spares: Vec<(String, u64)>,
}

/// A spare that goes from one array to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The array that has it.
    pub from: [u8; 16],
    /// The array that gets it.
    pub to: [u8; 16],
    /// Its name.
    pub spare: String,
}

/// The next move, where the array with this UUID takes the spare of this name (`takes`); `None`: no array needs one that there is.
pub fn choose(arrays: &[Sharing], takes: impl Fn(&[u8; 16], &str) -> bool) -> Option<Move> {
    let mut needy: Vec<&Sharing> = arrays.iter().filter(|array| array.lacks > 0).collect();
    // Those that lack as many come in the order in which they are given.
    needy.sort_by_key(|array| std::cmp::Reverse(array.lacks));
    needy.into_iter().find_map(|to| {
        let shares = |from: &&Sharing| from.group == to.group && from.uuid != to.uuid;
        let mut donors: Vec<&Sharing> =
            arrays.iter().filter(shares).filter(|from| from.lacks == 0).collect();
        donors.sort_by_key(|from| std::cmp::Reverse(from.spares.len()));
        donors.into_iter().find_map(|from| {
            let mut spares: Vec<&(String, u64)> = from.spares.iter().collect();
            spares.sort_by_key(|(_, size)| *size);
            let fits = spares.into_iter().find(|(name, _)| takes(&to.uuid, name));
            fits.map(|(name, _)| Move { from: from.uuid, to: to.uuid, spare: name.clone() })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(nr: u8, group: &str, lacks: usize, spares: &[(&str, u64)]) -> Sharing {
        let spares = spares.iter().map(|(name, size)| (name.to_string(), *size)).collect();
        Sharing { uuid: [nr; 16], group: group.parse().unwrap(), lacks, spares }
    }

    fn chosen(arrays: &[Sharing], least: u64) -> Option<(u8, u8, String)> {
        let size = |spare: &str| {
            let all = arrays.iter().flat_map(|array| &array.spares);
            all.into_iter().find(|(name, _)| name == spare).unwrap().1
        };
        let chosen = choose(arrays, |_, spare| size(spare) >= least)?;
        Some((chosen.from[0], chosen.to[0], chosen.spare))
    }

    #[test]
    fn the_smallest_that_fits_goes_to_who_lacks_most() {
        let rich = array(3, "g", 0, &[("large", 9), ("small", 5), ("tiny", 1)]);
        let arrays =
            [array(1, "g", 1, &[]), array(2, "g", 2, &[]), rich, array(4, "g", 0, &[("x", 7)])];
        assert_eq!(chosen(&arrays, 4), Some((3, 2, "small".to_string())));
        assert_eq!(chosen(&arrays, 6), Some((3, 2, "large".to_string())));
        assert_eq!(chosen(&arrays, 10), None);
        // Where one array refuses all, another may take one.
        let only_first = choose(&arrays, |uuid, _| uuid[0] == 1).unwrap();
        assert_eq!((only_first.to[0], only_first.spare.as_str()), (1, "tiny"));
    }

    #[test]
    fn nothing_leaves_a_group_or_an_array_that_needs_it() {
        let lacks = array(1, "g", 1, &[]);
        assert_eq!(chosen(&[lacks.clone(), array(2, "h", 0, &[("s", 5)])], 0), None);
        assert_eq!(chosen(&[lacks.clone(), array(2, "g", 1, &[("s", 5)])], 0), None);
        assert_eq!(chosen(&[lacks.clone(), array(2, "g", 0, &[])], 0), None);
        assert_eq!(chosen(&[array(1, "g", 0, &[]), array(2, "g", 0, &[("s", 5)])], 0), None);
        assert_eq!(chosen(&[array(1, "g", 1, &[("own", 5)])], 0), None);
        let both = [lacks, array(2, "g", 0, &[("s", 5)])];
        assert_eq!(chosen(&both, 0), Some((2, 1, "s".to_string())));
    }
}
