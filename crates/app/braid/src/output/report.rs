//! The report of a check or repair, as people read it.

use super::{found, size, time};
use braid_control::protocol::{ScrubReport, ScrubState};

/// All that is known of it.
pub fn lines(array: &str, report: &ScrubReport) -> Vec<String> {
    let kind = &report.found.kind;
    let how = if report.parity_only { " of parity only" } else { "" };
    let mut lines = vec![format!("{kind}{how} of array {array}: {}", state(report.state))];
    let end = match report.ended {
        Some(ended) => format!("ended {}", time::local(ended)),
        None => format!("last seen to go on {}", time::local(report.updated)),
    };
    lines.push(format!("  begun {}, {end}", time::local(report.started)));
    lines.extend(report.why.iter().map(|why| format!("  {why}")));
    lines.push(format!(
        "  {:.1} % done: {} of bytes {} to {} of each component (of the array at levels 1 and 10)",
        report.percent(),
        size::human(report.position.saturating_sub(report.from)),
        report.from,
        report.until
    ));
    lines.push(format!("  {} sectors mismatched", report.mismatches));
    let wrong = report.wrong.iter();
    lines.extend(wrong.map(|(name, bytes)| format!("  {name} is wrong in {bytes} bytes")));
    lines.extend(
        found::lines_with_components(&report.found).into_iter().map(|line| format!("  {line}")),
    );
    lines
}

/// One word for it.
pub fn state(state: ScrubState) -> &'static str {
    match state {
        ScrubState::Running => "running",
        ScrubState::Waiting => "waiting",
        ScrubState::Paused => "paused",
        ScrubState::Done => "done",
        ScrubState::Cancelled => "cancelled",
        ScrubState::Failed => "FAILED",
    }
}
