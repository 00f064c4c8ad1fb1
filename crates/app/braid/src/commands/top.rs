//! `braid top`: arrays and their members, volumes and their bricks on one screen, anew every second.
//!
//! `picture` draws what is given to it; here it is asked for, and keys are read.

mod cells;
mod picture;
mod volumes;

use super::layers;
use crate::cli::Top;
use crate::client::Client;
use anyhow::{Context, Result, bail};
use braid_control::protocol::volume::{VolumeAnswer, VolumeDetail, VolumeRequest};
use braid_control::protocol::{Detail, Stat};
use picture::{Picture, draw};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use volumes::Seen;

/// Between these the interval is changed by keys.
const DELAY_MIN: Duration = Duration::from_millis(250);
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Lines that a page key scrolls by.
const PAGE: usize = 10;

/// The wish that a key stands for.
enum Wish {
    End,
    Drawn,
    Nothing,
}

pub fn run(options: &Top) -> Result<ExitCode> {
    if !std::io::stdout().is_terminal() {
        bail!(
            "`braid top` needs a terminal; `braid status`, `braid iostat 1` and --json are for others"
        );
    }
    let mut client = Client::connect(&options.control.path())?;
    let seen = |volumes: Vec<VolumeDetail>, before: &[Seen]| -> Vec<Seen> {
        let then = |uuid: &str| before.iter().find(|seen| seen.now.uuid == uuid);
        let seen = volumes.into_iter().map(|now| {
            let before = then(&now.uuid).map(|seen| seen.now.clone());
            Seen { now, before }
        });
        seen.collect()
    };
    let volumes = seen(mounted(&mut client, options.name.as_deref())?, &[]);
    let mut before = match layers::ask(&mut client, options.name.as_deref()) {
        // There may be volumes alone, or the name may be that of one.
        Err(_) if !volumes.is_empty() => Vec::new(),
        asked => asked?,
    };
    let mut picture = Picture { volumes, delay: options.delay, ..Picture::default() };
    // It is put back also when something fails in between.
    let mut terminal = ratatui::try_init().context("taking over the terminal")?;
    let ended = (|| {
        loop {
            if !picture.held {
                let now = before.iter().map(|stat| client.stat(Some(&stat.uuid)));
                let now = now.collect::<Result<Vec<Stat>>>()?;
                picture.stats =
                    now.iter().zip(&before).map(|(now, before)| now.since(before)).collect();
                let details = now.iter().map(|stat| client.detail(Some(&stat.uuid)));
                picture.details = details.collect::<Result<Vec<Detail>>>()?;
                before = now;
                let now = mounted(&mut client, options.name.as_deref())?;
                picture.volumes = seen(now, &picture.volumes);
            }
            let until = Instant::now() + picture.delay;
            loop {
                terminal.draw(|frame| draw(frame, &mut picture)).context("drawing")?;
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || !event::poll(left).context("waiting for keys")? {
                    break;
                }
                match wish(&event::read().context("reading keys")?, &mut picture) {
                    Wish::End => return Ok(ExitCode::SUCCESS),
                    Wish::Drawn | Wish::Nothing => {}
                }
            }
        }
    })();
    ratatui::restore();
    ended
}

/// The volumes that are mounted, or the one of that name.
fn mounted(client: &mut Client, name: Option<&str>) -> Result<Vec<VolumeDetail>> {
    let listed = client.ask_volume(VolumeRequest::List)?;
    let VolumeAnswer::List { volumes } = listed else { return Ok(Vec::new()) };
    let mut details = Vec::new();
    for volume in volumes {
        if name.is_some_and(|name| name != volume.name && name != volume.uuid) {
            continue;
        }
        // One that has just been unmounted is not shown.
        let asked = client.ask_volume(VolumeRequest::Status { volume: Some(volume.uuid) });
        if let Ok(VolumeAnswer::Status { status }) = asked {
            details.push(*status);
        }
    }
    Ok(details)
}

fn wish(event: &Event, picture: &mut Picture) -> Wish {
    let Event::Key(key) = event else { return Wish::Drawn };
    if key.kind == KeyEventKind::Release {
        return Wish::Nothing;
    }
    let scroll = &mut picture.scroll;
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Wish::End,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Wish::End,
        KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => *scroll = scroll.saturating_add(1),
        KeyCode::PageUp => *scroll = scroll.saturating_sub(PAGE),
        KeyCode::PageDown => *scroll = scroll.saturating_add(PAGE),
        KeyCode::Home => *scroll = 0,
        // Drawing keeps it within what there is.
        KeyCode::End => *scroll = usize::MAX,
        KeyCode::Char('+') => picture.delay = (picture.delay * 2).min(DELAY_MAX),
        KeyCode::Char('-') => picture.delay = (picture.delay / 2).max(DELAY_MIN),
        KeyCode::Char(' ') => picture.held = !picture.held,
        _ => return Wish::Nothing,
    }
    Wish::Drawn
}
