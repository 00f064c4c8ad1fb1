//! `mdadm.conf`: ARRAY, DEVICE, MAILADDR, MAILFROM, PROGRAM, HOMEHOST, AUTO and the domains of POLICY mean what they mean for
//! mdadm; everything else is named as ignored, with its line.
//!
//! As mdadm reads it: a line that begins with a blank continues the one before, `#` begins a comment at the start of a word,
//! keywords are known by their first three letters or more, and words with blanks are in quotes.

use super::auto::Auto;
use super::domains::Domain;
use super::entries::{ArrayEntry, Monitor};
use braid_format::uuid_text;
use std::path::{Path, PathBuf};

/// A line, or a part of one, that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// Something that is ignored, and why.
    pub why: String,
}

/// A line with those that continue it.
struct Line {
    number: usize,
    words: Vec<String>,
}

/// The content of the file.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) arrays: Vec<ArrayEntry>,
    pub(super) devices: Vec<String>,
    pub(super) auto: Option<Auto>,
    pub(super) homehost: Option<String>,
    pub(super) domains: Vec<Domain>,
    pub(super) monitor: Monitor,
    pub(super) ignored: Vec<Ignored>,
}

/// Reads the text of the file. `auto`: its AUTO counts.
pub(super) fn read(path: &Path, text: &str, auto: bool) -> Said {
    let mut to = Said::default();
    for Line { number, words } in lines(text) {
        let Some((keyword, rest)) = words.split_first() else { continue };
        let mut ignored = Vec::new();
        match keyword_of(keyword) {
            Some("array") => match array(rest, &mut ignored) {
                Some(entry) => to.arrays.push(entry),
                None if ignored.is_empty() => {
                    ignored.push("the ARRAY line: it has neither UUID= nor name=".to_string());
                }
                None => {}
            },
            Some("device") => {
                let names = rest.iter().filter(|word| *word != "containers");
                to.devices.extend(names.cloned());
            }
            Some("mailaddr") => to.monitor.mail.extend(rest.iter().cloned()),
            Some("mailfrom") => {
                to.monitor.mail_from.get_or_insert(rest.join(" "));
            }
            Some("program") => {
                if let Some(program) = rest.first() {
                    to.monitor.program.get_or_insert(PathBuf::from(program));
                }
            }
            Some("homehost") => {
                if let Some(host) = rest.first() {
                    to.homehost.get_or_insert(host.clone());
                }
            }
            Some("auto") if auto => match Auto::of(rest) {
                Ok(rules) => to.auto = Some(rules),
                Err(why) => ignored.push(format!("the AUTO line: {why}")),
            },
            Some("auto") => ignored.push("the AUTO line: [scan] has auto".to_string()),
            Some("policy") => policy(rest, &mut to, &mut ignored),
            Some(other) => ignored.push(format!(
                "the {} line: {}",
                other.to_uppercase(),
                match other {
                    "create" =>
                        "owners and modes are options of `braid serve`: --nbd-mode, --nbd-group",
                    "part-policy" => "braid partitions no disk",
                    "sysfs" => "`braid set` keeps attributes",
                    "monitordelay" => "events are told when they happen",
                    "homecluster" => "braid is no member of a md cluster",
                    _ => "braid has nothing like it",
                }
            )),
            None => ignored.push(format!("{keyword:?}: no keyword of mdadm.conf")),
        }
        let one = |why| Ignored { path: path.to_owned(), line: number, why };
        to.ignored.extend(ignored.into_iter().map(one));
    }
    to
}

fn lines(text: &str) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let continues = line.starts_with([' ', '\t']);
        let words = words(line);
        if words.is_empty() {
            continue;
        }
        match all.last_mut() {
            Some(last) if continues => last.words.extend(words),
            _ => all.push(Line { number: index + 1, words }),
        }
    }
    all
}

fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, begun) = (Some(c), true),
            (None, ' ' | '\t') => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            (None, '#') if !begun => return words,
            (None, c) => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

const KEYWORDS: &[&str] = &[
    "array",
    "auto",
    "create",
    "device",
    "homecluster",
    "homehost",
    "mailaddr",
    "mailfrom",
    "monitordelay",
    "part-policy",
    "policy",
    "program",
    "sysfs",
];

fn keyword_of(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    KEYWORDS.iter().find(|known| word.len() >= 3 && known.starts_with(&word)).copied()
}

fn array(words: &[String], ignored: &mut Vec<String>) -> Option<ArrayEntry> {
    let mut entry = ArrayEntry { start: true, ..ArrayEntry::default() };
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            if word.eq_ignore_ascii_case("<ignore>") {
                entry.start = false;
            }
            continue;
        };
        match key.to_ascii_lowercase().as_str() {
            "uuid" => match uuid_text::parse(value) {
                Ok(uuid) => entry.uuid = Some(uuid),
                Err(_) => {
                    ignored.push(format!("the ARRAY line: {value:?} is no UUID of an array"));
                    return None;
                }
            },
            "name" => entry.name = Some(value.to_string()),
            "devices" => entry.devices.extend(value.split(',').map(str::to_string)),
            "spare-group" => match value.parse() {
                Ok(group) => entry.spare_group = Some(group),
                Err(why) => ignored.push(format!("spare-group: {why}")),
            },
            "container" | "member" => {
                ignored.push("the ARRAY line: containers (IMSM, DDF) are not started".to_string());
                return None;
            }
            // The superblocks say that.
            "level" | "num-devices" | "disks" | "metadata" | "auto" => {}
            "spares" => entry.spares = value.parse().ok(),
            "super-minor" => ignored.push(format!("{word}: arrays are known by UUID or name")),
            "bitmap" => ignored.push(format!("{word}: bitmaps in files are not kept up to date")),
            _ => ignored.push(format!("{word}: no word of an ARRAY line")),
        }
    }
    (entry.uuid.is_some() || entry.name.is_some()).then_some(entry)
}

fn policy(words: &[String], to: &mut Said, ignored: &mut Vec<String>) {
    let (mut group, mut path) = (None, None);
    for word in words {
        match word.split_once('=') {
            Some(("domain", name)) => match name.parse() {
                Ok(name) => group = Some(name),
                Err(why) => ignored.push(format!("POLICY domain: {why}")),
            },
            Some(("path", pattern)) => match glob::Pattern::new(pattern) {
                Ok(pattern) => path = Some(pattern),
                Err(why) => {
                    ignored.push(format!("the POLICY line: path={pattern}: {why}"));
                    return;
                }
            },
            _ => ignored.push(format!("{word} of the POLICY line: only domain= and path= count")),
        }
    }
    match group {
        Some(group) => to.domains.push(Domain { group, path }),
        None if ignored.is_empty() => {
            ignored.push("the POLICY line: it has no domain=".to_string())
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::*;

    fn read(text: &str) -> Configuration {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mdadm.conf");
        std::fs::write(&path, text).unwrap();
        let own = format!("mdadm-conf = {:?}\n", path.display().to_string());
        Configuration::parse(Path::new("braid.toml"), own).unwrap()
    }

    #[test]
    fn the_lines_that_mdadm_writes_are_understood() {
        let read = read(
            "# mdadm.conf\nHOMEHOST <system>\nMAILADDR root admin@example.org # both\nMAILFROM raid host\n\
             PROGRAM /usr/sbin/handle\nDEV /dev/sd*\n  /dev/vd* containers\nAUTO homehost -all\n\
             ARRAY /dev/md/data metadata=1.2 spares=1 name='host:my data'\n\
             \x20  UUID=00112233:44556677:8899aabb:ccddeeff spare-group=a devices=/dev/sda,/dev/sdb\n\
             ARRAY <ignore> UUID=10112233:44556677:8899aabb:ccddeeff\nPOLICY domain=front path=pci-*\n",
        );
        assert_eq!(read.ignored, []);
        assert_eq!(read.devices, ["/dev/sd*", "/dev/vd*"]);
        assert_eq!(read.monitor.mail, ["root", "admin@example.org"]);
        assert_eq!(read.monitor.mail_from.as_deref(), Some("raid host"));
        assert_eq!(read.monitor.program.as_deref(), Some(Path::new("/usr/sbin/handle")));
        let [first, second] = read.arrays.as_slice() else { panic!("{:?}", read.arrays) };
        assert_eq!(first.name.as_deref(), Some("host:my data"));
        assert_eq!((first.devices.len(), first.start), (2, true));
        assert_eq!(first.spare_group.map(|group| group.to_string()).as_deref(), Some("a"));
        assert_eq!((first.spares, second.spares), (Some(1), None));
        assert!(!second.start && second.uuid.is_some());
        assert_eq!(read.domains.len(), 1);
    }

    #[test]
    fn ignored_lines_are_named() {
        let read = read(
            "CREATE owner=root\nSYSFS name=x group_thread_cnt=4\n\nFNORD a\nARRAY /dev/md0\nARRAY /dev/md1 super-minor=1 name=x\n\
             ARRAY container=imsm member=0 UUID=00112233:44556677:8899aabb:ccddeeff\nPOLICY action=spare domain=x\nAUTO +9\n",
        );
        let said: Vec<(usize, &str)> =
            read.ignored.iter().map(|one| (one.line, one.why.as_str())).collect();
        let expected = [
            (1, "CREATE"),
            (2, "SYSFS"),
            (4, "\"FNORD\""),
            (5, "neither UUID= nor name="),
            (6, "super-minor=1"),
            (7, "containers"),
            (8, "action=spare"),
            (9, "\"+9\""),
        ];
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for ((line, why), (at, words)) in said.iter().zip(expected) {
            assert!(*line == at && why.contains(words), "{line}: {why}");
        }
        assert_eq!((read.arrays.len(), read.domains.len()), (1, 1));
    }
}
