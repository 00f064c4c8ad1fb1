//! Names: any bytes but the slash and zero, and no two alike.

use crate::cases;
use crate::scene::{Outcome, Scene, equal, holds, plain, refuses, same_bytes, works};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

cases! {
    "names":
        of_every_byte,
        outside_utf8,
        with_and_without_case_are_two,
        composed_and_decomposed_are_two,
        that_programs_stumble_over,
        of_every_length,
        that_are_alike_in_their_first_250_bytes,
        deep_below,
        deeper_than_a_path_can_say;
}

/// Makes files of these names, each holding its own name, and looks that all are found by name and by listing.
fn all_are_kept(scene: &Scene, names: &[Vec<u8>]) -> Outcome {
    for name in names {
        scene.file_of(OsStr::from_bytes(name), name)?;
    }
    for name in names {
        let path = scene.path(OsStr::from_bytes(name));
        let got = works(path.display(), plain(std::fs::read(&path)))?;
        same_bytes(path.display(), &got, name)?;
    }
    let want: BTreeSet<OsString> = names.iter().cloned().map(OsString::from_vec).collect();
    let mut listed = BTreeSet::new();
    for entry in std::fs::read_dir(scene.root())? {
        let name = entry?.file_name();
        holds(format!("{} is listed once", name.display()), listed.insert(name))?;
    }
    equal("names listed", listed, want)
}

fn of_every_byte(scene: &Scene) -> Outcome {
    let names: Vec<Vec<u8>> =
        (1..=255_u8).filter(|byte| !matches!(byte, b'/' | b'.')).map(|byte| vec![byte]).collect();
    all_are_kept(scene, &names)
}

fn outside_utf8(scene: &Scene) -> Outcome {
    let names = [
        &b"\xff\xfe\xfd"[..],
        b"half a letter \xc3",
        b"\xed\xa0\x80 a surrogate",
        b"\xc0\xaf too long a form of a slash",
        b"\xf4\x90\x80\x80",
        "grün".as_bytes(),
        "日本語".as_bytes(),
    ];
    all_are_kept(scene, &names.map(<[u8]>::to_vec))
}

fn with_and_without_case_are_two(scene: &Scene) -> Outcome {
    all_are_kept(scene, &["name", "NAME", "Name", "straße", "STRASSE", "ı", "i", "I"].map(into))
}

fn into(name: &str) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn composed_and_decomposed_are_two(scene: &Scene) -> Outcome {
    all_are_kept(scene, &["\u{e9}", "e\u{301}", "\u{212b}", "\u{c5}", "A\u{30a}"].map(into))
}

fn that_programs_stumble_over(scene: &Scene) -> Outcome {
    let names = [
        " ",
        "  ",
        "a ",
        " a",
        "a.",
        "...",
        ".a",
        "..a",
        "-",
        "--",
        "-rf",
        "a\nb",
        "\n",
        "a\tb",
        "\\",
        "a\\b",
        "*",
        "?",
        "\"",
        "'",
        ":",
        "a:b",
        "|",
        "<",
        ">",
        "CON",
        "nul",
        "~",
        "#",
        "%00",
        "lost+found",
        ".fuse_hidden",
    ];
    all_are_kept(scene, &names.map(into))
}

fn of_every_length(scene: &Scene) -> Outcome {
    let names: Vec<Vec<u8>> = (1..=255).map(|len| vec![b'n'; len]).collect();
    all_are_kept(scene, &names)
}

fn that_are_alike_in_their_first_250_bytes(scene: &Scene) -> Outcome {
    let names: Vec<Vec<u8>> =
        (0..300).map(|number| format!("{}{number:05}", "x".repeat(250)).into_bytes()).collect();
    all_are_kept(scene, &names)
}

fn deep_below(scene: &Scene) -> Outcome {
    let mut path = String::from("d");
    scene.dir(&path)?;
    for _ in 0..200 {
        path.push_str("/d");
        scene.dir(&path)?;
    }
    path.push_str("/file");
    let file = scene.file_of(&path, b"text")?;
    same_bytes("the file", &std::fs::read(&file)?, b"text")
}

fn deeper_than_a_path_can_say(scene: &Scene) -> Outcome {
    // 60 times 100 bytes: reached step by step only, and removed so.
    let name = "d".repeat(99);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut steps = vec![works("opening", rustix::fs::open(scene.root(), flags, Mode::empty()))?];
    for step in 0..60 {
        let here = &steps[step];
        works("mkdirat", rustix::fs::mkdirat(here, &name, Mode::from(0o755)))?;
        let next = works("openat", rustix::fs::openat(here, &name, flags, Mode::empty()))?;
        steps.push(next);
    }
    let whole = vec![name.as_str(); 60].join("/");
    let got = plain(std::fs::metadata(scene.path(&whole)));
    refuses("by a path of 6000 bytes", got, Errno::NAMETOOLONG)?;
    for here in steps[..60].iter().rev() {
        let flags = rustix::fs::AtFlags::REMOVEDIR;
        works("unlinkat", rustix::fs::unlinkat(here, &name, flags))?;
    }
    equal("names", std::fs::read_dir(scene.root())?.count(), 0)
}
