//! How time grows with the number of points when each has as many neighbours.

use crate::Result;
use crate::args::Options;
use crate::epsilon::ours;
use crate::table::{Table, grouped, seconds};
use crate::workload::Workload;

const SIZES: [usize; 5] = [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];

/// The scaling section.
pub(crate) fn run(options: &Options) -> Result<String> {
    let mut table = Table::new(&[
        "points",
        "pairs",
        "count, s",
        "ns per point",
        "÷ linear",
        "CSR, s",
        "ns per point",
        "÷ linear",
    ]);
    let mut linear = None;
    for points in SIZES {
        if options.points.is_some_and(|most| points > most && linear.is_some()) {
            break;
        }
        eprintln!("scaling: {points} points");
        let workload = Workload::of_25_neighbors(points);
        let (mut count, mut csr, mut pairs) = (f64::INFINITY, f64::INFINITY, 0);
        for _ in 0..options.reps {
            let (seconds, stats) = ours::count(&workload.data, &workload)?;
            count = count.min(seconds);
            pairs = stats.pairs;
            let (seconds, _, _answer) = ours::csr(&workload.data, &workload)?;
            csr = csr.min(seconds);
        }
        let per_point = |seconds: f64| seconds * 1e9 / points as f64;
        let (count_base, csr_base) = *linear.get_or_insert((per_point(count), per_point(csr)));
        table.row(vec![
            grouped(points as u64),
            grouped(pairs),
            seconds(Some(count)),
            format!("{:.1}", per_point(count)),
            format!("{:.2}", per_point(count) / count_base),
            seconds(Some(csr)),
            format!("{:.1}", per_point(csr)),
            format!("{:.2}", per_point(csr) / csr_base),
        ]);
    }
    Ok(format!(
        "## Scaling\n\n{table}\n\
         Uniform 2-D points, f64, 25 neighbours each; best of {} calls. `÷ linear` is the time\n\
         per point beside that of the first row: 1.00 is linear growth.\n",
        options.reps
    ))
}
