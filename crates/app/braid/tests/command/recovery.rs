//! `braid serve --read-only` gives what the members of broken, unfinished and mixed-up arrays hold, and writes no
//! byte. The images are those of the crates `format` and `layout`, which real Linux md wrote; what their arrays
//! hold is described in `layout/tests/fixtures`.

use crate::support::{self, Place, Server, damage};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const STATES: &[u8] = include_bytes!("../../../../pure/format/tests/fixtures/states.tar.xz");
const SIGNATURES: &[u8] =
    include_bytes!("../../../../pure/format/tests/fixtures/signatures.tar.xz");
const GEOMETRY: &[u8] = include_bytes!("../../../../pure/layout/tests/fixtures/geometry.tar.xz");
const BLOCK: usize = 4096;

/// Unpacks the members of the arrays that `wanted` takes, by name.
fn unpack(place: &Place, archive: &[u8], wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut tar = tar::Archive::new(lzma_rust2::XzReader::new(archive, false));
    let mut names = Vec::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        if name.split_once(".d").is_none_or(|(array, _)| !wanted(array)) {
            continue;
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        support::write_sparse(&place.path(&name), &bytes, None);
        names.push(name);
    }
    names.sort();
    names
}

/// What block `number` of every array of the archives holds, where it was written.
fn pattern(number: usize) -> Vec<u8> {
    let word = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(BLOCK / 8)
}

/// Numbers of the blocks that do not hold the pattern; `or_zero`: nor zeros.
fn wrong_blocks(content: &[u8], or_zero: bool) -> Vec<usize> {
    let blocks = content.chunks(BLOCK).enumerate();
    let wrong = blocks.filter(|(number, block)| {
        let zero = or_zero && block.iter().all(|byte| *byte == 0);
        !zero && *block != &pattern(*number)[..block.len()]
    });
    wrong.map(|(number, _)| number).collect()
}

/// Content, and time of the last change, of every image.
fn fingerprints(place: &Place, images: &[String]) -> BTreeMap<String, (u64, i64, i64)> {
    let of = |image: &String| {
        let path = place.path(image);
        let mut sum = 0xcbf2_9ce4_8422_2325_u64;
        for word in fs::read(&path).unwrap().chunks(8) {
            for byte in word {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        let found = fs::metadata(&path).unwrap();
        (image.clone(), (sum, found.mtime(), found.mtime_nsec()))
    };
    images.iter().map(of).collect()
}

struct Served {
    server: Server,
    /// By UUID, the name of the export and its size.
    exports: BTreeMap<String, (String, u64)>,
}

fn serve(place: &Place, images: &[String]) -> Served {
    let server = place.serve(&format!("--read-only {}", images.join(" ")));
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(&place.run("detail --json").ok()).unwrap();
    let entry = |array: &serde_json::Value| {
        let text = |field: &str| array[field].as_str().unwrap().to_string();
        (text("uuid"), (text("name"), array["array_size"].as_u64().unwrap()))
    };
    Served { server, exports: listed.iter().map(entry).collect() }
}

impl Served {
    /// What the array that `member` belongs to holds.
    fn content(&self, place: &Place, member: &str) -> Vec<u8> {
        let uuid = place.examined(member)["array_uuid"].as_str().unwrap().to_string();
        let (name, size) =
            self.exports.get(&uuid).unwrap_or_else(|| panic!("{member}: not served"));
        let content = place.copy_out(name);
        assert_eq!(content.len() as u64, *size, "{member}");
        content
    }

    /// Ends the server; gives what it said on standard error.
    fn end(self) -> String {
        self.server.signal(rustix::process::Signal::TERM);
        let ran = self.server.ended();
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        ran.err
    }
}

/// Every second one first, the others backwards: members of one array stand apart and out of order.
fn mixed(images: &[String]) -> Vec<String> {
    let evens = images.iter().step_by(2);
    let odds = images.iter().skip(1).step_by(2).rev();
    evens.chain(odds).cloned().collect()
}

#[test]
fn arrays_of_all_states_are_read_out_of_one_heap_of_images_and_nothing_is_written() {
    let place = Place::new();
    let mut images = unpack(&place, STATES, |_| true);
    images.extend(unpack(&place, GEOMETRY, |array| {
        ["r0-3", "r10-f2-5", "r5-v090", "r5-v10", "r6-ddf-N-continue"].contains(&array)
    }));
    // Images that hold nothing, or something else; one image by two paths, and a copy of one.
    fs::write(place.path("empty"), vec![0; 1 << 20]).unwrap();
    fs::write(place.path("letter"), "Dear Sir or Madam").unwrap();
    support::foreign_image(&place, SIGNATURES, "imsm");
    std::os::unix::fs::symlink(place.path("r1.d0"), place.path("again")).unwrap();
    fs::copy(place.path("r1.d1"), place.path("copy")).unwrap();
    images.extend(["empty", "letter", "imsm", "again", "copy"].map(str::to_string));
    let before = fingerprints(&place, &images);

    let served = serve(&place, &mixed(&images));
    for (member, or_zero) in [
        ("r1.d0", false),
        ("r5-badblocks.d0", false),
        ("r5-bitmap-dirty.d0", false),
        ("r5-degraded.d0", false),
        ("r6-degraded2.d0", false),
        ("r5-recovering.d0", false),
        ("r5-recovery-stopped.d0", false),
        ("r5-replacing.d0", false),
        ("r5-resync-stopped.d0", false),
        ("r5-grow34-mid.d0", false),
        ("r6-grow45-mid.d0", false),
        ("r5-shrink43-mid.d0", false),
        ("r5-ppl-dirty.d0", true),
        ("r5-journal-wb-dirty.d0", true),
        ("r0-3.d0", false),
        ("r10-f2-5.d0", false),
        ("r5-v090.d0", false),
        ("r5-v10.d0", false),
        ("r6-ddf-N-continue.d0", false),
    ] {
        let content = served.content(&place, member);
        assert!(!content.is_empty());
        let wrong = wrong_blocks(&content, or_zero);
        assert!(wrong.is_empty(), "{member}: blocks {wrong:?} of {}", content.len() / BLOCK);
    }
    let name = served.exports.values().next().unwrap().0.clone();
    let refused = place.tool("nbdcopy", &["letter", &place.uri(&name)]);
    assert_ne!(refused.code, 0, "an export that is only read took a write");
    let said = served.end();
    for words in [
        "empty: no member of an array",
        "imsm: ",
        "is the same device as",
        "is a copy of",
        "partial parity log, which was not replayed",
        "journal, which was not replayed",
        "in the middle of a reshape",
    ] {
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
    assert_eq!(fingerprints(&place, &images), before);
}

#[test]
fn members_may_be_missing_within_the_level_also_in_the_middle_of_a_reshape() {
    let place = Place::new();
    let arrays = ["r5-grow34-mid", "r6-grow45-mid", "r5-shrink43-mid", "r5-replacing"];
    unpack(&place, STATES, |array| arrays.contains(&array));
    for images in [
        "r5-grow34-mid.d0 r5-grow34-mid.d1 r5-grow34-mid.d3",
        "r5-grow34-mid.d0 r5-grow34-mid.d1 r5-grow34-mid.d2",
        "r5-shrink43-mid.d1 r5-shrink43-mid.d2 r5-shrink43-mid.d3",
        "r5-shrink43-mid.d0 r5-shrink43-mid.d1 r5-shrink43-mid.d2",
        "r6-grow45-mid.d4 r6-grow45-mid.d1 r6-grow45-mid.d2",
        "r6-grow45-mid.d0 r6-grow45-mid.d3 r6-grow45-mid.d1",
        "r5-replacing.d0 r5-replacing.d2",
    ] {
        let images: Vec<String> = images.split(' ').map(str::to_string).collect();
        let served = serve(&place, &images);
        let content = served.content(&place, &images[0]);
        let wrong = wrong_blocks(&content, false);
        assert!(wrong.is_empty(), "{images:?}: blocks {wrong:?} of {}", content.len() / BLOCK);
        served.end();
    }
}

#[test]
fn an_array_that_cannot_be_assembled_is_named_and_the_others_are_served() {
    let place = Place::new();
    unpack(&place, STATES, |array| ["r1", "r5-grow34-mid", "r6-degraded2"].contains(&array));
    damage(&place.path("r6-degraded2.d0"), 4096 + 64);
    // A spare path to the same array is no help: two of four members are blank and one is damaged.
    let images =
        ["r1.d1", "r5-grow34-mid.d2", "r5-grow34-mid.d1", "r6-degraded2.d0", "r6-degraded2.d2"];
    let images = images.map(str::to_string);
    let served = serve(&place, &images);
    assert_eq!(served.exports.len(), 1);
    assert!(wrong_blocks(&served.content(&place, "r1.d1"), false).is_empty());
    let said = served.end();
    assert_eq!(said.matches("is not served: ").count(), 2, "{said}");
    assert!(said.contains("r6-degraded2.d0") && said.contains("checksum"), "{said}");

    let nothing = place.run("serve --read-only --nbd unix:nbd.sock r5-grow34-mid.d2 absent");
    nothing.refused(2, &["is not served: ", "absent", "nothing to serve"]);
}

#[test]
fn a_stale_member_is_left_out_and_what_was_written_since_is_read() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 -c 64K --assume-clean a b c").ok();
    let server = place.serve("a b c");
    place.data("old", 1 << 20);
    place.copy_in("old", "data");
    place.run("fail data b").ok();
    let new: Vec<u8> = place.data("new", 1 << 20).iter().map(|byte| !byte).collect();
    fs::write(place.path("new"), &new).unwrap();
    place.copy_in("new", "data");
    // No orderly end: what is left is dirty too.
    server.signal(rustix::process::Signal::KILL);
    server.ended();
    let images = ["b", "a", "c"].map(str::to_string);
    let before = fingerprints(&place, &images);
    let served = serve(&place, &images);
    assert_eq!(served.content(&place, "a")[..1 << 20], new);
    let said = served.end();
    assert!(said.contains("left out of array data: ") && said.contains("/b: "), "{said}");
    assert_eq!(fingerprints(&place, &images), before);
}

#[test]
fn an_array_that_is_only_read_says_so_and_refuses_other_commands() {
    let place = Place::new();
    let images = unpack(&place, STATES, |array| array == "r5-grow34-mid");
    let served = serve(&place, &images);
    assert!(served.server.said.contains("reshaping, read-only"), "{}", served.server.said);
    let detail = place.detail("0");
    assert_eq!(detail["state"], "clean, reshaping, read-only");
    assert_eq!(detail["members"].as_array().unwrap().len(), 4);
    let text = place.run("detail 0").ok();
    let lines = ["    Reshape Status : 4", "     Delta Devices : 1, (3->4)"];
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    place.run("check 0").refused(2, &["only read"]);
    place.run("fail 0 r5-grow34-mid.d0").refused(2, &["only read"]);
    place.run("stop 0").ok();
    assert_eq!(served.server.ended().code, 0);
    assert!(Path::new(&place.path("r5-grow34-mid.d0")).exists());
}

#[test]
fn a_stale_member_is_named_and_taken_by_force_only_and_first_without_writing() {
    let place = Place::new();
    place.members(&["a", "b", "c"]);
    place.run("create data -l 5 -n 3 -c 64K --assume-clean a b c").ok();
    let serve = |words: &str| place.serve(words);
    let end = |server: support::Server| {
        place.run("stop data").ok();
        server.ended()
    };
    let server = serve("a b c");
    let data = place.data("in", 4 << 20);
    place.copy_in("in", "data");
    end(server).ok();
    // The array goes on without c, and then a is lost.
    for _ in 0..2 {
        let server = serve("a b --run");
        place.copy_in("in", "data");
        end(server).ok();
    }
    let before = std::fs::read(place.path("c")).unwrap();
    let refused = place.run("serve b c --strict --nbd unix:nbd.sock");
    for says in
        ["1 of 3 members are usable", "--force takes\n", "c: slot 2, ", "--read-only --force"]
    {
        assert!(refused.err.contains(says), "{says}: {}", refused.err);
    }
    let outlook = place.run("examine --assemble --json b c");
    assert_eq!(outlook.code, 1, "{}", outlook.err);
    let outlook: serde_json::Value = serde_json::from_str(&outlook.out).unwrap();
    assert_eq!(outlook[0]["verdict"], "by-force");
    let stale = &outlook[0]["members"][1];
    assert_eq!((&stale["part"], &stale["slot"]), (&"taken by force".into(), &2.into()));
    assert!(stale["events_behind"].as_u64().unwrap() > 1, "{stale}");
    let text = place.run("examine --assemble a b c");
    assert!(
        text.code == 0 && text.out.contains("it starts") && text.out.contains("fewer"),
        "{}",
        text.out
    );
    let server = serve("b c --read-only --force");
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    let detail = place.run("detail data").ok();
    assert!(detail.contains("Forced : ") && detail.contains("c: slot 2, "), "{detail}");
    let ended = end(server);
    assert!(ended.err.contains("taken by force"), "{}", ended.err);
    assert!(std::fs::read(place.path("c")).unwrap() == before, "a read-only look has written");
    let server = serve("b c --force");
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    end(server).ok();
    let server = serve("b c");
    assert_eq!(place.detail("data")["taken_by_force"], serde_json::json!([]));
    end(server).ok();
}
