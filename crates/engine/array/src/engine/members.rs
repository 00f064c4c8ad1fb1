//! The members of an array as one shard has them: its handles on them, and the view that control sent last.
//!
//! Does not know requests. What a member's failure means is control's business.

use crate::engine::balance::Balance;
use crate::engine::cut_from::CutFrom;
use crate::figures::MemberFigures;
use crate::state::view::{MemberNr, View, ViewUpdate};
use braid_device::Device;
use braid_device::meter::Metered;
use braid_device::plug::{Plug, PlugStats};
use braid_shard::{Nanos, Shard};
use std::cell::RefCell;
use std::rc::Rc;

/// A member that is open on this shard.
pub(crate) struct OpenMember {
    pub(crate) nr: MemberNr,
    /// The device that takes requests: plugged and measured.
    pub(crate) device: Rc<dyn Device>,
    plug: Option<Rc<Plug>>,
    /// Measures what the member is asked.
    pub(crate) metered: Rc<Metered>,
}

impl OpenMember {
    /// Member `nr`. Requests are collected and merged where the device wants that and `aggregate` allows it.
    pub(super) fn new(
        shard: &Shard,
        nr: MemberNr,
        device: Rc<dyn Device>,
        aggregate: bool,
    ) -> OpenMember {
        let wants_plug = device.info().wants_plug;
        let metered = Metered::new(shard, device);
        let measured = || Rc::clone(&metered) as Rc<dyn Device>;
        let plug = wants_plug.then(|| match aggregate {
            true => Plug::metered(shard, Rc::clone(&metered)),
            false => Plug::disabled(shard, measured()),
        });
        let device = match &plug {
            Some(plug) => Rc::clone(plug) as Rc<dyn Device>,
            None => measured(),
        };
        OpenMember { nr, device, plug, metered }
    }

    /// Requests to it are worth collecting.
    pub(super) fn wants_plug(&self) -> bool {
        self.plug.is_some()
    }
}

/// See the module's documentation.
pub(crate) struct Members {
    open: RefCell<Vec<OpenMember>>,
    view: RefCell<Rc<View>>,
    /// The update that the view was made from.
    update: RefCell<ViewUpdate>,
    /// Chooses the member to read from where several hold the same bytes.
    pub(crate) balance: Rc<Balance>,
    /// The size of the requests that arrive, or that they were cut from.
    cut_from: CutFrom,
    /// Requests to members are plugged and merged, and writes of one stripe are batched.
    aggregate: bool,
}

impl Members {
    /// None is open yet.
    pub(super) fn new(update: ViewUpdate, balance: Rc<Balance>, aggregate: bool) -> Members {
        let view = Rc::new(View::new(&update, |_| None));
        Members {
            open: RefCell::default(),
            view: RefCell::new(view),
            update: RefCell::new(update),
            balance,
            cut_from: CutFrom::default(),
            aggregate,
        }
    }

    /// The members and the geometry as they are now.
    #[inline]
    pub(crate) fn view(&self) -> Rc<View> {
        Rc::clone(&self.view.borrow())
    }

    /// Looks at the members and the geometry as they are now, without keeping them.
    #[inline]
    pub(crate) fn look<T>(&self, at: impl FnOnce(&View) -> T) -> T {
        at(&self.view.borrow())
    }

    /// Requests to members are plugged and merged, and writes of one stripe are batched.
    #[inline]
    pub(crate) fn aggregates(&self) -> bool {
        self.aggregate
    }

    /// A handle on member `nr`, which [`Members::enter`] adds.
    pub(super) fn prepare(
        &self,
        shard: &Shard,
        nr: MemberNr,
        device: Rc<dyn Device>,
    ) -> OpenMember {
        let member = OpenMember::new(shard, nr, device, self.aggregate);
        member.device.cut_from(self.cut_from.bytes());
        member
    }

    /// Adds a handle; a later view may name it.
    pub(super) fn enter(&self, member: OpenMember) {
        self.open.borrow_mut().push(member);
    }

    /// Replaces the handle on a member by another, to which all goes from now on.
    pub(super) fn exchange(&self, member: OpenMember) {
        self.open.borrow_mut().retain(|known| known.nr != member.nr);
        self.enter(member);
        let update = self.update.borrow().clone();
        self.apply(update);
    }

    /// Closes member `nr`.
    pub(crate) fn close(&self, nr: MemberNr) {
        if let Some(device) = self.device(nr) {
            // An array that is no member any more may have clients again.
            device.cut_from(0);
        }
        self.open.borrow_mut().retain(|member| member.nr != nr);
        let update = self.update.borrow().clone();
        self.apply(update);
    }

    /// Closes all.
    pub(super) fn close_all(&self) {
        for member in self.open.take() {
            member.device.cut_from(0);
        }
    }

    /// This shard's handle on member `nr`.
    pub(crate) fn device(&self, nr: MemberNr) -> Option<Rc<dyn Device>> {
        let open = self.open.borrow();
        open.iter().find(|member| member.nr == nr).map(|member| Rc::clone(&member.device))
    }

    /// Takes over what control has decided.
    pub(crate) fn apply(&self, update: ViewUpdate) {
        let view = View::new(&update, |nr| self.device(nr));
        *self.view.borrow_mut() = Rc::new(view);
        *self.update.borrow_mut() = update;
    }

    /// These members have failed and are read no more. All else stays as control decided last: a failure that is being
    /// recorded beside theirs is not to be known yet.
    pub(crate) fn distrust(&self, suspects: &[MemberNr]) {
        let mut update = self.update.borrow().clone();
        for slot in &mut update.slots {
            slot.suspect |= slot.member.is_some_and(|nr| suspects.contains(&nr));
        }
        self.apply(update);
    }

    /// Calls `what` with each.
    pub(super) fn each(&self, what: impl FnMut(&OpenMember)) {
        self.open.borrow().iter().for_each(what);
    }

    fn metered(&self) -> Vec<(MemberNr, Rc<Metered>)> {
        let open = self.open.borrow();
        open.iter().map(|member| (member.nr, Rc::clone(&member.metered))).collect()
    }

    // --- How large the requests are that all is cut from ---------------------------------------

    /// A request of `len` bytes has come, from a client or an array above.
    #[inline]
    pub(super) fn note_size(&self, len: u64) {
        if self.cut_from.note(len) {
            self.tell_cut_from();
        }
    }

    /// An array above says what it cuts its requests from.
    pub(crate) fn set_cut_from(&self, bytes: u64) {
        self.cut_from.tell(bytes);
        self.tell_cut_from();
    }

    fn tell_cut_from(&self) {
        let bytes = self.cut_from.bytes();
        self.balance.set_run(bytes, self.cut_from.is_told());
        self.each(|member| member.device.cut_from(bytes));
    }

    // --- Figures ---------------------------------------------------------------------------------

    /// Counts of each member's requests, before and after merging.
    pub(crate) fn figures(&self) -> Vec<(MemberNr, MemberFigures)> {
        let open = self.open.borrow();
        let figures = open.iter().map(|member| {
            let io = member.metered.figures();
            let requested = member.plug.as_ref().map_or(io.counts, |plug| plug.arrived());
            (member.nr, MemberFigures { requested, io })
        });
        figures.collect()
    }

    /// Counts of requests into and out of each member's plug.
    pub(crate) fn plug_stats(&self) -> Vec<(MemberNr, PlugStats)> {
        let open = self.open.borrow();
        let stats =
            open.iter().filter_map(|member| Some((member.nr, member.plug.as_ref()?.stats())));
        stats.collect()
    }

    // --- Members that do not answer, or have no space --------------------------------------------

    /// Writes to each member that wait for space.
    pub(crate) fn held(&self) -> Vec<(MemberNr, usize)> {
        self.metered().iter().map(|(nr, metered)| (*nr, metered.held())).collect()
    }

    /// Tries them again; says how many.
    pub(crate) fn try_again(&self) -> usize {
        self.metered().iter().map(|(_, metered)| metered.try_again()).sum()
    }

    /// They are answered that there is no space.
    pub(super) fn end_waiting_for_space(&self) {
        self.metered().iter().for_each(|(_, metered)| metered.end_waiting());
    }

    /// For how long the oldest request to each member is under way, in nanoseconds.
    pub(crate) fn waiting(&self) -> Vec<(MemberNr, Nanos)> {
        let open = self.open.borrow();
        let waiting = |member: &OpenMember| Some((member.nr, member.metered.waiting()?));
        open.iter().filter_map(waiting).collect()
    }

    /// The requests that each member has completed on this shard, and the sum of their latencies in nanoseconds.
    pub(crate) fn completed(&self) -> Vec<(MemberNr, u64, Nanos)> {
        let open = self.open.borrow();
        let completed = open.iter().map(|member| {
            let (requests, nanos) = member.metered.completed();
            (member.nr, requests, nanos)
        });
        completed.collect()
    }

    /// Requests that each member has completed on this shard.
    pub(crate) fn answers(&self) -> Vec<(MemberNr, u64)> {
        self.metered().iter().map(|(nr, metered)| (*nr, metered.answers())).collect()
    }

    /// Whoever waits for member `nr` is answered that it is gone; it gets no more requests.
    pub(crate) fn give_up(&self, nr: MemberNr) {
        // Taken out first: who is answered may ask for members.
        let mut given_up = self.metered();
        given_up.retain(|(known, _)| *known == nr);
        given_up.iter().for_each(|(_, metered)| metered.give_up());
    }

    /// See [`Device::layers`].
    pub(crate) fn layers(&self) -> u32 {
        1 + self.open.borrow().iter().map(|member| member.device.layers()).max().unwrap_or(0)
    }

    /// See [`Device::may_hang`].
    pub(crate) fn may_hang(&self) -> bool {
        self.open.borrow().iter().any(|member| member.device.may_hang())
    }
}
