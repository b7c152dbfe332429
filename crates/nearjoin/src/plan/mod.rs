//! Decisions: which strategy, on which device, in which shape, in how much memory.
//!
//! All of it is pure: it hangs on facts that are handed in (what is asked, the summary of the
//! points, the machine, the device and how fast both are), and on nothing else. So every decision
//! can be tested without points, threads or a device.

pub(crate) mod batches;
pub(crate) mod budget;
mod calibration;
pub(crate) mod choose;
mod cpu;
pub(crate) mod estimate;
mod explain;
mod gpu;
mod gpu_knn;
pub(crate) mod hybrid;
mod index_cost;
mod knn;
mod narrow;
mod on_gpu;
mod products;
mod quantiles;
pub(crate) mod ranges;
mod trial;

pub(crate) use budget::Budget;
pub use calibration::Calibration;
pub(crate) use choose::{Alternative, Detail, Shaping};
pub(crate) use cpu::{OnCpu, PIECE_PAIRS, knn_unit, unit};
use estimate::{Cost, Sharing};
pub(crate) use gpu_knn::Shortlisting;
pub(crate) use hybrid::{Role, Together, Weighed};
pub(crate) use knn::{CANDIDATE_BYTES, most_measured, scores_unit};
pub(crate) use narrow::Narrow;
pub(crate) use on_gpu::{Gathering, GpuFacts, OnGpu};
pub(crate) use products::{Multiplier, Multiplying};

use crate::metric::Metric;
use crate::options::{Device, DuplicateRemoval, Options, Strategy};
use crate::question::{Question, Within};
use crate::summary::{Estimated, Summary};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) question: &'a Question,
    pub(crate) options: &'a Options,
}

/// What is known of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    /// Threads that a join may use.
    pub(crate) threads: usize,
    /// Bytes of memory that are available.
    pub(crate) memory: u64,
    /// Whether this process has opened a GPU before: another join need not wait for that.
    pub(crate) gpu_is_open: bool,
    /// What the processor has for products.
    pub(crate) multiplier: Multiplier,
    pub(crate) calibration: Calibration,
}

/// What will be done, and why.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) chosen: Alternative,
    /// Whether the user named the strategy.
    pub(crate) named: bool,
    /// Every strategy with its cost, the cheapest first.
    pub(crate) alternatives: Vec<Alternative>,
    pub(crate) expected: Expected,
    /// Memory of this machine: the index of a GPU is not in it.
    pub(crate) budget: Budget,
    /// Of the bytes of the index, those that a search and copies of the points take beside it.
    pub(crate) search_bytes: u64,
    pub(crate) points: (usize, usize),
    pub(crate) is_self: bool,
    pub(crate) dim: usize,
    /// Bytes of one coordinate.
    pub(crate) width: usize,
    pub(crate) extents: Vec<(f64, f64)>,
    pub(crate) how: How,
    /// Why it is not by products, where these were asked for.
    pub(crate) why_no_products: Option<&'static str>,
    /// Why a GPU that could have been used will not be.
    pub(crate) why_no_gpu: Option<String>,
    /// What speaks for the CPU, the GPU or both, where both were weighed.
    pub(crate) weighed: Option<Weighed>,
    calibration: Calibration,
    sharing: Sharing,
}

/// Where it will be done, and how.
// There is one of it in a plan.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub(crate) enum How {
    Cpu(OnCpu),
    Gpu(OnGpu),
    Both(Box<Together>),
    /// By ranges on a GPU, alone or beside the CPU.
    Ranges(Box<ranges::ByRanges>),
}

/// Where seconds go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSeconds {
    /// Putting points in order before anybody can search; part of the search on a GPU.
    pub(crate) index: f64,
    pub(crate) search: f64,
    /// Rows on their way to their places.
    pub(crate) written: f64,
}

impl RowSeconds {
    pub(crate) fn total(self) -> f64 {
        self.index + self.search + self.written
    }
}

/// Threads that do not slow each other down, and by which power of their number more of them do:
/// sixteen do seven times what one does.
const FEW_THREADS: f64 = 2.0;
const CROWDED: f64 = 0.4;

/// Neighbours that a left point is expected to have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Expected {
    /// By a sample.
    About(Estimated),
    /// So many at the most, and as a rule.
    Most(usize),
}

impl Expected {
    pub(crate) fn neighbors(self) -> f64 {
        match self {
            Expected::About(neighbors) => neighbors.about,
            Expected::Most(k) => k as f64,
        }
    }

    /// The most there may be, where that is at most `factor` times what is expected.
    fn most(self, factor: f64) -> Option<f64> {
        match self {
            Expected::About(neighbors) => {
                (neighbors.high <= factor * neighbors.about).then_some(neighbors.high)
            }
            Expected::Most(k) => Some(k as f64),
        }
    }
}

/// Decides how the CPU does it.
pub(crate) fn on_cpu(asked: &Asked<'_>, summary: &Summary, host: &Host) -> Decision {
    on_cpu_for(asked, summary, host, 1.0)
}

/// The same where others search for a share of the queries: the whole index is the CPU's to build.
pub(crate) fn on_cpu_for(
    asked: &Asked<'_>,
    summary: &Summary,
    host: &Host,
    share: f64,
) -> Decision {
    let expected = expected(asked, summary);
    let neighbors = expected.neighbors();
    let threads = host.threads;
    let k = match asked.question {
        Question::Within(_) => None,
        Question::Nearest(nearest) => Some(nearest.k),
    };
    let multiplying = Multiplying::new(host.multiplier, summary, k);
    let (mut alternatives, sharing) = match asked.question {
        Question::Within(within) => {
            let sharing = Sharing::new(summary.left, unit(summary.left), threads);
            let (shaping, wanted) = (shaping(within), asked.options.strategy);
            (
                choose::alternatives(summary, shaping, neighbors, wanted, multiplying, &sharing),
                sharing,
            )
        }
        Question::Nearest(nearest) => {
            let sharing = Sharing::new(summary.left, knn_unit(summary.left, threads), threads);
            let wanted = asked.options.strategy;
            (knn::alternatives(summary, nearest.k, wanted, multiplying, &sharing), sharing)
        }
    };
    if share < 1.0 {
        let cost = |alternative: &Alternative| {
            let cost = alternative.cost;
            Cost { per_query: cost.per_query * share, ..cost }.nanoseconds(&sharing)
        };
        alternatives.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    }
    // The CPU's part of a join by ranges is its tree.
    let wanted = match wanted(asked, &alternatives) {
        Strategy::Ranges => Strategy::Tree,
        wanted => wanted,
    };
    let (chosen, named) = choose(&alternatives, wanted);
    let how = OnCpu::new(asked, summary, &chosen, (neighbors, multiplying), threads);
    let (index, search) = match asked.question {
        Question::Within(_) => (
            budget::index_bytes(summary, &chosen.detail, &how, threads),
            budget::search_bytes(summary, &chosen.detail, (&how, neighbors), threads),
        ),
        Question::Nearest(nearest) => (
            knn::index_bytes(summary, chosen.strategy, threads),
            knn::search_bytes(summary, nearest.k, chosen.strategy, threads),
        ),
    };
    let (chosen, how) = ((chosen, named), How::Cpu(how));
    let index = index + search;
    let mut decision =
        decision(asked, summary, host, chosen, alternatives, expected, index, how, sharing);
    decision.search_bytes = search;
    decision.why_no_products = why_no_products(asked, &decision, summary, None);
    decision
}

/// Why a join that is asked for by products has another strategy.
fn why_no_products(
    asked: &Asked<'_>,
    decision: &Decision,
    summary: &Summary,
    device: Option<&GpuFacts>,
) -> Option<&'static str> {
    let found = decision.chosen.strategy == Strategy::Product;
    if found || asked.options.strategy != Strategy::Product {
        return None;
    }
    Some(match device {
        // Points at no distance are compared by their coordinates.
        _ if summary.metric != Metric::L2 => "products are of use for L2 alone, with an ε above 0",
        Some(device) if !device.matrix_units => "the gpu has no matrix units for products",
        _ => "products are of no use where k is most of the points",
    })
}

/// Decides how a GPU does it.
pub(crate) fn on_gpu(
    asked: &Asked<'_>,
    summary: &Summary,
    host: &Host,
    device: &GpuFacts,
) -> Decision {
    let expected = expected(asked, summary);
    let speed = gpu::Speed::new(device, &host.calibration);
    let products = gpu::Products::new(asked.options.strategy, device);
    let alternatives = match asked.question {
        Question::Within(within) => gpu::alternatives(summary, shaping(within), speed, products),
        Question::Nearest(nearest) => gpu_knn::alternatives(summary, nearest.k, speed, products),
    };
    let (chosen, named) = choose(&alternatives, wanted(asked, &alternatives));
    let tests = chosen.cost.tests;
    let how = OnGpu::new(asked, summary, device, &host.calibration, expected, tests);
    let (how, sharing) = (How::Gpu(how), Sharing::device(summary.left));
    let chosen = (chosen, named);
    let mut decision =
        decision(asked, summary, host, chosen, alternatives, expected, 0, how, sharing);
    decision.why_no_products = why_no_products(asked, &decision, summary, Some(device));
    decision
}

/// Whether a GPU should be looked for, where the options leave it open: it is opened only then. If
/// not, why; where a device was named there is nothing to explain.
pub(crate) fn worth_a_gpu(
    asked: &Asked<'_>,
    on_cpu: &Decision,
    host: &Host,
) -> Result<(), Option<String>> {
    if asked.options.device != Device::Auto {
        return Err(None);
    }
    let strategy = asked.options.strategy;
    if !asked.question.gpu_strategies().contains(&strategy) {
        return Err(Some(format!("it does not have the strategy {strategy}")));
    }
    let (_, seconds) = on_cpu.seconds();
    let least = if host.gpu_is_open { 0.0 } else { host.calibration.worth_a_gpu };
    match seconds < least {
        true => {
            Err(Some(format!("the join takes the cpu some {seconds:.3} s, which is too little")))
        }
        false => Ok(()),
    }
}

fn expected(asked: &Asked<'_>, summary: &Summary) -> Expected {
    match asked.question {
        Question::Within(_) => {
            let own = summary.is_self && asked.options.include_self;
            Expected::About(summary.pairs.neighbors.plus(f64::from(own)))
        }
        Question::Nearest(nearest) => Expected::Most(nearest.k),
    }
}

/// The options that shape an index.
fn shaping(within: &Within) -> Shaping {
    Shaping {
        levels: within.levels,
        fanout: within.fanout,
        whole_cells: within.removal == DuplicateRemoval::Unicomp,
    }
}

/// The strategy that is asked for; what no product can tell, brute force does.
fn wanted(asked: &Asked<'_>, alternatives: &[Alternative]) -> Strategy {
    let has_product = alternatives.iter().any(|a| a.strategy == Strategy::Product);
    match asked.options.strategy {
        Strategy::Product if !has_product => Strategy::Brute,
        wanted => wanted,
    }
}

/// The strategy that was named, or the cheapest, which comes first.
fn choose(alternatives: &[Alternative], wanted: Strategy) -> (Alternative, bool) {
    let named = wanted != Strategy::Auto;
    let chosen = alternatives.iter().find(|a| !named || a.strategy == wanted);
    (chosen.unwrap_or(&alternatives[0]).clone(), named)
}

#[allow(clippy::too_many_arguments)]
fn decision(
    asked: &Asked<'_>,
    summary: &Summary,
    host: &Host,
    (chosen, named): (Alternative, bool),
    alternatives: Vec<Alternative>,
    expected: Expected,
    index: u64,
    how: How,
    sharing: Sharing,
) -> Decision {
    Decision {
        chosen,
        named,
        alternatives,
        expected,
        budget: Budget::new(asked.options.memory_limit, host.memory, index),
        search_bytes: 0,
        points: (summary.left, summary.right),
        is_self: summary.is_self,
        dim: summary.dim,
        width: summary.width,
        extents: summary.extents.clone(),
        how,
        why_no_products: None,
        why_no_gpu: None,
        weighed: None,
        calibration: host.calibration,
        sharing,
    }
}

impl Decision {
    /// Reckons with so many bytes more, as long as the index is there.
    pub(crate) fn keep_beside(&mut self, bytes: u64) {
        self.budget.index += bytes;
        self.search_bytes += bytes;
    }

    /// Expected ordered pairs.
    pub(crate) fn pairs(&self) -> f64 {
        self.expected.neighbors() * self.points.0 as f64
    }

    /// The same with the range in which their number lies.
    pub(crate) fn expected_pairs(&self) -> Estimated {
        match self.expected {
            Expected::About(neighbors) => neighbors.times(self.points.0 as f64),
            Expected::Most(_) => Estimated::exactly(self.pairs()),
        }
    }

    /// Expected distance tests.
    pub(crate) fn tests(&self) -> f64 {
        self.chosen.cost.tests * self.points.0 as f64
    }

    /// Expected seconds to index and to count, and to list all neighbours.
    pub(crate) fn seconds(&self) -> (f64, f64) {
        (self.count_seconds(), self.row_seconds().total())
    }

    fn count_seconds(&self) -> f64 {
        let count = self.chosen.cost.nanoseconds(&self.sharing) * 1e-9;
        match &self.how {
            How::Cpu(_) | How::Both(_) => count * self.crowd() * self.calibration.cpu,
            How::Gpu(_) | How::Ranges(_) => {
                let rate = self.on_gpu().and_then(|how| how.rate);
                let held = rate.map_or(0.0, |rate| self.tests() / rate);
                self.calibration.gpu_start + (count * self.calibration.gpu).max(held)
            }
        }
    }

    /// Where the seconds go that it takes to list all neighbours.
    pub(crate) fn row_seconds(&self) -> RowSeconds {
        let queries = self.points.0 as f64;
        match &self.how {
            How::Cpu(_) | How::Both(_) => {
                let slowed = self.crowd() * self.calibration.cpu * 1e-9;
                let index = self.chosen.cost.index / self.sharing.threads * slowed;
                let searched = self.sharing.queries(self.chosen.cost.per_query) * slowed;
                let written = estimate::ROW * queries + estimate::PAIR * self.pairs();
                let written = written / self.sharing.threads * self.calibration.cpu * 1e-9;
                // Neighbours are found once more, in some of the time.
                RowSeconds { index, search: 1.3 * searched, written }
            }
            How::Gpu(_) | How::Ranges(_) => {
                // Rows within ε are counted and then found; the nearest come with their distances.
                let (passes, pair) = match self.expected {
                    Expected::About(_) => (2.0, 4.0),
                    Expected::Most(_) => (1.0, 4.0 + self.width as f64),
                };
                let written = (self.pairs() * pair + queries * 8.0) / self.calibration.landing;
                RowSeconds { index: 0.0, search: passes * self.count_seconds(), written }
            }
        }
    }

    /// How much longer each of many threads takes than one of two does: they share the memory.
    fn crowd(&self) -> f64 {
        (self.sharing.threads / FEW_THREADS).max(1.0).powf(CROWDED)
    }

    /// How the CPU works, where it does.
    pub(crate) fn on_cpu(&self) -> Option<&OnCpu> {
        match &self.how {
            How::Cpu(how) => Some(how),
            How::Both(both) => Some(&both.cpu),
            How::Ranges(by) => by.cpu.as_ref().and_then(|cpu| cpu.on_cpu()),
            How::Gpu(_) => None,
        }
    }

    /// How the GPU works, where it does.
    pub(crate) fn on_gpu(&self) -> Option<&OnGpu> {
        match &self.how {
            How::Cpu(_) => None,
            How::Both(both) => both.gpu.on_gpu(),
            How::Gpu(how) => Some(how),
            How::Ranges(by) => Some(&by.first.how),
        }
    }

    /// Expected seconds, and distance tests, of each strategy.
    pub(crate) fn costs(&self) -> impl Iterator<Item = (Strategy, f64, f64)> {
        let queries = self.points.0 as f64;
        let seconds = |cost: &Cost| cost.nanoseconds(&self.sharing) * 1e-9;
        self.alternatives
            .iter()
            .map(move |a| (a.strategy, seconds(&a.cost), a.cost.tests * queries))
    }

    /// Whether rows had better be kept as they are found than counted and found again: where there
    /// is room for them.
    pub(crate) fn keeps(&self) -> bool {
        match &self.how {
            How::Cpu(cpu) => cpu.keeps,
            How::Both(both) => both.cpu.keeps,
            _ => true,
        }
    }

    /// Bytes of three times the input, which an index may use, that one of `index` bytes leaves
    /// for rows that are kept for a while; and no more than lets a result of that size stand twice
    /// within the limit. A GPU keeps rows within ε to itself, unless the CPU may have to take over.
    pub(crate) fn spare(&self, index: u64) -> u64 {
        let within = matches!(self.expected, Expected::About(_));
        if within && matches!(&self.how, How::Gpu(how) if !how.rescue) {
            return 0;
        }
        let left = self.budget.limit.saturating_sub(self.budget.index) / 2;
        match self.expected {
            Expected::Most(_) => left,
            Expected::About(_) => {
                let points = self.points.0 + if self.is_self { 0 } else { self.points.1 };
                let input = (points * self.dim * self.width) as u64;
                left.min((3 * input).saturating_sub(index))
            }
        }
    }
}

#[cfg(test)]
mod tests;
