//! The targets that the tree shows, with what is counted for each. Any thread may look.

use braid_device::Target;
use braid_export::{Figures, gate::Gate};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A target that is offered.
pub(crate) struct Offer {
    /// Tells it from others of its name, at other times.
    pub number: u64,
    /// Its name when it was offered.
    pub name: String,
    /// Itself.
    pub target: Arc<dyn Target>,
    /// The right to write, for writes that fit no blocks.
    pub gate: Arc<Gate>,
    /// Its counters.
    pub figures: Figures,
    opens: AtomicU64,
}

impl Offer {
    pub fn new(target: Arc<dyn Target>, gate: Arc<Gate>) -> Offer {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (name, figures) = (target.info().name, Figures::default());
        Offer { number, name, target, gate, figures, opens: AtomicU64::new(0) }
    }

    /// Openings of its file now.
    pub fn opens(&self) -> u64 {
        self.opens.load(Ordering::SeqCst)
    }

    /// It has been opened once more.
    fn opened(&self) {
        self.opens.fetch_add(1, Ordering::SeqCst);
    }

    /// An opening has ended.
    pub fn closed(&self) {
        self.opens.fetch_sub(1, Ordering::SeqCst);
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Offered(Mutex<Vec<Arc<Offer>>>);

impl Offered {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Offer>>> {
        // Each change is a single step, so a panic elsewhere leaves the list whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one; false when there is one of that name.
    pub fn add(&self, offer: Offer) -> bool {
        let mut all = self.all();
        let is_new = !all.iter().any(|known| known.name == offer.name);
        if is_new {
            all.push(Arc::new(offer));
        }
        is_new
    }

    /// That of a name.
    pub fn find(&self, name: &str) -> Option<Arc<Offer>> {
        self.all().iter().find(|offer| offer.name == name).cloned()
    }

    /// That of a number.
    pub fn numbered(&self, number: u64) -> Option<Arc<Offer>> {
        self.all().iter().find(|offer| offer.number == number).cloned()
    }

    /// Those that there are.
    pub fn list(&self) -> Vec<Arc<Offer>> {
        self.all().clone()
    }

    /// Takes one away.
    pub fn remove(&self, name: &str) -> Option<Arc<Offer>> {
        let mut all = self.all();
        let index = all.iter().position(|offer| offer.name == name)?;
        Some(all.remove(index))
    }

    /// Takes one away that nobody has open.
    ///
    /// # Errors
    /// The number of its openings.
    pub fn remove_unused(&self, name: &str) -> Result<(), u64> {
        let mut all = self.all();
        // An opening is counted while the list is locked, so none comes in between.
        match all.iter().find(|offer| offer.name == name).map_or(0, |offer| offer.opens()) {
            0 => all.retain(|offer| offer.name != name),
            opens => return Err(opens),
        }
        Ok(())
    }

    /// Counts an opening; false when it is not offered any more.
    pub fn open(&self, offer: &Arc<Offer>) -> bool {
        let all = self.all();
        let is_there = all.iter().any(|known| Arc::ptr_eq(known, offer));
        if is_there {
            offer.opened();
        }
        is_there
    }
}
