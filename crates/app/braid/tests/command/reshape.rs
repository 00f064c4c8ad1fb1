//! `braid grow` with `--raid-devices`, `--chunk`, `--layout` and `--level` on the command line: the array is used meanwhile, and goes
//! on after a restart.

use crate::support::Place;

#[test]
fn an_array_is_spread_over_more_members_while_it_is_used_and_after_a_restart() {
    let place = Place::new();
    let names = ["a", "b", "c", "d", "e"];
    place.members(&names);
    place.run("create data -l 5 -n 3 -x 1 -c 64K --assume-clean a b c d").ok();
    let server = place.serve("a b c d");
    let data = place.data("in", 8 << 20);
    place.copy_in("in", "data");
    let before = place.detail("data");
    place.run("grow data --raid-devices 5").refused(2, &["2 spares are needed", "braid add data"]);
    place.run("grow data --raid-devices 3").refused(2, &["that shape already"]);
    let would = place.run("grow data --raid-devices 4 --dry-run --json").ok();
    let would: serde_json::Value = serde_json::from_str(&would).unwrap();
    assert_eq!(would["spares"][0].as_str(), place.path("d").to_str());
    assert_eq!(would["new_raid_devices"], 4);
    assert_eq!(place.detail("data")["raid_devices"], 3);
    place.run("speed data --min 0 --max 1000").ok();
    let said = place.run("grow data --raid-devices 4").ok();
    assert!(said.contains("from 3 members to 4:"), "{said}");
    assert!(said.contains("at 1000K/s,"), "{said}");
    let detail = place.detail("data");
    let reshape = &detail["reshape"];
    assert_eq!((&reshape["old_devices"], &reshape["new_devices"]), (&3.into(), &4.into()));
    assert_eq!(detail["array_size"], before["array_size"]);
    let text = place.run("detail data").ok();
    for words in ["Delta Devices : 1, (3->4)", "Reshape Status :", "reshaping"] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    place.run("add data e").refused(2, &["a reshape is not done yet", "braid wait data"]);
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    place.run("stop data").ok();
    server.ended().ok();
    assert!(place.run("examine d").ok().contains("Reshape pos'n"));
    let server = place.serve("a b c d");
    place.run("wait data").ok();
    let after = place.detail("data");
    assert_eq!(after["array_size"], would["new_array_size"]);
    assert_eq!((&after["degraded"], &after["reshape"]), (&0.into(), &serde_json::Value::Null));
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn chunks_and_the_layout_are_changed_while_the_array_is_used_and_after_a_restart() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    place.run("create data -l 6 -n 4 -c 64K --assume-clean a b c d").ok();
    let server = place.serve("a b c d");
    let data = place.data("in", 8 << 20);
    place.copy_in("in", "data");
    place.run("grow data --chunk 64K").refused(2, &["that shape already"]);
    place.run("grow data --chunk 48K").refused(2, &["49152"]);
    place.run("grow data --layout nonsense").refused(2, &["nonsense"]);
    place.run("grow data --chunk 16K --size max").refused(2, &["cannot be used with"]);
    let would = place.run("grow data --chunk 16K --layout ddf-zero-restart --dry-run --json").ok();
    let would: serde_json::Value = serde_json::from_str(&would).unwrap();
    assert_eq!((&would["chunk_size"], &would["new_chunk_size"]), (&65536.into(), &16384.into()));
    assert_eq!(would["new_layout"], "ddf-zero-restart");
    place.run("speed data --min 0 --max 1000").ok();
    let said = place.run("grow data --chunk 16K --layout ddf-zero-restart").ok();
    assert!(said.contains("from chunks of 64K to 16K, from layout left-symmetric to"), "{said}");
    let text = place.run("detail data").ok();
    for words in ["Chunk Size : 64K", "New Layout : ddf-zero-restart", "New Chunksize : 16K"] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    place.run("stop data").ok();
    server.ended().ok();
    let server = place.serve("a b c d");
    place.run("wait data").ok();
    let after = place.detail("data");
    assert_eq!((&after["chunk_size"], &after["layout"]), (&16384.into(), &would["new_layout"]));
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn an_array_is_drawn_together_on_fewer_members_once_its_users_see_less() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    place.run("create data -l 5 -n 4 -c 64K -z 8M --assume-clean a b c d").ok();
    let server = place.serve("a b c d");
    let data = place.data("in", 8 << 20);
    place.copy_in("in", "data");
    place
        .run("grow data --raid-devices 3")
        .refused(2, &["--array-size 16384K", "what lies behind is lost"]);
    place.run("grow data --array-size 16M").ok();
    place.run("speed data --min 0 --max 500").ok();
    let said = place.run("grow data --raid-devices 3").ok();
    assert!(said.contains("from 4 members to 3") && said.contains("is a spare when"), "{said}");
    assert!(said.contains("towards its end"), "{said}");
    let text = place.run("detail data").ok();
    assert!(text.contains("Delta Devices : -1, (4->3)"), "{text}");
    place.run("stop data").ok();
    server.ended().ok();
    let server = place.serve("a b c d");
    place.run("wait data").ok();
    let after = place.detail("data");
    assert_eq!((&after["raid_devices"], &after["array_size"]), (&3.into(), &(16 << 20).into()));
    assert_eq!((&after["degraded"], &after["reshape"]), (&0.into(), &serde_json::Value::Null));
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    place.run("remove data d").ok();
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn a_stripe_becomes_mirrors_and_a_stripe_again() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d"]);
    place.run("create data -l 0 -n 2 -c 64K a b").ok();
    let server = place.serve("a b");
    let data = place.data("in", 8 << 20);
    place.copy_in("in", "data");
    let said = place.run("grow data --level 10").ok();
    for words in ["is raid10 instead of raid0", "n2", "4 slots instead of 2", "braid add"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    place.run("add data c d").ok();
    place.run("wait data").ok();
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    let would = place.run("grow data --level 0 --dry-run --json").ok();
    let would: serde_json::Value = serde_json::from_str(&would).unwrap();
    assert_eq!(
        (&would["new_level"], would["leaving"].as_array().unwrap().len()),
        (&"raid0".into(), 2)
    );
    let said = place.run("grow data --level 0").ok();
    assert!(said.contains("has left the array"), "{said}");
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    place.run("stop data").ok();
    server.ended().ok();
    // All four are given: those that have left are none of it.
    let server = place.serve("a b c d");
    assert_eq!(&place.detail("data")["raid_devices"], &2);
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn the_level_is_changed_while_the_array_is_used_and_after_a_restart() {
    let place = Place::new();
    place.members(&["a", "b", "c", "d", "e"]);
    place.run("create data -l 0 -n 3 -c 64K a b c").ok();
    let server = place.serve("a b c");
    let data = place.data("in", 8 << 20);
    place.copy_in("in", "data");
    let before = place.detail("data");
    place.run("grow data --level 1").refused(2, &["does not change raid0 to raid1"]);
    place.run("grow data --level 5 --size max").refused(2, &["cannot be used with"]);
    place.run("grow data --level 5 --layout left-symmetric").refused(2, &["--layout left-symm"]);
    let would = place.run("grow data --level 5 --dry-run --json").ok();
    let would: serde_json::Value = serde_json::from_str(&would).unwrap();
    assert_eq!((&would["new_level"], &would["missing"]), (&"raid5".into(), &1.into()));
    assert_eq!(place.detail("data")["level"], before["level"]);
    let said = place.run("grow data --level 5 --layout preserve --backup-file backup").ok();
    for words in ["is raid5 instead of raid0", "parity-last", "4 slots instead of 3", "braid add"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(!place.path("backup").exists());
    place.run("add data d").ok();
    place.run("wait data").ok();
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    place.run("add data e").ok();
    let said = place.run("grow data --level 6").ok();
    assert!(said.contains("being rebuilt") && said.contains("braid wait data"), "{said}");
    place.run("wait data").ok();
    place.run("stop data").ok();
    server.ended().ok();
    let server = place.serve("a b c d e");
    let after = place.detail("data");
    assert_eq!((&after["array_size"], &after["degraded"]), (&before["array_size"], &0.into()));
    assert_eq!((&after["level"], &after["raid_devices"]), (&"raid6".into(), &5.into()));
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    // On to the layout that new arrays have, and back to where Q has the last member to itself.
    place.run("grow data --layout left-symmetric").ok();
    place.run("wait data").ok();
    let stays = place.run("grow data --level 5 --layout preserve");
    stays.refused(2, &["--layout left-symmetric-6"]);
    place.run("grow data --layout left-symmetric-6").ok();
    place.run("wait data").ok();
    let said = place.run("grow data --level 5").ok();
    assert!(said.contains("is a spare") && said.contains("left-symmetric"), "{said}");
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    place.run("stop data").ok();
    server.ended().ok();
}

#[test]
fn one_command_moves_data_and_changes_the_level_also_over_a_restart() {
    let place = Place::new();
    let names = ["a", "b", "c", "d", "e"];
    place.members(&names);
    place.run("create data -l 5 -n 4 -c 64K --assume-clean a b c d").ok();
    let server = place.serve("a b c d");
    let data = place.data("in", 8 << 20);
    place.copy_in("in", "data");
    // Nobody would hold Q while data is moved.
    let six = "grow data --level 6 --layout left-symmetric";
    place.run(six).refused(2, &["one more member is", "braid add data", "--layout preserve"]);
    assert_eq!(place.detail("data")["level"], "raid5");
    place.run("add data e").ok();
    let would = place.run(&format!("{six} --dry-run --json")).ok();
    let would: serde_json::Value = serde_json::from_str(&would).unwrap();
    assert_eq!(
        (&would["steps"][0]["step"], &would["steps"][1]["step"]),
        (&"level".into(), &"reshape".into())
    );
    assert_eq!(would["steps"][0]["new_layout"], "left-symmetric-6");
    let text = place.run(&format!("{six} --dry-run")).ok();
    for words in ["in 2 steps", "step 2:", "of data would be moved", "nothing was changed"] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    place.run("set data sync_speed_min=0 sync_speed_max=2000").ok();
    let said = place.run(six).ok();
    assert!(said.contains("step 1: array data is raid6 instead of raid5"), "{said}");
    let text = place.run("detail data").ok();
    for words in
        ["Next Step : raid6, left-symmetric, chunks of 64K, 5 devices", "Waits For : a rebuild"]
    {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    place.run("grow data --chunk 16K").refused(2, &["on its way to raid6", "braid wait data"]);
    place.run("stop data").ok();
    server.ended().ok();
    let server = place.serve("a b c d e");
    assert_eq!(place.detail("data")["following"], serde_json::Value::Null);
    let said = place.run(six).ok();
    assert!(said.contains("first comes a rebuild"), "{said}");
    place.run("set data sync_speed_max=auto").ok();
    place.run("wait data").ok();
    let after = place.detail("data");
    assert_eq!((&after["level"], &after["layout"]), (&"raid6".into(), &"left-symmetric".into()));
    assert_eq!((&after["degraded"], &after["raid_devices"]), (&0.into(), &5.into()));
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    // And back, with other chunks; the server stops in the middle of what is moved.
    place.run("set data sync_speed_max=1000").ok();
    let five = "grow data --level 5 --chunk 32K";
    let said = place.run(five).ok();
    assert!(said.contains("from layout left-symmetric to left-symmetric-6"), "{said}");
    assert!(
        place.run("detail data").ok().contains("Next Step : raid5, left-symmetric, chunks of 32K")
    );
    place.run("stop data").ok();
    server.ended().ok();
    let server = place.serve("a b c d e");
    let said = place.run(five).ok();
    assert!(said.contains("first comes a reshape"), "{said}");
    place.run("set data sync_speed_max=auto").ok();
    place.run("wait data").ok();
    let after = place.detail("data");
    assert_eq!((&after["level"], &after["chunk_size"]), (&"raid5".into(), &32768.into()));
    assert_eq!((&after["degraded"], &after["raid_devices"]), (&0.into(), &4.into()));
    assert_eq!(&place.copy_out("data")[..data.len()], &data);
    assert!(place.run("check --wait data").ok().contains("0 sectors mismatched"));
    place.run("grow data --layout normalise --chunk 64K").ok();
    place.run("wait data").ok();
    assert_eq!(place.detail("data")["layout"], "left-symmetric");
    place.run("stop data").ok();
    server.ended().ok();
}
