//! Products by a processor that multiplies small matrices.
//!
//! ```text
//! for each panel of 48 candidates, which stays in the cache:
//!     for each group of 16 queries:
//!         products of all of both, in three tiles of 16 × 16; 16 words after 16 words:
//!             a tile of queries × each of three tiles of candidates
//!         meanwhile: is anything near among the products of the group before?
//!         the products leave their tiles
//! ```

use super::product::{Found, PANEL, ProductJob, Standing, any_near, note};
use super::vector::Vector;

/// Rows of a tile, and words of a row.
pub(super) const TILE: usize = 16;
pub(super) const LINE: usize = 16;

/// A group of queries is a tile for every run of words; a panel has three, side by side.
pub(super) const GROUPS: Standing = Standing { points: TILE, run: LINE.ilog2() };

/// Eight tiles of 16 rows of 16 words.
///
/// # Safety
/// Every function requires that the running processor has them; pointers must be valid for 16 words of
/// each of 16 rows, `stride` words apart.
#[allow(clippy::missing_safety_doc)]
pub(super) trait Tiles: Sized {
    /// Those of this thread, of which nobody else uses any until they are dropped.
    unsafe fn new() -> Self;
    unsafe fn zero<const AT: usize>(&mut self);
    unsafe fn load<const AT: usize>(&mut self, from: *const u32, stride: usize);
    /// Adds to the sum in row `m` and column `n` the products of both numbers of each word, of row `m` of
    /// `A` and column `n` of `B`.
    unsafe fn multiply<const SUMS: usize, const A: usize, const B: usize>(&mut self);
    unsafe fn store<const AT: usize>(&mut self, to: *mut f32, stride: usize);
}

/// Notes what is near, as [`product`](super::product::product) does.
///
/// # Safety
/// As for [`Vector`] and [`Tiles`], and the job must be checked. `VECTORS` of them are a panel.
#[inline(always)]
pub(super) unsafe fn product<
    V: Vector<Lane = f32>,
    T: Tiles,
    const VECTORS: usize,
    const PRODUCTS: bool,
>(
    job: &ProductJob<'_>,
    found: &mut Found,
) {
    const { assert!(VECTORS * V::LANES == PANEL) };
    // SAFETY: panels and groups are whole, as the job was checked, and so are runs of words. Vectors
    // are their lanes, so that those of a row are 48 numbers. What is called while tiles hold products is
    // inlined, and leaves tiles alone.
    unsafe {
        let mut sums = [[[V::splat(0.0); VECTORS]; TILE]; 2];
        let mut tiles = T::new();
        let mut before: Option<(usize, usize)> = None;
        let mut turn = 0;
        for panel in (0..job.open.len()).step_by(PANEL) {
            let candidates = job.panels.as_ptr().add(panel * job.words);
            for first in (0..job.query_open.len()).step_by(TILE) {
                let queries = job.queries.as_ptr().add(first * job.words);
                multiply(&mut tiles, queries, candidates, job.words);
                let is_near = match before {
                    Some((first, panel)) => any_near(job, &sums[1 - turn], first, panel),
                    None => false,
                };
                let to = sums[turn].as_mut_ptr().cast::<f32>();
                tiles.store::<0>(to, PANEL);
                tiles.store::<1>(to.add(LINE), PANEL);
                tiles.store::<2>(to.add(2 * LINE), PANEL);
                if let (true, Some((first, panel))) = (is_near, before) {
                    note::<V, VECTORS, TILE, PRODUCTS>(job, &sums[1 - turn], first, panel, found);
                }
                before = Some((first, panel));
                turn = 1 - turn;
            }
        }
        drop(tiles);
        if let Some((first, panel)) = before {
            note::<V, VECTORS, TILE, PRODUCTS>(job, &sums[1 - turn], first, panel, found);
        }
    }
}

/// Products of a group and a panel, in the first three tiles.
#[inline(always)]
unsafe fn multiply<T: Tiles>(
    tiles: &mut T,
    mut queries: *const u32,
    mut candidates: *const u32,
    words: usize,
) {
    // SAFETY: the caller promises a group and a panel of so many words, in whole runs.
    unsafe {
        tiles.zero::<0>();
        tiles.zero::<1>();
        tiles.zero::<2>();
        for _ in 0..words / LINE {
            tiles.load::<6>(queries, LINE);
            tiles.load::<3>(candidates, PANEL);
            tiles.multiply::<0, 6, 3>();
            tiles.load::<4>(candidates.add(LINE), PANEL);
            tiles.multiply::<1, 6, 4>();
            tiles.load::<5>(candidates.add(2 * LINE), PANEL);
            tiles.multiply::<2, 6, 5>();
            queries = queries.wrapping_add(TILE * LINE);
            candidates = candidates.wrapping_add(LINE * PANEL);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
