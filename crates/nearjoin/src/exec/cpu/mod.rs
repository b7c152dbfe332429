//! The CPU engine: a pool of threads over one queue, and the SIMD kernels.

mod descend;
pub(crate) mod epsilon;
pub(crate) mod kernel;
pub(crate) mod knn;
pub(crate) mod pool;
mod ranked;
mod rings;
mod scan;
pub(crate) mod select;
pub(crate) mod sieve;
pub(crate) mod tile;

use crate::scalar::Scalar;

/// Puts the ids of a row in ascending order, and its distances with them. `pairs` is room to
/// do it in.
fn sort_by_id<T: Scalar>(ids: &mut [u32], distances: &mut [T], pairs: &mut Vec<(u32, T)>) {
    pairs.clear();
    pairs.extend(ids.iter().copied().zip(distances.iter().copied()));
    pairs.sort_unstable_by_key(|pair| pair.0);
    ids.iter_mut().zip(&*pairs).for_each(|(id, pair)| *id = pair.0);
    distances.iter_mut().zip(&*pairs).for_each(|(distance, pair)| *distance = pair.1);
}
