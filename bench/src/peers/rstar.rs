//! rstar: a bulk-loaded R*-tree, asked point by point over all cores.
//!
//! It compares with ≤ and finds each point itself.

use std::time::Instant;

use rayon::prelude::*;
use rstar::RTree;
use rstar::primitives::GeomWithData;

use super::Timed;

const CHUNK: usize = 2048;

/// `locate_within_distance` for each point. The ids are kept if `lists`, else counted.
pub(super) fn run<const D: usize>(points: &[[f64; D]], bound: f64, lists: bool) -> Timed<u64> {
    let start = Instant::now();
    let rows = points.iter().zip(0u32..).map(|(&point, id)| GeomWithData::new(point, id));
    let tree = RTree::bulk_load(rows.collect());
    let chunk = |chunk: &[[f64; D]]| {
        let (mut ids, mut ends, mut found) = (Vec::new(), Vec::new(), 0u64);
        for &point in chunk {
            let neighbors = tree.locate_within_distance(point, bound);
            if lists {
                ids.extend(neighbors.map(|neighbor| neighbor.data));
                ends.push(ids.len());
            } else {
                found += neighbors.count() as u64;
            }
        }
        (found + ids.len() as u64, ids, ends)
    };
    let chunks: Vec<(u64, Vec<u32>, Vec<usize>)> = points.par_chunks(CHUNK).map(chunk).collect();
    let seconds = start.elapsed().as_secs_f64();
    let found: u64 = chunks.iter().map(|chunk| chunk.0).sum();
    Timed { seconds, found: found - points.len() as u64 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn within_means_at_most() {
        let points = [[0.0, 0.0], [0.3, 0.4], [5.0, 5.0]];
        for lists in [true, false] {
            assert_eq!(super::run(&points, 0.5f64 * 0.5, lists).found, 2);
        }
    }
}
