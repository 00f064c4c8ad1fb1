//! One file for each verb: what it checks, what it asks, what it prints.

mod add;
mod bench;
mod check;
mod config;
mod create;
mod daemon;
mod detail;
mod done;
mod examine;
mod fail;
mod get;
mod grow;
mod incremental;
mod iostat;
mod layers;
mod manual;
mod member;
mod monitor;
mod re_add;
mod remove;
mod repair;
mod replace;
mod resume;
mod scrub;
mod serve;
mod set;
mod speed;
mod start;
mod stat;
mod status;
mod stop;
mod top;
mod volume;
mod wait;

use crate::cli::Command;
use anyhow::Result;
use std::process::ExitCode;

/// Runs a verb.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Create(options) => create::run(options),
        Command::Serve(options) => serve::run(*options),
        Command::Daemon(options) => daemon::run(options),
        Command::Start(options) => start::run(options),
        Command::Incremental(options) => incremental::run(options),
        Command::Completions(options) => manual::completions(&options),
        Command::Manual(options) => manual::pages(&options),
        Command::Config(verb) => config::run(verb),
        Command::Examine(options) => examine::run(&options),
        Command::Detail(options) => detail::run(&options),
        Command::Fail(options) => fail::run(options),
        Command::Member(options) => member::run(options),
        Command::Remove(options) => remove::run(options),
        Command::Replace(options) => replace::run(options),
        Command::Add(options) => add::run(options),
        Command::ReAdd(options) => re_add::run(options),
        Command::Grow(options) => grow::run(options),
        Command::Check(options) => check::run(options),
        Command::Repair(options) => repair::run(options),
        Command::Resume(options) => resume::run(&options),
        Command::Wait(options) => wait::run(&options),
        Command::Speed(options) => speed::run(options),
        Command::Set(options) => set::run(options),
        Command::Get(options) => get::run(&options),
        Command::Stat(options) => stat::run(&options),
        Command::Monitor(options) => monitor::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Iostat(options) => iostat::run(&options),
        Command::Stop(options) => stop::run(options),
        Command::Bench(options) => bench::run(*options),
        Command::Volume(verb) => volume::run(verb),
        Command::Demo(options) => crate::demo::run(&options),
    }
}
