//! Each pair of a join of one set with itself, once.

use nearjoin::{Buffer, Csr, Error, Needs, Scalar};
use rayon::prelude::*;

/// Arrays of CSR: offsets, ids and distances.
pub(crate) type Arrays<T> = (Buffer<u64>, Buffer<u32>, Option<Buffer<T>>);

/// Of each row the neighbours that come later, in the order in which they stood.
///
/// # Errors
/// If both, the rows as they are and what is made of them, need more memory than the limit.
pub(crate) fn later<T: Scalar>(
    csr: Csr<T>,
    has_distances: bool,
    limit: u64,
) -> Result<Arrays<T>, Error> {
    let rows = csr.len();
    let is_later = |row: usize, id: u32| id as usize > row;
    let counts = (0..rows)
        .into_par_iter()
        .map(|row| csr.ids_of(row).iter().filter(|id| is_later(row, **id)).count() as u64);
    let mut offsets = Buffer::<u64>::zeroed(rows + 1)?;
    offsets[1..].par_iter_mut().zip(counts).for_each(|(offset, count)| *offset = count);
    for row in 0..rows {
        offsets[row + 1] += offsets[row];
    }
    let pairs = offsets[rows] as usize;
    let pair = 4 + if has_distances { size_of::<T>() } else { 0 };
    let needed = (16 * (rows + 1) + pair * (csr.ids().len() + pairs)) as u64;
    if needed > limit {
        return Err(Error::MemoryLimit { what: Needs::Result, needed, limit });
    }
    let mut ids = Buffer::<u32>::zeroed(pairs)?;
    let mut distances = Buffer::<T>::zeroed(if has_distances { pairs } else { 0 })?;
    let ids_of = split(&mut ids, &offsets);
    match has_distances {
        true => {
            let places = ids_of.into_par_iter().zip(split(&mut distances, &offsets));
            places.enumerate().for_each(|(row, (ids, distances))| {
                let all = csr.ids_of(row).iter().zip(csr.distances_of(row));
                let later = all.filter(|(id, _)| is_later(row, **id));
                for ((id, distance), (to, far)) in ids.iter_mut().zip(distances).zip(later) {
                    (*id, *distance) = (*to, *far);
                }
            });
        }
        false => ids_of.into_par_iter().enumerate().for_each(|(row, ids)| {
            let later = csr.ids_of(row).iter().filter(|id| is_later(row, **id));
            ids.iter_mut().zip(later).for_each(|(id, to)| *id = *to);
        }),
    }
    Ok((offsets, ids, has_distances.then_some(distances)))
}

/// The place of each row.
fn split<'a, V>(mut values: &'a mut [V], offsets: &[u64]) -> Vec<&'a mut [V]> {
    let mut rows = Vec::with_capacity(offsets.len().saturating_sub(1));
    for row in offsets.windows(2) {
        let (first, rest) = values.split_at_mut((row[1] - row[0]) as usize);
        rows.push(first);
        values = rest;
    }
    rows
}
