//! Sampled pairs that are near each other.
//!
//! Of pairs that are taken at random hardly any are as near as a grid, or ε, asks for. So sampled
//! points are put in order along the dimension that tells most pairs apart, and each of some queries
//! looks along it for points that are near it in the next such dimension too: millions of pairs are
//! looked at in the time that it takes to compare thousands. The differences of some of those that are
//! near are kept, in a few tables: within ε in these two dimensions, within twice that, and so on. A
//! question about nearness in more dimensions is a look at the smallest table that holds the answer.

use core::ops::Range;

use rayon::prelude::*;

use super::distances::rate;
use super::spread;
use crate::metric::Metric;
use crate::points::Points;
use crate::scalar::Scalar;

/// Of all points one in so many is in the sample, but so many at the least, if they are not most; or
/// fewer, where points have many coordinates.
const SHARE: usize = 32;
const LEAST: usize = 2048;
const LEAST_POINTS: usize = 64;
/// Coordinates of the sample, at the most.
const COORDINATES: usize = 1 << 17;
/// Points for each query.
const POINTS_PER_QUERY: usize = 4;
/// The tables hold pairs that are within so many times ε.
const TIMES: [f64; 5] = [1.0, 2.0, 4.0, 10.0, 20.0];
/// Where ε is nothing, it is taken to be this share of the extent.
const NOTHING: f64 = 1.0 / 65536.0;
/// Pairs of a table, and dimensions: no grid has more.
const PAIRS: usize = 2048;
const DIMS: usize = 6;
/// Points that are looked at for each of the first tables, and of the others; queries at the least.
const FIRST: usize = 2;
const FIRST_WORK: usize = 1 << 17;
const WORK: usize = 1 << 15;
const LEAST_QUERIES: usize = 32;
/// The share of points that may be near along the first dimension: any pairs are a sample of more.
const MOST: f64 = 0.5;
/// Coordinates of the pairs whose distance is computed, at the most.
const DISTANCE_WORK: usize = 1 << 17;
/// The same where a distance is looked for, in each table.
const RADIUS_WORK: usize = 1 << 15;
/// Pairs from which on their share is believed.
const ENOUGH: usize = 16;

/// Sampled points, and pairs of them with queries.
#[derive(Clone, Debug)]
pub(crate) struct Near {
    dim: usize,
    /// Points, row after row, in order along the first dimension of the tables; and queries.
    points: Vec<f64>,
    queries: Vec<f64>,
    /// The dimensions of the tables, the most selective first.
    dims: Vec<usize>,
    tables: Vec<Table>,
}

/// Pairs that are near in two dimensions.
#[derive(Clone, Debug)]
struct Table {
    /// How near, in each of the two.
    reach: [f64; 2],
    /// The share of all pairs that are.
    share: f64,
    /// Some of them: queries and points, and their differences, a column for each dimension.
    pairs: Vec<(u32, u32)>,
    differences: Vec<Vec<f64>>,
}

/// Pairs that are near in two dimensions, in the order of the queries that were asked for them.
struct Found {
    reach: [f64; 2],
    asked: usize,
    near: Vec<(u32, u32)>,
}

/// Pairs that lie within ε.
pub(super) struct Within {
    /// Those of each query.
    pub(super) hits: Vec<usize>,
    /// All pairs that were looked at.
    pub(super) pairs: usize,
    /// The power of the distance with which their number grows.
    pub(super) rate: f64,
}

/// What pairs are looked for, and how.
pub(super) struct Wanted<'a> {
    pub(super) metric: Metric,
    pub(super) is_self: bool,
    /// ε, and as the grid sees it.
    pub(super) eps: f64,
    pub(super) reach: f64,
    pub(super) extents: &'a [(f64, f64)],
    /// Dimensions, the most selective first.
    pub(super) dims: &'a [usize],
    /// Points of the sample, at the most.
    pub(super) most: usize,
}

/// The points of a sample beside their coordinates in the two dimensions, and the queries.
struct Search<'a> {
    dim: usize,
    dims: [usize; 2],
    points: &'a [f64],
    columns: [Vec<f64>; 2],
    queries: Vec<f64>,
}

impl Near {
    /// Also counts the pairs within ε, where that takes little time. None where a sample would be
    /// most of the points, or there is one dimension only.
    pub(super) fn new<T: Scalar>(
        left: Points<'_, T>,
        right: Points<'_, T>,
        wanted: &Wanted<'_>,
    ) -> Option<(Self, Option<Within>)> {
        let dim = right.dimension();
        let least = LEAST.min(COORDINATES / dim);
        let len = (right.len() / SHARE).max(least).min(wanted.most).min(COORDINATES / dim);
        if len < LEAST_POINTS || right.len() < 2 * len || left.is_empty() || dim < 2 {
            return None;
        }
        let rows: Vec<usize> = (0..len).map(|k| spread(k, len, right.len())).collect();
        let dims = &wanted.dims[..DIMS.min(dim)];
        let of = (len / POINTS_PER_QUERY).min(left.len());
        // None is its own neighbour.
        let asking = |k: usize| {
            let row = spread(k, of, left.len());
            let mut others = (row..left.len()).chain(0..row);
            let other = |row: &usize| !wanted.is_self || rows.binary_search(row).is_err();
            others.find(other).unwrap_or(row)
        };
        let (points, queries) = rayon::join(
            || sorted_along(dims[0], &gather(right, |k| rows[k], len), dim),
            || sorted_along(dims[0], &gather(left, asking, of), dim),
        );
        let column = |j: usize| points.chunks_exact(dim).map(|point| point[j]).collect();
        let search = Search {
            dim,
            dims: [dims[0], dims[1]],
            columns: [column(dims[0]), column(dims[1])],
            queries,
            points: &points,
        };
        let reach = search.dims.map(|j| match wanted.reach > 0.0 {
            true => wanted.reach,
            false => (wanted.extents[j].1 - wanted.extents[j].0) * NOTHING,
        });
        let look = |(at, times): (usize, f64)| {
            let work = if at < FIRST { FIRST_WORK } else { WORK };
            let found = search.find(reach.map(|reach| reach * times), work)?;
            let within = if at == 0 { search.within(&found, wanted) } else { None };
            Some((search.table(&found, dims), within))
        };
        let looks: Vec<_> = TIMES.into_par_iter().enumerate().map(look).collect();
        // Where one dimension hardly tells pairs apart, it does so no better for larger distances.
        let (tables, within): (Vec<_>, Vec<_>) = looks.into_iter().map_while(|look| look).unzip();
        let (tables, within) = (tables.into_iter().flatten().collect(), within.into_iter().next());
        let (dims, queries) = (dims.to_vec(), search.queries);
        Some((Near { dim, points, queries, dims, tables }, within.flatten()))
    }

    /// The share of pairs that differ by at most `limits[j]` in each listed dimension. None where no
    /// table tells.
    pub(super) fn fraction(&self, limits: &[(usize, f64)]) -> Option<f64> {
        let limit = |at: usize| limits.iter().find(|limit| limit.0 == self.dims[at]);
        let (first, second) = (limit(0)?.1, limit(1)?.1);
        let holds = |table: &&Table| first <= table.reach[0] && second <= table.reach[1];
        let table = self.tables.iter().find(holds)?;
        let pairs = table.differences[0].len();
        let mut near = vec![1u8; pairs];
        let (mut hits, mut rest) = (pairs, 1.0);
        for &(j, limit) in limits {
            let column = &table.differences[self.dims.iter().position(|dim| *dim == j)?];
            let mut nearer = near.clone();
            for (near, difference) in nearer.iter_mut().zip(column) {
                *near &= u8::from(*difference <= limit);
            }
            let left = count(&nearer);
            if left >= ENOUGH {
                (near, hits) = (nearer, left);
                continue;
            }
            // Too few to go on with: the dimension is taken to be independent of the others.
            let alone = column.iter().filter(|difference| **difference <= limit).count();
            rest *= alone.max(1) as f64 / pairs as f64;
        }
        Some(table.share * hits as f64 / pairs as f64 * rest)
    }

    /// The distance within which a share of all pairs lies. None where no table tells.
    pub(crate) fn radius(&self, metric: Metric, share: f64) -> Option<f64> {
        self.tables.iter().find_map(|table| {
            let step = (table.pairs.len() * self.dim).div_ceil(RADIUS_WORK);
            let pairs = table.pairs.iter().step_by(step);
            let mut all: Vec<f64> = pairs
                .map(|pair| apart(&self.queries, &self.points, *pair, self.dim, metric))
                .collect();
            let nth = (share / table.share * all.len() as f64) as usize;
            if nth >= all.len() {
                return None;
            }
            let acc = *all.select_nth_unstable_by(nth, f64::total_cmp).1;
            // Pairs that are farther apart need not be near in the two dimensions.
            let whole = metric.widen(0.0, table.reach[0].min(table.reach[1]));
            (nth >= ENOUGH && acc <= whole)
                .then(|| if metric == Metric::L2 { acc.sqrt() } else { acc })
        })
    }

    /// Some of the points, one after the other.
    pub(crate) fn thinned(&self, most: usize) -> Vec<f64> {
        let len = self.points.len() / self.dim;
        let of = most.min(len);
        let mut points = Vec::with_capacity(of * self.dim);
        for at in (0..of).map(|k| k * len / of) {
            points.extend_from_slice(&self.points[at * self.dim..][..self.dim]);
        }
        points
    }
}

impl Search<'_> {
    /// Pairs that are near in two dimensions, of as many queries as find them among so many points.
    /// None where the first dimension hardly tells them apart.
    fn find(&self, reach: [f64; 2], work: usize) -> Option<Found> {
        const PROBES: usize = 16;
        let (points, queries) = (self.columns[0].len(), self.queries.len() / self.dim);
        let probes = PROBES.min(queries);
        let coordinate = |query: usize, at: usize| self.queries[query * self.dim + self.dims[at]];
        let window = |k: usize| {
            let x = coordinate(k * queries / probes, 0);
            let end = self.columns[0].partition_point(|y| y - x <= reach[0]);
            end - self.columns[0].partition_point(|y| x - y > reach[0])
        };
        let probed: usize = (0..probes).map(window).sum();
        if probed as f64 > MOST * (probes * points) as f64 {
            return None;
        }
        let asked = (work * probes / probed.max(1)).max(LEAST_QUERIES).min(queries);
        let (mut near, mut start, mut end) = (Vec::new(), 0, 0);
        for query in (0..asked).map(|k| k * queries / asked) {
            // Queries are in order too: what is too far below stays so.
            let (x, y) = (coordinate(query, 0), coordinate(query, 1));
            start += self.columns[0][start..].iter().take_while(|&&p| x - p > reach[0]).count();
            end = end.max(start);
            end += self.columns[0][end..].iter().take_while(|&&p| p - x <= reach[0]).count();
            self.near(start..end, y, reach[1], |at| near.push((query as u32, at as u32)));
        }
        Some(Found { reach, asked, near })
    }

    /// What is kept of pairs. None where there are too few of them.
    fn table(&self, found: &Found, dims: &[usize]) -> Option<Table> {
        let near = &found.near;
        if near.len() < ENOUGH {
            return None;
        }
        let share = near.len() as f64 / (found.asked * self.columns[0].len()) as f64;
        let kept = PAIRS.min(near.len());
        let pairs: Vec<_> = (0..kept).map(|k| near[k * near.len() / kept]).collect();
        let difference = |j: usize| {
            let x = |(query, at): (u32, u32)| {
                let (query, at) = (query as usize * self.dim, at as usize * self.dim);
                (self.queries[query + j] - self.points[at + j]).abs()
            };
            pairs.iter().map(|pair| x(*pair)).collect()
        };
        let differences = dims.iter().map(|&j| difference(j)).collect();
        Some(Table { reach: found.reach, share, pairs, differences })
    }

    /// Of pairs that are near in two dimensions, those within ε. None where that would take long: a
    /// sample of any pairs is as good there.
    fn within(&self, found: &Found, wanted: &Wanted<'_>) -> Option<Within> {
        if found.near.len() * self.dim > DISTANCE_WORK {
            return None;
        }
        let bound = wanted.metric.widen(0.0, wanted.eps);
        let mut hits = Vec::with_capacity(found.asked);
        let mut distances = Vec::new();
        for of_query in found.near.chunk_by(|a, b| a.0 == b.0) {
            let before = distances.len();
            let all = of_query
                .iter()
                .map(|pair| apart(&self.queries, self.points, *pair, self.dim, wanted.metric));
            distances.extend(all.filter(|acc| *acc <= bound));
            hits.push(distances.len() - before);
        }
        // Others have none.
        hits.resize(found.asked, 0);
        let pairs = found.asked * self.columns[0].len();
        let rate = rate(distances.iter(), bound, wanted.metric);
        Some(Within { hits, pairs, rate })
    }

    /// Of points in a row, those that are near in the second dimension.
    fn near(&self, row: Range<usize>, x: f64, reach: f64, mut found: impl FnMut(usize)) {
        const STRIP: usize = 64;
        for start in row.clone().step_by(STRIP) {
            let strip = &self.columns[1][start..row.end.min(start + STRIP)];
            let mut near = 0u64;
            for (at, y) in strip.iter().enumerate() {
                near |= u64::from((x - y).abs() <= reach) << at;
            }
            while near != 0 {
                found(start + near.trailing_zeros() as usize);
                near &= near - 1;
            }
        }
    }
}

/// The accumulated distance of a query and a point.
fn apart(
    queries: &[f64],
    points: &[f64],
    (query, at): (u32, u32),
    dim: usize,
    metric: Metric,
) -> f64 {
    let query = &queries[query as usize * dim..][..dim];
    let gaps = query.iter().zip(&points[at as usize * dim..][..dim]);
    gaps.fold(0.0, |acc, (x, y)| metric.widen(acc, (x - y).abs()))
}

/// The coordinates of so many rows. Each is a place in memory of its own, and takes as long to reach.
fn gather<T: Scalar>(
    points: Points<'_, T>,
    row: impl Fn(usize) -> usize + Sync,
    of: usize,
) -> Vec<f64> {
    const TOGETHER: usize = 512;
    let dim = points.dimension();
    let mut coordinates = vec![0.0; of * dim];
    let some = coordinates.par_chunks_mut(TOGETHER * dim).enumerate();
    some.for_each(|(at, some)| {
        for (k, to) in some.chunks_exact_mut(dim).enumerate() {
            let from = points.row(row(at * TOGETHER + k));
            to.iter_mut().zip(from).for_each(|(to, x)| *to = x.to_f64());
        }
    });
    coordinates
}

/// Rows in order along one dimension.
fn sorted_along(axis: usize, rows: &[f64], dim: usize) -> Vec<f64> {
    let mut order: Vec<(f64, u32)> = rows.chunks_exact(dim).map(|row| row[axis]).zip(0..).collect();
    order.par_sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut sorted = Vec::with_capacity(rows.len());
    for (_, at) in order {
        sorted.extend_from_slice(&rows[at as usize * dim..][..dim]);
    }
    sorted
}

fn count(near: &[u8]) -> usize {
    near.iter().map(|near| usize::from(*near)).sum()
}
