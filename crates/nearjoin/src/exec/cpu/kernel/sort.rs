//! Rows of a block put in ascending order.
//!
//! Up to 16 rows at a time, a row to a lane, by a network of minima and maxima: rows of neighbouring
//! queries are about as long as each other, and no branch hangs on what is in them.

/// Rows that are sorted at once.
pub(crate) const LANES: usize = 16;

/// Sorts every lane of some columns.
///
/// Batcher's merge exchange (Knuth, The Art of Computer Programming, volume 3, 5.2.2, algorithm M),
/// which is right for any number of columns:
///
/// ```text
/// for p = 2ᵗ, …, 4, 2, 1:
///     for (d, r) = (p, 0), (q − p, p) with q = 2ᵗ, …, 2p:
///         for all i below n − d whose bit p is that of r:  order columns i and i + d
/// ```
#[inline(always)]
pub(super) fn sort_lanes<K: Copy + Ord>(columns: &mut [[K; LANES]]) {
    let n = columns.len();
    if n < 2 {
        return;
    }
    let top = n.next_power_of_two() / 2;
    let mut p = top;
    while p > 0 {
        let (mut q, mut r, mut d) = (top, 0, p);
        loop {
            let mut start = r;
            while start + d < n {
                for i in start..(start + p).min(n - d) {
                    order(columns, i, i + d);
                }
                start += 2 * p;
            }
            if q == p {
                break;
            }
            (d, q, r) = (q - p, q / 2, p);
        }
        p /= 2;
    }
}

#[inline(always)]
fn order<K: Copy + Ord>(columns: &mut [[K; LANES]], low: usize, high: usize) {
    let (a, b) = (columns[low], columns[high]);
    let (mut least, mut most) = (a, b);
    for lane in 0..LANES {
        least[lane] = if a[lane] < b[lane] { a[lane] } else { b[lane] };
        most[lane] = if a[lane] < b[lane] { b[lane] } else { a[lane] };
    }
    (columns[low], columns[high]) = (least, most);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_columns() {
        let mut seed = 1u32;
        for n in (0..70).chain([127, 128, 129, 500]) {
            let mut columns: Vec<[u32; LANES]> = vec![[0; LANES]; n];
            for value in columns.iter_mut().flatten() {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *value = seed >> 20;
            }
            let mut expected = columns.clone();
            for lane in 0..LANES {
                let mut values: Vec<u32> = columns.iter().map(|column| column[lane]).collect();
                values.sort_unstable();
                expected.iter_mut().zip(values).for_each(|(column, value)| column[lane] = value);
            }
            sort_lanes(&mut columns);
            assert_eq!(columns, expected, "{n}");
        }
    }
}
