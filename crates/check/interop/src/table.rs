//! The matrix as a table of docs/.

use crate::cell::Cell;
use crate::matrix::{Report, Row};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The page: a line for each level and layout, a column for each number of members.
pub fn markdown(report: &Report) -> String {
    let mut page = format!(
        "# braid and md on each other's arrays\n\n\
         Written by `make interop`; not to be edited. {} arrays, half made by braid and half by mdadm, in {:.0} s;\n\
         {} wrong.\n\n\
         A cell names the chunk and the metadata version; for each level, every two values of layout, chunk,\n\
         members and version meet in some array. ✓✓: *made by braid*, filled by it, assembled by md, read,\n\
         checked (`mismatch_cnt` 0), overwritten by md, read back by braid, and again with as many members\n\
         missing as the level allows; and the same with the parts exchanged. ✗ stands for a direction that failed.\n",
        report.rows.len() * 2,
        report.took.as_secs_f64(),
        report.failures().len(),
    );
    let mut levels: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in &report.rows {
        let level = row.cell.level.to_string();
        match levels.last_mut() {
            Some((last, rows)) if *last == level => rows.push(row),
            _ => levels.push((level, vec![row])),
        }
    }
    for (level, rows) in levels {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {level}\n\n{}", table(&rows));
    }
    page
}

fn table(rows: &[&Row]) -> String {
    let mut members: Vec<usize> = rows.iter().map(|row| row.cell.members).collect();
    members.sort_unstable();
    members.dedup();
    let mut lines: BTreeMap<String, BTreeMap<usize, Vec<String>>> = BTreeMap::new();
    for row in rows {
        let line = lines.entry(title(&row.cell)).or_default();
        line.entry(row.cell.members).or_default().push(mark(row));
    }
    let heads: Vec<String> = members.iter().map(|members| format!("{members} members")).collect();
    let mut table =
        format!("| layout | {} |\n|---{}|\n", heads.join(" | "), "|---".repeat(heads.len()));
    for (title, cells) in lines {
        let cell = |members| cells.get(members).map(|marks| marks.join("<br>")).unwrap_or_default();
        let cells: Vec<String> = members.iter().map(cell).collect();
        let _ = writeln!(table, "| {title} | {} |", cells.join(" | "));
    }
    table
}

fn title(cell: &Cell) -> String {
    let layout = cell.layout.unwrap_or("–");
    if cell.unequal { format!("{layout}, unequal members") } else { layout.to_owned() }
}

fn mark(row: &Row) -> String {
    let sign = |result: &Result<(), String>| if result.is_ok() { '✓' } else { '✗' };
    let chunk = row.cell.chunk_kib.map_or(String::new(), |chunk| format!("{chunk}K "));
    format!("{}{} {chunk}{}", sign(&row.by_braid), sign(&row.by_md), row.cell.version)
}
