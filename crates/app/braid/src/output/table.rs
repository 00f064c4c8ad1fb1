//! Tables for people: aligned columns, no lines but one under the head.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Columns of a terminal below which its width is not believed.
const NARROWEST: u16 = 20;

/// An empty table with these heads, as wide as the terminal at most.
pub fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    // Some consoles, serial lines for one, say that they are no columns wide.
    if table.width().is_some_and(|width| width < NARROWEST) {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(heads);
    table
}

/// Aligns these columns to the right, for numbers.
pub fn align_right(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The table as text, without blanks at the ends of its lines.
pub fn text(table: &Table) -> String {
    let lines: Vec<String> = table.lines().map(|line| format!("  {}", line.trim_end())).collect();
    lines.join("\n")
}
