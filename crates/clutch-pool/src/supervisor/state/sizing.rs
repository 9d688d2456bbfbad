//! Size of a pool: how many workers there should be, between which bounds, and how many slots each of them has.

use crate::config::{PoolConfig, Shape};
use crate::supervisor::scale::Bounds;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Sizing {
    bounds: Bounds,
    /// The shape of the image that workers are forked from.
    shape: Shape,
}

impl Sizing {
    pub(super) fn new(config: &PoolConfig) -> Sizing {
        let (min, max) = (config.workers_min as usize, config.shape.workers as usize);
        Sizing { bounds: Bounds { min, max, target: min }, shape: config.shape }
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) fn target(&self) -> usize {
        self.bounds.target
    }

    /// Slots of a worker.
    pub(super) fn slots(&self) -> usize {
        self.shape.slots() as usize
    }

    /// Sets the target, as far as the bounds allow.
    pub(super) fn aim(&mut self, target: usize) {
        let Bounds { min, max, .. } = self.bounds;
        self.bounds.target = target.min(max).max(min);
    }

    /// Moves the bounds, and the target into them.
    pub(super) fn bound(&mut self, min: usize, max: usize) {
        (self.bounds.min, self.bounds.max) = (min, max);
        self.aim(self.bounds.target);
    }

    /// Takes over the shape of another image. A new number of workers is the maximum, and keeps the share of the minimum.
    pub(super) fn reshape(&mut self, shape: Shape) {
        if shape.workers != self.shape.workers {
            let (Bounds { min, max, .. }, workers) = (self.bounds, shape.workers as usize);
            let min = (min * workers / max.max(1)).clamp(1, workers);
            self.bounds = Bounds { min, max: workers, target: min };
        }
        self.shape = shape;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Profile;
    use proptest::prelude::*;

    fn shape(workers: u32) -> Shape {
        Shape { profile: Profile::Process, workers, threads: 2, tasks: 3 }
    }

    proptest! {
        #[test]
        fn the_target_stays_within_the_bounds(
            changes in prop::collection::vec((0u8..3, 1usize..20, 0usize..20), 0..20),
        ) {
            let mut sizing = Sizing { bounds: Bounds { min: 2, max: 4, target: 2 }, shape: shape(4) };
            for (what, one, other) in changes {
                match what {
                    0 => sizing.aim(other),
                    1 => sizing.bound(one, one + other),
                    _ => sizing.reshape(shape(one as u32)),
                }
                let Bounds { min, max, target } = sizing.bounds();
                prop_assert!(1 <= min && min <= target && target <= max, "{:?}", sizing.bounds());
            }
        }
    }

    #[test]
    fn an_image_with_another_number_of_workers_keeps_the_share_of_the_minimum() {
        let mut sizing = Sizing { bounds: Bounds { min: 4, max: 6, target: 6 }, shape: shape(3) };
        sizing.reshape(shape(3));
        assert_eq!(sizing.bounds(), Bounds { min: 4, max: 6, target: 6 }, "the same number changes nothing");
        sizing.reshape(shape(5));
        assert_eq!((sizing.bounds(), sizing.slots()), (Bounds { min: 3, max: 5, target: 3 }, 6));
    }
}
