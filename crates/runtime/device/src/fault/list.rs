//! A list that any thread may append to and read without waiting. Entries are only dropped
//! together with the whole list, which is good enough for a few rules.

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

    /// Appends `value` and returns its index.
    pub(super) fn push(&self, value: T) -> usize {
        let mut node = Box::new(Node { value, rest: List::new() });
        let (mut end, mut index) = (self, 0);
        while let Err(refused) = end.0.set(node) {
            node = refused;
            // An error means that there is an entry, which another thread may have added just now.
            if let Some(taken) = end.0.get() {
                (end, index) = (&taken.rest, index + 1);
            }
        }
        index
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::successors(self.0.get(), |node| node.rest.0.get()).map(|node| &node.value)
    }
}

#[cfg(test)]
mod tests {
    use super::List;

    #[test]
    fn entries_come_in_the_order_of_their_indexs() {
        let list = List::new();
        assert_eq!(list.iter().count(), 0);
        assert_eq!([list.push('a'), list.push('b'), list.push('c')], [0, 1, 2]);
        assert_eq!(list.iter().collect::<String>(), "abc");
    }

    #[test]
    fn what_many_threads_append_is_all_there_at_indexs_of_its_own() {
        let list = List::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let list = &list;
                scope.spawn(move || {
                    for number in 0..200 {
                        let index = list.push((thread, number));
                        assert_eq!(list.iter().nth(index), Some(&(thread, number)));
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
