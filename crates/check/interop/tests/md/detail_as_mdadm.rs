//! `braid detail` says of arrays what `mdadm --detail` said of the same arrays while the real md ran them: the same
//! lines in the same order, line by line. One boot of the guest kernel.
//!
//! What differs, and why: the array's name and the numbers of devices (there is no device node here), members by the
//! paths of their files, and the word read-only, since braid serves what md had running. Of a RAID0 of equal members md
//! forgets the layout, which then has no effect; braid shows the one that is recorded.

use braid_interop::uml;
use braid_interop::vm_guest::program;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const MEMBER: u64 = 24 << 20;

/// An array: its name, how mdadm makes it, its members, and what is done to it then.
struct Case {
    name: &'static str,
    create: &'static str,
    members: usize,
    then: &'static str,
}

const CASES: [Case; 7] = [
    Case { name: "spare", create: "--level 5 -n 3 -x 1 -c 64", members: 4, then: ":" },
    Case {
        name: "degraded",
        create: "--level 6 -n 5 -c 64 --assume-clean",
        members: 5,
        then: "mdadm --quiet $md --fail $2; until mdadm --quiet $md --remove $2; do :; done",
    },
    Case {
        name: "ten",
        create: "--level 10 -n 4 -p f2 -c 64 --assume-clean",
        members: 4,
        then: ":",
    },
    Case {
        name: "mirror",
        create: "--level 1 -n 2 -x 1 --assume-clean --bitmap internal",
        members: 3,
        then: ":",
    },
    Case { name: "stripe", create: "--level 0 -n 3 -c 64", members: 3, then: ":" },
    Case {
        name: "old",
        create: "--metadata 0.90 --level 5 -n 3 -c 64 --assume-clean --bitmap internal",
        members: 3,
        then: ":",
    },
    Case { name: "end-to-end", create: "--level linear -n 2", members: 2, then: ":" },
];

/// Arrays with redundancy are made read-only before mdadm is asked, so that stopping them changes no superblock.
fn script() -> String {
    // In 0.90 the host is recognised by the uuid: both are on a machine of the same name.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let mut script = format!("set -e; export TZ=UTC; echo {host} > /proc/sys/kernel/hostname\n");
    for (nr, case) in CASES.iter().enumerate() {
        let Case { name, create, members, then } = case;
        let last = members - 1;
        let homehost = if *name == "old" { host } else { "nas" };
        script += &format!(
            "md=/dev/md{nr}; set --\n\
             for i in $(seq 0 {last}); do l=$(losetup -f); losetup $l {shared}/{name}.$i; \
             echo \"loop $l {name}.$i\"; set -- \"$@\" $l; done\n\
             mdadm --create $md --quiet --run --homehost {homehost} --name {name} {create} $*\n\
             mdadm --wait --quiet $md || true\n\
             {then}\n\
             if [ -e /sys/block/md{nr}/md/sync_action ]; then mdadm --readonly $md; fi\n\
             echo 'begin text {name}'; mdadm --detail $md\n\
             echo 'begin brief {name}'; mdadm --detail --brief --verbose $md\n\
             echo 'begin export {name}'; mdadm --detail --export $md\n\
             echo 'begin examine {name}'; mdadm --examine $1\n\
             echo end; mdadm --stop --quiet $md; losetup -D\n",
            shared = uml::SHARED,
        );
    }
    script
}

/// What the guest said: by array and form, its lines, with the members' names here.
fn sections(text: &str, folder: &Path) -> BTreeMap<(String, String), Vec<String>> {
    let mut names: Vec<(String, String)> = Vec::new();
    let mut sections = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["loop", device, file] => {
                names.retain(|(known, _)| known != device);
                names.push((device.to_string(), folder.join(file).display().to_string()));
                // Longer names first, so that none is taken for the beginning of another.
                names.sort_by_key(|(device, _)| std::cmp::Reverse(device.len()));
            }
            ["begin", form, name] => current = Some((name.to_string(), form.to_string())),
            ["end"] => current = None,
            _ => {
                let Some(key) = &current else { continue };
                let line = names.iter().fold(line.to_string(), |line, (device, path)| {
                    let plain =
                        |path: &str| path.trim_start_matches('/').replace(['/', '.', '-'], "_");
                    line.replace(device, path).replace(&plain(device), &plain(path))
                });
                sections.entry(key.clone()).or_insert_with(Vec::new).push(line);
            }
        }
    }
    sections
}

/// A line without what must differ.
fn comparable(line: &str) -> String {
    let line = line.trim_end().replace(", read-only", "");
    // Number, major, minor, slot, state: the numbers of the device are left out.
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [number, _, _, slot, state @ ..]
            if !state.is_empty() && (*number == "-" || number.parse::<u32>().is_ok()) =>
        {
            format!("{number} {slot} {}", state.join(" "))
        }
        _ => line,
    }
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn braid(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(words)
        .current_dir(folder)
        .env("TZ", "UTC")
        .env("BRAID_CONTROL", folder.join("control.sock"));
    command
}

fn serve(folder: &Path) -> Server {
    let mut members = Vec::new();
    for case in &CASES {
        members.extend((0..case.members).map(|member| format!("{}.{member}", case.name)));
    }
    let mut words = vec!["serve", "--read-only", "--nbd", "unix:nbd.sock", "--shards", "1"];
    words.extend(members.iter().map(String::as_str));
    let child = braid(folder, &words).stdout(Stdio::piped()).spawn().expect("braid starts");
    let mut server = Server(child);
    let said = BufReader::new(server.0.stdout.take().expect("it is piped"));
    let ready = said.lines().map_while(Result::ok).any(|line| line.starts_with("control socket"));
    assert!(ready, "the server ended before it was ready");
    server
}

fn detail(folder: &Path, words: &[&str]) -> Vec<String> {
    says(folder, &[&["detail"], words].concat())
}

fn says(folder: &Path, words: &[&str]) -> Vec<String> {
    let output = braid(folder, words).output().expect("braid runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    said.lines().map(str::to_string).collect()
}

#[test]
fn detail_says_what_mdadm_says_of_the_same_arrays() {
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp");
    let folder = folder.expect("a folder in /var/tmp");
    let folder = folder.path();
    for case in &CASES {
        for member in 0..case.members {
            let file = File::create(folder.join(format!("{}.{member}", case.name)));
            file.and_then(|file| file.set_len(MEMBER)).expect("a sparse file");
        }
    }
    let output =
        uml::run(&script(), folder, 512, Duration::from_secs(120)).expect("the guest runs");
    assert_eq!(output.status, 0, "the script failed:\n{}", output.text);
    let md = sections(&output.text, folder);
    let md = |name: &str, form: &str| {
        md.get(&(name.to_string(), form.to_string())).unwrap_or_else(|| panic!("{}", output.text))
    };
    let uuid = |lines: &[String]| lines.iter().find(|line| line.contains(" UUID : ")).cloned();
    let examined = uuid(&says(folder, &["examine", "old.0"]));
    assert_eq!(examined, uuid(md("old", "examine")), "in 0.90 with a remark on the host");
    let _server = serve(folder);
    for Case { name, .. } in &CASES {
        let text = md(name, "text");
        // In 0.90 an array has no name.
        let uuid = text.iter().find_map(|line| line.trim_start().strip_prefix("UUID : "));
        let uuid = uuid.and_then(|uuid| uuid.split(' ').next());
        let wanted = if *name == "old" { uuid.expect("md tells the UUID") } else { name };
        let ours = detail(folder, &[wanted]);
        for (nr, line) in text.iter().enumerate().skip(1) {
            let our = ours.get(nr).map_or("", String::as_str);
            let (our, md) = (comparable(our), comparable(line));
            if *name == "stripe" && md.ends_with("Layout : -unknown-") {
                assert!(our.trim_start().starts_with("Layout : "), "{our}");
                continue;
            }
            assert_eq!(our, md, "{name}, line {nr} of:\n{}", ours.join("\n"));
        }
        let more = ours.get(text.len()).map_or("", String::as_str);
        assert!(more.is_empty(), "{name}: what md does not say follows an empty line: {more}");

        let node = CASES.iter().position(|case| case.name == *name).expect("it is one of them");
        let line = |line: &String| {
            let line = line.replace(&format!("/dev/md{node} "), &format!("/dev/md/{wanted} "));
            let mut devices: Vec<String> = line.split(',').map(str::to_string).collect();
            // md lists devices in the order in which it finds them.
            if let Some(rest) = line.trim_start().strip_prefix("devices=") {
                devices = rest.split(',').map(str::to_string).collect();
                devices.sort();
            }
            devices
        };
        let ours: Vec<_> =
            detail(folder, &[wanted, "--brief", "--verbose"]).iter().map(line).collect();
        assert_eq!(ours, md(name, "brief").iter().map(line).collect::<Vec<_>>());

        let sorted = |lines: &[String]| {
            let mut lines = lines.to_vec();
            lines.retain(|line| !line.starts_with("MD_DEVNAME="));
            lines.sort();
            lines
        };
        assert_eq!(sorted(&detail(folder, &[wanted, "--export"])), sorted(md(name, "export")));
    }
}
