//! How long a join takes to write.
//!
//! ```sh
//! cargo run --release -p nearjoin-io --example write_time -- \
//!     --format parquet --output pairs.parquet --points 2000000 --epsilon 0.0004
//! ```
//!
//! Points are drawn in two dimensions, each coordinate exponential with λ = 40. The join runs
//! into a `Callback`, which hands its blocks to a `PairWriter`; `--format none` only takes
//! the blocks, so the difference is what writing costs. NPZ is written from a matrix in
//! memory, and `--what points` writes the points themselves; both are timed alone.
//! The last line is for programs: `seconds pairs bytes before_mib peak_mib`.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, StringArray};
use nearjoin::sink::{Block, Callback, CsrSink};
use nearjoin::{EpsJoin, Points};
use nearjoin_io::write::{NpzCsr, PairColumns, PairWriter, Target, write_points};
use nearjoin_io::{Format, OutputFormat};
use rand::{Rng, SeedableRng};

#[derive(Debug, Default)]
struct Options {
    format: String,
    output: String,
    what: String,
    points: usize,
    epsilon: f64,
    distances: bool,
    ids: String,
    memory_mib: u64,
    threads: usize,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        format: "none".into(),
        what: "pairs".into(),
        points: 2_000_000,
        epsilon: 0.0001,
        ids: "none".into(),
        memory_mib: 256,
        ..Options::default()
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--distances" {
            options.distances = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--format" => options.format = value,
            "--output" => options.output = value,
            "--what" => options.what = value,
            "--points" => options.points = value.parse()?,
            "--epsilon" => options.epsilon = value.parse()?,
            "--ids" => options.ids = value,
            "--memory" => options.memory_mib = value.parse()?,
            "--threads" => options.threads = value.parse()?,
            _ => return Err(format!("there is no option {name}").into()),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let mut random = rand::rngs::StdRng::seed_from_u64(1);
    let data: Vec<f64> =
        (0..2 * options.points).map(|_| -(1.0 - random.random::<f64>()).ln() / 40.0).collect();
    let points = Points::new(&data, 2)?;
    let run = match (options.what.as_str(), options.format.as_str()) {
        ("points", _) => time_points(&options, &points)?,
        (_, "npz") => time_npz(&options, &points)?,
        _ => time_pairs(&options, &points)?,
    };
    let Run { seconds, pairs, bytes, before } = run;
    println!("{seconds:.3} {pairs} {bytes} {before} {}", memory("VmHWM:"));
    Ok(())
}

struct Run {
    seconds: f64,
    pairs: u64,
    bytes: u64,
    /// MiB in use before the clock starts.
    before: u64,
}

fn time_pairs(options: &Options, points: &Points<'_, f64>) -> Result<Run, Box<dyn Error>> {
    let ids = ids(&options.ids, points.len())?;
    let mut writer = match options.format.as_str() {
        "none" => None,
        name => {
            let format = OutputFormat::of(Path::new(&format!("x.{name}")));
            let columns = PairColumns {
                left: ids.clone(),
                right: ids,
                distances: options.distances,
                memory: options.memory_mib << 20,
                threads: options.threads,
                ..PairColumns::default()
            };
            let target = Target::create(&options.output)?;
            Some(PairWriter::new(target, format.ok_or("no such format")?, columns)?)
        }
    };
    let before = memory("VmRSS:");
    let start = Instant::now();
    let mut pairs = 0;
    let mut failure = None;
    let mut sink = Callback::new(|block: &Block<f64>| {
        pairs += block.pairs() as u64;
        match writer.as_mut().map_or(Ok(()), |writer| writer.block(block)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    })
    .distances(options.distances);
    let joined = EpsJoin::new(options.epsilon).plan_self(points)?.run(&mut sink);
    if let Some(error) = failure {
        return Err(error.into());
    }
    joined?;
    let joined = start.elapsed().as_secs_f64();
    let bytes = writer.map_or(Ok(0), |writer| writer.finish().map(|written| written.bytes))?;
    let seconds = start.elapsed().as_secs_f64();
    println!("the join ended after {joined:.3} s");
    Ok(Run { seconds, pairs, bytes, before })
}

fn time_npz(options: &Options, points: &Points<'_, f64>) -> Result<Run, Box<dyn Error>> {
    let mut sink = CsrSink::new().distances(options.distances);
    EpsJoin::new(options.epsilon).plan_self(points)?.run(&mut sink)?;
    let csr = sink.into_csr();
    let before = memory("VmRSS:");
    let start = Instant::now();
    let n = points.len() as u64;
    let target = Target::create(&options.output)?;
    let pairs = csr.ids().len() as u64;
    let mut writer = NpzCsr::<f64>::new(target, n, n, pairs, options.distances)?;
    for first in (0..points.len()).step_by(1000) {
        let last = (first + 1000).min(points.len());
        let offsets = &csr.offsets()[first..=last];
        let range = offsets[0] as usize..offsets[last - first] as usize;
        let distances = options.distances.then(|| &csr.distances()[range.clone()]);
        writer.rows(offsets, &csr.ids()[range], distances)?;
    }
    let bytes = writer.finish()?.bytes;
    Ok(Run { seconds: start.elapsed().as_secs_f64(), pairs, bytes, before })
}

fn time_points(options: &Options, points: &Points<'_, f64>) -> Result<Run, Box<dyn Error>> {
    let format: Format = options.format.parse()?;
    let before = memory("VmRSS:");
    let start = Instant::now();
    let names = ["x".to_string(), "y".to_string()];
    let written = write_points(Target::create(&options.output)?, format, &names, points)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Run { seconds, pairs: written.pairs, bytes: written.bytes, before })
}

fn ids(kind: &str, points: usize) -> Result<Option<ArrayRef>, Box<dyn Error>> {
    Ok(match kind {
        "none" => None,
        "int" => Some(Arc::new(Int64Array::from_iter_values((0..points as i64).map(|i| i * 7)))),
        "string" => {
            let names = (0..points).map(|i| format!("object {i}"));
            Some(Arc::new(StringArray::from_iter_values(names)))
        }
        _ => return Err("--ids is none, int or string".into()),
    })
}

/// A line of what Linux says about this process, in MiB.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
