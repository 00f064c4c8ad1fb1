//! The screen of `braid top`: a line for the whole, one for each job, the tree of arrays and members, volumes and their bricks,
//! clients.
//!
//! Draws what it is given, however small the terminal is.

use super::cells::{HEADS, cells_of, job_line};
use super::volumes::Seen;
use crate::commands::layers::{Layer, rows};
use crate::output::{count, size, time};
use braid_control::protocol::{Detail, Flow, Io, Stat};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use std::time::Duration;

/// The name has at least so many.
const NAME_MIN: usize = 16;

/// Everything that is shown.
#[derive(Default)]
pub struct Picture {
    /// The work of the arrays at the top in the last interval.
    pub stats: Vec<Stat>,
    /// Their state.
    pub details: Vec<Detail>,
    /// The volumes.
    pub volumes: Vec<Seen>,
    /// Lines that have been scrolled past.
    pub scroll: usize,
    /// Between two looks.
    pub delay: Duration,
    /// It does not change.
    pub held: bool,
}

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, picture: &mut Picture) {
    let layout =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
    let [top, middle, bottom] = layout.areas(frame.area());
    frame.render_widget(Paragraph::new(summary(picture)), top);
    let width = usize::from(middle.width);
    let lines = lines(picture, width);
    let most = lines.len().saturating_sub(usize::from(middle.height));
    picture.scroll = picture.scroll.min(most);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(picture.scroll).collect();
    frame.render_widget(Paragraph::new(shown), middle);
    let seconds = picture.delay.as_secs_f64();
    let held = if picture.held { "  HELD" } else { "" };
    let keys = format!("q end  space hold  +/- every {seconds} s  ↑↓ scroll{held}");
    frame.render_widget(
        Paragraph::new(Line::styled(keys, Style::new().add_modifier(Modifier::DIM))),
        bottom,
    );
}

fn summary(picture: &Picture) -> Line<'static> {
    let arrays = count(picture.details.len(), "array");
    let degraded = picture.details.iter().filter(|detail| detail.degraded > 0).count();
    let clients: usize = picture.details.iter().map(|detail| detail.clients.len()).sum();
    let volumes = match picture.volumes.len() {
        0 => String::new(),
        volumes => format!("{}, ", count(volumes, "volume")),
    };
    let mut text = format!("braid  {arrays}, {volumes}{}", count(clients, "client"));
    if degraded > 0 {
        text.push_str(&format!(", {degraded} degraded"));
    }
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn lines(picture: &Picture, width: usize) -> Vec<Line<'static>> {
    let mut all = Vec::new();
    for detail in &picture.details {
        if let Some(job) = &detail.job {
            all.push(job_line(&detail.name, job));
        }
    }
    all.extend(picture.volumes.iter().flat_map(Seen::jobs));
    let columns: usize = HEADS.iter().map(|(_, width)| width).sum();
    let name = width.saturating_sub(columns).max(NAME_MIN);
    let heads = HEADS.iter().map(|(head, width)| format!("{head:>width$}")).collect::<String>();
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let what = match picture.volumes.is_empty() {
        true => "array, member",
        false => "array, member; volume, brick",
    };
    all.push(Line::styled(format!("{what:name$}{heads}"), style));
    for stat in &picture.stats {
        for row in rows(stat) {
            let colour = colour_of(row.what);
            let label: String = row.label.chars().take(name.saturating_sub(1)).collect();
            let cells = row.what.io().map_or_else(String::new, |io| cells(io, stat.seconds));
            let label = Span::styled(format!("{label:name$}"), Style::new().fg(colour));
            all.push(Line::from(vec![label, Span::raw(cells)]));
        }
    }
    all.extend(picture.volumes.iter().flat_map(|volume| volume.rows(name)));
    for detail in &picture.details {
        for client in &detail.clients {
            all.push(Line::raw(format!(
                "{}: {} {}  {}, {} read, {} written, {} under way",
                detail.name,
                client.protocol,
                client.address,
                count(usize::try_from(client.requests).unwrap_or(usize::MAX), "request"),
                size::human(client.read_bytes),
                size::human(client.written_bytes),
                client.in_flight
            )));
        }
    }
    all
}

fn colour_of(layer: Layer<'_>) -> Color {
    match layer {
        Layer::Array(stat) if stat.degraded > 0 => Color::Yellow,
        Layer::Array(_) => Color::Green,
        Layer::Member(member) => match member.state.as_str() {
            "faulty" => Color::Red,
            "active sync" => Color::Reset,
            _ => Color::Yellow,
        },
    }
}

fn cells(io: &Io, seconds: f64) -> String {
    let seconds = seconds.max(1e-9);
    let rate = |flow: &Flow| format!("{:.0}", flow.requests as f64 / seconds);
    let bytes = |flow: &Flow| size::rate(flow.bytes as f64 / seconds);
    let latency = |flow: &Flow| match &flow.latency {
        Some(latency) if io.timed && latency.requests > 0 => {
            time::short(latency.total_ns / latency.requests)
        }
        _ => "-".to_string(),
    };
    let queue = if io.timed {
        format!("{:.1}", io.total_ns() as f64 / 1e9 / seconds)
    } else {
        "-".to_string()
    };
    let busy = (io.busy_ns as f64 / 1e7 / seconds).min(100.0);
    let busy = if io.timed { format!("{busy:.0} %") } else { "-".to_string() };
    let all = [
        rate(&io.read),
        bytes(&io.read),
        latency(&io.read),
        rate(&io.write),
        bytes(&io.write),
        latency(&io.write),
        queue,
        busy,
    ];
    cells_of(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::volume::{BrickDetail, VolumeDetail};
    use braid_control::protocol::{Job, samples};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(picture: &mut Picture, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, picture)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_string()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_string()).collect()
    }

    #[test]
    fn a_rebuild_and_the_tree_are_on_the_screen() {
        let mut detail = samples::detail("top", &["active sync", "rebuilding"]);
        let (kind, total) = ("recover".to_string(), 1 << 30);
        detail.degraded = 1;
        detail.job = Some(Job {
            kind,
            done: 1 << 29,
            total,
            rate: 1 << 20,
            eta_seconds: Some(512),
            mismatches: 0,
        });
        let mut picture =
            Picture { stats: vec![samples::stack()], details: vec![detail], ..Picture::default() };
        let lines = drawn(&mut picture, 100, 12);
        assert_eq!(lines[0], "braid  1 array, 0 clients, 1 degraded");
        assert!(lines[1].starts_with("top: recover ██████████░░░░░░░░░░ 50.0 %, "), "{}", lines[1]);
        assert!(lines[1].ends_with("8 min 32 s to go"), "{}", lines[1]);
        assert!(
            lines[2].starts_with("array, member") && lines[2].ends_with("busy"),
            "{}",
            lines[2]
        );
        assert!(lines[3].starts_with("top raid0") && lines[3].contains("64"), "{}", lines[3]);
        assert!(lines[5].starts_with("│  ├─ a[0]"), "{}", lines[5]);
        assert!(lines[11].starts_with("q end"), "{}", lines[11]);
    }

    #[test]
    fn volumes_stand_behind_the_arrays_with_what_their_bricks_have_done_since() {
        let brick = |reads: u64, written: u64| BrickDetail {
            name: "/dev/sdb".to_string(),
            uuid: "b".to_string(),
            state: "data".to_string(),
            reads,
            written_bytes: written,
            ..BrickDetail::default()
        };
        let volume = |seconds, bricks| VolumeDetail {
            name: "pool".to_string(),
            dir: "/srv/pool".to_string(),
            state: "clean".to_string(),
            used: 1 << 30,
            size: 4 << 30,
            seconds,
            bricks,
            ..VolumeDetail::default()
        };
        let now = volume(14.0, vec![brick(140, 9 << 20), brick(0, 0)]);
        let before = Some(volume(12.0, vec![brick(100, 1 << 20), brick(0, 0)]));
        let mut picture = Picture { volumes: vec![Seen { now, before }], ..Picture::default() };
        let lines = drawn(&mut picture, 110, 8);
        assert_eq!(lines[0], "braid  0 arrays, 1 volume, 0 clients");
        assert!(lines[1].starts_with("array, member; volume, brick"), "{}", lines[1]);
        assert_eq!(lines[2], "pool volume  1 GiB of 4 GiB used  /srv/pool  clean");
        let words: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(&words[..3], ["├─", "/dev/sdb", "20"], "{}", lines[3]);
        assert!(lines[3].contains("4.2 MB/s"), "{}", lines[3]);
        assert!(lines[4].starts_with("└─ /dev/sdb"), "{}", lines[4]);
    }

    #[test]
    fn a_terminal_may_be_small_and_scrolling_ends() {
        let mut picture =
            Picture { stats: vec![samples::stack()], scroll: usize::MAX, ..Picture::default() };
        for (width, height) in [(1, 1), (10, 3), (40, 4)] {
            drawn(&mut picture, width, height);
        }
        assert!(picture.scroll < 10);
    }
}
