//! What the commands about arrays say of volumes: `iostat` of their files and bricks; `detail` and `stat` where to look.

use crate::volumes::{Scene, bytes};
use serde_json::Value;
use std::fs::{self, File};

#[test]
fn iostat_shows_volumes_and_their_bricks() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    fs::write(scene.file("file"), bytes(4 << 20, 1)).unwrap();
    File::open(scene.file("file")).unwrap().sync_all().unwrap();
    let place = &scene.place;
    for words in ["iostat pool 0.1 2 --json", "iostat 0.1 2 --json", "iostat ./mnt 0.1 2 --json"] {
        let reports = place.run(words).ok();
        let reports: Vec<Value> =
            reports.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(reports.len(), 2, "{words}");
        let kib = |of: &Value, report: &Value| {
            (of["wkB/s"].as_f64().unwrap() * report["seconds"].as_f64().unwrap()).round()
        };
        let volume = |report: &Value| report["volumes"][0].clone();
        let first = volume(&reports[0]);
        assert_eq!(
            (&first["name"], &reports[0]["arrays"]),
            (&"pool".into(), &Value::Array(vec![]))
        );
        assert_eq!(kib(&first, &reports[0]), 4096.0);
        assert!(first["w_await"].as_f64() > Some(0.0), "{first}");
        let bricks = first["bricks"].as_array().unwrap();
        let written: f64 = bricks.iter().map(|brick| kib(brick, &reports[0])).sum();
        assert!(bricks.len() == 2 && written >= 4096.0, "{first}");
        assert_eq!(kib(&volume(&reports[1]), &reports[1]), 0.0);
    }
    let text = place.run("iostat pool").ok();
    assert!(text.contains("\npool volume ") && text.contains("\n└─ "), "{text}");
    for line in ["detail pool", "stat pool"] {
        place.run(line).refused(4, &["that is a volume", "`braid volume status pool`"]);
    }
    for line in ["iostat other", "detail other"] {
        let said = place.run(line).refused(4, &["no array \"other\"", "braid volume`: pool"]);
        assert!(!said.contains("there is: "), "{said}");
    }
    scene.unmount("pool");
}
