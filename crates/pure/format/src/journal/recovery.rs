//! The writes that a log asks for, collected row by row while it is walked.

use super::meta::{BLOCK_SECTORS, Payload};
use super::walk::Found;
use std::collections::BTreeMap;

/// A row to be written to the members: the log has all data blocks that changed, and normally their parity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StripeWrite {
    /// Component sector of the row of blocks.
    pub row: u64,
    /// Array sector and ring sector of each block of data.
    pub data: Vec<(u64, u64)>,
    /// Ring sector of P; `None` when only data was logged, which is what a write-back cache does. The data was acknowledged
    /// and the log has the only copy of it.
    pub p: Option<u64>,
    /// Ring sector of Q.
    pub q: Option<u64>,
}

#[derive(Default)]
struct Row {
    data: BTreeMap<u64, u64>,
    p: Option<u64>,
    q: Option<u64>,
}

impl Row {
    fn into_write(self, row: u64) -> StripeWrite {
        StripeWrite { row, data: self.data.into_iter().collect(), p: self.p, q: self.q }
    }
}

/// Collects the writes that a log asks for.
pub struct Recovery<F> {
    size: u64,
    row_of: F,
    rows: BTreeMap<u64, Row>,
    complete: Vec<StripeWrite>,
    refused: u64,
}

impl<F: Fn(u64) -> Option<u64>> Recovery<F> {
    /// Starts with no writes. `size` is the number of sectors that the array uses of each component. `row_of` maps an array
    /// sector to the component sector of its row of blocks; it returns `None` beyond the end of the array, or when the
    /// sector is not the start of a block.
    pub fn new(size: u64, row_of: F) -> Recovery<F> {
        Recovery { size, row_of, rows: BTreeMap::new(), complete: Vec::new(), refused: 0 }
    }

    /// Adds a meta block whose blocks all had the right checksum. The caller skips a meta block of which any block has a wrong
    /// one: it was not written completely, so none of it was acknowledged.
    pub fn take(&mut self, found: &Found) {
        let mut blocks = found.blocks.iter().copied();
        for payload in &found.meta.payloads {
            let mut places = payload.checksums().filter_map(|_| blocks.next());
            match payload {
                Payload::Data { location, .. } => {
                    let (Some(row), Some(place)) = ((self.row_of)(*location), places.next()) else {
                        self.refused += 1;
                        continue;
                    };
                    // The logged parity covers only the data logged before it, so this row is finished and the new data
                    // starts another write of it.
                    if self.rows.get(&row).is_some_and(|row| row.p.is_some()) {
                        self.finish_row(row);
                    }
                    self.rows.entry(row).or_default().data.insert(*location, place);
                }
                Payload::Parity { location, .. } => {
                    let inside = *location < self.size && location.is_multiple_of(BLOCK_SECTORS);
                    let Some(p) = places.next().filter(|_| inside) else {
                        self.refused += 1;
                        places.for_each(drop);
                        continue;
                    };
                    let row = self.rows.entry(*location).or_default();
                    (row.p, row.q) = (Some(p), places.next());
                }
                Payload::Flush { rows } => {
                    for row in rows {
                        self.rows.remove(row);
                    }
                }
            }
        }
    }

    fn finish_row(&mut self, row: u64) {
        let found = self.rows.remove(&row);
        if let Some(found) = found.filter(|found| !found.data.is_empty()) {
            self.complete.push(found.into_write(row));
        }
    }

    /// Number of payloads outside the array, which were left out.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The writes to do, in this order, and then the rows of which only data was logged. Parity for a place that
    /// no data was logged for is left out: nothing says what it belongs to.
    pub fn finish(mut self) -> (Vec<StripeWrite>, Vec<StripeWrite>) {
        let mut cached = Vec::new();
        for (row, found) in std::mem::take(&mut self.rows) {
            match (found.p, found.data.is_empty()) {
                (_, true) => {}
                (Some(_), false) => self.complete.push(found.into_write(row)),
                (None, false) => cached.push(found.into_write(row)),
            }
        }
        (self.complete, cached)
    }
}
