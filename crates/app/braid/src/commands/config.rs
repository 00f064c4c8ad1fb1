//! `braid config check`, and the options of `braid serve` that a configuration stands for.

use crate::cli::{Cli, Command, Config, ConfigCheck, Serve};
use crate::configuration::{ConfigError, Configuration, ServeOption, VolumeEntry};
use crate::output;
use crate::scanning::Scanner;
use crate::settings::kept::Kept;
use crate::volumes::looking::{Looked, looked_for};
use anyhow::Result;
use clap::{CommandFactory, Parser};
use std::process::ExitCode;

/// Options that are no key of `[serve]`.
const NOT_HERE: &[(&str, &str)] = &[
    ("config", "the file that this is"),
    ("create", "`braid create` makes arrays"),
    ("detach", "the service manager does that"),
    ("force", "`braid start --force` is for one array, once"),
    ("read-only", "`braid serve --read-only` is for a look at arrays"),
    ("run", "[scan] degraded-after says when an array is started without members"),
    ("scan", "that is what the rest of this file is for"),
    ("strict", "each array is started when it can be"),
    ("take-over", "SIGHUP does that"),
    ("uuid", "name arrays in [[array]]"),
];

pub fn run(verb: Config) -> Result<ExitCode> {
    let Config::Check(ConfigCheck { config }) = verb;
    let read = Configuration::read(&config)?;
    let options = serve_options(&read)?;
    output::line(format!("{}: no mistake", config.display()))?;
    if !options.has_a_place() {
        output::line(
            "note: [serve] says nowhere where clients connect: nbd, vhost-user, ublk, nvme or fuse",
        )?;
    }
    for ignored in &read.ignored {
        output::line(format!(
            "ignored: {}:{}: {}",
            ignored.path.display(),
            ignored.line,
            ignored.why
        ))?;
    }
    let found = Scanner::default().scan(&read, &[], &|superblock| read.wants(superblock));
    for note in &found.notes {
        output::line(format!("note: {note}"))?;
    }
    match (found.members.len(), found.arrays.len()) {
        (0, _) => output::line("no device that it names is a member of an array that it wants")?,
        (members, arrays) => {
            let members = output::count(members, "member");
            output::line(format!("it starts {} of {members}:", output::count(arrays, "array")))?;
            let lines = found.members.iter().map(|path| format!("  {}", path.display()));
            lines.into_iter().try_for_each(output::line)?;
        }
    }
    say_volumes(&read, &options)?;
    Ok(ExitCode::SUCCESS)
}

/// Says which volumes would be mounted, and what of them is there.
fn say_volumes(read: &Configuration, options: &Serve) -> Result<()> {
    let entries: Vec<&VolumeEntry> = read.volumes.iter().filter(|entry| entry.start).collect();
    if entries.is_empty() {
        return Ok(());
    }
    let kept = Kept::new(options.state.state_dir.as_deref());
    output::line(format!("it mounts {}:", output::count(entries.len(), "volume")))?;
    for entry in entries {
        let (name, dir) = (entry.called(), &entry.mount);
        let what = match looked_for(&entry.wanted(), &entry.bricks, &kept) {
            Ok(Looked::There(count)) => format!("{} found", output::count(count, "brick")),
            Ok(Looked::OnArrays) => "on arrays, which have to run first".to_string(),
            Err(error) => format!("not now: {}", output::said(&error)),
        };
        output::line(format!("  {name} at {dir}: {what}"))?;
        match std::fs::metadata(dir) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => output::line(format!("note: {dir} is not a directory"))?,
            Err(error) => output::line(format!("note: {dir}: {error}; make it with mkdir -p"))?,
        }
    }
    Ok(())
}

/// The options of `braid serve` that a configuration stands for.
///
/// # Errors
/// A key that is no option of it, or a value that the option does not take, with its place.
pub fn serve_options(read: &Configuration) -> Result<Serve, ConfigError> {
    let command = Cli::command();
    let known = command.find_subcommand("serve");
    let is_known = |name: &str| {
        known.is_some_and(|serve| {
            serve.get_arguments().any(|argument| argument.get_long() == Some(name))
        })
    };
    // One by one, so that a mistake is said where it stands; what they mean together comes after that.
    for option in &read.serve {
        let name = option.name.as_str();
        if let Some((_, why)) = NOT_HERE.iter().find(|(other, _)| *other == name) {
            return Err(read.wrong(&option.span, format!("{name} is no key of [serve]: {why}")));
        }
        if !is_known(name) {
            let why = format!("{name} is no option of `braid serve`");
            return Err(read.wrong(&option.span, why));
        }
        if let Err(error) = parsed(read, std::slice::from_ref(option))
            && !matches!(
                error.kind(),
                // Another option of the file may be what it wants.
                clap::error::ErrorKind::MissingRequiredArgument
            )
        {
            return Err(read.wrong(&option.span, said(&error)));
        }
    }
    parsed(read, &read.serve).map_err(|error| {
        let names =
            |option: &&ServeOption| error.to_string().contains(&format!("--{}", option.name));
        let span = read.serve.iter().find(names).map_or(0..0, |option| option.span.clone());
        read.wrong(&span, said(&error))
    })
}

fn parsed(read: &Configuration, options: &[ServeOption]) -> Result<Serve, clap::Error> {
    let mut words = vec!["braid".to_string(), "serve".to_string()];
    words.push(format!("--config={}", read.path.display()));
    for ServeOption { name, values, off, .. } in options {
        if *off {
            continue;
        }
        match values.as_slice() {
            [] => words.push(format!("--{name}")),
            values => words.extend(values.iter().map(|value| format!("--{name}={value}"))),
        }
    }
    match Cli::try_parse_from(words)?.command {
        Command::Serve(options) => Ok(*options),
        // The second word is serve.
        _ => Err(Cli::command().error(clap::error::ErrorKind::InvalidSubcommand, "serve")),
    }
}

/// The parser's words, without its remarks on usage.
fn said(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().take_while(|line| !line.trim().is_empty()).collect::<Vec<_>>();
    let text = first.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    text.strip_prefix("error: ").unwrap_or(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn options(text: &str) -> Result<Serve, String> {
        let read = Configuration::parse(Path::new("b.toml"), text.to_string()).unwrap();
        serve_options(&read).map_err(|error| error.to_string())
    }

    #[test]
    fn each_option_of_serve_is_a_key() {
        let serve = options(
            "[serve]\nnbd = [\"unix:/run/a\", \"tcp:127.0.0.1:1\"]\nshards = 2\nublk = true\ntls = \"require\"\n\
             tls-certificates = \"/etc/tls\"\ntls-verify-peer = false\nnbd-memory = \"64M\"\n",
        )
        .unwrap();
        assert_eq!((serve.nbd.len(), serve.shards), (2, Some(2)));
        assert!(!serve.ublk.places().is_empty() && serve.has_door());
        assert!(options("").is_ok());
    }

    #[test]
    fn what_serve_does_not_take_is_said_with_its_place() {
        for (text, says) in [
            ("[serve]\nndb = \"unix:/x\"\n", "b.toml:2:1: ndb is no option"),
            ("[serve]\nshards = 0\n", "b.toml:2:1: invalid value '0' for '--shards"),
            ("[serve]\nforce = true\n", "b.toml:2:1: force is no key"),
            ("[serve]\nnbd = \"unix:/x\"\ntls = \"require\"\n", "tls-certificates"),
            ("[serve]\nnbd = \"/x\"\n", "b.toml:2:1: invalid value '/x'"),
        ] {
            let error = options(text).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
