//! What is noted of each left point for a report, beside the answer.

use nearjoin::Scalar;

use crate::question::Question;

/// A number for each left point.
#[derive(Debug)]
pub(crate) enum Tally {
    /// How many neighbours it has. `half`: each pair comes once, and counts for both points.
    Degrees { half: bool, degrees: Vec<u64> },
    /// How far its k-th neighbour is away; infinitely, where it has fewer.
    Reach { k: usize, distances: Vec<f64> },
}

impl Tally {
    /// Nothing noted yet of so many points.
    pub(crate) fn new(question: Question, points: usize) -> Self {
        match question {
            Question::Within { half, .. } => Tally::Degrees { half, degrees: vec![0; points] },
            Question::Knn { k, .. } => Tally::Reach { k, distances: vec![f64::INFINITY; points] },
        }
    }

    /// Notes complete rows: row `i` belongs to `query(i)` and has the next
    /// `offsets[i + 1] - offsets[i]` ids and, if it has them, distances.
    pub(crate) fn note<T: Scalar>(
        &mut self,
        query: impl Fn(usize) -> u32,
        offsets: &[u64],
        ids: &[u32],
        distances: Option<&[T]>,
    ) {
        for (row, ends) in offsets.windows(2).enumerate() {
            let (query, range) = (query(row) as usize, ends[0] as usize..ends[1] as usize);
            match self {
                Tally::Degrees { half, degrees } => {
                    degrees[query] += range.len() as u64;
                    if *half {
                        ids[range].iter().for_each(|&id| degrees[id as usize] += 1);
                    }
                }
                Tally::Reach { k, distances: reach } => {
                    let kth = distances.and_then(|distances| distances[range].get(*k - 1));
                    if let Some(distance) = kth {
                        reach[query] = distance.to_f64();
                    }
                }
            }
        }
    }
}
