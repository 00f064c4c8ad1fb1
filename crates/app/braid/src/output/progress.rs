//! The progress of a job: a bar with rate and time to go on a terminal, plain lines elsewhere, JSON
//! lines where a script reads.

use super::{json_line, note, size, time};
use anyhow::Result;
use braid_control::protocol::{Answer, Job};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Without a terminal a line is written whenever so many more percent are done.
const PERCENT_PER_LINE: f64 = 10.0;

/// Shows the progress of one job after the other.
pub struct Progress {
    form: Form,
    kind: String,
    seen: Option<Seen>,
}

/// The job that is shown: as it was at first, and at last.
struct Seen {
    since: Instant,
    first: u64,
    last: Job,
}

enum Form {
    Bar(ProgressBar),
    Lines { next: f64 },
    Json,
}

impl Progress {
    /// JSON lines on standard output, or a bar or lines on standard error.
    pub fn new(json: bool) -> Progress {
        let form = if json {
            Form::Json
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let columns = rustix::termios::tcgetwinsize(std::io::stderr());
            let columns = columns.map_or(80, |size| size.ws_col);
            let style = ProgressStyle::with_template(template(columns));
            bar.set_style(
                style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "),
            );
            Form::Bar(bar)
        } else {
            Form::Lines { next: 0.0 }
        };
        Progress { form, kind: String::new(), seen: None }
    }

    /// Shows how far `job` is.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn show(&mut self, job: &Job) -> Result<()> {
        let new = self.kind != job.kind;
        self.kind.clone_from(&job.kind);
        match &mut self.seen {
            Some(seen) if !new => seen.last = job.clone(),
            seen => {
                *seen = Some(Seen { since: Instant::now(), first: job.done, last: job.clone() })
            }
        }
        match &mut self.form {
            Form::Json => json_line(&Answer::Progress { job: job.clone() })?,
            Form::Bar(bar) => {
                bar.set_prefix(job.kind.clone());
                bar.set_length(job.total);
                bar.set_position(job.done);
                bar.set_message(state(job));
            }
            Form::Lines { next } => {
                if new || job.percent() >= *next {
                    note(format!("{} {}", job.kind, state(job)));
                    *next = (job.percent() / PERCENT_PER_LINE).floor() * PERCENT_PER_LINE
                        + PERCENT_PER_LINE;
                }
            }
        }
        Ok(())
    }

    /// Takes the bar away. A sentence on the last job that was seen, for people.
    pub fn finish(self) -> Option<String> {
        match self.form {
            Form::Bar(bar) => bar.finish_and_clear(),
            Form::Lines { .. } => {}
            Form::Json => return None,
        }
        let Seen { since, first, last } = self.seen?;
        // The last report is older than the end.
        let moved = last.total.max(last.done);
        // It had been running for a moment when it was first seen.
        let took = since.elapsed() + time_for(first, last.rate);
        Some(format!("{}: {}", last.kind, figures(moved, took)))
    }
}

/// The time that so many bytes take at so many a second.
pub fn time_for(bytes: u64, rate: u64) -> Duration {
    let seconds = if rate > 0 { bytes as f64 / rate as f64 } else { 0.0 };
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// So many bytes in that time, with the rate. Who looks a few times a second knows no rate of what took less than one.
pub fn figures(bytes: u64, time: Duration) -> String {
    let bytes_said = size::human(bytes);
    if time < Duration::from_secs(1) {
        return format!("{bytes_said} in less than a second");
    }
    let rate = size::rate(bytes as f64 / time.as_secs_f64());
    format!("{bytes_said} in {}, {rate}", time::span(time.as_secs()))
}

/// A bar where there is room for it: a line that is too long would be drawn anew below itself.
fn template(columns: u16) -> &'static str {
    match columns {
        0..56 => "{msg}",
        56..96 => "{prefix} [{bar:12}] {msg}",
        _ => "{prefix} [{bar:32}] {msg}",
    }
}

fn state(job: &Job) -> String {
    let mut text = format!("{:5.1} %  {}", job.percent(), size::rate(job.rate as f64));
    if let Some(seconds) = job.eta_seconds {
        text.push_str(&format!("  {} to go", time::span(seconds)));
    }
    if job.mismatches > 0 {
        text.push_str(&format!("  {} sectors mismatch", job.mismatches));
    }
    text
}
