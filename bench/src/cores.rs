//! What more cores are worth: both joins with 1, 2, 4, … threads.

use std::time::Duration;

use nearjoin::sink::{Count, CsrInto, Neighbors};
use nearjoin::{Device, EpsJoin, KnnJoin, Points, Stats};

use crate::Result;
use crate::args::Options;
use crate::call::{agree, timed};
use crate::table::{Table, grouped, seconds, times};
use crate::workload::{Ask, Case, Within, Workload};

/// The nearest that are asked for.
const K: usize = 8;

/// The section.
pub(crate) fn run(options: &Options) -> Result<String> {
    let all = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let mut text = String::from("## Cores\n");
    for case in options.chosen(Within::CASES) {
        text += &format!("\n{}", of_case(case, &threads(all), options)?);
    }
    Ok(format!(
        "{text}\n\
         f64, on the CPU; best of {} calls after one that warms up. Speed-up: against one thread.\n\
         Plan and index: their shares of that call. CSR is into the arrays of an earlier answer,\n\
         and so are the nearest, ids and distances. `clustered` has too many pairs for a CSR.\n",
        options.reps
    ))
}

/// 1, 2, 4, …, and as many as there are.
fn threads(all: usize) -> Vec<usize> {
    let mut threads: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&n| n < all).collect();
    threads.push(all);
    threads
}

/// The table of one case.
fn of_case(case: &'static Case<Within>, threads: &[usize], options: &Options) -> Result<Table> {
    let workload = case.workload(options.points);
    let title = format!("{}, {} points", case.name, grouped(workload.points as u64));
    let mut table =
        Table::new(&[&title, "threads", "strategy", "seconds", "speed-up", "plan", "index"]);
    let mut memory = Memory::of(&workload)?;
    for answer in Answer::ALL {
        if answer.is_csr() && case.count_only() {
            continue;
        }
        eprintln!("{}: {}", case.name, answer.name());
        let mut alone = None;
        for &threads in threads {
            let (took, stats) = memory.best(answer, &workload, threads, options.reps)?;
            let share = |part: Duration| format!("{:.1} %", 100.0 * part.as_secs_f64() / took);
            table.row(vec![
                answer.name().into(),
                threads.to_string(),
                stats.strategy.to_string(),
                seconds(Some(took)),
                times(Some(*alone.get_or_insert(took)), Some(took)),
                share(stats.plan),
                share(stats.index),
            ]);
        }
    }
    Ok(table)
}

/// What is asked for.
#[derive(Clone, Copy)]
enum Answer {
    Count,
    Csr,
    Sorted,
    Nearest,
}

impl Answer {
    const ALL: [Answer; 4] = [Answer::Count, Answer::Csr, Answer::Sorted, Answer::Nearest];

    fn name(self) -> &'static str {
        match self {
            Answer::Count => "count",
            Answer::Csr => "CSR",
            Answer::Sorted => "CSR, sorted",
            Answer::Nearest => "k = 8",
        }
    }

    fn is_csr(self) -> bool {
        matches!(self, Answer::Csr | Answer::Sorted)
    }
}

/// What answers are written into, call after call.
struct Memory {
    pairs: u64,
    offsets: Vec<u64>,
    ids: Vec<u32>,
    neighbors: Neighbors<f64>,
}

impl Memory {
    /// Memory for all answers of a case.
    fn of(workload: &Workload<Within>) -> Result<Self> {
        let points = Points::new(&workload.data, workload.dimension())?;
        let plan = EpsJoin::new(workload.eps()).device(Device::Cpu).plan_self(&points)?;
        let pairs = plan.run(&mut Count::new())?.pairs;
        let ids = if workload.case.count_only() { 0 } else { pairs as usize };
        let offsets = vec![0; workload.points + 1];
        Ok(Memory { pairs, offsets, ids: vec![0; ids], neighbors: Neighbors::new() })
    }

    /// The best of several calls, after one that warms up.
    fn best(
        &mut self,
        answer: Answer,
        workload: &Workload<Within>,
        threads: usize,
        reps: usize,
    ) -> Result<(f64, Stats)> {
        self.call(answer, workload, threads)?;
        let mut best = self.call(answer, workload, threads)?;
        for _ in 1..reps {
            let next = self.call(answer, workload, threads)?;
            if next.0 < best.0 {
                best = next;
            }
        }
        Ok(best)
    }

    fn call(
        &mut self,
        answer: Answer,
        workload: &Workload<Within>,
        threads: usize,
    ) -> Result<(f64, Stats)> {
        let within = EpsJoin::new(workload.eps()).device(Device::Cpu).threads(threads);
        let nearest = KnnJoin::new(K).device(Device::Cpu).threads(threads);
        let expected = match answer {
            Answer::Nearest => (workload.points * K) as u64,
            _ => self.pairs,
        };
        let (took, stats) = timed(&workload.data, workload.dimension(), |points| match answer {
            Answer::Count => within.plan_self(points)?.run(&mut Count::new()),
            Answer::Csr | Answer::Sorted => {
                let sink = CsrInto::new(&mut self.offsets, &mut self.ids);
                let sorted = matches!(answer, Answer::Sorted);
                within.plan_self(points)?.run(&mut sink.sorted(sorted))
            }
            Answer::Nearest => nearest.plan_self(points)?.run(&mut self.neighbors),
        })?;
        agree(answer.name(), stats.pairs, expected)?;
        Ok((took, stats))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_until_there_are_no_more() {
        assert_eq!(threads(1), [1]);
        assert_eq!(threads(2), [1, 2]);
        assert_eq!(threads(12), [1, 2, 4, 8, 12]);
        assert_eq!(threads(16), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn every_answer_has_a_row_for_each_number_of_threads() {
        let line = "--cores --points 2000 --reps 1 --cases uniform2,clustered,embedding64";
        let options = crate::args::parse(line.split(' ').map(String::from)).unwrap();
        let rows = |name: &str| {
            let case = options.chosen(Within::CASES).find(|case| case.name == name).unwrap();
            of_case(case, &[1, 3], &options).unwrap().to_string().lines().count() - 2
        };
        assert_eq!(["uniform2", "clustered", "embedding64"].map(rows), [8, 4, 8]);
    }
}
