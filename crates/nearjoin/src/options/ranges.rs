//! The options of KNN-joins by ranges.

use crate::error::{Error, Result};

/// How a KNN-join by ranges goes about it: [`Strategy::Ranges`](crate::Strategy::Ranges), the
/// HybridKNN-Join. Nothing of it changes the answer.
///
/// Sizes of batches are shares of all queries. A GPU that works alone
/// ([`Device::Gpu`](crate::Device::Gpu)) takes all that is left at a time, and has no use for them.
///
/// ```
/// use nearjoin::{Device, KnnJoin, RangesOptions, Strategy};
/// let options = RangesOptions::new().large(0.6).window(0.2).eps_factor(1.5);
/// let join = KnnJoin::new(8).strategy(Strategy::Ranges).device(Device::Hybrid).ranges(options);
/// # let _ = join;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangesOptions {
    pub(crate) large: f64,
    pub(crate) small: f64,
    pub(crate) window: f64,
    pub(crate) cpu: f64,
    pub(crate) threads_per_query: usize,
    pub(crate) eps_factor: f64,
    pub(crate) reindex_at: f64,
    pub(crate) halve_at: f64,
    pub(crate) tail: f64,
}

impl Default for RangesOptions {
    fn default() -> Self {
        RangesOptions {
            large: 0.4,
            small: 0.005,
            window: 0.4,
            cpu: 0.005,
            threads_per_query: 8,
            eps_factor: 1.0,
            reindex_at: 0.25,
            halve_at: 0.95,
            tail: 0.05,
        }
    }
}

/// Makes an option known by a setter.
macro_rules! setters {
    ($($(#[$doc:meta])+ $name:ident: $type:ty),+ $(,)?) => { $(
        $(#[$doc])+
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name;
            self
        }
    )+ };
}

impl RangesOptions {
    /// The options of the paper, and a limit of ours to its last rounds.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// The first batch of the GPU: those that follow are half of the one before, or less, until
        /// the CPU would have less than its window. More than 0, at most 1. Default: 0.4.
        large: f64,
        /// Batches of the GPU after those. More than 0, at most 1. Default: 0.005.
        small: f64,
        /// What large batches leave to the CPU. From 0 to 1. Default: 0.4.
        window: f64,
        /// Batches of a thread of the CPU. More than 0, at most 1. Default: 0.005.
        cpu: f64,
        /// Threads of the GPU to a query: 1, 2, 4, 8, 16 or 32. What
        /// [`GpuOptions`](crate::gpu::GpuOptions) say comes first. Default: 8.
        threads_per_query: usize,
        /// The first ε, as a multiple of that at which a point has k neighbours on average. More
        /// than 0 and finite. Default: 1.
        eps_factor: f64,
        /// The share of a batch that has failed, from which on the GPU indexes the points anew, for
        /// an ε that is larger by half of the first. From 0 to 1. Default: 0.25.
        reindex_at: f64,
        /// The share of the queries that are answered, from which on small batches and those of the
        /// CPU are half as large. From 0 to 1. Default: 0.95.
        halve_at: f64,
        /// Up to this share of the queries, those that are left are not worth another index: the
        /// CPU has them, in place of a GPU that works alone too. From 0 to 1; with 1 there is no
        /// second index. Default: 0.05.
        tail: f64,
    }

    /// Whether they are in range.
    pub(crate) fn check(&self) -> Result<()> {
        const ALLOWED: &str = "1, 2, 4, 8, 16 or 32";
        if !matches!(self.threads_per_query, 1 | 2 | 4 | 8 | 16 | 32) {
            let (name, value) = ("threads per query", self.threads_per_query);
            return Err(Error::Option { name, value, allowed: ALLOWED });
        }
        let is_share = |x: f64| (0.0..=1.0).contains(&x);
        let is_some = |x: f64| x > 0.0;
        let batch = "more than 0 and at most 1";
        let share = "from 0 to 1";
        let numbers = [
            ("large", self.large, is_share(self.large) && is_some(self.large), batch),
            ("small", self.small, is_share(self.small) && is_some(self.small), batch),
            ("cpu batch", self.cpu, is_share(self.cpu) && is_some(self.cpu), batch),
            ("window", self.window, is_share(self.window), share),
            ("reindex at", self.reindex_at, is_share(self.reindex_at), share),
            ("halve at", self.halve_at, is_share(self.halve_at), share),
            ("tail", self.tail, is_share(self.tail), share),
            (
                "ε factor",
                self.eps_factor,
                is_some(self.eps_factor) && self.eps_factor.is_finite(),
                "more than 0 and finite",
            ),
        ];
        match numbers.into_iter().find(|(_, _, is_right, _)| !is_right) {
            Some((name, value, _, allowed)) => Err(Error::Number { name, value, allowed }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_named() {
        let new = RangesOptions::new;
        assert_eq!(new().check(), Ok(()));
        assert_eq!(new().large(1.0).window(0.0).tail(1.0).eps_factor(1e9).check(), Ok(()));
        for (wrong, name) in [
            (new().large(0.0), "large = 0 "),
            (new().large(1.5), "large = 1.5 "),
            (new().small(-0.1), "small = -0.1 "),
            (new().cpu(f64::NAN), "cpu batch = NaN "),
            (new().window(1.1), "window = 1.1 "),
            (new().reindex_at(2.0), "reindex at = 2 "),
            (new().halve_at(-1.0), "halve at = -1 "),
            (new().tail(7.0), "tail = 7 "),
            (new().eps_factor(0.0), "ε factor = 0 "),
            (new().eps_factor(f64::INFINITY), "ε factor = inf "),
            (new().threads_per_query(3), "threads per query = 3 "),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains("it must be "), "{error}");
        }
    }
}
