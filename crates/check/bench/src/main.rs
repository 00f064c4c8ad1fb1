//! `braid-bench`: the tables of docs/benchmarks, measured again.
//!
//! Owns the command line. Each table is a list of loads that `braid-load` runs, with what is
//! demanded of each or what others have reached; see `tables`. Nothing depends on this crate.

#![forbid(unsafe_code)]

mod against_md;
mod callgrind;
mod dbench;
mod doors;
mod fairness;
mod files;
mod fio;
mod instructions;
mod jobs;
mod known;
mod loads;
mod markdown;
mod memory;
mod metadata;
mod plot;
mod policies;
mod processor;
mod programs;
mod shards;
mod stacks;
mod tables;
mod tuning;
mod volumes;

use anyhow::Context;
use braid_load::Pattern;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use tables::{Effort, Missing, Table};

/// The tables of docs/benchmarks, measured again.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Measure all tables, or those named with --only
    Tables(Tables),
    /// Carry out requests, for the instructions table to count
    #[command(hide = true)]
    Requests {
        /// Their order and direction
        pattern: Pattern,
        /// Bytes of each
        block: u64,
        /// What they go to
        on: String,
        /// How many
        count: u64,
    },
    /// Serve an array in memory at one door until the standard input ends, for the table of doors to count
    #[command(hide = true)]
    Door {
        /// Its protocol: nbd, vhost-user or nvme
        protocol: String,
        /// The folder for its socket
        folder: PathBuf,
    },
    /// Serve an array in the guest of the dbench table, with settings from the standard input
    #[command(hide = true)]
    Serve {
        /// The socket to serve on
        socket: PathBuf,
        /// The array's members
        members: Vec<PathBuf>,
    },
    /// Mount the large volume of its table and measure this process
    #[command(hide = true)]
    LargeVolume {
        /// Where its bricks and its metadata are
        folder: PathBuf,
        /// The number of its stripes; without it, it is mounted after a crash
        stripes: Option<u64>,
    },
    /// Mount what a volume's mount is compared with, until the standard input ends
    #[command(hide = true)]
    Mount {
        #[command(subcommand)]
        server: volumes::fuse::Server,
    },
}

#[derive(Args, Default)]
struct Tables {
    /// Short slices: figures for a first look
    #[arg(long)]
    quick: bool,
    /// Only tables whose name contains this text: memory, known, files, processor-time, stripe-size,
    /// stripe-cache-size, curves, policies, jobs, shards, stacks, stacks-on-files, volumes, volumes-extents, volumes-foreground, volumes-copies,
    /// volumes-checksums, volumes-snapshots, volumes-against-btrfs, volumes-copies-against-btrfs, volumes-large, volume-fuse-memory, volume-fuse-loop, volume-fuse-tree, volume-fuse-folder, against-md, dbench, instructions,
    /// volume-fairness, volume-metadata, doors, doors-against
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
    /// Also write each table to a file of its name in this folder
    #[arg(long, value_name = "DIR")]
    markdown: Option<PathBuf>,
    /// Also write everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The date to write into the files [default: today]
    #[arg(long)]
    date: Option<String>,
    /// Folder on the disk that the members of the files table shall lie on
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        None => measure(&Tables::default()),
        Some(Command::Tables(wanted)) => measure(&wanted),
        Some(Command::Requests { pattern, block, on, count }) => {
            instructions::requests(pattern, block, &on, count)
        }
        Some(Command::Door { protocol, folder }) => doors::counted::serve(&protocol, &folder),
        Some(Command::Serve { socket, members }) => {
            braid_interop::serving::serve(&socket, &members, false).map_err(anyhow::Error::msg)
        }
        Some(Command::LargeVolume { folder, stripes }) => volumes::large::process(&folder, stripes),
        Some(Command::Mount { server }) => server.run(),
    }
}

type Make = fn(&Effort) -> anyhow::Result<Table>;

fn measure(wanted: &Tables) -> anyhow::Result<()> {
    let effort = Effort { quick: wanted.quick, disk: wanted.disk.clone() };
    let all: [(&str, Make); 32] = [
        ("memory", memory::table),
        ("known", known::table),
        ("files", files::table),
        ("processor-time", processor::table),
        ("stripe-size", tuning::stripe_size),
        ("stripe-cache-size", tuning::stripe_cache_size),
        ("curves", tuning::curves),
        ("policies", policies::table),
        ("jobs", jobs::table),
        ("shards", shards::table),
        ("stacks", stacks::table),
        ("stacks-on-files", stacks::on_files),
        ("volumes", volumes::table),
        ("volumes-extents", volumes::extents),
        ("volumes-foreground", volumes::foreground),
        ("volumes-copies", volumes::copies),
        ("volumes-checksums", volumes::checksums),
        ("volumes-snapshots", volumes::snapshots),
        ("volumes-against-btrfs", volumes::against_btrfs),
        ("volumes-copies-against-btrfs", volumes::copies_against_btrfs),
        ("volumes-large", volumes::large::table),
        ("volume-fuse-memory", volumes::fuse::memory),
        ("volume-fuse-loop", volumes::fuse::on_loop),
        ("volume-fuse-tree", volumes::fuse::tree),
        ("volume-fuse-folder", volumes::fuse::folder),
        ("against-md", against_md::table),
        ("dbench", dbench::table),
        ("instructions", instructions::table),
        ("volume-fairness", fairness::table),
        ("volume-metadata", metadata::table),
        ("doors", doors::prices::table),
        ("doors-against", doors::against::table),
    ];
    let date = wanted.date.clone().unwrap_or_else(today);
    let mut tables = Vec::new();
    for (name, make) in all.iter().filter(|(name, _)| name.contains(&wanted.only)) {
        let table = match make(&effort) {
            Ok(table) => table,
            Err(error) => match error.downcast::<Missing>() {
                Ok(missing) => {
                    eprintln!("braid-bench: the table {name:?} is left out: {missing}");
                    continue;
                }
                Err(error) => {
                    return Err(error.context(format!("measuring the table {name:?}")));
                }
            },
        };
        println!("{}", markdown::body(&table));
        if let Some(folder) = &wanted.markdown {
            markdown::write(&table, &folder.join(format!("{name}.md")), &date)?;
            for plot in &table.plots {
                plot.write(folder)?;
            }
        }
        tables.push(table);
    }
    if let Some(path) = &wanted.json {
        let everything = serde_json::json!({ "date": date, "tables": tables });
        let text =
            serde_json::to_string_pretty(&everything).context("writing the tables as JSON")?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn today() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%d").to_string()
}
