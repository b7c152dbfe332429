//! Rows of the nearest as they land, piece by piece, on their way to a sink.

use core::ops::ControlFlow;

use super::driver::HostMemory;
use super::search::Layout;
use crate::exec::{Emit, Lists, Request, Rows, sort_by_id};
use crate::metric::Threshold;
use crate::scalar::Scalar;

/// What a batch is delivered with.
pub(super) struct Delivery<'d, T> {
    pub(super) request: Request,
    pub(super) layout: Layout,
    /// Whether rows may have fewer than k.
    pub(super) short: bool,
    /// Whether some rows are missing: the numbers of their queries are none.
    pub(super) gaps: bool,
    pub(super) emit: &'d Emit<'d, T>,
}

impl<T: Scalar> Delivery<'_, T> {
    /// Hands the rows of a piece to the sink; where numbers are not with them, from `first` on. Gives
    /// their neighbours.
    pub(super) fn piece(
        &self,
        worker: usize,
        mut host: Box<dyn HostMemory>,
        (first, rows): (usize, usize),
        arithmetic: &Threshold<T>,
    ) -> (u64, ControlFlow<()>) {
        let Layout { k, ids_at, distances_at, raw, .. } = self.layout;
        let (front, back) = host.bytes_mut().split_at_mut(distances_at.max(ids_at + 4 * k * rows));
        let (queries, ids) = front.split_at_mut(ids_at);
        let in_order = ids_at == 0;
        let numbers: Vec<u32> = match in_order {
            true => (first..first + rows).map(|number| number as u32).collect(),
            false => Vec::new(),
        };
        let mut queries = match in_order {
            true => &numbers[..],
            false => bytemuck::cast_slice(&queries[..4 * rows]),
        };
        let mut ids: &mut [u32] = bytemuck::cast_slice_mut(&mut ids[..4 * k * rows]);
        let mut distances = match distances_at {
            0 => None,
            _ => Some(T::from_bytes_mut(&mut back[..size_of::<T>() * k * rows])),
        };
        let present: Vec<u32>;
        if self.gaps {
            let there = |row: &usize| queries[*row] != u32::MAX;
            let kept: Vec<usize> = (0..rows).filter(there).collect();
            present = kept.iter().map(|&row| queries[row]).collect();
            for (to, &row) in kept.iter().enumerate() {
                ids.copy_within(row * k..(row + 1) * k, to * k);
                if let Some(distances) = distances.as_deref_mut() {
                    distances.copy_within(row * k..(row + 1) * k, to * k);
                }
            }
            queries = &present;
            ids = &mut ids[..k * kept.len()];
            distances = distances.map(|distances| &mut distances[..k * kept.len()]);
        }
        let len = |row: &[u32]| row.iter().rposition(|&id| id != u32::MAX).map_or(0, |at| at + 1);
        let lens: Option<Vec<u32>> =
            self.short.then(|| ids.chunks(k).map(|row| len(row) as u32).collect());
        if let Some(distances) = distances.as_deref_mut().filter(|_| !raw) {
            arithmetic.scale.undo_all(distances);
        }
        if self.request.sorted {
            sort_rows(k, lens.as_deref(), ids, distances.as_deref_mut());
        }
        let (stride, lens) = (k, lens.as_deref());
        let neighbors = Lists::Strided { stride, lens, values: &*ids };
        let distances = distances.map(|values| Lists::Strided { stride, lens, values: &*values });
        let (ahead, consecutive) = (&[][..], in_order);
        let rows = Rows { worker, queries, neighbors, distances, ahead, consecutive };
        (rows.neighbors.total(), (self.emit)(&rows))
    }
}

/// Puts rows in ascending order of their ids.
fn sort_rows<T: Scalar>(
    k: usize,
    lens: Option<&[u32]>,
    ids: &mut [u32],
    distances: Option<&mut [T]>,
) {
    let mut room = Vec::new();
    let len = |row: usize| lens.map_or(k, |lens| lens[row] as usize);
    match distances {
        None => {
            ids.chunks_mut(k).enumerate().for_each(|(row, ids)| ids[..len(row)].sort_unstable())
        }
        Some(distances) => {
            for (row, (ids, distances)) in
                ids.chunks_mut(k).zip(distances.chunks_mut(k)).enumerate()
            {
                sort_by_id(&mut ids[..len(row)], &mut distances[..len(row)], &mut room);
            }
        }
    }
}
