//! KNN-joins by ranges: which ε is the first, and how a GPU finds all within one.

use core::fmt;

use super::choose::{self, Detail};
use super::estimate::Sharing;
use super::{
    Alternative, Asked, Calibration, Decision, Expected, GpuFacts, Host, How, OnGpu, Shaping,
    decision, gpu,
};
use crate::curve::NeighborCurve;
use crate::gpu::Cooperation;
use crate::index::grid::Shape;
use crate::index::order;
use crate::options::Strategy;
use crate::question::Nearest;
use crate::summary::{Estimated, Summary};

/// Points in the cell of a query for each neighbour that is wanted, beyond which the query is the
/// CPU's: a GPU would send all that lie within ε, of which the host throws away all but k. A tree
/// looks at no more of equal points than of others.
const CROWDED: usize = 256;
/// Axes of the cells that are counted, at the most, as in the paper.
const AXES: usize = 6;
/// Bytes of a query in the queue, and of each point while both sides are sorted by cell: a key
/// with room to sort it, and a population.
const QUEUED: u64 = 8 + 2 * 8 + 4;

/// How a KNN-join by ranges is done.
#[derive(Clone, Debug)]
pub(crate) struct ByRanges {
    /// The first ε, as the user measures.
    pub(crate) eps: f64,
    /// How the GPU looks within it.
    pub(crate) first: Round,
    /// Cells of that ε, whose populations are the order of the queue.
    pub(crate) cells: Shape,
    /// How the CPU does its part, where it has one from the start.
    pub(crate) cpu: Option<Box<Decision>>,
    summary: Summary,
    curve: NeighborCurve,
    calibration: Calibration,
}

/// How a GPU finds all within one ε.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// The shape of its grid.
    pub(crate) grid: Detail,
    pub(crate) how: OnGpu,
}

/// An ε: as the user measures, and in the units of the points; and no match differs by more in any
/// coordinate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    pub(crate) eps: f64,
    pub(crate) scaled: f64,
    pub(crate) reach: f64,
}

/// The ε at which a point has as many neighbours as are wanted, on average (§4.4), in the units of
/// the curve: times the factor that was asked for. Where as many points coincide it is the least
/// distance of others: cells of no width tell nothing apart.
pub(crate) fn first_eps(nearest: &Nearest, curve: &NeighborCurve, wanted: usize) -> f64 {
    let mut distances = curve.points().map(|(eps, _)| eps);
    let eps = match curve.eps(wanted.max(1) as f64) {
        Some(0.0) => distances.find(|eps| *eps > 0.0),
        None => distances.last(),
        eps => eps,
    };
    eps.unwrap_or(0.0) * nearest.ranges.eps_factor
}

/// Decides how a GPU does it, beside the CPU where that has a decision of its own.
pub(crate) fn by_ranges(
    asked: &Asked<'_>,
    (summary, curve): (Summary, NeighborCurve),
    host: &Host,
    device: &GpuFacts,
    first: Within,
    cpu: Option<Decision>,
) -> Decision {
    let (round, grid) = round(asked, &summary, &curve, device, &host.calibration, first);
    let (index, search) = cpu.as_ref().map_or((0, 0), |cpu| (cpu.budget.index, cpu.search_bytes));
    let points = summary.left + summary.right;
    let detail = match &round.grid {
        Detail::Grid(shape) => Detail::Ranges { eps: first.eps, shape: shape.clone() },
        other => other.clone(),
    };
    let chosen = Alternative { strategy: Strategy::Ranges, detail, ..grid };
    let expected = super::expected(asked, &summary);
    let by = ByRanges {
        eps: first.eps,
        first: round,
        cells: cells(&summary, first.reach),
        cpu: cpu.map(Box::new),
        summary: summary.clone(),
        curve,
        calibration: host.calibration,
    };
    let mut decision = decision(
        asked,
        &summary,
        host,
        (chosen.clone(), true),
        vec![chosen],
        expected,
        index + points as u64 * QUEUED,
        How::Ranges(Box::new(by)),
        Sharing::device(summary.left),
    );
    decision.search_bytes = search;
    decision
}

impl ByRanges {
    /// How the GPU looks within another ε.
    pub(crate) fn round(&self, asked: &Asked<'_>, within: Within) -> Round {
        let device = &self.first.how.device;
        round(asked, &self.summary, &self.curve, device, &self.calibration, within).0
    }

    /// Points in the cell of a query up to which it is the GPU's, where so many neighbours are
    /// wanted: any number where some axis has no cells, and those in one cell may be far apart.
    pub(crate) fn most_in_a_cell(&self, wanted: usize) -> usize {
        let Summary { extents, reach, .. } = &self.summary;
        let is_cut = |j: usize| self.cells.axes.iter().any(|axis| axis.dim == j && axis.cells > 1);
        let mut extents = extents.iter().enumerate();
        match extents.all(|(j, (lo, hi))| is_cut(j) || hi - lo <= *reach) {
            true => wanted.saturating_mul(CROWDED),
            false => usize::MAX,
        }
    }

    pub(super) fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cpu {
            Some(cpu) => writeln!(f, "  shared with the cpu: strategy {}", cpu.chosen.strategy),
            None => writeln!(f, "  the cpu has what is left when few queries are"),
        }
    }
}

/// Cells of a whole ε along as many axes as a grid may have, those that tell most points apart. A
/// device may do better with fewer axes or narrower cells, which say less of how many are near.
fn cells(summary: &Summary, reach: f64) -> Shape {
    let summary = Summary { reach, ..summary.clone() };
    let mut dims = summary.by_selectivity();
    dims.truncate(AXES);
    let bits = (63 - order::id_bits(summary.left.max(summary.right))) / dims.len() as u32;
    let (width, most) = (reach * choose::MARGIN, 1u64 << bits.min(30));
    Shape { axes: dims.iter().map(|&j| choose::axis(&summary, j, width, most)).collect() }
}

/// How a GPU finds all within ε, and what that costs it.
fn round(
    asked: &Asked<'_>,
    summary: &Summary,
    curve: &NeighborCurve,
    device: &GpuFacts,
    calibration: &Calibration,
    within: Within,
) -> (Round, Alternative) {
    let summary = Summary { eps: within.scaled, reach: within.reach, ..summary.clone() };
    let speed = gpu::Speed::new(device, calibration);
    let shaping = Shaping { levels: 1, fanout: 2, whole_cells: false };
    let alternatives = gpu::alternatives(&summary, shaping, speed, gpu::Products::None);
    let grid = alternatives.iter().find(|a| a.strategy == Strategy::Grid);
    let grid = grid.unwrap_or(&alternatives[0]).clone();
    let expected = Expected::About(Estimated::exactly(curve.neighbors(within.scaled)));
    let mut how = OnGpu::new(asked, &summary, device, calibration, expected, grid.cost.tests);
    // A batch may be few queries, each of which has some threads to itself (§4.7).
    if let (Cooperation::Auto, super::Question::Nearest(nearest)) =
        (asked.options.gpu.cooperation, asked.question)
    {
        let threads = asked.options.gpu.threads_per_query;
        how.cooperation = Cooperation::Thread;
        how.threads_per_query = threads.unwrap_or(nearest.ranges.threads_per_query) as u32;
    }
    (Round { grid: grid.detail.clone(), how }, grid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::options::{Device, Options};
    use crate::plan::Multiplier;
    use crate::points::Points;
    use crate::question::Question;

    fn lattice(side: u32) -> Vec<f32> {
        (0..side * side).flat_map(|i| [(i % side) as f32, (i / side) as f32]).collect()
    }

    fn decide(k: usize, cpu: bool) -> Decision {
        let data = lattice(60);
        let points = Points::new(&data, 2).unwrap();
        let curve = NeighborCurve::of_self(&points, Metric::L2).unwrap();
        let nearest = Nearest::new(k);
        let options = Options { device: Device::Hybrid, ..Options::default() };
        let question = Question::Nearest(nearest);
        let asked = Asked { question: &question, options: &options };
        let eps = first_eps(&nearest, &curve, k);
        let summary = Summary {
            extents: vec![(0.0, 59.0); 2],
            width: 4,
            ..crate::summary::tests::summary(3600, 2, eps)
        };
        let host = Host {
            threads: 2,
            memory: 1 << 30,
            gpu_is_open: true,
            multiplier: Multiplier::Numbers,
            calibration: Calibration::default(),
        };
        let facts = GpuFacts {
            name: "Sham".into(),
            memory: 1 << 34,
            free: 1 << 34,
            multiprocessors: 100,
            matrix_units: true,
        };
        let cpu = cpu.then(|| super::super::on_cpu(&asked, &summary, &host));
        let first = Within { eps, scaled: eps, reach: eps };
        by_ranges(&asked, (summary, curve), &host, &facts, first, cpu)
    }

    #[test]
    fn the_first_distance_has_k_neighbours_on_average() {
        let data = lattice(60);
        let points = Points::new(&data, 2).unwrap();
        let curve = NeighborCurve::of_self(&points, Metric::L2).unwrap();
        // Four at 1, four more at √2.
        for (k, near) in [(3, 1.0), (7, 1.414), (8, 2.0)] {
            let eps = first_eps(&Nearest::new(k), &curve, k);
            assert!((eps / near - 1.0).abs() < 0.01, "{k}: {eps}");
        }
        assert!(first_eps(&Nearest::new(9000), &curve, 9000) > 80.0);
        let data: Vec<f32> = (0..900).map(|i| if i % 10 < 9 { 4.0 } else { i as f32 }).collect();
        let points = Points::new(&data, 1).unwrap();
        let curve = NeighborCurve::of_self(&points, Metric::L2).unwrap();
        let eps = first_eps(&Nearest::new(3), &curve, 3);
        assert!(eps > 0.0 && eps < 11.0, "{eps}");
    }

    #[test]
    fn a_plan_says_how_each_has_its_part() {
        let alone = decide(8, false);
        let How::Ranges(by) = &alone.how else { panic!("{alone:?}") };
        assert_eq!(by.first.how.threads_per_query, 8);
        assert_eq!(by.first.how.cooperation, Cooperation::Thread);
        assert!(by.cells.axes.len() == 2 && by.cells.axes.iter().all(|axis| axis.cells > 20));
        assert_eq!(by.most_in_a_cell(8), 8 * CROWDED);
        assert!(alone.on_cpu().is_none());
        let both = decide(8, true);
        assert!(both.on_cpu().is_some() && both.budget.index > alone.budget.index);
        let How::Ranges(by) = &both.how else { panic!("{both:?}") };
        assert_eq!(by.cpu.as_ref().map(|cpu| cpu.chosen.strategy), Some(Strategy::Tree));
    }
}
