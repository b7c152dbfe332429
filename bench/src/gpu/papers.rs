//! The papers' tables: their synthetic sets, in the ways that they compare.

use nearjoin::gpu::{Cooperation, GpuOptions, Schedule};
use nearjoin::{DuplicateRemoval, EpsJoin, Points, Strategy};

use super::cases::{BATCHED, PAPERS, Set};
use super::measure::{self, best};
use super::{Child, Failures, Target, data};
use crate::Result;
use crate::args::Options;
use crate::call::agree;
use crate::table::{Table, grouped, milliseconds};

/// An answer with more pairs is only counted.
const MOST_PAIRS: u64 = 3_000_000_000;

/// A way to go about a join.
struct Way {
    name: &'static str,
    removal: DuplicateRemoval,
    threads: usize,
    schedule: Schedule,
}

const fn way(
    name: &'static str,
    removal: DuplicateRemoval,
    threads: usize,
    schedule: Schedule,
) -> Way {
    Way { name, removal, threads, schedule }
}

/// GPUCALCGLOBAL of the papers is the first; each of the others changes one thing, and the last
/// is what LBJoin ends with.
const WAYS: &[Way] = &[
    way("no removal, k = 1", DuplicateRemoval::None, 1, Schedule::IndexOrder),
    way("UNICOMP", DuplicateRemoval::Unicomp, 1, Schedule::IndexOrder),
    way("LID-UNICOMP", DuplicateRemoval::LidUnicomp, 1, Schedule::IndexOrder),
    way("k = 8", DuplicateRemoval::None, 8, Schedule::IndexOrder),
    way("SORTBYWL", DuplicateRemoval::None, 1, Schedule::SortByWorkload),
    way("WORKQUEUE", DuplicateRemoval::None, 1, Schedule::WorkQueue),
    way("WORKQUEUE, LID-UNICOMP, k = 8", DuplicateRemoval::LidUnicomp, 8, Schedule::WorkQueue),
];

impl Way {
    /// A join this way, on the grid of the papers.
    fn join(&self, target: &Target, eps: f64) -> EpsJoin {
        let gpu = GpuOptions::new()
            .cooperation(Cooperation::Thread)
            .threads_per_query(self.threads)
            .schedule(self.schedule);
        target.join(eps, gpu).strategy(Strategy::Grid).duplicate_removal(self.removal)
    }
}

/// The section: the ways, and the batches of some sets.
pub(super) fn run(target: &Target, options: &Options) -> Result<(String, bool)> {
    let mut failures = Failures::default();
    let mut text = sets(target, options, &mut failures);
    text += &format!("\n## Sizes of batches\n\n{}", super::batches::ABOUT);
    for name in BATCHED.iter().filter(|name| options.has_case(name)) {
        eprintln!("{name}: batches");
        let tables = Child::Batches((*name).into()).run(options);
        if let Some(tables) = failures.keep(name, tables) {
            text += &format!("\n{tables}");
        }
    }
    Ok((text + &failures.0, failures.none()))
}

/// The chosen sets, every way.
pub(super) fn sets(target: &Target, options: &Options, failures: &mut Failures) -> String {
    let heads = |answer: &'static str| {
        let mut heads = vec![answer, "points", "ε", "pairs"];
        heads.extend(WAYS.iter().map(|way| way.name));
        heads.push("auto");
        heads
    };
    let mut csr = Table::new(&heads("CSR, ms"));
    let mut count = Table::new(&heads("count, ms"));
    for set in PAPERS.iter().filter(|set| options.has_case(set.name)) {
        let set = set.scaled(options.points);
        let times = Times::measure(&set, target, options);
        let Some(times) = failures.keep(set.name, times) else { continue };
        let row = |times_of_ways: &[Option<f64>]| {
            let mut cells = vec![
                set.name.into(),
                grouped(set.points as u64),
                format!("{:.4}", set.eps()),
                grouped(times.pairs),
            ];
            cells.extend(times_of_ways.iter().map(|&time| milliseconds(time)));
            cells
        };
        csr.row(row(&times.csr));
        count.row(row(&times.count));
    }
    format!(
        "## The papers' sets\n\n{csr}\n{count}\n\
         - f32 points; best of {} calls after one that does not count; CSR into reused buffers.\n  \
         Answers of over {} pairs are only counted.\n\
         - All but auto: the grid, each query by threads of its own (k of them). Where rows are\n  \
         counted and then filled, CSR meets each pair from both sides whatever the removal;\n  \
         where pairs are listed first, it meets each once.\n",
        options.reps,
        grouped(MOST_PAIRS),
    )
}

/// Milliseconds of every way, and of what the plan chooses.
struct Times {
    pairs: u64,
    count: Vec<Option<f64>>,
    csr: Vec<Option<f64>>,
}

impl Times {
    fn measure(set: &Set, target: &Target, options: &Options) -> Result<Self> {
        let data: Vec<f32> = data::draw(set.law, set.points, set.dimension);
        let points = Points::new(&data, set.dimension)?;
        let auto = target.join(set.eps(), GpuOptions::new());
        let pairs = measure::count(&auto, &points)?.stats.pairs;
        let mut arrays = match pairs <= MOST_PAIRS {
            true => Some(measure::fresh(&auto, &points)?.1),
            false => None,
        };
        let (mut count, mut csr) = (Vec::new(), Vec::new());
        let joins = WAYS.iter().map(|way| (way.name, way.join(target, set.eps())));
        for (name, join) in joins.chain([("auto", auto)]) {
            let timed = best(options.reps, || measure::count(&join, &points))?;
            agree(&format!("{}, {name}: a count", set.name), timed.stats.pairs, pairs)?;
            eprintln!("{}, {name}: count {:.3} ms", set.name, timed.ms());
            count.push(Some(timed.ms()));
            let Some(arrays) = &mut arrays else {
                csr.push(None);
                continue;
            };
            let timed = best(options.reps, || measure::reused(&join, &points, arrays))?;
            agree(&format!("{}, {name}: CSR", set.name), timed.stats.pairs, pairs)?;
            eprintln!("{}, {name}: CSR {:.3} ms", set.name, timed.ms());
            csr.push(Some(timed.ms()));
        }
        Ok(Times { pairs, count, csr })
    }
}
