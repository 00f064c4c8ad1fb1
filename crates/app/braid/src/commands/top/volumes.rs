//! The volumes on the screen: how full each is, its job, and what its bricks do.

use super::cells::{cells_of, job_line};
use crate::output::size;
use braid_control::protocol::volume::{BrickDetail, VolumeDetail};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

/// A volume now, and at the look before.
pub struct Seen {
    /// Now.
    pub now: VolumeDetail,
    /// Then; `None` at the first look.
    pub before: Option<VolumeDetail>,
}

impl Seen {
    /// Seconds between the two looks; those since the mount at the first.
    fn seconds(&self) -> f64 {
        let then = self.before.as_ref().map_or(0.0, |before| before.seconds);
        (self.now.seconds - then).max(1e-9)
    }

    fn before(&self, brick: &BrickDetail) -> Option<&BrickDetail> {
        self.before.as_ref()?.bricks.iter().find(|known| known.uuid == brick.uuid)
    }

    /// Its jobs, a line each.
    pub fn jobs(&self) -> impl Iterator<Item = Line<'static>> + '_ {
        let jobs = self.now.job.iter().chain(&self.now.check);
        jobs.map(|job| job_line(&self.now.name, &job.job))
    }

    /// Its line and those of its bricks, whose names have so many columns.
    pub fn rows(&self, name: usize) -> Vec<Line<'static>> {
        let volume = &self.now;
        let state = match &volume.failure {
            Some(_) => Color::Red,
            None if volume.bricks.iter().any(|brick| brick.state == "missing") => Color::Yellow,
            None => Color::Green,
        };
        let label = format!(
            "{} volume  {} of {} used",
            volume.name,
            size::human(volume.used),
            size::human(volume.size)
        );
        let mut lines = vec![Line::from(vec![
            Span::styled(label, Style::new().fg(state)),
            Span::raw(format!("  {}  {}", volume.dir, volume.state)),
        ])];
        for (at, brick) in volume.bricks.iter().enumerate() {
            let branch = if at + 1 == volume.bricks.len() { "└─" } else { "├─" };
            let label = format!("{branch} {}", brick.name);
            let label: String = label.chars().take(name.saturating_sub(1)).collect();
            let colour = match brick.state.as_str() {
                "data" | "proxy" | "metadata-only" => Color::Reset,
                "removing" => Color::Yellow,
                _ => Color::Red,
            };
            lines.push(Line::from(vec![
                Span::styled(format!("{label:name$}"), Style::new().fg(colour)),
                Span::raw(self.cells(brick)),
            ]));
        }
        lines
    }

    fn cells(&self, brick: &BrickDetail) -> String {
        let seconds = self.seconds();
        // A brick that has come since has been counted from then on.
        let since = |count: fn(&BrickDetail) -> u64| {
            count(brick).saturating_sub(self.before(brick).map_or(0, count)) as f64 / seconds
        };
        let none = || "-".to_string();
        cells_of([
            format!("{:.0}", since(|brick| brick.reads)),
            size::rate(since(|brick| brick.read_bytes)),
            none(),
            format!("{:.0}", since(|brick| brick.writes)),
            size::rate(since(|brick| brick.written_bytes)),
            none(),
            none(),
            none(),
        ])
    }
}
