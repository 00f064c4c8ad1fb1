//! Changes from one look at the arrays to the next.

use super::Event;
use super::jobs::{self, Seen};
use crate::output::{count, size};
use braid_control::protocol::{ClientDetail, Detail, Lease, Member};
use std::collections::BTreeMap;
use std::time::Instant;

/// All arrays, as they were at the last look.
#[derive(Default)]
pub struct Watching {
    known: BTreeMap<String, Known>,
    /// Sentences on spares that were moved: two arrays have each.
    moves: Vec<String>,
}

struct Known {
    detail: Detail,
    job: Option<Seen>,
}

impl Watching {
    /// The events since the last look, of arrays that are so now. `spares` gives how many spares an array is to have.
    pub fn look(
        &mut self,
        now: Vec<Detail>,
        at: Instant,
        spares: &dyn Fn(&Detail) -> Option<usize>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let gone: Vec<String> = self
            .known
            .keys()
            .filter(|uuid| !now.iter().any(|detail| detail.uuid == **uuid))
            .cloned()
            .collect();
        for known in gone.iter().filter_map(|uuid| self.known.remove(uuid)) {
            let text = format!("array {} is not running any more", known.detail.name);
            events.push(Event::of(&known.detail, "DeviceDisappeared", None, text));
        }
        let mut moves = Vec::new();
        for detail in now {
            moves.extend(detail.spare_moves.iter().cloned());
            let before = self.known.remove(&detail.uuid);
            for text in &detail.spare_moves {
                let is_known = self.moves.contains(text);
                if before.is_some()
                    && !is_known
                    && !events.iter().any(|event: &Event| event.text == *text)
                {
                    events.push(Event::of(&detail, "MoveSpare", None, text.clone()));
                }
            }
            let mut job = None;
            let mut was = None;
            match before {
                None => appeared(&detail, spares(&detail), &mut events),
                Some(before) => {
                    changed(&before.detail, &detail, &mut events);
                    (job, was) = (before.job, Some(before.detail));
                }
            }
            jobs::look(&mut job, (was.as_ref(), &detail), at, &mut events);
            self.known.insert(detail.uuid.clone(), Known { detail, job });
        }
        self.moves = moves;
        events
    }
}

fn appeared(now: &Detail, spares: Option<usize>, events: &mut Vec<Event>) {
    let Detail { name, level, state, .. } = now;
    let size = size::human(now.array_size);
    let text = format!("array {name} is running: {level}, {size}, {state}");
    events.push(Event::of(now, "NewArray", None, text));
    if let Some(lease) = &now.lease {
        let Lease { place, number, token, .. } = lease;
        let text = format!("array {name} is run under lease {number} of {place}, token {token}");
        events.push(Event::of(now, "LeaseTaken", None, text));
    }
    if now.degraded > 0 {
        let lack = if now.degraded == 1 { "lacks" } else { "lack" };
        let text =
            format!("{} of {} slots {lack} a member in sync", now.degraded, now.raid_devices);
        let text = format!("array {name} is degraded: {text}");
        events.push(Event::of(now, "DegradedArray", None, text));
    }
    let has = now.members.iter().filter(|member| member.state == "spare").count();
    if let Some(wanted) = spares.filter(|wanted| has < *wanted) {
        let text = format!("array {name} has {}, and is to have {wanted}", count(has, "spare"));
        events.push(Event::of(now, "SparesMissing", None, text));
    }
}

fn changed(before: &Detail, now: &Detail, events: &mut Vec<Event>) {
    let name = &now.name;
    let was = |member: &Member| before.members.iter().find(|other| other.number == member.number);
    let is = |member: &Member| now.members.iter().any(|other| other.number == member.number);
    // A member that is taken back has another number afterwards.
    let left = |name: &str| before.members.iter().any(|other| other.name == name && !is(other));
    let came =
        |name: &str| now.members.iter().any(|other| other.name == name && was(other).is_none());
    for member in &now.members {
        let own = Some(member.name.as_str());
        match was(member) {
            None => {
                let happened =
                    if left(&member.name) { "was taken back by" } else { "was added to" };
                let text =
                    format!("member {} {happened} array {name}: {}", member.name, member.state);
                events.push(Event::of(now, "MemberAdded", own, text));
            }
            Some(was) => member_changed(was, member, now, events),
        }
        let warned = was(member).map(|was| was.smart.as_slice()).unwrap_or_default();
        for warning in member.smart.iter().filter(|one| !warned.contains(one)) {
            let text =
                format!("the disk of member {} of array {name} warns: {warning}", member.name);
            events.push(Event::of(now, "SmartWarning", own, text));
        }
    }
    for member in before.members.iter().filter(|member| !is(member) && !came(&member.name)) {
        if lost_at_once(member, before, now) {
            let text = format!(
                "member {} of array {name} has failed, and was removed at once; {}",
                member.name, now.state
            );
            events.push(Event::of(now, "Fail", Some(&member.name), text));
        }
        let text = format!("member {} was removed from array {name}", member.name);
        events.push(Event::of(now, "MemberRemoved", Some(&member.name), text));
    }
    if now.failed && !before.failed {
        let text = format!("array {name} has lost too many members: {}", now.state);
        events.push(Event::of(now, "ArrayFailed", None, text));
    }
    let lost = |detail: &Detail| detail.heartbeat.as_ref().and_then(|beats| beats.lost.clone());
    if let (None, Some(why)) = (lost(before), lost(now)) {
        let text = format!("array {name} takes no more writes here: {why}");
        events.push(Event::of(now, "LostToHost", None, text));
    }
    for stuck in &now.stuck_jobs {
        if !before.stuck_jobs.iter().any(|other| other.kind == stuck.kind) {
            let text = format!("{} of array {name} cannot go on: {}", stuck.kind, stuck.why);
            events.push(Event::of(now, "JobFailed", None, text));
        }
    }
    clients_changed(before, now, events);
}

/// A member that was in sync is gone, as after `incremental --fail`, and its slot is not another's that is in sync: nobody saw it
/// faulty in between. The array may have been made smaller without it.
fn lost_at_once(member: &Member, before: &Detail, now: &Detail) -> bool {
    let held = |slot| {
        now.members.iter().any(|other| other.slot == Some(slot) && other.state == "active sync")
    };
    member.state == "active sync"
        && before.level == now.level
        && member.slot.is_some_and(|slot| slot < now.raid_devices && !held(slot))
}

fn member_changed(was: &Member, member: &Member, now: &Detail, events: &mut Vec<Event>) {
    let (name, own) = (&now.name, Some(member.name.as_str()));
    match (was.state.as_str(), member.state.as_str()) {
        (before, after) if before == after => {}
        (before, "faulty") => {
            let event = if before == "active sync" { "Fail" } else { "FailSpare" };
            let why = member.fault.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let text =
                format!("member {} of array {name} has failed{why}; {}", member.name, now.state);
            events.push(Event::of(now, event, own, text));
        }
        (_, "active sync") => {
            let text = format!("member {} of array {name} is in sync", member.name);
            events.push(Event::of(now, "SpareActive", own, text));
        }
        _ => {}
    }
    if was.waiting_for_space == 0 && member.waiting_for_space > 0 {
        let text = format!(
            "writes of array {name} wait: the file system of member {} is full; make room, then braid resume {name}",
            member.name
        );
        events.push(Event::of(now, "WaitingForSpace", own, text));
    }
}

fn clients_changed(before: &Detail, now: &Detail, events: &mut Vec<Event>) {
    let same = |one: &ClientDetail, other: &ClientDetail| {
        one.protocol == other.protocol && one.address == other.address
    };
    let name = &now.name;
    let has = |all: &[ClientDetail], one: &ClientDetail| all.iter().any(|other| same(one, other));
    for client in now.clients.iter().filter(|client| !has(&before.clients, client)) {
        let text =
            format!("array {name} has a client more: {} {}", client.protocol, client.address);
        events.push(Event::of(now, "ClientConnected", None, text));
    }
    for client in before.clients.iter().filter(|client| !has(&now.clients, client)) {
        let ClientDetail { protocol, address, requests, errors, in_flight, .. } = client;
        let mut text =
            format!("a client of array {name} has gone: {protocol} {address}, {requests} requests");
        if *errors > 0 {
            text.push_str(&format!(", {errors} of them failed"));
        }
        if *in_flight > 0 {
            text.push_str(&format!("; when last seen it waited for {in_flight}"));
        }
        events.push(Event::of(now, "ClientGone", None, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples::detail;
    use braid_control::protocol::{Job, LastJob};
    use std::time::Duration;

    fn job(done: u64) -> Option<Job> {
        let (kind, total) = ("recover".to_string(), 100 << 20);
        Some(Job {
            kind,
            done: done << 20,
            total,
            rate: 10 << 20,
            eta_seconds: None,
            mismatches: 0,
        })
    }

    struct Scene {
        watching: Watching,
        at: Instant,
    }

    impl Scene {
        fn look(&mut self, now: &[Detail]) -> Vec<(String, String)> {
            self.at += Duration::from_secs(5);
            let events = self.watching.look(now.to_vec(), self.at, &|_| Some(1));
            events.into_iter().map(|event| (event.event, event.text)).collect()
        }

        fn names(&mut self, now: &[Detail]) -> Vec<String> {
            self.look(now).into_iter().map(|(name, _)| name).collect()
        }
    }

    #[test]
    fn a_loss_and_its_rebuild_have_mdadms_events() {
        let mut scene = Scene { watching: Watching::default(), at: Instant::now() };
        let mut now = detail("data", &["active sync", "active sync", "spare"]);
        assert_eq!(scene.names(std::slice::from_ref(&now)), ["NewArray"]);
        assert!(scene.names(std::slice::from_ref(&now)).is_empty());
        now.members[1].state = "faulty".to_string();
        now.members[2].state = "rebuilding".to_string();
        (now.degraded, now.job) = (1, job(0));
        assert_eq!(scene.names(std::slice::from_ref(&now)), ["Fail", "RebuildStarted"]);
        now.job = job(50);
        assert_eq!(scene.names(std::slice::from_ref(&now)), ["Rebuild40"]);
        now.job = job(55);
        assert!(scene.names(std::slice::from_ref(&now)).is_empty());
        (now.degraded, now.job) = (0, None);
        now.members[2].state = "active sync".to_string();
        let last = LastJob {
            kind: "recover".to_string(),
            outcome: "done".to_string(),
            error: None,
            mismatches: 0,
        };
        now.last_job = Some(last);
        let said = scene.look(std::slice::from_ref(&now));
        assert_eq!(said[0].0, "SpareActive");
        assert_eq!(said[1].0, "RebuildFinished");
        assert!(said[1].1.contains("done: 100 MiB in 15 s"), "{}", said[1].1);
        now.members.remove(1);
        assert_eq!(scene.names(std::slice::from_ref(&now)), ["MemberRemoved"]);
        assert_eq!(scene.names(&[]), ["DeviceDisappeared"]);
    }

    #[test]
    fn a_member_that_fails_and_is_removed_between_two_looks_has_failed() {
        let mut scene = Scene { watching: Watching::default(), at: Instant::now() };
        let whole = detail("data", &["active sync", "active sync", "active sync", "spare"]);
        scene.look(std::slice::from_ref(&whole));
        let mut now = whole.clone();
        now.members.remove(1);
        // The spare is on its way in.
        now.members[2].state = "rebuilding".to_string();
        now.members[2].slot = Some(1);
        (now.degraded, now.job) = (1, job(0));
        let told = ["Fail", "MemberRemoved", "RebuildStarted"];
        assert_eq!(scene.names(std::slice::from_ref(&now)), told);
        // One that another has replaced, or that a smaller array needs no more, has not.
        let mut scene = Scene { watching: Watching::default(), at: Instant::now() };
        scene.look(std::slice::from_ref(&whole));
        let mut now = whole.clone();
        now.members.remove(1);
        now.members[2].state = "active sync".to_string();
        now.members[2].slot = Some(1);
        assert_eq!(scene.names(std::slice::from_ref(&now)), ["SpareActive", "MemberRemoved"]);
        let mut scene = Scene { watching: Watching::default(), at: Instant::now() };
        scene.look(std::slice::from_ref(&whole));
        let mut now = whole.clone();
        now.members.remove(2);
        now.raid_devices = 2;
        assert_eq!(scene.names(std::slice::from_ref(&now)), ["MemberRemoved"]);
    }

    #[test]
    fn a_member_that_is_taken_back_was_not_removed() {
        let mut scene = Scene { watching: Watching::default(), at: Instant::now() };
        let mut now = detail("data", &["active sync", "faulty"]);
        scene.look(std::slice::from_ref(&now));
        now.members[1].number = 7;
        now.members[1].state = "rebuilding".to_string();
        let said = scene.look(std::slice::from_ref(&now));
        let [(name, text)] = said.as_slice() else { panic!("{said:?}") };
        assert!(name == "MemberAdded" && text.contains("was taken back by array data"), "{text}");
    }

    #[test]
    fn a_job_that_another_followed_unseen_is_not_said_to_be_interrupted() {
        let mut scene = Scene { watching: Watching::default(), at: Instant::now() };
        let mut now = detail("data", &["active sync"]);
        now.job = job(40);
        scene.look(std::slice::from_ref(&now));
        now.job = None;
        let (kind, outcome) = ("check".to_string(), "done".to_string());
        now.last_job = Some(LastJob { kind, outcome, error: None, mismatches: 0 });
        let said = scene.look(std::slice::from_ref(&now));
        let finished: Vec<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
        let [recover, check] = finished.as_slice() else { panic!("{said:?}") };
        assert_eq!(
            *recover,
            "recover of array data has ended; when last seen it had done 40 MiB of 100 MiB"
        );
        assert!(check.starts_with("check of array data has ended, done"), "{check}");
    }

    #[test]
    fn an_array_that_appears_degraded_and_without_its_spare_is_named() {
        let mut scene = Scene { watching: Watching::default(), at: Instant::now() };
        let mut now = detail("data", &["active sync"]);
        now.degraded = 1;
        assert_eq!(scene.names(&[now]), ["NewArray", "DegradedArray", "SparesMissing"]);
    }

    #[test]
    fn a_job_that_nobody_saw_is_told_of_at_its_end() {
        let mut scene = Scene { watching: Watching::default(), at: Instant::now() };
        let mut now = detail("data", &["active sync"]);
        scene.look(std::slice::from_ref(&now));
        let (kind, outcome) = ("recover".to_string(), "done".to_string());
        now.last_job = Some(LastJob { kind, outcome, error: None, mismatches: 0 });
        assert_eq!(scene.names(std::slice::from_ref(&now)), ["RebuildFinished"]);
        assert!(scene.names(&[now]).is_empty());
    }

    #[test]
    fn a_moved_spare_is_told_once_for_two_arrays() {
        let mut scene = Scene { watching: Watching::default(), at: Instant::now() };
        let (mut one, mut two) = (detail("one", &["spare"]), detail("two", &["spare"]));
        scene.look(&[one.clone(), two.clone()]);
        one.spare_moves = vec!["c went from one to two".to_string()];
        two.spare_moves = one.spare_moves.clone();
        assert_eq!(scene.names(&[one.clone(), two.clone()]), ["MoveSpare"]);
        assert!(scene.names(&[one, two]).is_empty());
    }
}
