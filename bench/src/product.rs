//! Many dimensions on the CPU: joins by matrix products, with a few threads and all.

use nearjoin::sink::{Count, CsrSink, Neighbors};
use nearjoin::{Device, EpsJoin, KnnJoin, Points, Stats, Strategy};

use crate::Result;
use crate::args::Options;
use crate::call::{agree, best, timed};
use crate::gpu::data::{Law, draw};
use crate::gpu::product::epsilons;
use crate::table::{Table, grouped, seconds};

/// Points of a normal law, unless the options say otherwise, and their dimensions.
const POINTS: usize = 50_000;
const DIMENSIONS: [usize; 3] = [32, 100, 384];
/// The nearest that are asked for.
const K: usize = 10;

/// The section.
pub(crate) fn run(options: &Options) -> Result<String> {
    let points = options.points.unwrap_or(POINTS);
    let all = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let mut threads = vec![1, 2, all];
    threads.sort_unstable();
    threads.dedup();
    let mut table = Table::new(&["f32", "threads", "count", "CSR", "k = 10", "pairs"]);
    for dimension in DIMENSIONS {
        let data = draw::<f32>(Law::Normal, points, dimension);
        let checked = Points::new(&data, dimension)?;
        let [eps, _] = epsilons(&checked);
        for &threads in &threads {
            let within = EpsJoin::new(eps).device(Device::Cpu).strategy(Strategy::Product);
            let nearest = KnnJoin::new(K).device(Device::Cpu).strategy(Strategy::Product);
            let (within, nearest) = (within.threads(threads), nearest.threads(threads));
            let took = |call: &dyn Fn(&Points<'_, f32>) -> nearjoin::Result<Stats>| {
                call(&checked)?;
                best(options.reps, || timed(&data, dimension, call))
            };
            let count = took(&|points| within.plan_self(points)?.run(&mut Count::new()))?;
            let csr = took(&|points| within.plan_self(points)?.run(&mut CsrSink::new()))?;
            let knn = took(&|points| nearest.plan_self(points)?.run(&mut Neighbors::new()))?;
            agree("a CSR", csr.1.pairs, count.1.pairs)?;
            table.row(vec![
                format!("normal, {} × {dimension}", grouped(points as u64)),
                threads.to_string(),
                seconds(Some(count.0)),
                seconds(Some(csr.0)),
                seconds(Some(knn.0)),
                grouped(count.1.pairs),
            ]);
        }
    }
    Ok(format!(
        "## Many dimensions on the CPU\n\n{table}\n\
         Seconds, best of {} calls after one that warms up, planning included. ε is for about one\n\
         neighbour. `NEARJOIN_SIMD` chooses the instruction set.\n",
        options.reps
    ))
}
