//! Keeps the few slowest entries of all that it is told. The least of them is known, so that any other costs one
//! comparison.

/// Number of entries kept.
pub const SLOWEST_MAX: usize = 5;

#[derive(Clone, Debug)]
pub struct Slowest<T> {
    /// The longest first.
    kept: Vec<(u64, T)>,
    /// Threshold in nanoseconds: an entry that took no longer is not kept.
    least_ns: Option<u64>,
}

impl<T> Default for Slowest<T> {
    fn default() -> Slowest<T> {
        Slowest { kept: Vec::new(), least_ns: None }
    }
}

impl<T> Slowest<T> {
    /// Whether one that took so long is among them.
    pub fn takes(&self, ns: u64) -> bool {
        self.least_ns.is_none_or(|least| ns > least)
    }

    pub fn note(&mut self, ns: u64, what: T) {
        if !self.takes(ns) {
            return;
        }
        self.kept.truncate(SLOWEST_MAX - 1);
        let at = self.kept.partition_point(|(longer, _)| *longer >= ns);
        self.kept.insert(at, (ns, what));
        self.least_ns = self.kept.get(SLOWEST_MAX - 1).map(|(least, _)| *least);
    }

    /// The longest first, with their nanoseconds.
    pub fn iter(&self) -> impl Iterator<Item = &(u64, T)> {
        self.kept.iter()
    }
}

/// Bytes of an item: its number in the batch, and nanoseconds.
const ITEM_BYTES: usize = 12;

impl Slowest<u32> {
    /// Encodes the items of a batch, as its worker sends them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let each = self.kept.iter().flat_map(|(ns, item)| item.to_le_bytes().into_iter().chain(ns.to_le_bytes()));
        each.collect()
    }

    /// Decodes such bytes, at most as many items as can be sent.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = (u32, u64)> {
        bytes.chunks_exact(ITEM_BYTES).take(SLOWEST_MAX).filter_map(|told| {
            let (item, ns) = told.split_first_chunk::<4>()?;
            Some((u32::from_le_bytes(*item), u64::from_le_bytes(ns.try_into().ok()?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_kept_in_order_and_no_more_than_that() {
        let mut slowest = Slowest::default();
        let given = [3, 9, 1, 7, 7, 2, 8, 100, 4];
        given.iter().enumerate().for_each(|(at, ns)| slowest.note(*ns, at as u32));
        let kept: Vec<_> = slowest.iter().copied().collect();
        assert_eq!(kept, [(100, 7), (9, 1), (8, 6), (7, 3), (7, 4)]);
        assert!(!slowest.takes(7) && slowest.takes(8));
        let told: Vec<_> = Slowest::read(&slowest.to_bytes()).collect();
        assert_eq!(told, [(7, 100), (1, 9), (6, 8), (3, 7), (4, 7)]);
    }

    #[test]
    fn bytes_that_are_cut_or_too_many_tell_of_whole_items_and_a_few() {
        assert_eq!(Slowest::read(&[1; 17]).count(), 1);
        assert_eq!(Slowest::read(&[1; 1200]).count(), SLOWEST_MAX);
    }
}
