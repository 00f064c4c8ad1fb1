//! Rows of a comparison as text, JSON and Markdown.
//!
//! Owns the format of the output. Does not measure.

use crate::measure::Spread;
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// One row of the comparison.
#[derive(Serialize)]
pub struct Row {
    /// What is computed, such as `xor 4+1`.
    pub kernel: &'static str,
    /// What braid is compared with.
    pub rival: &'static str,
    /// Bytes in a block.
    pub block: usize,
    /// Whether the blocks come from memory (a pool far greater than the caches) or from the caches.
    pub cold: bool,
    /// Speed of braid divided by the rival's, of each round.
    pub ratio: Spread,
    /// Gigabytes (10^9) of source blocks per second.
    pub braid: Spread,
    /// The same of the rival.
    pub isal: Spread,
}

/// The rows with what they were measured on, as one JSON object.
pub fn json(rows: &[Row]) -> anyhow::Result<String> {
    let report = serde_json::json!({
        "implementation": braid_parity::implementation(),
        "cpu": cpu(),
        "rows": rows,
    });
    serde_json::to_string_pretty(&report).context("writing the comparison as JSON")
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let name = field("model name").unwrap_or_else(|| "unknown CPU".into());
    match (field("cpu family"), field("model\t")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name,
    }
}

fn cells(row: &Row) -> [String; 6] {
    [
        format!("{:.2} ({:.2}–{:.2})", row.ratio.median, row.ratio.min, row.ratio.max),
        row.kernel.to_owned(),
        format!("{} KiB {}", row.block >> 10, if row.cold { "cold" } else { "hot" }),
        format!("{:.1} ({:.1}–{:.1})", row.braid.median, row.braid.min, row.braid.max),
        format!("{:.1} ({:.1}–{:.1})", row.isal.median, row.isal.min, row.isal.max),
        row.rival.to_owned(),
    ]
}

/// The rows as a table that is legible as text and is Markdown, too.
pub fn table(rows: &[Row]) -> String {
    let header = ["braid ÷ rival", "kernel", "blocks", "braid GB/s", "rival GB/s", "rival"]
        .map(String::from);
    let body: Vec<[String; 6]> = rows.iter().map(cells).collect();
    let mut widths = header.each_ref().map(|cell| cell.chars().count());
    for row in &body {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = format!("{} on {}; median (min–max)\n\n", braid_parity::implementation(), cpu());
    let mut line = |cells: &[String; 6]| {
        for (cell, width) in cells.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
    };
    line(&header);
    line(&widths.map(|width| "-".repeat(width)));
    body.iter().for_each(line);
    text
}

/// Replaces the generated part of the Markdown file at `path`: everything after its marker, so that
/// what people wrote before it stays. A file without the marker gets it at its end.
pub fn write_markdown(rows: &[Row], path: &Path) -> anyhow::Result<()> {
    const MARKER: &str = "<!-- generated from here on: cargo run --release -p braid-bench-compare -- \
                          parity --markdown docs/benchmarks/parity.md -->\n";
    let old = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "# Parity kernels and ISA-L\n\n".to_owned()
        }
        old => old.with_context(|| format!("reading {} to update its table", path.display()))?,
    };
    let kept = old.split(MARKER).next().unwrap_or_default();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
    }
    std::fs::write(path, format!("{kept}{MARKER}\n{}", table(rows)))
        .with_context(|| format!("writing the table to {}", path.display()))
}
