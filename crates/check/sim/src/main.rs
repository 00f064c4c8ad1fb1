//! The simulator's command.

#![forbid(unsafe_code)]

use clap::Parser;

fn main() -> anyhow::Result<()> {
    braid_sim::cli::main(braid_sim::cli::Cli::parse())
}
