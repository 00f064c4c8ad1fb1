//! The fuzz harness's command.

#![forbid(unsafe_code)]

use clap::Parser;

fn main() -> std::process::ExitCode {
    match braid_fuzz::cli::main(&braid_fuzz::cli::Cli::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // Not with {:?}: what failed was found in a parser, not at a place in this program.
            eprintln!("braid-fuzz: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
