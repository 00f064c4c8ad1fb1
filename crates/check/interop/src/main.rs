//! `braid-interop`: runs the matrix against the real md and writes its table.

#![forbid(unsafe_code)]

use braid_interop::array_kills::{self, VICTIMS, Victim};
use braid_interop::fail_overs;
use braid_interop::kills::{self, Operation};
use braid_interop::matrix::{self, Report};
use braid_interop::take_overs::{self, Door};
use braid_interop::{cell, cut, serving, states, table, write_hole};
use braid_layout::Level;
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// braid and the real md on each other's arrays
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every level and layout, in both directions: a quick subset first, then all
    Matrix {
        /// Only the quick subset
        #[arg(long)]
        quick: bool,
        /// Only arrays whose name contains this text
        #[arg(long, default_value = "", value_name = "TEXT")]
        only: String,
        /// Also write the table to this file
        #[arg(long, value_name = "PATH")]
        markdown: Option<PathBuf>,
    },
    /// Arrays that one side leaves dirty or degraded and the other takes over
    States,
    /// Kill the server of a mounted volume in the middle of its operations
    Kills {
        /// The program `braid`
        #[arg(long, value_name = "PATH")]
        braid: PathBuf,
        /// An empty folder for bricks and mount points
        #[arg(long, value_name = "DIR")]
        work: PathBuf,
        /// Kills for each operation
        #[arg(long, default_value_t = 200, value_name = "N")]
        kills: u32,
        /// Decides when they come
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The operations [default: all]
        #[arg(value_enum)]
        operations: Vec<Operation>,
    },
    /// Kill the server of an array under writes, and start it again
    ArrayKills {
        /// The program `braid`
        #[arg(long, value_name = "PATH")]
        braid: PathBuf,
        /// An empty folder for members
        #[arg(long, value_name = "DIR")]
        work: PathBuf,
        /// Kills for each kind of array
        #[arg(long, default_value_t = 100, value_name = "N")]
        kills: u32,
        /// Decides when they come
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The kinds of arrays [default: all]
        #[arg(value_parser = Victim::named)]
        victims: Vec<Victim>,
    },
    /// Have a server take over from another, again and again, under a client that writes and verifies
    TakeOvers {
        /// The program `braid`
        #[arg(long, value_name = "PATH")]
        braid: PathBuf,
        /// An empty folder for members and sockets
        #[arg(long, value_name = "DIR")]
        work: PathBuf,
        /// Take-overs at each door
        #[arg(long, default_value_t = 100, value_name = "N")]
        times: u32,
        /// Decides what is written where
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Also write the table to this file
        #[arg(long, value_name = "PATH")]
        markdown: Option<PathBuf>,
        /// Also write the figures of a single door to this file, as numbers
        #[arg(long, hide = true, value_name = "PATH")]
        figures: Option<PathBuf>,
        /// The doors [default: all]
        #[arg(value_enum)]
        doors: Vec<Door>,
    },
    /// Have a host take over from another by their lease, again and again, under clients that write and verify; as root
    FailOvers {
        /// The program `braid`
        #[arg(long, value_name = "PATH")]
        braid: PathBuf,
        /// An empty folder for disks and logs
        #[arg(long, value_name = "DIR")]
        work: PathBuf,
        /// Fail-overs
        #[arg(long, default_value_t = 50, value_name = "N")]
        times: u32,
        /// The time that a lease lasts
        #[arg(long, default_value_t = 5, value_name = "SECONDS")]
        ttl: u32,
        /// Decides what is written where
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Also write the table to this file
        #[arg(long, value_name = "PATH")]
        markdown: Option<PathBuf>,
    },
    /// Serve an array until the standard input ends
    #[command(hide = true)]
    Serve {
        /// As a disk of virtual machines instead of over NBD
        #[arg(long)]
        vhost_user: bool,
        /// The socket to serve on
        socket: PathBuf,
        /// The array's members
        members: Vec<PathBuf>,
    },
    /// Write an array of `states` until killed
    #[command(hide = true)]
    Victim {
        /// Which one
        nr: usize,
        /// Where its members are
        folder: PathBuf,
    },
    /// Serve members, each for itself, until a line of the standard input cuts their power
    #[command(hide = true)]
    ServeMembers {
        /// The socket to serve on
        socket: PathBuf,
        /// The members
        members: Vec<PathBuf>,
    },
    /// Write an array of `write_hole` until the power is cut
    #[command(hide = true)]
    HalfWrite {
        /// Its name
        name: String,
        /// Its level
        level: Level,
        /// Decides what is written where
        seed: u64,
        /// Writes before the cut
        writes: u64,
        /// Where its members are
        folder: PathBuf,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Matrix { quick, only, markdown } => matrix(quick, &only, markdown),
        Command::Kills { braid, work, kills, seed, mut operations } => {
            if operations.is_empty() {
                operations = Operation::value_variants().to_vec();
            }
            let options = kills::Options { braid, work, kills, seed };
            for operation in operations {
                let outcome = kills::run(&options, operation)?;
                println!(
                    "{}: {} kills, {} in a job, {} hung, {} files compared, nothing lost",
                    operation.name(),
                    outcome.kills,
                    outcome.in_a_job,
                    outcome.hung,
                    outcome.files_compared
                );
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::ArrayKills { braid, work, kills, seed, mut victims } => {
            if victims.is_empty() {
                victims = VICTIMS.to_vec();
            }
            let braid = braid.canonicalize()?;
            for victim in victims {
                let name = victim.name;
                let folder = work.join(name);
                let compared = array_kills::run(&braid, &folder, &victim, kills, seed)?;
                println!("{name}: {kills} kills, {compared} sectors compared, nothing lost");
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::TakeOvers { braid, work, times, seed, markdown, figures, mut doors } => {
            if doors.is_empty() {
                doors = Door::value_variants().to_vec();
            }
            let (braid, own) = (braid.canonicalize()?, std::env::current_exe()?);
            let options = take_overs::Options { braid, work, times, seed, own };
            let mut outcomes = Vec::new();
            for door in doors {
                for outcome in take_overs::run(&options, door)? {
                    println!("{outcome}");
                    outcomes.push(outcome);
                }
            }
            if let (Some(path), [outcome]) = (figures, outcomes.as_slice()) {
                std::fs::write(path, outcome.figures())?;
            }
            if let Some(path) = markdown {
                std::fs::write(path, take_overs::markdown(&outcomes))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::FailOvers { braid, work, times, ttl, seed, markdown } => {
            if std::env::var_os(fail_overs::INSIDE).is_none() {
                let words: Vec<String> = std::env::args().skip(1).collect();
                let code = fail_overs::in_namespaces(&std::env::current_exe()?, &words)?;
                return Ok(ExitCode::from(code));
            }
            let options =
                fail_overs::Options { braid: braid.canonicalize()?, work, times, ttl, seed };
            let outcome = fail_overs::run(&options)?;
            println!("{outcome}");
            if let Some(path) = markdown {
                std::fs::write(path, fail_overs::markdown(&outcome))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::States => {
            let failures = states::run(&std::env::current_exe()?)?;
            failures.iter().for_each(|failure| println!("{failure}"));
            println!("states: {} wrong", failures.len());
            Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Serve { vhost_user, socket, members } => {
            serving::serve(&socket, &members, vhost_user).map_err(anyhow::Error::msg)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Victim { nr, folder } => {
            states::victim(&folder, nr).map_err(anyhow::Error::msg)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::ServeMembers { socket, members } => {
            cut::serve(&socket, &members).map_err(anyhow::Error::msg)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::HalfWrite { name, level, seed, writes, folder } => {
            let victim = write_hole::victim(&folder, &name, level, (seed, writes));
            victim.map_err(anyhow::Error::msg)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn matrix(quick: bool, only: &str, markdown: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let wanted = |cells: Vec<cell::Cell>| -> Vec<cell::Cell> {
        cells.into_iter().filter(|cell| cell.name().contains(only)).collect()
    };
    if only.is_empty() && !fine(&matrix::run(&cell::quick())?) {
        return Ok(ExitCode::FAILURE);
    }
    if quick {
        return Ok(ExitCode::SUCCESS);
    }
    let report = matrix::run(&wanted(cell::all()))?;
    let fine = fine(&report);
    if let Some(path) = markdown {
        std::fs::write(path, table::markdown(&report))?;
    }
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn fine(report: &Report) -> bool {
    let failures = report.failures();
    failures.iter().for_each(|failure| println!("{failure}"));
    let arrays = report.rows.len() * 2;
    println!("{arrays} arrays, {} wrong, {:.0} s", failures.len(), report.took.as_secs_f64());
    failures.is_empty()
}
