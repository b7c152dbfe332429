//! One join, every sink, against one answer.

use std::fmt;
use std::ops::ControlFlow;

use nearjoin::gpu::GpuOptions;
use nearjoin::sink::{Block, Callback, Count, CsrInto, CsrSink, Degrees, Pairs};
use nearjoin::{
    Csr, Device, DuplicateRemoval, EpsJoin, Metric, Partitioning, Plan, Points, Result, Scalar,
    Strategy, oracle,
};
use rand::Rng;
use rand::rngs::StdRng;

/// Points to join and what is asked of the join, but not how it is done.
#[derive(Clone)]
pub(crate) struct Case<'a, T> {
    pub(crate) name: String,
    pub(crate) left: Points<'a, T>,
    /// None: the left points are joined with themselves.
    pub(crate) right: Option<Points<'a, T>>,
    pub(crate) eps: f64,
    pub(crate) metric: Metric,
    pub(crate) include_self: bool,
    /// Where: None is the CPU.
    pub(crate) gpu: Option<GpuOptions>,
    /// How both share it, where both do.
    pub(crate) shared: Option<Partitioning>,
}

/// An answer in CSR, ids ascending within rows, distances as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) offsets: Vec<u64>,
    pub(crate) ids: Vec<u32>,
    pub(crate) bits: Vec<u64>,
}

/// The bits of a distance. Widening `f32` is exact, so two distances have the same bits
/// after it if and only if they had before.
pub(crate) fn bits<T: Scalar>(distance: &T) -> u64 {
    distance.to_f64().to_bits()
}

impl Answer {
    /// An answer of rows with ascending ids.
    pub(crate) fn from_rows<T: Scalar>(rows: &[Vec<(u32, T)>]) -> Self {
        let mut answer = Answer { offsets: vec![0], ids: Vec::new(), bits: Vec::new() };
        for row in rows {
            assert!(row.is_sorted_by(|a, b| a.0 < b.0), "an id twice, or not in order");
            answer.ids.extend(row.iter().map(|(id, _)| *id));
            answer.bits.extend(row.iter().map(|(_, distance)| bits(distance)));
            answer.offsets.push(answer.ids.len() as u64);
        }
        answer
    }

    /// An answer of a CSR that has distances; its rows may stand in any order.
    pub(crate) fn from_csr<T: Scalar>(csr: &Csr<T>) -> Self {
        let row = |i: usize| {
            let ids = csr.ids_of(i).iter().copied();
            let distances = csr.distances_of(i);
            assert_eq!(ids.len(), distances.len());
            let mut row: Vec<(u32, T)> = ids.zip(distances.iter().copied()).collect();
            row.sort_by_key(|neighbor| neighbor.0);
            row
        };
        Self::from_rows(&(0..csr.len()).map(row).collect::<Vec<_>>())
    }

    pub(crate) fn pairs(&self) -> u64 {
        self.ids.len() as u64
    }

    fn degrees(&self) -> Vec<u64> {
        self.offsets.windows(2).map(|row| row[1] - row[0]).collect()
    }

    /// Every pair as left, right and bits, ascending.
    pub(crate) fn triples(&self) -> Vec<(u32, u32, u64)> {
        let lefts = self.degrees().into_iter().enumerate();
        let lefts = lefts.flat_map(|(row, degree)| (0..degree).map(move |_| row as u32));
        lefts.zip(self.ids.iter().zip(&self.bits)).map(|(l, (r, b))| (l, *r, *b)).collect()
    }
}

impl<T> fmt::Display for Case<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { name, eps, metric, include_self, .. } = self;
        let sides = if self.right.is_some() { "two sets" } else { "self-join" };
        write!(f, "{name}, {sides}, {metric}, ε = {eps:e}, include_self {include_self}")
    }
}

impl<'a, T: Scalar> Case<'a, T> {
    /// A self-join without self pairs.
    pub(crate) fn within(name: impl Into<String>, points: Points<'a, T>, eps: f64) -> Self {
        let (name, metric) = (name.into(), Metric::L2);
        Case {
            name,
            left: points,
            right: None,
            eps,
            metric,
            include_self: false,
            gpu: None,
            shared: None,
        }
    }

    /// A join of two sets.
    pub(crate) fn between(
        name: impl Into<String>,
        left: Points<'a, T>,
        right: Points<'a, T>,
        eps: f64,
    ) -> Self {
        Case { right: Some(right), ..Case::within(name, left, eps) }
    }

    pub(crate) fn metric(self, metric: Metric) -> Self {
        Case { metric, ..self }
    }

    /// The same, on a GPU.
    pub(crate) fn on(self, gpu: &GpuOptions) -> Self {
        Case { gpu: Some(gpu.clone()), ..self }
    }

    /// The same, on the CPU and a GPU together.
    pub(crate) fn on_both(self, gpu: &GpuOptions, partitioning: Partitioning) -> Self {
        Case { gpu: Some(gpu.clone()), shared: Some(partitioning), ..self }
    }

    pub(crate) fn include_self(self, include_self: bool) -> Self {
        Case { include_self, ..self }
    }

    /// What two loops say.
    pub(crate) fn oracle(&self) -> Answer {
        let right = self.right.unwrap_or(self.left);
        let exclude = self.right.is_none() && !self.include_self;
        let rows = oracle::eps_join(&self.left, &right, self.eps, self.metric, exclude);
        Answer::from_rows(&rows.expect("the case is valid"))
    }

    /// Plans this case the way `join` says; its ε, metric and self pairs are the case's.
    pub(crate) fn plan(&self, join: &dyn Fn(EpsJoin) -> EpsJoin) -> Result<Plan<'a, T>> {
        let options = EpsJoin::new(self.eps).metric(self.metric).include_self(self.include_self);
        let options = match (&self.gpu, self.shared) {
            (Some(gpu), Some(partitioning)) => {
                options.device(Device::Hybrid).gpu(gpu.clone()).partitioning(partitioning)
            }
            (Some(gpu), None) => options.device(Device::Gpu).gpu(gpu.clone()),
            (None, _) => options.device(Device::Cpu),
        };
        let options = join(options);
        match &self.right {
            Some(right) => options.plan(&self.left, right),
            None => options.plan_self(&self.left),
        }
    }

    /// Checks every strategy and every sink against the oracle, and gives its answer.
    pub(crate) fn check(&self) -> Answer {
        let expected = self.oracle();
        for &strategy in Strategy::EPSILON {
            let on_gpu = Strategy::EPSILON_GPU.contains(&strategy);
            if self.gpu.is_none() || self.shared.is_some() || on_gpu {
                self.check_strategy(strategy, &expected);
            }
        }
        expected
    }

    /// Checks one strategy with every sink, and with every way to remove duplicates those
    /// sinks that profit.
    pub(crate) fn check_strategy(&self, strategy: Strategy, expected: &Answer) {
        let context = format!("{self}, {strategy}");
        let plan = self.plan(&|join| join.strategy(strategy)).expect(&context);
        assert!(plan.strategy() != Strategy::Auto, "{context}: the plan has not decided");
        // Products tell Euclidean distances, and none that is 0.
        let told = self.metric == Metric::L2 && self.eps > 0.0;
        let chosen =
            if strategy == Strategy::Product && !told { Strategy::Brute } else { strategy };
        assert!(strategy == Strategy::Auto || plan.strategy() == chosen, "{context}");
        let explained = plan.to_string().contains(&format!("strategy {}", plan.strategy()));
        assert!(explained, "{context}: the plan does not name its strategy");
        assert!(plan.estimated_pairs() >= 0.0, "{context}: {} pairs", plan.estimated_pairs());
        check_csr(&plan, expected, &context);
        check_csr_into(&plan, expected, &context);
        check_degrees(&plan, expected, &context);
        check_callback(&plan, expected, &context);
        self.check_count_and_pairs(&plan, expected, &context);
        if self.right.is_some() {
            return;
        }
        use DuplicateRemoval::{LinearCoord, None, Unicomp};
        for removal in [None, LinearCoord, Unicomp] {
            let context = format!("{context}, removal {removal}");
            let plan = self.plan(&|join| join.strategy(strategy).duplicate_removal(removal));
            self.check_count_and_pairs(&plan.expect(&context), expected, &context);
        }
    }

    /// Checks one strategy, with one way to remove duplicates, and four of the sinks: which,
    /// chance says.
    pub(crate) fn check_some(&self, strategy: Strategy, expected: &Answer, chance: &mut StdRng) {
        let removals = DuplicateRemoval::ALL;
        let removal = removals[chance.random_range(0..removals.len())];
        let context = &format!("{self}, {strategy}, removal {removal}");
        // As large as the default, a directory of a few points would be nothing but empty parts.
        let (levels, fanout) = [(1, 8), (2, 4), (3, 3)][chance.random_range(0..3)];
        let plan = self.plan(&|join| {
            join.strategy(strategy).duplicate_removal(removal).directory(levels, fanout)
        });
        let plan = &plan.expect(context);
        match chance.random_range(0..4) {
            0 => check_sorted_csr(plan, expected, context),
            1 => check_unsorted_csr(plan, expected, context),
            2 => check_plain_csr(plan, expected, context),
            _ => check_csr_into(plan, expected, context),
        }
        match chance.random_range(0..3) {
            0 => check_callback(plan, expected, context),
            1 => check_half_blocks(plan, self.right.is_none(), &self.half(expected), context),
            _ => check_degrees(plan, expected, context),
        }
        match chance.random_range(0..4) {
            0 => check_plain_pairs(plan, Pairs::new(), &expected.triples(), context),
            1 => check_sorted_pairs(plan, Pairs::new(), &expected.triples(), context),
            2 => check_plain_pairs(plan, Pairs::new().half(true), &self.half(expected), context),
            _ => check_sorted_pairs(plan, Pairs::new().half(true), &self.half(expected), context),
        }
        check_count(plan, expected, context);
    }

    /// Every pair once, where the join is of one set; else all.
    pub(crate) fn half(&self, expected: &Answer) -> Vec<(u32, u32, u64)> {
        let mut pairs = expected.triples();
        pairs.retain(|(left, right, _)| self.right.is_some() || left < right);
        pairs
    }

    fn check_count_and_pairs(&self, plan: &Plan<'_, T>, expected: &Answer, context: &str) {
        check_count(plan, expected, context);
        check_pairs(plan, Pairs::new(), &expected.triples(), context);
        let half = self.half(expected);
        check_pairs(plan, Pairs::new().half(true), &half, context);
        for sorted in [false, true] {
            check_half_blocks_sorted(plan, self.right.is_none(), &half, sorted, context);
        }
    }
}

pub(crate) fn check_count<T: Scalar>(plan: &Plan<'_, T>, expected: &Answer, context: &str) {
    let mut count = Count::new();
    let stats = plan.run(&mut count).expect(context);
    assert_eq!(count.pairs(), expected.pairs(), "{context}: count");
    assert_eq!(stats.pairs, expected.pairs(), "{context}: count in the stats");
}

fn check_csr<T: Scalar>(plan: &Plan<'_, T>, expected: &Answer, context: &str) {
    check_sorted_csr(plan, expected, context);
    check_unsorted_csr(plan, expected, context);
    check_plain_csr(plan, expected, context);
}

pub(crate) fn check_sorted_csr<T: Scalar>(plan: &Plan<'_, T>, expected: &Answer, context: &str) {
    let mut sink = CsrSink::new().sorted(true).distances(true);
    let stats = plan.run(&mut sink).expect(context);
    let csr = sink.into_csr();
    let found: Vec<u64> = csr.distances().iter().map(bits).collect();
    assert_eq!(csr.offsets(), expected.offsets, "{context}: offsets of sorted CSR");
    assert_eq!(csr.ids(), expected.ids, "{context}: ids of sorted CSR");
    assert_eq!(found, expected.bits, "{context}: distances of sorted CSR");
    assert_eq!(stats.pairs, expected.pairs(), "{context}: CSR pairs in the stats");
}

pub(crate) fn check_unsorted_csr<T: Scalar>(plan: &Plan<'_, T>, expected: &Answer, context: &str) {
    let mut sink = CsrSink::new().distances(true);
    plan.run(&mut sink).expect(context);
    assert_eq!(Answer::from_csr(sink.csr()), *expected, "{context}: unsorted CSR");
}

pub(crate) fn check_plain_csr<T: Scalar>(plan: &Plan<'_, T>, expected: &Answer, context: &str) {
    let mut sink = CsrSink::new();
    plan.run(&mut sink).expect(context);
    let (offsets, mut ids, distances) = sink.into_csr().into_parts();
    assert!(distances.is_none(), "{context}: nobody asked for distances");
    assert_eq!(offsets[..], expected.offsets, "{context}: offsets of CSR without distances");
    for row in offsets.windows(2) {
        ids[row[0] as usize..row[1] as usize].sort_unstable();
    }
    assert_eq!(ids[..], expected.ids, "{context}: ids of CSR without distances");
}

pub(crate) fn check_csr_into<T: Scalar>(plan: &Plan<'_, T>, expected: &Answer, context: &str) {
    const UNTOUCHED: u32 = 0xdead_beef;
    let pairs = expected.ids.len();
    let mut offsets = vec![u64::MAX; expected.offsets.len()];
    let mut ids = vec![UNTOUCHED; pairs + 3];
    let mut distances = vec![T::from_f64(-7.0); pairs + 5];
    let into = CsrInto::new(&mut offsets, &mut ids).sorted(true);
    let mut into = into.distances(&mut distances);
    plan.run(&mut into).expect(context);
    assert_eq!(into.pairs(), expected.pairs(), "{context}: pairs in buffers");
    assert_eq!(offsets, expected.offsets, "{context}: offsets in buffers");
    assert_eq!(ids[..pairs], expected.ids, "{context}: ids in buffers");
    assert_eq!(ids[pairs..], [UNTOUCHED; 3], "{context}: ids beyond the result");
    let found: Vec<u64> = distances[..pairs].iter().map(bits).collect();
    assert_eq!(found, expected.bits, "{context}: distances in buffers");
    let untouched = distances[pairs..].iter().all(|distance| *distance == T::from_f64(-7.0));
    assert!(untouched, "{context}: distances beyond the result");
}

pub(crate) fn check_degrees<T: Scalar>(plan: &Plan<'_, T>, expected: &Answer, context: &str) {
    let mut degrees = Degrees::new();
    let stats = plan.run(&mut degrees).expect(context);
    assert_eq!(degrees.as_slice(), expected.degrees(), "{context}: degrees");
    assert_eq!(stats.pairs, expected.pairs(), "{context}: degrees in the stats");
}

/// Every query must come exactly once, in a block with all its neighbours.
pub(crate) fn check_callback<T: Scalar>(plan: &Plan<'_, T>, expected: &Answer, context: &str) {
    let mut rows: Vec<Option<Vec<(u32, T)>>> = vec![None; expected.offsets.len() - 1];
    let mut sink = Callback::new(|block: &Block<T>| {
        assert!(!block.queries.is_empty(), "{context}: a block of nothing");
        assert_eq!(block.offsets.len(), block.queries.len() + 1, "{context}");
        assert_eq!(block.distances.len(), block.pairs(), "{context}");
        let mut distances = block.distances.iter().copied();
        for (query, neighbors) in block.iter() {
            let row = neighbors.iter().copied().zip(distances.by_ref()).collect();
            let before = rows[query as usize].replace(row);
            assert!(before.is_none(), "{context}: query {query} came twice");
        }
        ControlFlow::Continue(())
    });
    // Few enough that even small results come in several blocks.
    sink = sink.sorted(true).distances(true).block_pairs(200);
    let stats = plan.run(&mut sink).expect(context);
    let rows: Option<Vec<Vec<(u32, T)>>> = rows.into_iter().collect();
    let rows = rows.unwrap_or_else(|| panic!("{context}: a query never came"));
    assert_eq!(Answer::from_rows(&rows), *expected, "{context}: blocks");
    assert_eq!(stats.pairs, expected.pairs(), "{context}: blocks in the stats");
}

/// Blocks that hold each pair once, under either of its points.
pub(crate) fn check_half_blocks<T: Scalar>(
    plan: &Plan<'_, T>,
    is_self: bool,
    expected: &[(u32, u32, u64)],
    context: &str,
) {
    check_half_blocks_sorted(plan, is_self, expected, false, context);
}

/// The same, where rows are to ascend or not.
fn check_half_blocks_sorted<T: Scalar>(
    plan: &Plan<'_, T>,
    is_self: bool,
    expected: &[(u32, u32, u64)],
    sorted: bool,
    context: &str,
) {
    let context = &format!("{context}, sorted {sorted}");
    let mut triples = Vec::new();
    let mut sink = Callback::new(|block: &Block<T>| {
        let mut distances = block.distances.iter();
        for (query, neighbors) in block.iter() {
            assert!(!sorted || neighbors.is_sorted(), "{context}: {query} in half blocks");
            for (&neighbor, distance) in neighbors.iter().zip(distances.by_ref()) {
                let turned = is_self && neighbor < query;
                let (left, right) = if turned { (neighbor, query) } else { (query, neighbor) };
                triples.push((left, right, bits(distance)));
            }
        }
        ControlFlow::Continue(())
    })
    .half(true)
    .sorted(sorted)
    .distances(true);
    let stats = plan.run(&mut sink).expect(context);
    assert_eq!(stats.pairs, expected.len() as u64, "{context}: half blocks in the stats");
    triples.sort_unstable();
    assert_eq!(triples, expected, "{context}: half blocks");
}

/// Checks a sink of pairs, unsorted without distances and sorted with them.
fn check_pairs<T: Scalar>(
    plan: &Plan<'_, T>,
    sink: Pairs<T>,
    expected: &[(u32, u32, u64)],
    context: &str,
) {
    check_plain_pairs(plan, sink.clone(), expected, context);
    check_sorted_pairs(plan, sink, expected, context);
}

fn check_plain_pairs<T: Scalar>(
    plan: &Plan<'_, T>,
    sink: Pairs<T>,
    expected: &[(u32, u32, u64)],
    context: &str,
) {
    let mut plain = sink.clone();
    let stats = plan.run(&mut plain).expect(context);
    assert_eq!(stats.pairs, expected.len() as u64, "{context}: pairs in the stats");
    assert!(plain.all_distances().is_empty(), "{context}: nobody asked for distances");
    assert_eq!(plain.left().len(), plain.right().len(), "{context}");
    let pairs = plain.left().iter().copied().zip(plain.right().iter().copied());
    let mut pairs: Vec<(u32, u32)> = pairs.collect();
    pairs.sort_unstable();
    let ids: Vec<(u32, u32)> = expected.iter().map(|(l, r, _)| (*l, *r)).collect();
    assert_eq!(pairs, ids, "{context}: unsorted pairs {sink:?}");
}

fn check_sorted_pairs<T: Scalar>(
    plan: &Plan<'_, T>,
    sink: Pairs<T>,
    expected: &[(u32, u32, u64)],
    context: &str,
) {
    let mut sorted = sink.sorted(true).distances(true);
    plan.run(&mut sorted).expect(context);
    let (left, right, distances) = sorted.into_columns();
    assert_eq!([right.len(), distances.len()], [left.len(); 2], "{context}");
    let triples = left.into_iter().zip(right).zip(&distances);
    let triples: Vec<_> = triples.map(|((l, r), d)| (l, r, bits(d))).collect();
    assert_eq!(triples, expected, "{context}: sorted pairs with distances");
}

/// Runs joins without threads to wake, which takes longer than a small join itself.
pub(crate) fn on_one_thread(joins: impl FnOnce() + Send) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    pool.expect("one thread can be started").install(joins);
}
