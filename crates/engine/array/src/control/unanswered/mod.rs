//! Members that do not answer: given up where the array can do without them, else waited for.
//!
//! A member that is given up gets no more requests, and whoever waits for one is answered at once that it is gone: also
//! who holds the turn, so that its failure can be recorded. It counts as lost from that moment on. What its device still
//! has of earlier requests it may yet carry out; no device is added while that is so.
//!
//! A member that the data depends on is waited for. So are members that fall silent together with so many others that the
//! array could not go on without them all: what they have in common (a controller, a network) is likely to come back.
//!
//! | file | subject |
//! |---|---|
//! | `awaited` | members that are waited for, as far as the log has been told |
//! | `silent`, `questions` | members that say nothing while the array is being stopped |
//! | `space` | members that lie on a file system that is full: writes wait |
//!
//! Invariant: a member is given up only when the array survives without it, or is being stopped.

mod awaited;
mod questions;
mod silent;
mod space;

use crate::control::in_effect::InEffect;
use crate::control::record::Record;
use crate::control::record::members::Member;
use crate::engine::Engine;
use crate::engine::unanswered::{limit, owed, wait_for_space};
use crate::error::ControlError;
use crate::settings::MemberTimeout;
use crate::state::view::MemberNr;
use awaited::Awaited;
use braid_device::meter::Metered;
use braid_device::watch::{Overdue, POLL_INTERVAL};
use braid_device::{Device, IoError, IoErrorKind};
use braid_shard::Nanos;
use questions::Questions;
use std::rc::Rc;

const SECOND: Nanos = 1_000_000_000;
/// A device that was failed in health has ended its requests within this time, in nanoseconds.
const ENDS_WITHIN: Nanos = SECOND;
/// Interval of the question, in nanoseconds.
const ASK_EVERY: Nanos = 10_000_000;

/// The watch over the members of one array.
pub struct Unanswered {
    record: Rc<Record>,
    in_effect: Rc<InEffect>,
    awaited: Awaited,
    questions: Questions,
}

impl Unanswered {
    /// Watches the members that there are; later ones are [entered](Unanswered::enter).
    pub(super) fn new(record: &Rc<Record>, in_effect: &Rc<InEffect>) -> Rc<Unanswered> {
        let unanswered = Rc::new(Unanswered {
            record: Rc::clone(record),
            in_effect: Rc::clone(in_effect),
            awaited: Awaited::default(),
            questions: Questions::default(),
        });
        unanswered.limit_members();
        record.roster.borrow().members.iter().for_each(|member| unanswered.wait_for_space(member));
        unanswered
    }

    // --- Limits ----------------------------------------------------------------------------------

    /// Takes over the limit that is set, on the home shard's own handles.
    pub(crate) fn limit_members(&self) {
        self.record.roster.borrow().members.iter().for_each(|member| self.limit_member(member));
    }

    fn limit_member(&self, member: &Member) {
        limit(&member.device, &self.in_effect.settings.get(), &self.record.engine.home.address);
    }

    /// Writes to a member that find no space wait, on the home shard's own handle too.
    pub(crate) fn wait_for_space(&self, member: &Member) {
        wait_for_space(
            &member.device,
            &self.record.engine.home.reports,
            &self.record.engine.home.address,
        );
    }

    /// A stop waits for no member for ever.
    pub(crate) async fn limit_the_end(&self) {
        let mut settings = self.in_effect.settings.get();
        if settings.member_timeout == MemberTimeout::Off {
            settings.member_timeout = MemberTimeout::Auto;
            self.in_effect.settings.set(settings);
            self.limit_members();
            self.record.engines.ask(move |engine: &Engine| engine.set(settings)).await;
        }
    }

    /// A device that is to become a member: nobody else would notice that it does not answer.
    pub(crate) fn give_up_when_overdue(&self, device: &Rc<Metered>) {
        let candidate = Rc::downgrade(device);
        let tell = move |_| {
            if let Some(device) = candidate.upgrade() {
                device.give_up();
            }
        };
        let overdue = self.in_effect.settings.get().member_timeout.limit().map(|limit| {
            let limit = limit.saturating_mul(u64::from(device.layers()) + 1);
            Overdue { limit, tell: Box::new(tell) }
        });
        device.when_overdue(overdue);
    }

    /// Makes a member of what was a candidate. The caller holds the turn.
    pub(crate) fn enter(&self, member: Member) {
        self.limit_member(&member);
        self.wait_for_space(&member);
        self.record.roster.borrow_mut().members.push(member);
    }

    /// Refuses a device that was given up and has not ended its requests: they may be carried out after those to come.
    pub(crate) async fn check_owes_nothing(
        &self,
        doing: &'static str,
        name: &str,
    ) -> Result<(), ControlError> {
        let until = self.record.shard.now().saturating_add(ENDS_WITHIN);
        loop {
            let requests = self.owed(name).await;
            if requests == 0 {
                return Ok(());
            }
            if self.record.shard.now() >= until {
                let (array, member) = (self.record.name.clone(), name.to_string());
                return Err(ControlError::UnderWay { doing, array, member, requests });
            }
            self.record.shard.sleep(ASK_EVERY).await;
        }
    }

    /// Requests to the device which it had when it was given up, and has not ended.
    pub(crate) async fn owed(&self, name: &str) -> u32 {
        let name = name.to_string();
        let asked = self.record.engines.ask_shards(move |shard| owed(shard, &name)).await;
        asked.into_iter().flatten().sum()
    }

    // --- Members that are overdue ----------------------------------------------------------------

    /// A request to a member is under way for longer than it may be.
    pub(crate) fn look_for_overdue(self: Rc<Self>) {
        if !self.awaited.judging.replace(true) {
            self.record.shard.clone().spawn(async move {
                self.judge().await;
                self.awaited.judging.set(false);
            });
        }
    }

    /// For how long the oldest request to each member is under way, on whichever shard.
    pub(crate) async fn waiting(&self) -> Vec<(MemberNr, Nanos)> {
        let engines = self.record.engines.ask(|engine| engine.members.waiting()).await;
        let roster = self.record.roster.borrow();
        let own = roster.members.iter().filter_map(|m| Some((m.nr, m.device.waiting()?)));
        let mut longest: Vec<(MemberNr, Nanos)> = Vec::new();
        for (nr, nanos) in own.chain(engines.into_iter().flatten().flatten()) {
            match longest.iter_mut().find(|(known, _)| *known == nr) {
                Some((_, most)) => *most = nanos.max(*most),
                None => longest.push((nr, nanos)),
            }
        }
        longest
    }

    async fn judge(self: &Rc<Self>) {
        let waiting = self.waiting().await;
        let Some(limit) = self.in_effect.settings.get().member_timeout.limit() else { return };
        // Half of the limit: members that fell silent for the same reason did so at about the same time.
        let (late, silent) = {
            let roster = self.record.roster.borrow();
            let longer_than = |part: u64| -> Vec<MemberNr> {
                let within = |member: &Member| {
                    let layers = u64::from(member.device.layers()) + 1;
                    limit.saturating_mul(layers) / part
                };
                let members = roster.members.iter().filter(|member| member.given_up.is_none());
                let over = members.filter(|member| {
                    let own = waiting.iter().find(|(nr, _)| *nr == member.nr);
                    own.is_some_and(|(_, nanos)| *nanos >= within(member))
                });
                over.map(|member| member.nr).collect()
            };
            (longer_than(1), longer_than(2))
        };
        for nr in late {
            let spared = self.spares(nr, &silent);
            let seconds =
                waiting.iter().find(|(known, _)| *known == nr).map_or(0, |(_, n)| n / SECOND);
            if !spared && !self.record.end.has_begun() {
                self.wait_for_member(nr, seconds);
                continue;
            }
            if !spared {
                self.record.roster.borrow_mut().needs(&[nr]);
            }
            let why = format!("a request to it is under way for {seconds} s (member_timeout)");
            self.record.note_away(nr, IoError::new(IoErrorKind::Gone));
            self.record.give_up(nr, &why);
            let own = Rc::clone(self);
            self.record.shard.spawn(async move {
                own.record.fail_nr(nr, &why).await;
            });
        }
    }

    /// Says that requests wait for a member, and when they do no more.
    fn wait_for_member(self: &Rc<Self>, nr: MemberNr, seconds: u64) {
        if self.awaited.members.borrow().contains(&nr) {
            return;
        }
        let (array, name) = (&self.record.name, self.record.member_name(nr));
        tracing::error!(
            "array {array}: a request to {name} is under way for {seconds} s, and the array cannot do without it: what \
             needs it waits until it answers"
        );
        self.awaited.members.borrow_mut().push(nr);
        let own = Rc::clone(self);
        self.record.shard.spawn(async move {
            loop {
                own.record.shard.sleep(POLL_INTERVAL).await;
                let there =
                    own.record.roster.borrow().member(nr).is_some_and(|m| m.given_up.is_none());
                let limit =
                    own.in_effect.settings.get().member_timeout.limit().unwrap_or(Nanos::MAX);
                let waiting = own.waiting().await;
                let still = waiting.iter().any(|(known, nanos)| *known == nr && *nanos >= limit);
                if !there || own.record.end.is_over() {
                    break;
                }
                if !still {
                    let (array, name) = (&own.record.name, own.record.member_name(nr));
                    tracing::warn!("array {array}: {name} answers again");
                    break;
                }
            }
            own.awaited.members.borrow_mut().retain(|known| *known != nr);
        });
    }

    // --- Members that are given up ---------------------------------------------------------------
}
