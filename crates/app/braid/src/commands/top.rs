//! `braid top`: arrays and their members on one screen, anew every second.
//!
//! `picture` draws what is given to it; here it is asked for, and keys are read.

mod picture;

use super::layers;
use crate::cli::Top;
use crate::client::Client;
use anyhow::{Context, Result, bail};
use braid_control::protocol::{Detail, Stat};
use picture::{Picture, draw};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

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
    let mut before = layers::ask(&mut client, options.name.as_deref())?;
    let mut picture = Picture { delay: options.delay, ..Picture::default() };
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
