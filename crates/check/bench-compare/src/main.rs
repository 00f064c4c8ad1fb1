//! `braid-bench-compare`: rivals, side by side with braid.
//!
//! Owns the command line. Each subcommand measures one part of braid against one rival, both in the same
//! process, on the same buffers, in turn. Nothing depends on this crate, and an ordinary build leaves it
//! out: the rivals have to be installed.

#![deny(unsafe_code)]

mod isal;
mod measure;
mod parity;
mod report;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Rivals, side by side with braid.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    comparison: Comparison,
}

#[derive(Subcommand)]
enum Comparison {
    /// The parity kernels against ISA-L's.
    Parity {
        /// Rounds per row; each measures braid and ISA-L one after the other
        #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u16).range(7..))]
        rounds: u16,
        /// Only rows whose name contains this text
        #[arg(long, default_value = "")]
        only: String,
        /// Print one JSON object in place of the table
        #[arg(long)]
        json: bool,
        /// Also write the table to this file, as Markdown
        #[arg(long, value_name = "PATH")]
        markdown: Option<PathBuf>,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().comparison {
        Comparison::Parity { rounds, only, json, markdown } => {
            if let Some(warning) = braid_parity::override_warning() {
                eprintln!("warning: {warning}");
            }
            let rows = parity::compare(rounds.into(), &only)?;
            if json {
                println!("{}", report::json(&rows)?);
            } else {
                print!("{}", report::table(&rows));
            }
            if let Some(path) = markdown {
                report::write_markdown(&rows, &path)?;
            }
        }
    }
    Ok(())
}
