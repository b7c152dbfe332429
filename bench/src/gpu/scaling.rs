//! How a count grows from 10⁷ to 10⁸ points when each has as many neighbours.

use nearjoin::gpu::GpuOptions;
use nearjoin::{Device, EpsJoin, Points};

use super::cases::{Set, TENFOLD};
use super::measure::{self, best};
use super::{Target, data};
use crate::Result;
use crate::args::Options;
use crate::call::agree;
use crate::table::{Table, grouped, milliseconds, times};

const SIZES: [usize; 2] = [10_000_000, 100_000_000];
const NEIGHBORS: f64 = 30.0;

/// The section.
pub(super) fn run(target: &Target, options: &Options) -> Result<String> {
    let mut table = Table::new(&[
        "count, ms",
        "ε",
        "pairs",
        "ours",
        "plan",
        "index",
        "execute",
        "÷ the first",
        "limit",
    ]);
    let mut first = None;
    for points in SIZES {
        let points = Set::of_neighbors("uniform2", points, NEIGHBORS).scaled(options.points).points;
        let set = Set::of_neighbors("uniform2", points, NEIGHBORS);
        eprintln!("{points} points");
        let data: Vec<f32> = data::draw(set.law, points, set.dimension);
        let points = Points::new(&data, set.dimension)?;
        let join = target.join(set.eps(), GpuOptions::new());
        let timed = best(options.reps, || measure::count(&join, &points))?;
        if options.check {
            let on_cpu = EpsJoin::new(set.eps()).device(Device::Cpu);
            let expected = measure::count(&on_cpu, &points)?.stats.pairs;
            agree("the GPU", timed.stats.pairs, expected)?;
        }
        let phase = |phase: std::time::Duration| milliseconds(Some(phase.as_secs_f64() * 1e3));
        table.row(vec![
            format!("{} points", grouped(points.len() as u64)),
            format!("{:.5}", set.eps()),
            grouped(timed.stats.pairs),
            milliseconds(Some(timed.ms())),
            phase(timed.stats.plan),
            phase(timed.stats.index),
            phase(timed.stats.execute),
            times(first.map(|_| timed.ms()), first),
            times(first.map(|_| TENFOLD), Some(1.0)),
        ]);
        first.get_or_insert(timed.ms());
    }
    Ok(format!(
        "## Growth on the GPU\n\n{table}\n\
         Uniform 2-D f32 points with about {NEIGHBORS} neighbours each, counted; best of {} calls\n\
         after one that does not count.\n",
        options.reps
    ))
}
