//! The simulator's command.

#![forbid(unsafe_code)]

use clap::Parser;

fn main() -> std::process::ExitCode {
    match braid_sim::cli::main(braid_sim::cli::Cli::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // Not with {:?}: what failed was found by a checker, not at a place in this program.
            eprintln!("braid-sim: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
