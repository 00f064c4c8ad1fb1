//! The parser takes what the manual shows and what users of mdadm type, and refuses what cannot be.

use super::*;
use clap::CommandFactory;

fn parsed(words: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(words.split_whitespace())
}

#[test]
fn the_definitions_do_not_contradict_each_other() {
    Cli::command().debug_assert();
}

#[test]
fn mdadm_users_may_type_what_they_know() {
    let words = "braid create data -l raid5 -n 3 -x1 -c 64 -p la -e 1.2 -z 1G -f -R --bitmap=internal \
                 --bitmap-chunk=64M -k bitmap a b c d";
    let Command::Create(create) = parsed(words).unwrap().command else {
        panic!("create was typed")
    };
    let shape = create.shape;
    assert_eq!(shape.level, Some(Level::Raid5));
    assert_eq!((shape.raid_devices, shape.spare_devices), (Some(3), 1));
    assert_eq!((shape.chunk, shape.size), (Some(64 << 10), Some(1 << 30)));
    assert_eq!((shape.bitmap, shape.bitmap_chunk), (Some(BitmapPlace::Internal), Some(64 << 20)));
    assert_eq!(create.members.names, ["a", "b", "c", "d"]);
    assert!(shape.force);
    assert!(parsed("braid assemble a b --nbd unix:/tmp/s").is_ok());
}

#[test]
fn the_manual_shows_what_may_be_typed() {
    let pages = [
        include_str!("../../../../../docs/cli.md"),
        include_str!("../../../../../docs/volumes.md"),
    ];
    let lines = pages.iter().flat_map(|page| page.lines());
    let lines: Vec<&str> = lines.filter(|line| line.starts_with("braid ")).collect();
    assert!(lines.len() > 20, "the page has lost its examples");
    for line in lines {
        if let Err(error) = parsed(line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn the_verbs_of_mdadms_options_are_there() {
    for word in [
        "-A", "-C", "-D", "-E", "-F", "-G", "-I", "-Q", "-S", "-W", "-X", "--add", "--fail",
        "--re-add",
    ] {
        let hint = verb_for(word).unwrap();
        let verb = hint.split("braid ").nth(1).unwrap().split_whitespace().next().unwrap();
        assert!(Cli::command().find_subcommand(verb).is_some(), "{word}: {hint}");
    }
    assert!(verb_for("--detail=x").is_some() && verb_for("--version").is_none());
}

#[test]
fn the_shape_of_serve_is_for_create_only() {
    assert!(parsed("braid serve --nbd unix:/s --level 5 a b").is_err());
    assert!(parsed("braid serve --nbd unix:/s --create x --level 5 -n 2 ram:1M ram:1M").is_ok());
    assert!(parsed("braid serve a --vhost-user x=/s --vhost-user-mode 660").is_ok());
    let host = "nqn.2014-08.org.nvmexpress:uuid:61dd22e0-a2b8-59f1-ba67-41d2cb2ff60d";
    let nvme = format!("braid serve a --nvme tcp:127.0.0.1:4420 --nvme-allow {host}");
    assert!(parsed(&nvme).is_ok());
    assert!(parsed("braid serve a --fuse /mnt/arrays").is_ok());
    // The word behind it is a member.
    assert!(parsed("braid serve --ublk a b").is_ok());
    assert!(parsed("braid serve a --ublk=x=3 --ublk=y --ublk-memory 64M").is_ok());
    assert!(parsed("braid serve --nbd unix:/s --create x --read-only a").is_err());
}

#[test]
fn pre_shared_keys_are_refused_with_the_reason_and_what_to_use_instead() {
    let error = parsed("braid serve a --nbd unix:/s --tls require --tls-psk keys.psk").unwrap_err();
    let said = error.to_string();
    assert!(said.contains("rustls") && said.contains("--tls-certificates"), "{said}");
}

#[test]
fn impossible_words_are_refused_by_the_parser() {
    for words in [
        "braid",
        "braid create",
        "braid create data",
        "braid create data -l 7 -n 2 a b",
        "braid create a/b -l 5 -n 2 a b",
        "braid serve a",
        "braid serve a --nbd /tmp/s",
        "braid serve a --nbd unix:/s --shards 0",
        "braid serve a --nbd unix:/s --nbd-memory 63M",
        "braid serve a --nbd unix:/s --nbd-connections 0",
        "braid serve a --nbd unix:/s --nbd-mode 1777",
        "braid serve a --nbd unix:/s --nbd-group no_such_group",
        "braid serve a --nbd unix:/s --nbd-allow 10.0.0.0/33",
        "braid serve a --nbd launchd",
        "braid serve a --nbd unix:/s --tls require",
        "braid serve a --nbd unix:/s --tls on --tls-certificates d",
        "braid serve a --nbd unix:/s --tls-verify-peer",
        "braid serve a --vhost-user =/s",
        "braid serve a --nvme 4420",
        "braid serve a --nvme tcp:127.0.0.1:4420 --nvme-allow host",
        "braid serve a --nbd unix:/s --nvme-connections 3",
        "braid serve a --nvme tcp:127.0.0.1:4420 --nvme-secret nqn.2026-01.org.example:a",
        "braid serve a --nvme tcp:127.0.0.1:4420 --nvme-controller-secret nqn.2026-01.org.example:a=f",
        "braid serve a --nbd unix:/s --vhost-user-mode 660",
        "braid serve a --ublk=x=y",
        "braid serve a --nbd unix:/s --ublk-memory 64M",
        "braid fail data",
    ] {
        assert!(parsed(words).is_err(), "{words}");
    }
}

/// The verbs below a command, with what stands before the name of each.
fn verbs<'a>(command: &'a clap::Command, before: &str, all: &mut Vec<(String, &'a clap::Command)>) {
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        let name = format!("{before} {}", verb.get_name());
        all.push((name.clone(), verb));
        verbs(verb, &name, all);
    }
}

#[test]
fn each_verb_has_a_help_of_its_own() {
    let command = Cli::command();
    let mut all = Vec::new();
    verbs(&command, "braid", &mut all);
    assert!(all.len() > 50, "{}", all.len());
    let mut seen = std::collections::HashSet::new();
    for (name, verb) in &all {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(about.len() > 10 && !about.starts_with('`'), "{name}: {about:?}");
        assert!(seen.insert(about.clone()), "{name}: {about:?} is another's");
        let help = (*verb).clone().render_long_help().to_string();
        assert!(!help.contains("\\\""), "{name}: a backslash before a quote: {help}");
    }
    // Long texts are shown by --help.
    for (name, says) in [
        ("braid create", "Make an array: write superblocks"),
        ("braid create", "The first resync starts then"),
        ("braid grow", "shows users less of the array"),
        ("braid daemon", "It tells a service manager"),
        ("braid volume create", "Make a volume"),
        ("braid volume mount", "Mount a volume"),
    ] {
        let (_, verb) = all.iter().find(|(other, _)| other == name).unwrap();
        let help = (*verb).clone().render_long_help().to_string().replace("\n", " ");
        assert!(help.contains(says), "{name}: {help}");
    }
}
