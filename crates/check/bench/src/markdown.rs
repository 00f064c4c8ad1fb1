//! Tables as text that is Markdown, too, and the files of docs/benchmarks.

use crate::tables::Table;
use anyhow::Context;
use std::fmt::Write;
use std::path::Path;

/// What comes after the heading: the machine, and the table.
pub fn body(table: &Table) -> String {
    let mut text = format!("## {}\n\n{}\n\n", table.title, table.about);
    if let Some(row) = table.rows.first() {
        let clock = match (row.report.processor_time, row.report.virtual_time) {
            (true, _) => {
                "per second of the shard's processor time (what else ran on the machine is left out)"
            }
            (_, true) => "per second of the modelled members' time",
            _ => "per second on the wall clock",
        };
        // Writing to a String cannot fail.
        let _ = match row.report.rounds {
            0 => writeln!(text, "{}; counted, not timed.\n", row.report.machine),
            rounds => writeln!(
                text,
                "{}; median (min–max) of {rounds} rounds, {clock}.\n",
                row.report.machine
            ),
        };
    }
    let mut lines: Vec<Vec<String>> =
        vec![table.headings.iter().map(|heading| (*heading).to_owned()).collect()];
    for row in &table.rows {
        let mut cells = vec![row.load.clone()];
        cells.extend(row.cells.iter().cloned());
        lines.push(cells);
    }
    let widths: Vec<usize> = (0..table.headings.len())
        .map(|column| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
        })
        .map(Option::unwrap_or_default)
        .collect();
    for (nr, line) in lines.iter().enumerate() {
        for (cell, &width) in line.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if nr == 0 {
            for &width in &widths {
                let _ = write!(text, "|-{}-", "-".repeat(width));
            }
            text.push_str("|\n");
        }
    }
    for plot in &table.plots {
        let _ = writeln!(text, "\n![{}]({}.svg)", plot.title, plot.name);
    }
    let mut notes: Vec<&String> = table.rows.iter().flat_map(|row| &row.report.notes).collect();
    notes.sort();
    notes.dedup();
    for note in notes.into_iter().filter(|note| !note.ends_with("in all")) {
        let _ = write!(text, "\n- {note}");
    }
    text
}

/// Writes `table` to `path`, made anew.
pub fn write(table: &Table, path: &Path, date: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
    }
    let profile = if cfg!(debug_assertions) { "--profile checked" } else { "--release" };
    let text = format!(
        "<!-- Generated on {date} by: cargo run {profile} -p braid-bench -- tables --markdown docs/benchmarks -->\n\
         <!-- Change the program, not this file. -->\n\n{}\n",
        body(table).trim_end().replacen("## ", "# ", 1)
    );
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
