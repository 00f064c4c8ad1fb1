//! Attributes as scripts read and write them.

use super::samples::{array, bitmap, job, member, scrub};
use super::*;
use braid_control::protocol::{Code, Refusal, SizeOf};
use braid_control::protocol::{Flags, Listed as ListedArray, NewShape, Setting};
use braid_view::Node;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Asked = Arc<Mutex<Vec<Request>>>;

/// A view of one array, and what it asks for beside looking.
fn view(detail: Detail) -> (MdView, Asked) {
    let (asked, view) = (Asked::default(), MdView::default());
    let orders = Arc::clone(&asked);
    let setting = |name: &str, value: &str, now: &[(&str, u64)]| Setting {
        name: name.to_string(),
        value: value.to_string(),
        kept: value.to_string(),
        meaning: None,
        now: now
            .iter()
            .map(|(unit, number)| (unit.to_string(), *number))
            .collect::<BTreeMap<_, _>>(),
    };
    let settings = vec![
        setting("stripe_size", "auto", &[("line_bytes", 65536)]),
        setting("stripe_cache_size", "4096", &[]),
        setting("rmw_level", "auto", &[]),
        setting("sync_speed_min", "auto", &[]),
        setting("sync_max", "auto", &[]),
        setting("spare_group", "rack", &[]),
    ];
    view.answered_by(Box::new(move |request| {
        let name = detail.name.clone();
        Some(match request {
            Request::List => Answer::List {
                arrays: vec![ListedArray {
                    name,
                    uuid: String::new(),
                    state: String::new(),
                    exports: Vec::new(),
                }],
            },
            Request::Detail { .. } => Answer::Detail { detail: Box::new(detail.clone()) },
            Request::Get { .. } => Answer::Settings { array: name, settings: settings.clone() },
            Request::Stat { .. } => Answer::Refused(Refusal::new(Code::Ending, "it ends")),
            order => {
                let refused =
                    matches!(&order, Request::Fail { members, .. } if members == &["/dev/sda"]);
                orders.lock().unwrap().push(order);
                match refused {
                    true => Answer::Refused(Refusal::new(Code::Refused, "it is the last")),
                    false => Answer::Done { text: String::new() },
                }
            }
        })
    }));
    (view, asked)
}

#[test]
fn an_idle_array_is_a_block_of_mdstat_as_linux_prints_it() {
    let mut detail = array("md0", "raid5", &["/dev/sda", "/dev/sdb", "/dev/sdc"]);
    detail.bitmap = Some(bitmap(16, 0));
    assert_eq!(
        mdstat::text(&[detail]),
        "Personalities : [linear] [raid0] [raid1] [raid10] [raid6] [raid5] [raid4] \n\
         md0 : active raid5 sda[0] sdb[1] sdc[2]\n      \
               2093056 blocks super 1.2 level 5, 512k chunk, algorithm 2 [3/3] [UUU]\n      \
               bitmap: 0/1 pages [0KB], 65536KB chunk\n\n\
         unused devices: <none>\n"
    );
}

#[test]
fn a_rebuild_is_shown_with_its_bar_rate_and_end() {
    let mut detail = array("vault", "raid1", &["/srv/a.img", "/srv/b.img"]);
    detail.array_size = 292_945_152 << 10;
    detail.members.push(member(2, "/srv/c d.img", Some(1), "rebuilding"));
    detail.members[1].state = "faulty".to_string();
    detail.slots[1] = Some(2);
    detail.job = Some(job("recover", 37_043_392, 292_945_152));
    let text = mdstat::text(&[detail]);
    assert!(text.contains("vault : active raid1 a.img[0] b.img[1](F) c_d.img[2]\n"), "{text}");
    assert!(text.contains("      292945152 blocks super 1.2 [2/1] [U_]\n"), "{text}");
    let bar = "      [==>..................]  recovery = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec\n      \n";
    assert!(text.contains(bar), "{text}");
}

#[test]
fn each_level_says_in_mdstat_what_its_driver_does() {
    let line = |detail: &Detail| {
        let text = mdstat::text(std::slice::from_ref(detail));
        text.lines().nth(2).unwrap().trim().to_string()
    };
    let disks = ["a", "b", "c", "d"];
    let mut detail = array("x", "raid10", &disks);
    detail.layout_number = 0x102;
    assert!(line(&detail).ends_with("super 1.2 512K chunks 2 near-copies [4/4] [UUUU]"));
    detail.layout_number = 0x1_0201;
    assert!(line(&detail).ends_with("super 1.2 512K chunks 2 offset-copies [4/4] [UUUU]"));
    detail.layout_number = 0x201;
    assert!(line(&detail).ends_with("super 1.2 512K chunks 2 far-copies [4/4] [UUUU]"));
    let mut detail = array("x", "raid0", &disks);
    (detail.redundant, detail.version) = (false, "0.90".to_string());
    assert!(line(&detail).ends_with("2093056 blocks 512k chunks"));
    let detail = array("x", "raid6", &disks);
    assert!(line(&detail).ends_with("level 6, 512k chunk, algorithm 2 [4/4] [UUUU]"));
    let mut detail = array("x", "raid1", &disks);
    detail.read_only = true;
    detail.resynced = Some(0);
    detail.members[3].write_mostly = true;
    let text = mdstat::text(&[detail]);
    assert!(text.contains("x : active (read-only) raid1 a[0] b[1] c[2] d[3](W)\n"), "{text}");
    assert!(text.contains("[4/4] [UUUU]\n      \tresync=PENDING\n"), "{text}");
}

#[test]
fn attributes_are_listed_where_the_level_has_them_and_can_all_be_read() {
    for (level, redundant, has, has_not) in [
        ("raid5", true, "stripe_cache_size", "journal_mode"),
        ("raid0", false, "chunk_size", "sync_action"),
    ] {
        let mut detail = array("vault", level, &["/dev/sda", "/dev/sdb", "/dev/sdc"]);
        detail.redundant = redundant;
        let (view, _) = view(detail);
        let all = view.list("vault/md").unwrap();
        let names: Vec<&str> = all.iter().map(|listed| listed.name.as_str()).collect();
        assert!(names.contains(&has) && !names.contains(&has_not), "{names:?}");
        assert_eq!(names.contains(&"bitmap"), redundant);
        for Listed { name, node } in &all {
            let known = [
                "stripe_size",
                "stripe_cache_size",
                "rmw_level",
                "sync_speed_min",
                "sync_max",
                "spare_group",
            ];
            // Of the settings the sample knows these.
            let is_setting = crate::settings::NAMES.contains(&name.as_str());
            if matches!(node, Node::Text(Rights::Read | Rights::Both))
                && (!is_setting || known.contains(&name.as_str()))
            {
                view.read(&format!("vault/md/{name}")).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
        assert_eq!(view.list("vault/md/nothing"), Err(Errno::NotFound));
    }
}

#[test]
fn values_are_md_s() {
    let mut detail = array("vault", "raid5", &["/dev/sda", "/dev/sdb", "/dev/sdc"]);
    detail.resynced = Some(1 << 20);
    detail.bitmap = Some(bitmap(16, 3));
    detail.has_bitmap = true;
    let (view, _) = view(detail);
    for (path, value) in [
        ("size", "4186112"),
        ("md/level", "raid5"),
        ("md/layout", "2"),
        ("md/raid_disks", "3"),
        ("md/chunk_size", "524288"),
        ("md/component_size", "1046528"),
        ("md/array_size", "default"),
        ("md/array_state", "clean"),
        ("md/metadata_version", "1.2"),
        ("md/uuid", "01234567-89ab-cdef-0011-223344556677"),
        ("md/resync_start", "2048"),
        ("md/consistency_policy", "bitmap"),
        ("md/sync_action", "idle"),
        ("md/sync_completed", "none"),
        ("md/sync_speed_min", "1000 (system)"),
        ("md/sync_max", "max"),
        ("md/stripe_size", "65536"),
        ("md/stripe_cache_size", "4096"),
        ("md/rmw_level", "1"),
        ("md/spare_group", "rack"),
        ("md/bitmap/location", "+8"),
        ("md/bitmap/chunksize", "67108864"),
        ("md/dev-sdb/state", "in_sync"),
        ("md/dev-sdb/slot", "1"),
        ("md/dev-sdb/offset", "2048"),
        ("md/dev-sdb/size", "1047552"),
        ("md/dev-sdb/recovery_start", "none"),
    ] {
        let text = view.read(&format!("vault/{path}"));
        assert_eq!(text, Ok(format!("{value}\n")), "{path}");
    }
    let links = view.list("vault/md").unwrap();
    assert!(links.contains(&Listed { name: "rd2".into(), node: Node::Link("dev-sdc".into()) }));
    for missing in [
        "vault/md/dev-sdx/state",
        "vault/md/dev-sda/speed",
        "vault/md/x",
        "other/size",
        "a/b/c/d/e",
    ] {
        assert_eq!(view.read(missing), Err(Errno::NotFound), "{missing}");
    }
}

#[test]
fn what_is_written_is_the_request_that_md_s_words_mean() {
    let (view, asked) = view(array("vault", "raid5", &["/dev/sda", "/dev/sdb", "/dev/sdc"]));
    let name = || "vault".to_string();
    let set = |name_of: &str, value: &str| Request::Set {
        array: name(),
        settings: vec![(name_of.to_string(), value.to_string())],
        once: false,
    };
    for (path, value, request) in [
        (
            "sync_action",
            "check",
            Request::Scrub { array: Some(name()), repair: false, parity_only: false },
        ),
        ("stripe_cache_size", "8192", set("stripe_cache_size", "8192")),
        ("sync_speed_max", "system", set("sync_speed_max", "auto")),
        (
            "raid_disks",
            "4",
            Request::Reshape {
                array: name(),
                shape: NewShape { raid_disks: Some(4), ..NewShape::default() },
                dry_run: false,
            },
        ),
        (
            "layout",
            "0",
            Request::Reshape {
                array: name(),
                shape: NewShape { layout: Some("left-asymmetric".into()), ..NewShape::default() },
                dry_run: false,
            },
        ),
        (
            "array_size",
            "1024",
            Request::Resize {
                array: name(),
                what: SizeOf::Array,
                size: Some(1 << 20),
                dry_run: false,
            },
        ),
        ("array_state", "clear", Request::Stop { array: Some(name()), force: false }),
        ("bitmap/location", "+8", Request::Bitmap { array: name(), internal: true, chunk: None }),
        (
            "dev-sdb/state",
            "faulty",
            Request::Fail { array: name(), members: vec!["/dev/sdb".into()] },
        ),
        (
            "dev-sdb/state",
            "-writemostly",
            Request::Member {
                array: name(),
                member: "/dev/sdb".into(),
                write_mostly: Some(false),
                failfast: None,
            },
        ),
        (
            "new_dev",
            "8:16",
            Request::Add {
                array: name(),
                members: vec!["/dev/block/8:16".into()],
                force: false,
                flags: Flags::default(),
            },
        ),
    ] {
        view.write(&format!("vault/md/{path}"), &format!("{value}\n")).unwrap();
        assert_eq!(asked.lock().unwrap().pop(), Some(request), "{path}");
    }
    for (path, value) in [
        ("sync_action", "scrub"),
        ("raid_disks", "many"),
        ("layout", "77"),
        ("array_state", "readonly"),
        ("degraded", "0"),
        ("new_dev", "8"),
        ("new_dev", "../../x:1"),
        ("dev-sdb/slot", "0"),
        ("bitmap/chunksize", "4096"),
    ] {
        assert_eq!(view.write(&format!("vault/md/{path}"), value), Err(Errno::Invalid), "{path}");
    }
    assert_eq!(view.write("vault/md/dev-sda/state", "faulty"), Err(Errno::Busy));
}

#[test]
fn idle_ends_a_check_and_is_taken_where_there_is_none() {
    let mut detail = array("vault", "raid5", &["/dev/sda", "/dev/sdb", "/dev/sdc"]);
    let (idle, asked) = view(detail.clone());
    idle.write("vault/md/sync_action", "idle\n").unwrap();
    assert_eq!(*asked.lock().unwrap(), []);
    detail.scrub = Some(Box::new(scrub()));
    let (checking, asked) = view(detail);
    checking.write("vault/md/sync_action", "idle\n").unwrap();
    let cancelled = Request::Cancel { array: Some("vault".to_string()) };
    assert_eq!(*asked.lock().unwrap(), [cancelled]);
}

#[test]
fn before_the_server_answers_there_is_no_array() {
    let view = MdView::default();
    assert_eq!(view.list("").unwrap().len(), 1);
    assert!(view.read("mdstat").unwrap().ends_with(" \nunused devices: <none>\n"));
    assert_eq!(view.list("vault"), Err(Errno::NotFound));
}
