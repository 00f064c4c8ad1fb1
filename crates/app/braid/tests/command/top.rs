//! `braid top` on a terminal: a rebuild and a reshape are on the screen, and keys end it.
//!
//! With BRAID_SCREENSHOTS=FOLDER the pictures stay there (`make screenshots`).

use crate::browser::Browser;
use crate::support::Place;
use crate::web::{under_load, until};
use std::fs;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

const COLUMNS: NonZeroU16 = NonZeroU16::new(110).unwrap();
const LINES: NonZeroU16 = NonZeroU16::new(16).unwrap();

/// A terminal in which the program runs.
struct Terminal {
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn run(place: &Place, words: &str) -> Terminal {
        // util-linux makes the terminal; the program asks it how large it is.
        let script = format!(
            "stty cols {COLUMNS} rows {LINES}; exec {} {words}",
            env!("CARGO_BIN_EXE_braid")
        );
        let like = place.command(&[]);
        let mut command = std::process::Command::new("script");
        command.args(["--quiet", "--flush", "--return", "--command", &script, "/dev/null"]);
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(place.path("")).env("TERM", "xterm-256color");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("script (util-linux): {error}"));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(LINES, COLUMNS, 0)));
        let (mut out, drawn) = (child.stdout.take().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = out.read(&mut bytes) {
                drawn.lock().unwrap().process(&bytes[..len]);
            }
        });
        Terminal { child, screen }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// The screen as a page in the colours of a terminal.
    fn page(&self) -> String {
        let screen = self.screen.lock().unwrap();
        let mut page = String::from(
            "<!doctype html><meta charset=utf-8><style>body{margin:0;background:#1c1c1c}pre{margin:12px;\
             font:14px/18px 'DejaVu Sans Mono',monospace;color:#d0d0d0}</style><pre>",
        );
        for row in 0..LINES.get() {
            for column in 0..COLUMNS.get() {
                let Some(cell) = screen.screen().cell(row, column) else { continue };
                let colour = match cell.fgcolor() {
                    vt100::Color::Idx(1) => "#ff6b6b",
                    vt100::Color::Idx(2) => "#8fd16f",
                    vt100::Color::Idx(3) => "#e8c15a",
                    vt100::Color::Idx(6) => "#63c5d6",
                    _ => "#d0d0d0",
                };
                let colours = match cell.inverse() {
                    true => format!("color:#1c1c1c;background:{colour}"),
                    false => format!("color:{colour}"),
                };
                let weight = if cell.bold() { ";font-weight:bold" } else { "" };
                let dim = if cell.dim() { ";opacity:.6" } else { "" };
                let text = match cell.contents() {
                    "" => " ",
                    "<" => "&lt;",
                    "&" => "&amp;",
                    text => text,
                };
                page.push_str(&format!("<span style=\"{colours}{weight}{dim}\">{text}</span>"));
            }
            page.push('\n');
        }
        page + "</pre>"
    }

    fn key(&mut self, key: &str) {
        let keys = self.child.stdin.as_mut().unwrap();
        keys.write_all(key.as_bytes()).unwrap();
        keys.flush().unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_rebuild_and_a_reshape_are_shown_on_a_terminal() {
    let place = Place::new();
    let pictures = std::env::var_os("BRAID_SCREENSHOTS").map_or(place.path(""), PathBuf::from);
    place.members(&["disk0", "disk1", "disk2", "disk3", "disk4", "disk5"]);
    place
        .run("create vault -l 5 -n 4 -x 1 -c 64K --assume-clean disk0 disk1 disk2 disk3 disk4")
        .ok();
    let server = place.serve("disk0 disk1 disk2 disk3 disk4");
    place.data("content", 6 << 20);
    let mut terminal = Terminal::run(&place, "top --delay 0.5");
    let mut browser = Browser::start();
    browser.window(960, 320, true);
    let mut picture = |terminal: &Terminal, name: &str| {
        let page = place.path("top.html");
        fs::write(&page, terminal.page()).unwrap();
        browser.open(&format!("file://{}", page.display()));
        browser.until("document.querySelectorAll('pre span').length > 1000");
        browser.picture(&pictures.join(name));
    };
    let shows = |terminal: &Terminal, words: &[&str]| {
        until(&format!("{words:?} on the screen"), || {
            let text = terminal.text();
            words.iter().all(|word| text.contains(word))
        });
    };
    under_load(&place, || {
        shows(&terminal, &["braid  1 array", "vault raid5", "disk3[3]"]);
        // A client is there for moments only: it need not be where a job is, too.
        shows(&terminal, &["vault: nbd "]);
        place.run("speed vault --min 1 --max 400").ok();
        place.run("fail vault disk2").ok();
        shows(&terminal, &["1 degraded", "vault: recover ██", "to go"]);
        picture(&terminal, "top-rebuild.png");
        place.run("speed vault --max 1000000").ok();
        place.run("wait vault").ok();
        place.run("remove vault disk2").ok();
        place.run("add vault disk5").ok();
        place.run("speed vault --min 1 --max 400").ok();
        place.run("grow vault --raid-devices 5").ok();
        shows(&terminal, &["vault: reshape ██", "to go", "disk5[4]"]);
        picture(&terminal, "top-reshape.png");
    });
    terminal.key("q");
    assert!(terminal.child.wait().unwrap().success());
    place.run("speed vault --max 1000000").ok();
    place.run("wait vault").ok();
    place.run("stop vault --force").ok();
    server.ended().ok();
}
