//! `nearjoin within`, `knn`, `dbscan` and `components`: load → plan → join into the output → tell.

use std::path::{Path, PathBuf};

use nearjoin_io::quote::{self, quoted};
use nearjoin_io::write::{PairColumns, check_ids as check_ids_of};
use nearjoin_io::{DType, Loaded};

use crate::failure::{Failure, Result, Side, say, tell};
use crate::interrupt::{self, Written};
use crate::load::{Held, Sides};
use crate::memory::Memory;
use crate::options::{self, Output};
use crate::output::{self, Job, Opened};
use crate::planner::Planner;
use crate::progress::{Board, Shown, tell_above};
use crate::question::Asked;
use crate::sharing;
use crate::telling::{self, About, Timeline};

pub(crate) fn run(asked: Asked<'_>) -> Result {
    asked.check_answer()?;
    let output = Output::new(&asked)?;
    let sources = options::sources(asked.input)?;
    check_paths(&asked)?;
    let telling = asked.telling;
    check(&asked, &output)?;

    let board = Board::default();
    interrupt::watch(&board.monitor)?;
    let threads = options::use_threads(asked.engine.threads)?;
    let planner = Planner::new(&asked, &board.monitor, threads);
    planner.check()?;

    // Every file that will be written is opened first: what cannot be written is known
    // before the work, and not after. Where only the plan is wanted, there are none.
    let (opened, about) = match telling.explain {
        true => (None, About::default()),
        false => (Some(output::open(&output)?), About::open(telling)?),
    };
    let shown = Shown::new(&board, telling.progress, telling.quiet, !output.is_stdout());

    let timeline = Timeline::start();
    let sides = Sides::load(&sources, &board)?;
    if !telling.quiet {
        sides.warn_of_angles();
    }
    check_ids(&asked, &output, &sides)?;
    let memory = Memory::new(asked.engine.memory_limit, &output, threads);
    let planner = planner.within_memory(memory.join);
    let run = Run { asked, output, planner, memory, threads, board: &board, sides: &sides };
    match sides.dtype() {
        DType::F32 => run.join::<f32>(opened, about, timeline, shown),
        DType::F64 => run.join::<f64>(opened, about, timeline, shown),
    }
}

/// Arguments that make no sense together, which their definitions cannot say.
fn check(asked: &Asked<'_>, output: &Output) -> Result {
    asked.check_device()?;
    let to_stdout = asked.telling.stats.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if to_stdout && output.is_stdout() {
        return Err(Failure::usage(
            "the answer and --stats - would both go to standard output: give one of them a file",
        ));
    }
    let page = asked.telling.report.as_deref();
    let is_page = |path: &Path| path.extension().is_some_and(|end| end == "html" || end == "htm");
    if let Some(path) = page.filter(|path| !is_page(path)) {
        return Err(Failure::usage(format!(
            "{}: the name of the report must end in .html",
            quote::path(path)
        )));
    }
    Ok(())
}

/// Refuses ids that the output cannot hold, under the name that their column was asked for by.
fn check_ids(asked: &Asked<'_>, output: &Output, sides: &Sides) -> Result {
    let Some(place) = output.place() else { return Ok(()) };
    let input = asked.input;
    let right = sides.right.as_ref().filter(|_| matches!(output, Output::Pairs(_)));
    for (loaded, given, side) in [
        (Some(&sides.left), &input.id, Side::Left),
        (right, if input.right_id.is_some() { &input.right_id } else { &input.id }, Side::Right),
    ] {
        let Some((ids, id)) = loaded.and_then(|loaded| loaded.ids.as_ref()).zip(given.as_ref())
        else {
            continue;
        };
        check_ids_of(place.format(), ids.data_type()).map_err(|problem| {
            let flag = if given == &input.id { Side::Left.id() } else { side.id() };
            Failure::failed(format!(
                "{}: the column {} of {flag} cannot be written: {problem}: choose another, or \
                 write .parquet or .arrow",
                telling::name(place),
                quoted(id)
            ))
        })?;
    }
    Ok(())
}

fn check_paths(asked: &Asked<'_>) -> Result {
    let (input, telling) = (asked.input, asked.telling);
    let inputs: Vec<&Path> = [Some(&input.left), input.right.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    let outputs: Vec<&Path> = [asked.output, telling.stats.as_deref(), telling.report.as_deref()]
        .into_iter()
        .flatten()
        .collect();
    options::check_paths(&inputs, &outputs)
}

/// A run whose points are loaded.
pub(crate) struct Run<'a> {
    pub(crate) asked: Asked<'a>,
    pub(crate) output: Output,
    planner: Planner,
    pub(crate) memory: Memory,
    threads: usize,
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
            return say(telling::explanation(self, &job, &plan));
        };
        if let Some(alone) = sharing::alone(&self.asked, &plan)
            && !self.asked.telling.quiet
        {
            tell_above(format_args!("note: {alone}"));
        }
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
                "{message} (the answer itself is complete: {})",
                telling::found(&self.asked, &outcome)
            )),
            other => other,
        })?;
        if !self.asked.telling.quiet {
            tell(telling::summary(self, &plan, &timeline, &outcome));
        }
        Ok(())
    }

    /// An error about memory, with what the limit was cut by.
    fn explained(&self, failure: Failure) -> Failure {
        match failure {
            Failure::OverLimit(message) => {
                Failure::OverLimit(format!("{message}{}", self.memory.explained()))
            }
            failure => failure,
        }
    }

    fn job<T: Held>(&self, tally: bool) -> Result<Job<'_, T>> {
        let Sides { left, right } = self.sides;
        let (left_points, right_points) = self.sides.points::<T>()?;
        let ids = |side: &Loaded| side.ids.clone();
        let question = self.asked.question;
        Ok(Job {
            planner: &self.planner,
            left: left_points,
            right: right_points,
            columns: PairColumns {
                left: ids(left),
                right: ids(right.as_ref().unwrap_or(left)),
                rank: question.ranked(),
                distances: question.distances(),
                half: question.half(),
                memory: self.memory.writer,
                threads: self.threads,
            },
            sorted: self.asked.sorted,
            tally,
            memory: self.memory,
            quiet: self.asked.telling.quiet,
            board: self.board,
        })
    }
}
