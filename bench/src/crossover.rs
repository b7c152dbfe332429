//! From where on matrix products pay: every strategy by name, in few dimensions and in many, and what
//! `auto` makes of it.

use std::collections::HashSet;
use std::time::Instant;

use nearjoin::sink::{Count, CsrSink, Neighbors};
use nearjoin::{Device, EpsJoin, KnnJoin, Points, Sink, Stats, Strategy};

use crate::Result;
use crate::args::Options;
use crate::call::agree;
use crate::gpu::Target;
use crate::gpu::data::{Law, draw};
use crate::gpu::measure::{Engine, Timed, in_turn};
use crate::gpu::product::epsilons;
use crate::table::{Table, grouped, milliseconds, times};

/// Points, unless the options say otherwise: on a CPU, and on a GPU.
const POINTS: [usize; 2] = [20_000, 100_000];
const DIMENSIONS: [usize; 8] = [4, 6, 9, 12, 16, 24, 32, 64];
/// The nearest that are asked for.
pub(crate) const K: usize = 10;
/// A strategy that takes so many times as long as the best is not asked for more dimensions.
const HOPELESS: f64 = 50.0;
/// The noise of points that lie near a plane, beside their spread in it.
const NOISE: f32 = 0.01;
/// What near-copies differ by, beside the size of points; and how far heaps are from the middle.
const COPIED: f32 = 1e-3;
const APART: f32 = 1e5;

/// How points are spread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spread {
    Law(Law),
    /// Normal in so many dimensions, and a little in all the others: as what is measured or learnt
    /// often is.
    Inner(usize),
    /// So many near-copies of each normal point.
    Copies(usize),
    /// Two heaps, far from each other beside what they are wide: no product tells the points of one apart.
    Heaps,
}

const SPREADS: [(&str, Spread); 5] = [
    ("uniform", Spread::Law(Law::Uniform)),
    ("normal", Spread::Law(Law::Normal)),
    ("inner 3", Spread::Inner(3)),
    ("inner 6", Spread::Inner(6)),
    ("inner 12", Spread::Inner(12)),
];

impl Spread {
    pub(crate) fn draw(self, points: usize, dimension: usize) -> Vec<f32> {
        let inner = match self {
            Spread::Law(law) => return draw(law, points, dimension),
            Spread::Inner(inner) => inner,
            Spread::Copies(of) => {
                let mut rows = draw::<f32>(Law::Normal, points, dimension);
                let (first, noise) = (rows.clone(), COPIED);
                for (at, x) in rows.iter_mut().enumerate() {
                    *x = noise * *x + first[at / dimension / of * dimension + at % dimension];
                }
                return rows;
            }
            Spread::Heaps => {
                let mut rows = draw::<f32>(Law::Normal, points, dimension);
                for (row, point) in rows.chunks_mut(dimension).enumerate() {
                    let place = if row % 2 == 0 { APART } else { -APART };
                    point.iter_mut().for_each(|x| *x += place);
                }
                return rows;
            }
        };
        let places = draw::<f32>(Law::Normal, points, inner);
        let mut rows = draw::<f32>(Law::Normal, inner + points, dimension);
        let noise = rows.split_off(inner * dimension);
        let point = |(place, noise): (&[f32], &[f32])| -> Vec<f32> {
            let along = |at| place.iter().zip(rows[at..].iter().step_by(dimension));
            let sum = |at| along(at).map(|(x, y)| x * y).sum::<f32>() + NOISE * noise[at];
            (0..dimension).map(sum).collect()
        };
        places.chunks(inner).zip(noise.chunks(dimension)).flat_map(point).collect()
    }
}

/// What is asked of points, and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Count,
    Rows,
    Nearest,
}

impl Ask {
    pub(crate) const ALL: [Ask; 3] = [Ask::Count, Ask::Rows, Ask::Nearest];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Ask::Count => "count",
            Ask::Rows => "CSR",
            Ask::Nearest => "k = 10",
        }
    }

    /// The strategies that a device has for it.
    fn strategies(self, device: Device) -> &'static [Strategy] {
        match (self, device) {
            (Ask::Nearest, Device::Gpu) => Strategy::KNN_GPU,
            (Ask::Nearest, _) => Strategy::KNN,
            (_, Device::Gpu) => Strategy::EPSILON_GPU,
            _ => Strategy::EPSILON,
        }
    }
}

/// The strategies of a row, in their order.
const COLUMNS: [Strategy; 6] = [
    Strategy::Directory,
    Strategy::Grid,
    Strategy::Ego,
    Strategy::Tree,
    Strategy::Brute,
    Strategy::Product,
];

/// A row of the table is fine where `auto` takes at most so many times as long as the best.
const FINE: f64 = 1.25;

/// Joins on one device.
struct Crossover<'a> {
    target: &'a Target,
    device: Device,
    reps: usize,
}

/// The section.
pub(crate) fn run(target: &Target, device: Device, options: &Options) -> Result<String> {
    let on_gpu = device == Device::Gpu;
    let points = options.points.unwrap_or(POINTS[usize::from(on_gpu)]);
    let mut heads = vec!["f32, ms".to_owned(), "dimensions".into(), "asked".into()];
    heads.extend(COLUMNS.iter().map(Strategy::to_string));
    heads.extend(["auto", "auto chose", "auto ÷ best"].map(String::from));
    let mut table = Table::new(&heads.iter().map(|head| &head[..]).collect::<Vec<_>>());
    let crossover = Crossover { target, device, reps: options.reps };
    let (mut rows, mut slow) = (0, Vec::new());
    for (name, spread) in SPREADS {
        let mut hopeless = Ask::ALL.map(|_| HashSet::new());
        for dimension in DIMENSIONS {
            let data = spread.draw(points, dimension);
            let checked = Points::new(&data, dimension)?;
            let distances = epsilons(&checked);
            for (ask, hopeless) in Ask::ALL.into_iter().zip(&mut hopeless) {
                let mut row = vec![name.to_owned(), dimension.to_string(), ask.name().into()];
                let (cells, of_best) = crossover.row(ask, &checked, distances, hopeless)?;
                rows += 1;
                if of_best > FINE {
                    slow.push(row.join(" "));
                }
                row.extend(cells);
                eprintln!("{}", row.join(" | "));
                table.row(row);
            }
        }
    }
    let fine = rows - slow.len();
    let slow = if slow.is_empty() { "none".into() } else { slow.join(", ") };
    Ok(format!(
        "## From where on products pay, on {}\n\n{} points, by default options.\n\n{table}\n\
         - Milliseconds, planning included: the best of {} calls, all in turn; one call where that takes over half\n  \
         a second. What took {HOPELESS} times as long as the best is not tried in more dimensions.\n\
         - Counts have about one neighbour, rows about ten. Inner n: normal in n dimensions that are\n  \
         turned among all, with a hundredth of that in every one.\n\
         - All found the same.\n\
         - `auto` took at most {FINE} times as long as the best by name in {fine} of {rows} rows; not in: {slow}.\n",
        if on_gpu { "a GPU" } else { "the CPU" },
        grouped(points as u64),
        options.reps,
    ))
}

impl Crossover<'_> {
    /// The cells of a row, and how many times as long as the best `auto` takes.
    fn row(
        &self,
        ask: Ask,
        points: &Points<'_, f32>,
        [one, ten]: [f64; 2],
        hopeless: &mut HashSet<Strategy>,
    ) -> Result<(Vec<String>, f64)> {
        let tried = ask.strategies(self.device).iter().copied();
        let mut engines: Vec<_> = tried
            .filter(|strategy| *strategy != Strategy::Ranges && !hopeless.contains(strategy))
            .map(Engine::new)
            .collect();
        in_turn(self.reps, &mut engines, |&strategy| match ask {
            Ask::Count => self.within(one, strategy, points, &mut Count::new()),
            Ask::Rows => self.within(ten, strategy, points, &mut CsrSink::new()),
            Ask::Nearest => {
                let join = self.target.on(self.device, &KnnJoin::new(K).strategy(strategy));
                timed(|| join.plan_self(points)?.run(&mut Neighbors::new()))
            }
        })?;
        let ms = |wanted: Strategy| {
            let engine = engines.iter().find(|engine| engine.join == wanted);
            engine.and_then(Engine::ms)
        };
        let best = COLUMNS.into_iter().filter_map(ms).fold(f64::INFINITY, f64::min);
        let is_hopeless =
            |strategy: &Strategy| ms(*strategy).is_some_and(|ms| ms > HOPELESS * best);
        hopeless.extend(COLUMNS.into_iter().filter(is_hopeless));

        let auto = engines.iter().find(|engine| engine.join == Strategy::Auto);
        let auto = auto.and_then(|engine| engine.best.as_ref()).ok_or("auto was not measured")?;
        for engine in &engines {
            let pairs = engine.best.as_ref().map_or(0, |best| best.stats.pairs);
            agree(&engine.join.to_string(), pairs, auto.stats.pairs)?;
        }
        let mut cells: Vec<String> = COLUMNS.into_iter().map(|by| milliseconds(ms(by))).collect();
        let auto_ms = Some(auto.ms());
        cells.push(milliseconds(auto_ms));
        cells.push(auto.stats.strategy.to_string());
        cells.push(times(auto_ms, Some(best)));
        Ok((cells, auto.ms() / best))
    }

    fn within<S: Sink<f32>>(
        &self,
        eps: f64,
        strategy: Strategy,
        points: &Points<'_, f32>,
        sink: &mut S,
    ) -> Result<Timed> {
        let join = self.target.on(self.device, &EpsJoin::new(eps).strategy(strategy));
        timed(|| join.plan_self(points)?.run(sink))
    }
}

fn timed(call: impl FnOnce() -> nearjoin::Result<Stats>) -> Result<Timed> {
    let start = Instant::now();
    let stats = call()?;
    Ok(Timed { time: start.elapsed(), stats })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_near_a_plane_have_its_dimensions() {
        let points = Spread::Inner(2).draw(1000, 9);
        assert_eq!(points.len(), 9000);
        let checked = Points::new(&points, 9).unwrap();
        // Twice as far there are four times as many, where nine dimensions have 512.
        let [one, ten] = epsilons(&checked);
        let growth = (10.0f64).ln() / (ten / one).ln();
        assert!((1.2..3.5).contains(&growth), "{growth}");
    }

    #[test]
    fn every_strategy_of_either_device_has_a_column() {
        for strategy in [Device::Cpu, Device::Gpu]
            .into_iter()
            .flat_map(|device| Ask::ALL.into_iter().flat_map(move |ask| ask.strategies(device)))
        {
            let has_none = [Strategy::Auto, Strategy::Ranges].contains(strategy);
            assert_eq!(COLUMNS.contains(strategy), !has_none, "{strategy}");
        }
    }
}
