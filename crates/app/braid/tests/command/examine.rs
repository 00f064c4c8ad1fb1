//! `braid examine` says what `mdadm --examine` says: mdadm runs over the same images, and its output is compared
//! line by line. The images are those of the crates `format` and `layout`, which real Linux md wrote, and arrays that
//! braid created.

use crate::support::{self, Place, Ran};
use std::fs;
use std::io::Read;

const STATES: &[u8] = include_bytes!("../../../../pure/format/tests/fixtures/states.tar.xz");
const V090: &[u8] = include_bytes!("../../../../pure/format/tests/fixtures/v090.tar.xz");
const SIGNATURES: &[u8] =
    include_bytes!("../../../../pure/format/tests/fixtures/signatures.tar.xz");
const GEOMETRY: &[u8] = include_bytes!("../../../../pure/layout/tests/fixtures/geometry.tar.xz");
/// Size of the members of which `v090.tar.xz` holds the end.
const V090_MEMBER: u64 = 8 << 20;

/// At the end of the names of members with 0.90.
const V090_MARK: &str = ".v090";

/// Unpacks member images into the folder; gives their names in order.
fn unpack(place: &Place, archive: &[u8], size: Option<u64>) -> Vec<String> {
    let mut tar = tar::Archive::new(lzma_rust2::XzReader::new(archive, false));
    let mut names = Vec::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        if !name.contains(".d") {
            continue;
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        support::write_sparse(&place.path(&name), &bytes, size);
        names.push(name);
    }
    names.sort();
    names
}

fn run(place: &Place, program: &str, words: &[&str], images: &[String]) -> Ran {
    let mut words = words.to_vec();
    words.extend(images.iter().map(String::as_str));
    match program {
        "braid" => place.braid(&words),
        program => place.tool(program, &words),
    }
}

/// What is said of each image, by its name.
fn sections<'a>(text: &'a str, images: &[String]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match line.strip_suffix(':').filter(|name| images.iter().any(|image| image == name)) {
            Some(name) => sections.push((name, Vec::new())),
            // mdadm pads nothing but ends some lines with a blank.
            None => sections.last_mut().unwrap().1.push(line.trim_end()),
        }
    }
    sections
}

/// Both say the same of each image. What braid says beyond that follows an empty line at the end.
#[track_caller]
fn assert_same_text(place: &Place, images: &[String]) -> usize {
    let md = run(place, "mdadm", &["--examine"], images).out;
    let ours = run(place, "braid", &["examine"], images).out;
    let (md, ours) = (sections(&md, images), sections(&ours, images));
    let mut compared = 0;
    assert_eq!(md.len(), ours.len());
    for ((name, md), (our_name, ours)) in md.iter().zip(&ours) {
        assert_eq!(name, our_name);
        let (same, more) = ours.split_at(md.len().min(ours.len()));
        assert_eq!(same.join("\n"), md.join("\n"), "{name}");
        assert!(more.first().is_none_or(|line| line.is_empty()), "{name}: {more:?}");
        compared += md.len();
    }
    compared
}

/// Both give the same `ARRAY` lines, each with the line that belongs to it, in any order.
#[track_caller]
fn assert_same_lines(place: &Place, words: &[&str], images: &[String]) {
    let sorted = |ran: Ran| {
        let text = ran.out.replace("\n   ", " + ");
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    let md = sorted(run(place, "mdadm", &[&["--examine"], words].concat(), images));
    let ours = sorted(run(place, "braid", &[&["examine"], words].concat(), images));
    assert_eq!(ours, md);
    assert!(!ours.is_empty());
}

#[track_caller]
fn assert_same(place: &Place, images: &[String]) -> usize {
    assert_same_lines(place, &["--brief"], images);
    assert_same_lines(place, &["--brief", "--verbose"], images);
    let md = run(place, "mdadm", &["--examine", "--export"], images).out;
    let ours = run(place, "braid", &["examine", "--export"], images).out;
    assert_eq!(md.lines().count(), ours.lines().count());
    for (number, (ours, md)) in ours.lines().zip(md.lines()).enumerate() {
        // Of 0.90 mdadm 4.2 gives the time of creation here, whatever the name says.
        let wrong_there = images[0].ends_with(V090_MARK) && md.starts_with("MD_UPDATE_TIME=");
        assert!(ours == md || wrong_there, "line {number}: {ours} is {md} there");
    }
    assert_same_text(place, images)
}

#[test]
fn arrays_of_linux_in_special_states_are_described_as_mdadm_does() {
    let place = Place::new();
    let images = unpack(&place, STATES, None);
    assert_eq!(images.len(), 50);
    let lines = assert_same(&place, &images);
    assert!(lines > 1000, "{lines}");
}

#[test]
fn arrays_of_linux_of_every_level_and_version_are_described_as_mdadm_does() {
    let place = Place::new();
    let images = unpack(&place, GEOMETRY, None);
    assert!(images.len() > 100);
    assert_same(&place, &images);
}

#[test]
fn bad_block_logs_are_listed_as_mdadm_does() {
    let place = Place::new();
    let images = unpack(&place, STATES, None);
    let images: Vec<String> =
        images.into_iter().filter(|name| name.starts_with("r5-badblocks")).collect();
    let ours = run(&place, "braid", &["examine", "--badblocks"], &images).out;
    assert!(ours.contains(" for ") && ours.contains("is empty in"), "{ours}");
    let md = |image: &String| place.tool("mdadm", &["--examine-badblocks", image]).out;
    assert_eq!(ours, images.iter().map(md).collect::<String>());
}

#[test]
fn superblocks_of_version_0_90_have_mdadms_own_form() {
    let place = Place::new();
    let images = unpack(&place, V090, Some(V090_MEMBER));
    let images: Vec<String> = images.iter().map(|image| format!("{image}{V090_MARK}")).collect();
    for image in &images {
        fs::rename(place.path(image.trim_end_matches(V090_MARK)), place.path(image)).unwrap();
    }
    assert_same(&place, &images);
}

#[test]
fn arrays_that_braid_created_are_described_as_mdadm_does() {
    let place = Place::new();
    let mut images = Vec::new();
    for (name, shape) in [
        ("linear", "--level linear --raid-devices 2"),
        ("stripe", "--level 0 --raid-devices 3"),
        ("mirror", "--level 1 --raid-devices 2 --spare-devices 1"),
        ("raid4", "--level 4 --raid-devices 3 --chunk 64"),
        ("raid5", "--level 5 --raid-devices 3 --spare-devices 1 --metadata 1.0"),
        ("raid6", "--level 6 --raid-devices 4 --layout ra --metadata 1.1"),
        ("near", "--level 10 --raid-devices 4 --size 8M"),
        ("old", "--level 5 --raid-devices 4 --metadata 0.90 --chunk 64"),
        ("marked", "--level 6 --raid-devices 4 --bitmap internal --bitmap-chunk 1M"),
        ("far", "--level 10 --raid-devices 3 --layout f2 --data-offset 4M"),
    ] {
        let members: Vec<String> = (0..4).map(|number| format!("{name}.d{number}")).collect();
        let count = match name {
            "linear" => 2,
            "stripe" | "mirror" | "raid4" | "far" => 3,
            _ => 4,
        };
        let members = &members[..count];
        place.members(&members.iter().map(String::as_str).collect::<Vec<_>>());
        let mut words = vec!["create", name];
        words.extend(shape.split(' '));
        words.extend(members.iter().map(String::as_str));
        place.braid(&words).ok();
        images.extend_from_slice(members);
    }
    assert_same(&place, &images);
}

#[test]
fn disks_of_containers_are_refused_by_name() {
    let place = Place::new();
    for (name, word) in [("imsm", "imsm"), ("ddf", "ddf")] {
        support::foreign_image(&place, SIGNATURES, name);
        place.run(&format!("examine {name}")).refused(2, &[word, "braid does not write"]);
        let serve = format!("serve --nbd unix:nbd.sock {name}");
        place.run(&serve).refused(2, &[name, word, "braid does not write"]);
    }
}

#[test]
fn a_superblock_that_is_damaged_is_named_and_the_others_are_shown() {
    let place = Place::new();
    let images = unpack(&place, STATES, None);
    support::damage(&place.path("r1.d0"), 4096 + 64);
    fs::write(place.path("tiny"), "x").unwrap();
    let ran = place.run("examine r1.d0 tiny absent r1.d1");
    assert!(images.contains(&"r1.d1".to_string()) && ran.out.contains("r1.d1:"));
    ran.refused(4, &["r1.d0: ", "checksum", "tiny: no md superblock", "absent"]);
}
