//! The columns of `braid top`, and the line of a job.

use crate::output::{size, time};
use braid_control::protocol::Job;
use ratatui::style::{Color, Style};
use ratatui::text::Line;

/// Cells of a bar.
const BAR: usize = 20;
/// Columns beside the name, and their widths.
pub const HEADS: [(&str, usize); 8] = [
    ("r/s", 8),
    ("read/s", 11),
    ("r lat", 9),
    ("w/s", 8),
    ("write/s", 11),
    ("w lat", 9),
    ("queue", 7),
    ("busy", 6),
];
/// The job of an array or a volume: its progress, rate and ETA.
pub fn job_line(array: &str, job: &Job) -> Line<'static> {
    let full = (job.percent() / 100.0 * BAR as f64).round() as usize;
    let full = full.min(BAR);
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(BAR - full));
    let left = job.eta_seconds.map(|left| format!(", {} to go", time::span(left)));
    let text = format!(
        "{array}: {} {bar} {:.1} %, {}{}",
        job.kind,
        job.percent(),
        size::rate(job.rate as f64),
        left.unwrap_or_default()
    );
    Line::styled(text, Style::new().fg(Color::Cyan))
}

/// Cells, each as wide as its one of the [`HEADS`].
pub fn cells_of(cells: [String; 8]) -> String {
    cells.iter().zip(HEADS).map(|(cell, (_, width))| format!("{cell:>width$}")).collect()
}
