//! `nearjoin within`: load → plan → join into the output → tell.

use std::path::{Path, PathBuf};

use nearjoin::{EpsJoin, Metric};
use nearjoin_io::write::PairColumns;
use nearjoin_io::{DType, Loaded};

use crate::args;
use crate::failure::{Failure, Result, say, tell};
use crate::interrupt::{self, Written};
use crate::load::{Held, Sides};
use crate::number;
use crate::options::{self, Bytes, Output};
use crate::output::{self, Job, Opened};
use crate::progress::{Board, Shown};
use crate::telling::{self, About, Timeline};

/// What a writer of pairs may use, if the memory limit leaves it as much.
const WRITER_MEMORY: u64 = 256 << 20;

pub(crate) fn run(args: &args::Within) -> Result {
    let output = Output::new(&args.output, &args.input)?;
    let sources = options::sources(&args.input)?;
    check_paths(args)?;
    let telling = &args.telling;
    check(args, &output)?;

    options::use_threads(args.engine.threads);
    let board = Board::default();
    interrupt::watch(&board.monitor);
    let writer_memory = writer_memory(args, &output);
    let join = join(args, &board, writer_memory);
    join.check::<f64>()?;

    // Every file that will be written is opened first: what cannot be written is known
    // before the work, and not after. Where only the plan is wanted, there are none.
    let (opened, about) = match telling.explain {
        true => (None, About::default()),
        false => (Some(output::open(&output)?), About::open(telling)?),
    };
    let shown = Shown::new(&board, telling.progress, telling.quiet, !output.is_stdout());

    let timeline = Timeline::start();
    let sides = Sides::load(&sources, &board)?;
    check_square(args, sides.dtype())?;
    let run = Run { args, output, join, writer_memory, board: &board, sides: &sides };
    match sides.dtype() {
        DType::F32 => run.join::<f32>(opened, about, timeline, shown),
        DType::F64 => run.join::<f64>(opened, about, timeline, shown),
    }
}

/// Refuses an ε whose square the points' type cannot hold: every pair would match, or points
/// would that are not within it.
fn check_square(args: &args::Within, dtype: DType) -> Result {
    let (eps, square) = (args.eps, args.eps * args.eps);
    let (least, most) = match dtype {
        DType::F32 => (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
        DType::F64 => (f64::MIN_POSITIVE, f64::MAX),
    };
    if args.engine.metric != Metric::L2 || eps == 0.0 || (least..=most).contains(&square) {
        return Ok(());
    }
    let advice = match dtype {
        DType::F32 => "use --dtype f64, or give the points in other units",
        DType::F64 => "give the points in other units",
    };
    Err(Failure::failed(format!(
        "the square of ε = {eps:?}, which decides L2, is beyond the range of {dtype}: {advice}"
    )))
}

/// Arguments that make no sense together, which their definitions cannot say.
fn check(args: &args::Within, output: &Output) -> Result {
    let to_stdout = args.telling.stats.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if to_stdout && output.is_stdout() {
        return Err(Failure::usage(
            "the answer and --stats - would both go to standard output: give one of them a file",
        ));
    }
    let page = args.telling.report.as_deref();
    let is_page = |path: &Path| path.extension().is_some_and(|end| end == "html" || end == "htm");
    if let Some(path) = page.filter(|path| !is_page(path)) {
        return Err(Failure::usage(format!(
            "{}: the name of the report must end in .html",
            path.display()
        )));
    }
    Ok(())
}

fn check_paths(args: &args::Within) -> Result {
    let (input, telling) = (&args.input, &args.telling);
    let inputs: Vec<&Path> = [Some(&input.left), input.right.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    let outputs: Vec<&Path> = [&args.output.output, &telling.stats, &telling.report]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    options::check_paths(&inputs, &outputs)
}

fn writer_memory(args: &args::Within, output: &Output) -> u64 {
    match (output, args.engine.memory_limit) {
        (Output::Count, _) => 0,
        (_, Some(Bytes(limit))) => WRITER_MEMORY.min(limit / 4),
        (_, None) => WRITER_MEMORY,
    }
}

fn join(args: &args::Within, board: &Board, writer_memory: u64) -> EpsJoin {
    let engine = &args.engine;
    let mut join = EpsJoin::new(args.eps)
        .metric(engine.metric)
        .device(engine.device)
        .strategy(engine.strategy)
        .include_self(args.include_self)
        .monitor(&board.monitor);
    if let Some(threads) = engine.threads {
        join = join.threads(threads.0 as usize);
    }
    if let Some(Bytes(limit)) = engine.memory_limit {
        join = join.memory_limit(limit - writer_memory);
    }
    join
}

/// A run whose points are loaded.
pub(crate) struct Run<'a> {
    pub(crate) args: &'a args::Within,
    pub(crate) output: Output,
    join: EpsJoin,
    writer_memory: u64,
    board: &'a Board,
    pub(crate) sides: &'a Sides,
}

impl Run<'_> {
    fn join<T: Held>(
        &self,
        opened: Option<Opened>,
        about: About,
        mut timeline: Timeline,
        shown: Shown,
    ) -> Result {
        timeline.mark("load");
        let job = self.job::<T>(about.report.is_some())?;
        let plan = job.plan()?;
        timeline.mark("plan");
        let Some(opened) = opened else {
            drop(shown);
            return say(telling::explanation(self, &plan));
        };
        let outcome = plan
            .check_memory()
            .map_err(Failure::from)
            .and_then(|()| job.deliver(&plan, opened))
            .map_err(|failure| self.explained(failure))?;
        interrupt::leaves(Written::Answer);
        timeline.joined(&outcome);
        drop(shown);
        about.write(self, &job, &plan, &timeline, &outcome).map_err(|failure| match failure {
            Failure::Failed(message) => Failure::Failed(format!(
                "{message} (the answer itself is complete: {} pairs)",
                number::count(outcome.pairs)
            )),
            other => other,
        })?;
        if !self.args.telling.quiet {
            tell(telling::summary(self, &plan, &timeline, &outcome));
        }
        Ok(())
    }

    /// An error about memory, with what the limit was cut by.
    fn explained(&self, failure: Failure) -> Failure {
        match (failure, self.args.engine.memory_limit) {
            (Failure::OverLimit(message), Some(limit)) if self.writer_memory > 0 => {
                Failure::OverLimit(format!(
                    "{message} (of --memory-limit {}, {} are kept for writing)",
                    number::bytes(limit.0),
                    number::bytes(self.writer_memory)
                ))
            }
            (failure, _) => failure,
        }
    }

    fn job<T: Held>(&self, tally: bool) -> Result<Job<'_, T>> {
        let Sides { left, right } = self.sides;
        let (left_points, right_points) = self.sides.points::<T>()?;
        let ids = |side: &Loaded| side.ids.clone();
        Ok(Job {
            join: self.join.clone(),
            left: left_points,
            right: right_points,
            columns: PairColumns {
                left: ids(left),
                right: ids(right.as_ref().unwrap_or(left)),
                rank: false,
                distances: self.args.distances,
                half: self.args.half,
                memory: self.writer_memory,
                threads: self.args.engine.threads.map_or(0, |threads| threads.0 as usize),
            },
            include_self: self.args.include_self,
            sorted: self.args.sorted,
            tally,
            board: self.board,
        })
    }
}
