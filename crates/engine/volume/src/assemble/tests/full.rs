//! Metadata that becomes full, in the real store.

use super::*;
use crate::tests::make;
use braid_filesystem::{Errno, FileSystem, Kind, XattrMode};
use std::cell::RefCell;

/// Makes empty files called `f` and a number from `first` on, with `tasks` at a time until there is no room. Gives which were made, and with
/// what it ended.
pub async fn fill(volume: &Rc<Volume>, tasks: usize, first: u64) -> (Vec<u64>, Vec<Errno>) {
    let next = Rc::new(std::cell::Cell::new(first));
    let made = Rc::new(RefCell::new(Vec::new()));
    let ends = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..tasks {
        let (volume, next) = (Rc::clone(volume), Rc::clone(&next));
        let (made, ends) = (Rc::clone(&made), Rc::clone(&ends));
        let shard = volume.shard.clone();
        shard.spawn(async move {
            loop {
                let number: u64 = next.replace(next.get() + 1);
                match make(&volume, ROOT, &format!("f{number}"), Kind::File).await {
                    Ok(entry) => {
                        volume.forget(entry.attr.ino, 1);
                        made.borrow_mut().push(number);
                    }
                    Err(error) => return ends.borrow_mut().push(error),
                }
                volume.shard.yield_now().await;
            }
        });
    }
    while ends.borrow().len() < tasks {
        volume.shard.sleep(1_000_000).await;
    }
    (made.take(), ends.take())
}

#[test]
fn a_full_region_says_so_and_keeps_what_was_made_and_lets_delete() {
    let bricks = Bricks::new(&[16, 16]);
    let made = bricks.with(|volume| async move {
        let (made, ends) = fill(&volume, 16, 0).await;
        assert!(ends.iter().all(|error| *error == Errno::NoSpace), "{ends:?}");
        let space = volume.space(braid_filesystem::ROOT).await.unwrap();
        assert!(space.files_free < space.files / 16, "{space:?}");
        assert!(made.len() > 2000, "{}", made.len());
        assert_eq!(volume.sync().await, Ok(()));
        let root = volume.set_xattr(ROOT, b"user.a", &[1; 4000], XattrMode::Create).await;
        assert_eq!(root, Err(Errno::NoSpace));
        assert_eq!(volume.transactions.writable(), Ok(()));
        // Not in the order in which they were made, so that each change is on a page of its own.
        for at in (0..made.len() / 2).map(|at| at * 7919 % made.len()) {
            let name = format!("f{}", made[at]);
            match volume.unlink(ROOT, name.as_bytes()).await {
                Ok(()) | Err(Errno::NotFound) => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
        assert_eq!(volume.sync().await, Ok(()));
        let (again, _) = fill_from(&volume, 1 << 30).await;
        assert!(again > 500, "{again} fitted again");
        made
    });
    // Unmounted in order, and nothing that was made is lost.
    bricks.with(move |volume| async move {
        let left = (0..made.len() / 2).map(|at| at * 7919 % made.len());
        let gone: std::collections::BTreeSet<usize> = left.collect();
        for (at, number) in made.iter().enumerate() {
            let found = volume.lookup(ROOT, format!("f{number}").as_bytes()).await;
            assert_eq!(found.is_ok(), !gone.contains(&at), "f{number}");
            if let Ok(entry) = found {
                volume.forget(entry.attr.ino, 1);
            }
        }
        let report = volume.check(false).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    });
}

/// The number of files with numbers from `first` on that can be made.
async fn fill_from(volume: &Volume, first: u64) -> (u64, Errno) {
    for number in first.. {
        match make(volume, ROOT, &format!("f{number}"), Kind::File).await {
            Ok(entry) => volume.forget(entry.attr.ino, 1),
            Err(error) => return (number - first, error),
        }
    }
    (0, Errno::NoSpace)
}
