//! The progress of a job: a bar with rate and time to go on a terminal, plain lines elsewhere, JSON
//! lines where a script reads.

use super::{json_line, note, size, time};
use crate::protocol::{Answer, Job};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Without a terminal a line is written whenever so many more percent are done.
const PERCENT_PER_LINE: f64 = 10.0;

/// Shows the progress of one job after the other.
pub struct Progress {
    form: Form,
    kind: String,
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
            let style = ProgressStyle::with_template("{prefix} [{bar:32}] {msg}");
            bar.set_style(
                style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "),
            );
            Form::Bar(bar)
        } else {
            Form::Lines { next: 0.0 }
        };
        Progress { form, kind: String::new() }
    }

    /// Shows how far `job` is.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn show(&mut self, job: &Job) -> Result<()> {
        let new = self.kind != job.kind;
        self.kind.clone_from(&job.kind);
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

    /// Takes the bar away.
    pub fn finish(self) {
        if let Form::Bar(bar) = self.form {
            bar.finish_and_clear();
        }
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
