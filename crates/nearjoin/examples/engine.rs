//! The engine at work on 200,000 even and 200,000 clustered points.
//!
//! ```text
//! cargo run --release --example engine
//! ```

use std::ops::ControlFlow;
use std::time::Instant;

use nearjoin::sink::{Block, Callback, Count, CsrSink};
use nearjoin::{Csr, EpsJoin, Metric, Points, Result, oracle};

const POINTS: usize = 200_000;
/// Rows that are compared with brute force.
const CHECKED: usize = 100;

fn main() -> Result<()> {
    let start = Instant::now();
    let mut random = Random(0x6e65_6172_6a6f_696e);

    let even = even(&mut random);
    join("Even points in [0, 100]²", &even, 0.6)?;

    let clustered = clustered(&mut random);
    join("20 clusters and a thin background in [0, 100]²", &clustered, 0.06)?;
    count_only(&clustered, 1.0)?;

    println!("Everything agreed. {:.2} s in all.", start.elapsed().as_secs_f64());
    Ok(())
}

/// Plans a self-join, explains the plan, and runs it into three sinks.
fn join(title: &str, data: &[f64], eps: f64) -> Result<()> {
    println!("# {title}, ε = {eps}\n");
    let points = Points::new(data, 2)?;
    let plan = EpsJoin::new(eps).plan_self(&points)?;
    println!("{plan}\n");

    // All neighbours, in arrays.
    let mut sink = CsrSink::new().sorted(true);
    let stats = plan.run(&mut sink)?;
    let csr = sink.into_csr();
    println!("CSR: {stats}");
    check(&points, &csr, eps)?;

    // How many, and nothing else.
    let mut count = Count::new();
    let stats = plan.run(&mut count)?;
    println!("count: {stats}");
    assert_eq!(count.pairs(), csr.pairs());

    // Blocks of rows as they are found: here, the point with the most neighbours.
    let (mut blocks, mut pairs, mut most) = (0, 0, (0, 0));
    let mut callback = Callback::new(|block: &Block<f64>| {
        blocks += 1;
        for (query, neighbors) in block.iter() {
            pairs += neighbors.len() as u64;
            most = most.max((neighbors.len(), query));
        }
        ControlFlow::Continue(())
    });
    plan.run(&mut callback)?;
    let (neighbors, query) = most;
    println!("callback: {blocks} blocks; point {query} has the most neighbours, {neighbors}\n");
    assert_eq!(pairs, csr.pairs());
    assert_eq!(csr.ids_of(query as usize).len(), neighbors);
    Ok(())
}

/// Counts pairs that nobody would want to list: most are taken in whole blocks, with no
/// distance computed.
fn count_only(data: &[f64], eps: f64) -> Result<()> {
    let points = Points::new(data, 2)?;
    let stats = EpsJoin::new(eps).plan_self(&points)?.run(&mut Count::new())?;
    println!("The same points, ε = {eps}\ncount: {stats}\n");
    Ok(())
}

/// Compares rows from all over the input with brute force.
fn check(points: &Points<'_, f64>, csr: &Csr<f64>, eps: f64) -> Result<()> {
    let rows: Vec<usize> = (0..CHECKED).map(|k| k * points.len() / CHECKED).collect();
    let some: Vec<f64> = rows.iter().flat_map(|&row| points.row(row)).copied().collect();
    let some = Points::new(&some, points.dimension())?;
    let truth = oracle::eps_join(&some, points, eps, Metric::L2, false)?;
    for (&row, neighbors) in rows.iter().zip(truth) {
        // A point is not its own neighbour; the oracle was not told which point it is.
        let ids = neighbors.into_iter().map(|(id, _)| id).filter(|&id| id as usize != row);
        assert!(ids.eq(csr.ids_of(row).iter().copied()), "row {row} is wrong");
    }
    println!("{CHECKED} rows are what brute force finds");
    Ok(())
}

fn even(random: &mut Random) -> Vec<f64> {
    (0..2 * POINTS).map(|_| 100.0 * random.unit()).collect()
}

/// One point in twenty is background; the others are spread normally around 20 centres.
fn clustered(random: &mut Random) -> Vec<f64> {
    let centres: Vec<[f64; 2]> =
        (0..20).map(|_| [100.0 * random.unit(), 100.0 * random.unit()]).collect();
    let point = |_| match random.unit() {
        x if x < 0.05 => [100.0 * random.unit(), 100.0 * random.unit()],
        x => {
            let [cx, cy] = centres[(x * 1e6) as usize % centres.len()];
            let [dx, dy] = random.normal();
            [cx + 0.5 * dx, cy + 0.5 * dy]
        }
    };
    (0..POINTS).flat_map(point).collect()
}

/// Marsaglia's xorshift with a multiplication: good enough to scatter points.
struct Random(u64);

impl Random {
    /// A number from 0 to 1, without 1.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Two independent normal numbers (Box and Muller).
    fn normal(&mut self) -> [f64; 2] {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let (sin, cos) = (core::f64::consts::TAU * self.unit()).sin_cos();
        [radius * cos, radius * sin]
    }
}
