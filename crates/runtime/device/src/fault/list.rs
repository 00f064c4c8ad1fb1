//! A list that any thread may append to and read, without waiting for anybody. Nothing is taken
//! out before the whole list goes: for the few entries of a switchboard.

use std::sync::OnceLock;

pub(super) struct List<T>(OnceLock<Box<Node<T>>>);

struct Node<T> {
    value: T,
    rest: List<T>,
}

impl<T> List<T> {
    pub(super) const fn new() -> List<T> {
        List(OnceLock::new())
    }

    /// Appends; gives the place, counted from 0.
    pub(super) fn push(&self, value: T) -> usize {
        let mut node = Box::new(Node { value, rest: List::new() });
        let (mut end, mut place) = (self, 0);
        while let Err(refused) = end.0.set(node) {
            node = refused;
            // Refused means that there is an entry, perhaps made just now by another thread.
            if let Some(taken) = end.0.get() {
                (end, place) = (&taken.rest, place + 1);
            }
        }
        place
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::successors(self.0.get(), |node| node.rest.0.get()).map(|node| &node.value)
    }
}

#[cfg(test)]
mod tests {
    use super::List;

    #[test]
    fn entries_come_in_the_order_of_their_places() {
        let list = List::new();
        assert_eq!(list.iter().count(), 0);
        assert_eq!([list.push('a'), list.push('b'), list.push('c')], [0, 1, 2]);
        assert_eq!(list.iter().collect::<String>(), "abc");
    }

    #[test]
    fn what_many_threads_append_is_all_there_at_places_of_its_own() {
        let list = List::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let list = &list;
                scope.spawn(move || {
                    for number in 0..200 {
                        let place = list.push((thread, number));
                        assert_eq!(list.iter().nth(place), Some(&(thread, number)));
                    }
                });
            }
        });
        for thread in 0..4 {
            let own = list.iter().filter(|(from, _)| *from == thread).map(|(_, number)| *number);
            assert!(own.eq(0..200));
        }
    }
}
