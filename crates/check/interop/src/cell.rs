//! Which arrays the matrix is made of.
//!
//! All combinations of level, layout, chunk, number of members and metadata version would be
//! thousands. For each level as few are chosen as hold every *pair* of values together in some array:
//! a defect of one value, or of two that meet, is found.

use braid_format::superblock::Version;
use braid_layout::Level;

/// One array of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The level.
    pub level: Level,
    /// The layout by mdadm's name, where the level has layouts.
    pub layout: Option<&'static str>,
    /// Chunk in KiB, where the level has chunks.
    pub chunk_kib: Option<u64>,
    /// Members, all in slots.
    pub members: usize,
    /// Where and in which format the superblocks are.
    pub version: Version,
    /// The second half of the members is larger than the first: zones at level 0.
    pub unequal: bool,
}

const CHUNKS: &[Option<u64>] = &[Some(4), Some(64), Some(512)];
const VERSIONS: &[Version] = &[Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2];
const RAID5_LAYOUTS: &[Option<&str>] = &[
    Some("left-symmetric"),
    Some("left-asymmetric"),
    Some("right-symmetric"),
    Some("right-asymmetric"),
    Some("parity-first"),
    Some("parity-last"),
];
const RAID6_LAYOUTS: &[Option<&str>] = &[
    Some("left-symmetric"),
    Some("left-asymmetric"),
    Some("right-symmetric"),
    Some("right-asymmetric"),
    Some("parity-first"),
    Some("parity-last"),
    Some("ddf-zero-restart"),
    Some("ddf-N-restart"),
    Some("ddf-N-continue"),
    Some("left-symmetric-6"),
    Some("left-asymmetric-6"),
    Some("right-symmetric-6"),
    Some("right-asymmetric-6"),
    Some("parity-first-6"),
];
const RAID10_LAYOUTS: &[Option<&str>] =
    &[Some("n2"), Some("n3"), Some("f2"), Some("f3"), Some("o2"), Some("o3")];

impl Cell {
    /// The array as file names and tables show it.
    pub fn name(&self) -> String {
        let mut name = self.level.to_string();
        let layout = self.layout.map(|layout| layout.to_lowercase());
        let chunk = self.chunk_kib.map(|chunk| format!("{chunk}k"));
        let unequal = self.unequal.then(|| "unequal".to_owned());
        let members = Some(format!("n{}", self.members));
        for part in [layout, chunk, members, Some(self.version.to_string()), unequal] {
            name = part.into_iter().fold(name, |name, part| format!("{name}-{part}"));
        }
        name
    }

    /// Bytes of member `nr`: small, since every byte of it is read and written several times.
    pub fn member_size(&self, nr: usize) -> u64 {
        let more = if self.unequal && nr >= self.members / 2 { 1 << 20 } else { 0 };
        let least = if self.chunk_kib == Some(512) { 5 << 19 } else { 3 << 19 };
        // Before the data of 1.1 and 1.2 stand a MiB, and 128 KiB for in-place reshapes of a large chunk.
        least + (1 << 20) + more
    }

    /// The pairs of values that meet in this cell.
    fn pairs(&self) -> Vec<String> {
        let values = [
            format!("l{:?}", self.layout),
            format!("c{:?}", self.chunk_kib),
            format!("n{}", self.members),
            format!("v{}", self.version),
            format!("u{}", self.unequal),
        ];
        let others = |at: usize| values.iter().skip(at + 1);
        let pairs = values.iter().enumerate();
        pairs.flat_map(|(at, a)| others(at).map(move |b| format!("{a} {b}"))).collect()
    }
}

/// The whole matrix, in a fixed order.
pub fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    let none: &[Option<&str>] = &[None];
    cells.extend(chosen(Level::Linear, none, &[None], &[2, 3], &[false, true]));
    cells.extend(chosen(Level::Raid0, none, CHUNKS, &[3, 4, 5, 6, 7, 8], &[false]));
    let zones: &[Option<&str>] = &[Some("original"), Some("alternate")];
    cells.extend(chosen(Level::Raid0, zones, CHUNKS, &[3, 5], &[true]));
    cells.extend(chosen(Level::Raid1, none, &[None], &[2, 3, 4], &[false]));
    cells.extend(chosen(Level::Raid4, none, CHUNKS, &[3, 4, 5, 6, 7, 8], &[false]));
    cells.extend(chosen(Level::Raid5, RAID5_LAYOUTS, CHUNKS, &[3, 4, 5, 6, 7, 8], &[false]));
    cells.extend(chosen(Level::Raid6, RAID6_LAYOUTS, CHUNKS, &[4, 5, 6, 7, 8], &[false]));
    cells.extend(chosen(Level::Raid10, RAID10_LAYOUTS, CHUNKS, &[3, 4, 5, 6, 7, 8], &[false]));
    cells
}

/// One array of each level, from all over the matrix: what is run first.
pub fn quick() -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for cell in all() {
        if cells.last().is_none_or(|last| last.level != cell.level) {
            cells.push(cell);
        }
    }
    cells
}

/// As few cells of `level` as hold all pairs, by taking the one with the most new pairs each time.
fn chosen(
    level: Level,
    layouts: &[Option<&'static str>],
    chunks: &[Option<u64>],
    members: &[usize],
    unequal: &[bool],
) -> Vec<Cell> {
    let mut every = Vec::new();
    for &layout in layouts {
        for &members in members {
            for &chunk_kib in chunks {
                for &version in VERSIONS {
                    for &unequal in unequal {
                        let cell = Cell { level, layout, chunk_kib, members, version, unequal };
                        if possible(&cell) {
                            every.push(cell);
                        }
                    }
                }
            }
        }
    }
    let mut missing: std::collections::BTreeSet<String> =
        every.iter().flat_map(Cell::pairs).collect();
    let mut cells = Vec::new();
    while !missing.is_empty() {
        let new = |cell: &Cell| cell.pairs().iter().filter(|pair| missing.contains(*pair)).count();
        // The first of those with the most.
        let Some(best) = every.iter().rev().max_by_key(|cell| new(cell)) else { break };
        for pair in best.pairs() {
            missing.remove(&pair);
        }
        cells.push(best.clone());
    }
    cells
}

/// False for what md itself does not do.
fn possible(cell: &Cell) -> bool {
    // Superblocks 0.90 have no room for the layout that level 0 may need: mdadm makes none.
    let no_room = cell.level == Level::Raid0 && cell.version == Version::V0_90;
    let copies = cell.layout.and_then(|layout| layout.get(1..)?.parse().ok()).unwrap_or(1);
    !no_room && cell.members >= copies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_values_of_a_level_meets_in_some_cell() {
        let cells = all();
        let holds = |is: &dyn Fn(&Cell) -> bool| cells.iter().any(is);
        for layout in RAID6_LAYOUTS {
            for version in VERSIONS {
                assert!(holds(&|cell: &Cell| cell.level == Level::Raid6
                    && cell.layout == *layout
                    && cell.version == *version));
            }
            for chunk in CHUNKS {
                for members in 4..=8 {
                    let level = |cell: &Cell| cell.level == Level::Raid6;
                    assert!(holds(&|cell| level(cell)
                        && cell.layout == *layout
                        && cell.chunk_kib == *chunk));
                    assert!(holds(&|cell| level(cell)
                        && cell.chunk_kib == *chunk
                        && cell.members == members));
                    assert!(holds(&|cell| level(cell)
                        && cell.layout == *layout
                        && cell.members == members));
                }
            }
        }
    }

    #[test]
    fn names_tell_cells_apart() {
        let names: std::collections::BTreeSet<String> = all().iter().map(Cell::name).collect();
        assert_eq!(names.len(), all().len());
        assert!(quick().len() >= 7);
    }
}
