//! Groups of points that hang together: connected components, and DBSCAN.
//!
//! ```text
//! DBSCAN: count the neighbours of each point; those with enough are cores
//! as pairs are found, each once, on the threads that find them:
//!     two cores: unite their groups
//!     a core and another point: the point remembers the core, if it has the smaller row
//! number the groups by their first cores; the others have the group of the core they remember
//! ```
//!
//! No pair is kept, and nothing depends on the order in which pairs are found.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use super::{Degrees, Execution, Receive};
use crate::error::{Error, Result};
use crate::exec::pool::Pool;
use crate::exec::{Request, Rows};
use crate::memory::with_capacity;
use crate::scalar::Scalar;

/// Rows that are worth more than one thread: a thread of the CPU hands over fewer at a time.
const MANY_ROWS: usize = 256;

/// Groups of points of one set: its connected components, or its clusters by DBSCAN.
///
/// For an ε-join of a set with itself. Pairs are not kept: it takes 9 bytes for each point, however many
/// neighbours they have.
///
/// Groups are numbered from 0 in the order of their first points, or of their first cores. A point of
/// DBSCAN that is no core but has one within ε belongs to the group of the core with the smallest row: so
/// labels are the same on every device, with any number of threads.
///
/// ```
/// use nearjoin::{EpsJoin, Points, sink::Groups};
/// let points = Points::new(&[0.0, 0.5, 1.0, 5.0, 9.0, 9.5, 20.0], 1)?;
/// let mut groups = Groups::components();
/// EpsJoin::new(1.0).plan_self(&points)?.run(&mut groups)?;
/// assert_eq!(groups.labels(), [0, 0, 0, 1, 2, 2, 3]);
///
/// let mut clusters = Groups::dbscan(3);
/// EpsJoin::new(1.0).plan_self(&points)?.run(&mut clusters)?;
/// let noise = Groups::NOISE;
/// assert_eq!(clusters.labels(), [0, 0, 0, noise, noise, noise, noise]);
/// assert_eq!((clusters.len(), clusters.noise()), (1, 4));
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Groups {
    /// Points within ε of a core, itself included.
    min_points: usize,
    labels: Vec<u32>,
    cores: Vec<bool>,
    len: usize,
    noise: usize,
}

impl Groups {
    /// The label of points that belong to no group.
    pub const NOISE: u32 = u32::MAX;

    /// Points are in one group if there is a way between them over pairs within ε: every point is in
    /// one, if only by itself.
    pub fn components() -> Self {
        Self::dbscan(1)
    }

    /// DBSCAN: a point with `min_points` points within ε, itself included, is a core. Cores within ε of
    /// each other are in one group; other points are in that of a core within ε, or in none.
    pub fn dbscan(min_points: usize) -> Self {
        Groups { min_points, labels: Vec::new(), cores: Vec::new(), len: 0, noise: 0 }
    }

    /// The group of each point, or [`Groups::NOISE`].
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Whether each point is a core.
    pub fn cores(&self) -> &[bool] {
        &self.cores
    }

    /// The group of each point as most programs have it: −1 for those in none.
    ///
    /// ```
    /// use nearjoin::{EpsJoin, Points, sink::Groups};
    /// let points = Points::new(&[0.0, 0.5, 9.0], 1)?;
    /// let mut groups = Groups::dbscan(2);
    /// EpsJoin::new(1.0).plan_self(&points)?.run(&mut groups)?;
    /// assert!(groups.signed_labels().eq([0, 0, -1]));
    /// # Ok::<(), nearjoin::Error>(())
    /// ```
    pub fn signed_labels(&self) -> impl ExactSizeIterator<Item = i64> {
        let signed = |label: &u32| if *label == Self::NOISE { -1 } else { i64::from(*label) };
        self.labels.iter().map(signed)
    }

    /// The group of each point, and whether it is a core.
    pub fn into_parts(self) -> (Vec<u32>, Vec<bool>) {
        (self.labels, self.cores)
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of points that belong to no group.
    pub fn noise(&self) -> usize {
        self.noise
    }

    /// Which points have enough others within ε.
    fn find_cores<T: Scalar>(&self, execution: &mut Execution<'_, T>) -> Result<Vec<bool>> {
        let points = execution.executor.len();
        let mut cores = with_capacity(points)?;
        // Each is within ε of itself.
        if self.min_points <= 1 {
            cores.resize(points, true);
            return Ok(cores);
        }
        let mut degrees = Degrees::new();
        degrees.receive(execution)?;
        let (own, enough) = (u64::from(!execution.include_self), self.min_points as u64);
        cores.extend(degrees.as_slice().iter().map(|degree| degree + own >= enough));
        Ok(cores)
    }

    /// Numbers the groups of a forest.
    fn number(&mut self, forest: Forest) {
        let Forest { parents, cores } = forest;
        let mut labels: Vec<u32> = parents.into_iter().map(AtomicU32::into_inner).collect();
        self.len = 0;
        // A parent has a smaller row, and so its label stands there by now.
        for row in 0..labels.len() {
            if !cores[row] {
                continue;
            }
            let parent = labels[row] as usize;
            labels[row] = match parent == row {
                true => self.len as u32,
                false => labels[parent],
            };
            self.len += usize::from(parent == row);
        }
        self.noise = 0;
        for row in 0..labels.len() {
            // Of a point that is no core, that is the core it remembers, or a row behind all.
            let core = labels[row] as usize;
            if cores[row] {
                continue;
            }
            let alone = core == labels.len();
            labels[row] = if alone { Self::NOISE } else { labels[core] };
            self.noise += usize::from(alone);
        }
        (self.labels, self.cores) = (labels, cores);
    }
}

/// Groups while pairs are found: every core points to another of its group with a smaller row, or to
/// itself, and every other point to the first core that is within ε of it, or behind all.
///
/// Whatever several threads do at once, a parent is only ever replaced by a smaller row of the same group,
/// and the root of a group by one of another that it is united with: so there is no circle, the root is the
/// first core of all in the end, and numbers that another thread has just replaced are of use still.
/// No other memory hangs on these numbers, and relaxed operations do.
struct Forest {
    parents: Vec<AtomicU32>,
    cores: Vec<bool>,
}

impl Forest {
    fn new(cores: Vec<bool>) -> Result<Self> {
        let mut parents = with_capacity(cores.len())?;
        let behind = cores.len() as u32;
        let parent = |(row, &core): (usize, &bool)| if core { row as u32 } else { behind };
        parents.extend(cores.iter().enumerate().map(parent).map(AtomicU32::new));
        Ok(Forest { parents, cores })
    }

    fn is_core(&self, row: u32) -> bool {
        self.cores[row as usize]
    }

    fn parent(&self, row: u32) -> &AtomicU32 {
        &self.parents[row as usize]
    }

    /// The root of a core's group, as far as is known. Halves the way there.
    fn root(&self, mut core: u32) -> u32 {
        loop {
            let parent = self.parent(core).load(Relaxed);
            let above = self.parent(parent).load(Relaxed);
            if above == parent {
                return parent;
            }
            // Somebody else may have shortened it as well.
            let _ = self.parent(core).compare_exchange_weak(parent, above, Relaxed, Relaxed);
            core = above;
        }
    }

    /// Unites the groups of two cores, of which the first has had this root. Gives its root now.
    fn unite(&self, mut root: u32, core: u32) -> u32 {
        if self.parent(core).load(Relaxed) == root {
            return root;
        }
        let mut other = self.root(core);
        loop {
            if root == other {
                return root;
            }
            let (low, high) = (root.min(other), root.max(other));
            match self.parent(high).compare_exchange(high, low, Relaxed, Relaxed) {
                Ok(_) => return low,
                // It is no root any more.
                Err(_) => (root, other) = (self.root(root), self.root(other)),
            }
        }
    }

    /// A point that is no core remembers the first core.
    fn remember(&self, point: u32, core: u32) {
        self.parent(point).fetch_min(core, Relaxed);
    }

    /// Takes the pairs of some rows: of many at once, as a GPU hands them over, with all threads.
    fn add<T: Scalar>(&self, rows: &Rows<'_, T>, pool: &Pool) {
        let add = |at: usize| self.add_row(rows.queries[at], rows.neighbors.row(at));
        let all = 0..rows.queries.len();
        match all.len() > MANY_ROWS {
            true => pool.install(|| all.into_par_iter().with_min_len(MANY_ROWS / 4).for_each(add)),
            false => all.for_each(add),
        }
    }

    fn add_row(&self, query: u32, neighbors: &[u32]) {
        if !self.is_core(query) {
            let cores = neighbors.iter().filter(|&&neighbor| self.is_core(neighbor));
            cores.for_each(|&core| self.remember(query, core));
            return;
        }
        let mut root = self.root(query);
        for &neighbor in neighbors {
            match self.is_core(neighbor) {
                true => root = self.unite(root, neighbor),
                false => self.remember(neighbor, query),
            }
        }
    }
}

impl<T: Scalar> Receive<T> for Groups {
    #[allow(private_interfaces)]
    fn receive(&mut self, execution: &mut Execution<'_, T>) -> Result<()> {
        if !execution.is_symmetric || !execution.is_whole {
            let only_for = "ε-joins of all points of a set with itself";
            return Err(Error::Sink { sink: "Groups", only_for });
        }
        if self.min_points == 0 {
            return Err(Error::Option { name: "min_points", value: 0, allowed: "1 or more" });
        }
        let points = execution.executor.len() as u64;
        // Degrees are gone when there are labels.
        let most = if self.min_points > 1 { size_of::<u64>() } else { size_of::<u32>() };
        execution.budget.check_result(points * (most as u64 + 1))?;
        let forest = Forest::new(self.find_cores(execution)?)?;
        // Nobody hangs on pairs of points that are no cores.
        if forest.cores.contains(&true) {
            let request = Request { once: true, ..Request::default() };
            let pool = execution.pool;
            let work = execution.executor.rows(request, &|rows: &Rows<'_, T>| {
                forest.add(rows, pool);
                ControlFlow::Continue(())
            })?;
            execution.stats.record(work);
        } else {
            // As if they had been found once, as those above were.
            execution.stats.pairs /= 2;
        }
        execution.stats.result_bytes = points * (size_of::<u32>() as u64 + 1);
        self.number(forest);
        Ok(())
    }
}
