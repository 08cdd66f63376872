//! Putting short lists in order. The standard library's sort is compiled for
//! each type and order anew, some six kilobytes each; this one once. What is
//! long, or sorted often, has the standard library's.

use std::cmp::Ordering;

/// Lists that can be put in order; equal items stay as they are.
pub trait Order<T> {
    /// By comparison of two.
    fn order_by(&mut self, compare: impl Fn(&T, &T) -> Ordering);

    /// By what is made of each.
    fn order_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        self.order_by(|one, other| key(one).cmp(&key(other)));
    }
}

impl<T> Order<T> for [T] {
    fn order_by(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        if self.len() < 2 {
            return;
        }
        let mut from = places(self.len(), &|one, other| compare(&self[one], &self[other]));
        // Round by round: an item goes where it belongs, the one from there
        // where that belongs, until the place of the first is free.
        for first in 0..self.len() {
            let mut at = first;
            loop {
                let next = std::mem::replace(&mut from[at], at);
                if next == first {
                    break;
                }
                self.swap(at, next);
                at = next;
            }
        }
    }
}

/// Of each place, where its item is now.
fn places(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by(|one, other| compare(*one, *other));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_in_the_order_that_the_standard_librarys_sort_gives() {
        for seed in 0..60_usize {
            let items: Vec<(usize, usize)> = (0..seed % 40)
                .map(|at| ((at * 7919 + seed * 104_729) % 11, at))
                .collect();
            let (mut ours, mut theirs) = (items.clone(), items);
            ours.order_by_key(|item| item.0);
            theirs.sort_by_key(|item| item.0);
            assert_eq!(ours, theirs, "{seed}");
        }
    }
}
