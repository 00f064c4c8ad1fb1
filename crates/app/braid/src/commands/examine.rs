//! `braid examine`: what the superblocks of members say, in the words, order and columns of
//! `mdadm --examine`. What braid has to say beyond that comes after md's lines.

mod assembly;
mod bad_blocks;
mod bitmap;
mod brief;
mod json;
mod read;
mod shape;
mod v0;
mod v1;

use self::read::{Read, Unfit};
use self::shape::array_bytes;
use crate::cli::Examine;
use crate::discover;
use crate::exit::{FAILED, UNREADABLE};
use crate::members::parse_one;
use crate::on_shard;
use crate::output::{self, size, words};
use crate::source::Source;
use anyhow::{Context, Result};
use braid_format::signature::refuse_container;
use braid_format::superblock::{Version, time_seconds};
use braid_format::uuid_text;
use braid_nbd::ExportUri;
use braid_shard::threads::Shards;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(options: &Examine) -> Result<ExitCode> {
    if options.assemble {
        return assembly::run(&options.members, options.json);
    }
    if options.bitmap {
        return bitmaps(&options.members);
    }
    let sources = Sources::default();
    let looked: Vec<_> = options.members.iter().map(|path| look(&sources, path)).collect();
    if options.json {
        output::json(&looked.iter().map(json::Report::of).collect::<Vec<_>>())?;
    } else if options.brief || options.scan {
        let read: Vec<&Read> = looked.iter().flatten().collect();
        for line in brief::lines(&read, options.verbose) {
            output::line(line)?;
        }
    }
    let mut code = 0;
    for found in &looked {
        match found {
            Ok(_) if options.json || options.brief || options.scan => {}
            Ok(read) if options.export => output::line(export(read))?,
            Ok(read) if options.badblocks => {
                match sources.of(&read.path).and_then(|source| bad_blocks::text(&source, read)) {
                    Ok(text) => output::line(text)?,
                    Err(error) => {
                        code = code.max(UNREADABLE);
                        output::note(format!(
                            "braid: {error}",
                            error = crate::output::said(&error)
                        ));
                    }
                }
            }
            Ok(read) => output::line(text(read))?,
            Err(unfit) => {
                code = code.max(unfit.code);
                if !options.json {
                    output::note(format!("braid: {}: {}", unfit.path.display(), unfit.why));
                }
            }
        }
    }
    Ok(ExitCode::from(code))
}

/// Bitmaps may be in files that are no members.
fn bitmaps(paths: &[PathBuf]) -> Result<ExitCode> {
    let mut code = 0;
    let sources = Sources::default();
    for path in paths {
        let text = |source| bitmap::text(&source, &path.display().to_string());
        match sources.of(path).and_then(text) {
            Ok(text) => output::line(text)?,
            Err(error) => {
                code = UNREADABLE;
                output::note(format!("braid: {error}", error = crate::output::said(&error)));
            }
        }
    }
    Ok(ExitCode::from(code))
}

/// Opens what is to be looked at, with a shard where exports of other servers are.
#[derive(Default)]
struct Sources {
    shards: OnceCell<Shards>,
}

impl Sources {
    fn of(&self, path: &Path) -> Result<Source> {
        let Some(uri) = path.to_str().filter(|text| ExportUri::is_meant(text)) else {
            return Source::file(path);
        };
        let member = parse_one(uri)?;
        let shards = match self.shards.get() {
            Some(shards) => shards,
            None => {
                let started = on_shard::start_shards(1)?;
                self.shards.get_or_init(|| started)
            }
        };
        Source::of(shards.remotes().first().context("a shard was started")?, &member)
    }
}

fn look(sources: &Sources, path: &Path) -> Result<Read, Unfit> {
    let unfit = |why: String, code| Unfit { path: path.to_owned(), why, code };
    let examined = sources
        .of(path)
        .and_then(|source| discover::examine_source(&source, &path.display().to_string()))
        .map_err(|error| unfit(crate::output::said(&error), UNREADABLE))?;
    let container = refuse_container(&examined.signatures).err();
    match &examined.superblock {
        Ok(Some(superblock)) => {
            Ok(Read { path: path.to_owned(), superblock: superblock.clone(), examined })
        }
        Ok(None) => {
            let why = match (container, examined.signatures.first()) {
                (Some(container), _) => container.to_string(),
                (None, Some(other)) => {
                    format!("no md superblock: it is no member of an array; it has {}", other.what)
                }
                (None, None) => "no md superblock: it is no member of an array".to_string(),
            };
            Err(unfit(why, FAILED))
        }
        Err(error) => Err(unfit(error.to_string(), FAILED)),
    }
}

fn text(read: &Read) -> String {
    let mut lines = vec![format!("{}:", read.path.display())];
    match read.superblock.version {
        Version::V0_90 => v0::text(read, &mut lines),
        _ => v1::text(read, &mut lines),
    }
    more(read, &mut lines);
    lines.join("\n")
}

/// What mdadm does not say.
fn more(read: &Read, lines: &mut Vec<String>) {
    let superblock = &read.superblock;
    let mut own = Vec::new();
    if !superblock.is_clean() && superblock.resync_offset > 0 {
        own.push(format!("{:>15} : {} sectors", "Resync Offset", superblock.resync_offset));
    }
    let mut warn = |text: String| own.push(format!("{:>15} : {text}", "Warning"));
    if superblock.reshape_position_is_doubtful() {
        warn(
            "the place that this reshape has reached is not to be trusted when Linux ran it; \
              both sides of it may read wrong"
                .to_string(),
        );
    }
    if let Err(container) = refuse_container(&read.examined.signatures) {
        warn(container.to_string());
    }
    if !own.is_empty() {
        lines.push(String::new());
        lines.extend(own);
    }
}

/// `MD_*` variables, as `mdadm --examine --export`.
fn export(read: &Read) -> String {
    let superblock = &read.superblock;
    let mut lines = Vec::new();
    let mut set = |name: &str, value: String| lines.push(format!("{name}={value}"));
    set("MD_LEVEL", words::level(superblock.level));
    set("MD_DEVICES", superblock.raid_disks.to_string());
    let v1 = superblock.version != Version::V0_90;
    if v1 {
        let name = superblock.set_name.escaped();
        if !name.is_empty() {
            set("MD_NAME", name);
        }
        if let Some(bytes) = array_bytes(superblock) {
            set("MD_ARRAY_SIZE", size::mdadm_short(bytes));
        }
    }
    set("MD_UUID", uuid_text::format(&superblock.set_uuid));
    set("MD_UPDATE_TIME", time_seconds(superblock.utime).to_string());
    if v1 {
        set("MD_DEV_UUID", uuid_text::format(&superblock.device_uuid));
    }
    set("MD_EVENTS", superblock.events.to_string());
    lines.join("\n")
}
