//! Doors that are made up.

use super::*;
use crate::{HandOverError, Limits, Listening, Traffic};
use braid_device::{Device, DeviceInfo, OpenError, TargetInfo};
use braid_shard::Shard;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Disk(&'static str);

impl Target for Disk {
    fn info(&self) -> TargetInfo {
        TargetInfo {
            name: self.0.into(),
            description: String::new(),
            device: DeviceInfo::plain(self.0, 1 << 20),
            read_only: false,
        }
    }

    fn open(&self, _: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        Err(OpenError { name: self.0.into(), why: "made up".into() })
    }
}

#[derive(Default)]
struct Door {
    names: Mutex<Vec<String>>,
    refuses: bool,
    used: AtomicBool,
    held: AtomicBool,
}

impl Door {
    fn names(&self) -> Vec<String> {
        self.names.lock().unwrap().clone()
    }
}

impl Export for Door {
    fn protocol(&self) -> &'static str {
        "made-up"
    }

    fn locations(&self, target: &str) -> Vec<String> {
        self.names().iter().filter(|name| *name == target).map(|name| format!("x:{name}")).collect()
    }

    fn limits(&self) -> Limits {
        Limits { connections: 1, memory: 0, request_bytes: 0 }
    }

    fn offer(&self, target: Arc<dyn Target>) -> Result<(), OfferError> {
        let target = target.info().name;
        if self.refuses {
            return Err(OfferError { target, protocol: "made-up", source: "it is full".into() });
        }
        self.names.lock().unwrap().push(target);
        Ok(())
    }

    fn offers(&self, target: &str) -> bool {
        self.names().iter().any(|name| name == target)
    }

    fn clients(&self) -> Vec<Client> {
        let client = |target: String| Client {
            target,
            protocol: "made-up",
            address: "here".into(),
            traffic: Traffic::default(),
        };
        let used = self.used.load(Ordering::Relaxed);
        self.names().into_iter().filter(|_| used).map(client).collect()
    }

    fn withdraw(&self, target: &str) {
        self.names.lock().unwrap().retain(|name| name != target);
    }

    fn withdraw_unused(&self, target: &str) -> Result<(), usize> {
        if self.used.load(Ordering::Relaxed) {
            return Err(1);
        }
        self.withdraw(target);
        Ok(())
    }

    fn drain(&self, _: Duration) -> u64 {
        self.held.store(true, Ordering::Relaxed);
        2
    }

    fn resume(&self) {
        self.held.store(false, Ordering::Relaxed);
    }

    fn hand_over(&self) -> Result<Vec<Listening>, HandOverError> {
        Ok(Vec::new())
    }

    fn stop(&self) {
        self.names.lock().unwrap().clear();
    }
}

fn of(doors: &[&Arc<Door>]) -> Doors {
    Doors::new(doors.iter().map(|door| Arc::clone(door) as Arc<dyn Export>).collect(), Vec::new())
}

#[test]
fn every_door_offers_a_target_or_none_does() {
    let (first, last) =
        (Arc::new(Door::default()), Arc::new(Door { refuses: true, ..Door::default() }));
    let error = of(&[&first, &last]).offer(Arc::new(Disk("a"))).unwrap_err();
    assert_eq!(error.to_string(), "offering a over made-up: it is full");
    assert_eq!(first.names(), Vec::<String>::new());
    let doors = of(&[&first, &first]);
    doors.offer(Arc::new(Disk("a"))).unwrap();
    assert!(doors.offers("a") && !doors.offers("b"));
    assert_eq!(doors.locations("a").len(), 4);
}

#[test]
fn a_target_that_one_door_needs_stays_at_all() {
    let (free, used) = (Arc::new(Door::default()), Arc::new(Door::default()));
    let doors = of(&[&free, &used]);
    doors.offer(Arc::new(Disk("a"))).unwrap();
    used.used.store(true, Ordering::Relaxed);
    assert_eq!(doors.withdraw_unused("a"), Err(1));
    assert_eq!((free.names(), used.names()), (vec!["a".to_string()], vec!["a".to_string()]));
    assert_eq!(doors.clients_of("a").len(), 1);
    assert!(doors.clients_of("b").is_empty());
    used.used.store(false, Ordering::Relaxed);
    assert_eq!(doors.withdraw_unused("a"), Ok(()));
    assert!(!doors.offers("a"));
}

#[test]
fn all_doors_are_drained_resumed_and_stopped() {
    let (one, other) = (Arc::new(Door::default()), Arc::new(Door::default()));
    let doors = of(&[&one, &other]);
    doors.offer(Arc::new(Disk("a"))).unwrap();
    assert_eq!(doors.drain(Duration::ZERO), 4);
    assert!(one.held.load(Ordering::Relaxed) && other.held.load(Ordering::Relaxed));
    doors.resume();
    assert!(!one.held.load(Ordering::Relaxed) && !other.held.load(Ordering::Relaxed));
    doors.stop();
    assert!(!doors.offers("a"));
}
