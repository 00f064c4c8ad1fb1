//! Rows of volumes: what their files are asked, as the kernel and clients of exports ask it, and below it what each brick is. Nothing is
//! merged there, and of bricks no time is taken.

use super::columns::{Columns, Line};
use crate::client::{Client, unexpected};
use crate::output::tree::branch;
use anyhow::Result;
use braid_control::protocol::volume::{
    BrickDetail, ListedVolume, VolumeAnswer, VolumeDetail, VolumeRequest,
};
use braid_control::protocol::{Answer, Flow, Io, Latency};
use serde::Serialize;
use std::path::Path;

/// A volume, and what it has done.
pub struct Seen(VolumeDetail);

/// All that are mounted.
pub fn all(client: &mut Client) -> Result<Vec<Seen>> {
    let listed = match client.ask_volume(VolumeRequest::List)? {
        VolumeAnswer::List { volumes } => volumes,
        volume => return Err(unexpected(&Answer::Volume { volume })),
    };
    // One that is unmounted meanwhile has nothing to show.
    Ok(listed.iter().filter_map(|ListedVolume { uuid, .. }| ask(client, uuid).ok()).collect())
}

/// The one of that name, UUID or directory; `None`: there is none.
pub fn named(client: &mut Client, name: &str) -> Option<Seen> {
    let path = Path::new(name).canonicalize().ok().filter(|_| name.contains('/'));
    ask(client, path.as_deref().and_then(Path::to_str).unwrap_or(name)).ok()
}

fn ask(client: &mut Client, volume: &str) -> Result<Seen> {
    match client.ask_volume(VolumeRequest::Status { volume: Some(volume.to_string()) })? {
        VolumeAnswer::Status { status } => Ok(Seen(*status)),
        volume => Err(unexpected(&Answer::Volume { volume })),
    }
}

/// A volume, and what is below it.
#[derive(Serialize)]
pub struct Branch<'a> {
    name: &'a str,
    state: &'a str,
    #[serde(flatten)]
    columns: Columns,
    bricks: Vec<Leaf<'a>>,
}

/// A brick of a volume.
#[derive(Serialize)]
struct Leaf<'a> {
    name: &'a str,
    id: u16,
    state: &'a str,
    #[serde(flatten)]
    columns: Columns,
}

impl Seen {
    /// It again, now.
    pub fn again(&self, client: &mut Client) -> Result<Seen> {
        ask(client, &self.0.uuid)
    }

    pub fn seconds(&self) -> f64 {
        self.0.seconds
    }

    /// What it has done since then.
    pub fn since(&self, before: &Seen) -> Seen {
        let (now, then) = (&self.0, &before.0);
        let less = u64::saturating_sub;
        let brick = |brick: &BrickDetail| {
            // One that has come since has been counted from then on.
            let Some(old) = then.bricks.iter().find(|old| old.uuid == brick.uuid) else {
                return brick.clone();
            };
            BrickDetail {
                reads: less(brick.reads, old.reads),
                read_bytes: less(brick.read_bytes, old.read_bytes),
                writes: less(brick.writes, old.writes),
                written_bytes: less(brick.written_bytes, old.written_bytes),
                ..brick.clone()
            }
        };
        Seen(VolumeDetail {
            reads: less(now.reads, then.reads),
            read_bytes: less(now.read_bytes, then.read_bytes),
            read_ns: less(now.read_ns, then.read_ns),
            writes: less(now.writes, then.writes),
            written_bytes: less(now.written_bytes, then.written_bytes),
            write_ns: less(now.write_ns, then.write_ns),
            seconds: now.seconds - then.seconds,
            bricks: now.bricks.iter().map(brick).collect(),
            ..now.clone()
        })
    }

    pub fn branch(&self) -> Branch<'_> {
        let leaf = |brick: &'_ BrickDetail| self.of_brick(brick);
        let bricks = self.0.bricks.iter().map(|brick| Leaf {
            name: &brick.name,
            id: brick.id,
            state: &brick.state,
            columns: leaf(brick),
        });
        Branch {
            name: &self.0.name,
            state: &self.0.state,
            columns: self.of_files(),
            bricks: bricks.collect(),
        }
    }

    pub fn lines(&self) -> Vec<Line> {
        let label = format!("{} volume", self.0.name);
        let mut lines = vec![Line { label, columns: Some(self.of_files()) }];
        for (nr, brick) in self.0.bricks.iter().enumerate() {
            let (branch, _) = branch(nr + 1 == self.0.bricks.len());
            let state = match brick.state.as_str() {
                "data" => String::new(),
                other => format!(" ({other})"),
            };
            let label = format!("{branch}{}[{}]{state}", brick.name, brick.id);
            lines.push(Line { label, columns: Some(self.of_brick(brick)) });
        }
        lines
    }

    fn of_files(&self) -> Columns {
        let volume = &self.0;
        let timed = |requests, bytes, total_ns| Flow {
            requests,
            bytes,
            latency: Some(Latency { requests, total_ns, ..Latency::default() }),
            ..Flow::default()
        };
        let io = Io {
            read: timed(volume.reads, volume.read_bytes, volume.read_ns),
            write: timed(volume.writes, volume.written_bytes, volume.write_ns),
            timed: true,
            ..Io::default()
        };
        counted_alone(Columns::of(&io, volume.seconds))
    }

    fn of_brick(&self, brick: &BrickDetail) -> Columns {
        let flow = |requests, bytes| Flow { requests, bytes, ..Flow::default() };
        let io = Io {
            read: flow(brick.reads, brick.read_bytes),
            write: flow(brick.writes, brick.written_bytes),
            ..Io::default()
        };
        counted_alone(Columns::of(&io, self.0.seconds))
    }
}

/// Without what nobody counts of volumes.
fn counted_alone(columns: Columns) -> Columns {
    Columns {
        r_merged: None,
        r_merged_percent: None,
        w_merged: None,
        w_merged_percent: None,
        d: None,
        d_kb: None,
        d_await: None,
        f: None,
        f_await: None,
        util: None,
        ..columns
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::text;
    use super::*;

    #[test]
    fn a_volume_and_its_bricks_are_rows_with_what_was_counted_of_them() {
        let brick = |reads| BrickDetail {
            uuid: "b".into(),
            name: "/srv/a".into(),
            state: "missing".into(),
            reads,
            read_bytes: reads * 4096,
            ..BrickDetail::default()
        };
        let volume = |seconds, reads: u64| {
            Seen(VolumeDetail {
                name: "pool".into(),
                reads,
                read_bytes: reads * 8192,
                read_ns: reads * 3_000_000,
                seconds,
                bricks: vec![brick(reads * 2)],
                ..VolumeDetail::default()
            })
        };
        let done = volume(4.0, 300).since(&volume(2.0, 100));
        let text = text(&done.lines());
        let cells = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let rows: Vec<_> = text.lines().map(cells).collect();
        assert_eq!(rows[1][..8], ["pool", "volume", "100.00", "800.00", "-", "-", "3.00", "8.00"]);
        assert_eq!(rows[2][..3], ["└─", "/srv/a[0]", "(missing)"]);
        assert_eq!(rows[2][3..9], ["200.00", "800.00", "-", "-", "-", "4.00"]);
        let json = serde_json::to_value(done.branch()).unwrap();
        assert_eq!((&json["r/s"], &json["bricks"][0]["r/s"]), (&100.0.into(), &200.0.into()));
        assert_eq!((&json["aqu-sz"], &json["%util"]), (&0.3.into(), &serde_json::Value::Null));
    }
}
