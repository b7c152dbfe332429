//! Rows of a block put in ascending order.
//!
//! Up to 16 rows at a time, a row to a lane, by a network of minima and maxima: rows of neighbouring
//! queries are about as long as each other, and no branch hangs on what is in them.

use super::vector::Vector;

/// Rows that are sorted at once.
pub(crate) const LANES: usize = 16;

/// Sorts each of up to 16 rows. `columns` is room to do it in.
///
/// ```text
/// 16 elements of each row at a time are a square, which is turned: a row is a lane
/// sort all lanes
/// turn every square back
/// ```
#[inline(always)]
pub(super) unsafe fn sort_rows<V: Vector>(rows: &mut [Vec<u32>], columns: &mut Vec<[u32; LANES]>) {
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    columns.clear();
    columns.resize(longest.next_multiple_of(LANES), [u32::MAX; LANES]);
    // A row goes on behind its end for a while, so that whole registers are copied: a processor could
    // not foresee where each row ends.
    let mut lengths = [0; LANES];
    for (length, row) in lengths.iter_mut().zip(&mut *rows) {
        *length = row.len();
        row.extend_from_slice(&[u32::MAX; LANES]);
    }
    for (at, square) in columns.as_chunks_mut().0.iter_mut().enumerate() {
        for (to, row) in square.iter_mut().zip(&*rows) {
            if let Some(from) = row.get(at * LANES..).and_then(|from| from.first_chunk()) {
                *to = *from;
            }
        }
        // SAFETY: the caller promises the instruction set.
        unsafe { turn::<V>(square) }
    }
    sort_lanes(&mut columns[..longest]);
    for (at, square) in columns.as_chunks_mut().0.iter_mut().enumerate() {
        // SAFETY: as above.
        unsafe { turn::<V>(square) }
        for (from, row) in square.iter().zip(&mut *rows) {
            if let Some(to) = row.get_mut(at * LANES..).and_then(|to| to.first_chunk_mut()) {
                *to = *from;
            }
        }
    }
    rows.iter_mut().zip(lengths).for_each(|(row, length)| row.truncate(length));
}

/// Turns a square: what was in a row is in a lane. Register by register: a part of the square that
/// has as many rows as a register has lanes is turned, and changes places with its counterpart.
///
/// Each row of the upper half of a part is shuffled with one of the lower half, as cards are; that
/// moves the bits of a number's place, its row above its lane, round by one. So it is done once for
/// each bit of a lane.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn turn<V: Vector>(square: &mut [[u32; LANES]; LANES]) {
    let before = *square;
    // SAFETY: parts begin at multiples of a register's lanes, of which there are a divisor of `LANES`;
    // the caller promises the instruction set.
    unsafe {
        let mut part = [V::splat_label(0); LANES];
        for top in (0..LANES).step_by(V::LANES) {
            for left in (0..LANES).step_by(V::LANES) {
                for i in 0..V::LANES {
                    part[i] = V::load_labels(before[top + i][left..].as_ptr());
                }
                for _ in 0..V::LANES.ilog2() {
                    let rows = part;
                    for i in 0..V::LANES / 2 {
                        (part[2 * i], part[2 * i + 1]) =
                            V::shuffle_labels(rows[i], rows[i + V::LANES / 2]);
                    }
                }
                for i in 0..V::LANES {
                    V::store_labels(part[i], square[left + i][top..].as_mut_ptr());
                }
            }
        }
    }
}

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

    fn turns<V: Vector>() {
        let before: [[u32; LANES]; LANES] =
            core::array::from_fn(|row| core::array::from_fn(|at| (100 * row + at) as u32));
        let mut square = before;
        // SAFETY: the instruction set was asked for.
        unsafe { turn::<V>(&mut square) };
        for (row, at) in (0..LANES).flat_map(|row| (0..LANES).map(move |at| (row, at))) {
            assert_eq!(square[at][row], before[row][at]);
        }
    }

    #[test]
    fn a_square_is_turned_by_every_register() {
        turns::<super::super::scalar::Array<f32, false>>();
        #[cfg(target_arch = "x86_64")]
        if super::super::avx2::is_available() {
            turns::<super::super::avx2::F32x8>();
            turns::<super::super::avx2::F64x4>();
        }
        #[cfg(target_arch = "x86_64")]
        if super::super::avx512::is_available() {
            turns::<super::super::avx512::F32x16>();
            turns::<super::super::avx512::F64x8>();
        }
    }

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
