//! How much the options of the paper's scheme matter: its tables and figures that change one.

use nearjoin::sink::Neighbors;
use nearjoin::{Device, KnnJoin, RangesOptions};

use super::super::super::Failures;
use super::super::super::measure::{Engine, in_turn};
use super::super::{call, keep};
use super::figures::{FACTORS, FACTORS_SAYS, K, LARGE, LARGE_SAYS, SETS, Set, THREADS, THREADS_KS};
use super::{Setting, ranges, seconds};
use crate::Result;
use crate::table::{Table, times};

/// All of them, until the time is over. Those of few dimensions come first.
pub(super) fn run(setting: &Setting<'_>, failures: &mut Failures) -> Result<String> {
    let mut sweeper = Sweeper { setting, failures, left_out: 0 };
    let factors = sweeper.eps_factors()?;
    let large = sweeper.large_batches()?;
    let threads = sweeper.threads()?;
    let left_out = match sweeper.left_out {
        0 => String::new(),
        rows => format!("\n{rows} rows were left out, since the time was over.\n"),
    };
    Ok(format!(
        "\nThe first ε as a multiple of the default, hybrid, ranges, beside figure 13, k = {K}: there\n\
         {FACTORS_SAYS}. Seconds.\n\n{factors}\n\
         The first batch of the GPU, hybrid, ranges, with nothing kept for the CPU, beside figure 11,\n\
         k = {K}: there {LARGE_SAYS}. Seconds.\n\n{large}\n\
         Threads to a query, hybrid, ranges, beside table 7. Seconds.\n\n{threads}{left_out}"
    ))
}

struct Sweeper<'a, 'f> {
    setting: &'a Setting<'a>,
    failures: &'f mut Failures,
    /// Rows for which there was no time.
    left_out: usize,
}

impl Sweeper<'_, '_> {
    /// Figure 13, of the sets in 2-D.
    fn eps_factors(&mut self) -> Result<Table> {
        let mut table = headed("ε factor", FACTORS.map(|factor| factor.to_string()));
        for set in self.chosen().filter(|set| set.dimension == 2) {
            if let Some(took) = self.sweep(set, K, FACTORS.iter().map(ranges::eps_factor))? {
                table.row(row(set, K, &took));
            }
        }
        Ok(table)
    }

    /// Figure 11.
    fn large_batches(&mut self) -> Result<Table> {
        let mut table = headed("first batch", LARGE.map(|share| share.to_string()));
        for set in self.chosen() {
            if let Some(took) = self.sweep(set, K, LARGE.iter().map(ranges::large))? {
                table.row(row(set, K, &took));
            }
        }
        Ok(table)
    }

    /// Table 7: ours, and the paper's in the row below.
    fn threads(&mut self) -> Result<Table> {
        let mut table = headed("threads", THREADS.map(|threads| format!("t = {threads}")));
        for (at, k) in THREADS_KS.into_iter().enumerate() {
            for set in self.chosen() {
                let Some(paper) = set.threads else { continue };
                if let Some(took) = self.sweep(set, k, THREADS.iter().map(ranges::threads))? {
                    table.row(row(set, k, &took));
                    let paper = paper[at].map(|seconds| self.setting.paper(Some(seconds)));
                    let mut cells = row(set, k, &paper);
                    cells[0] += ", paper";
                    table.row(cells);
                }
            }
        }
        Ok(table)
    }

    fn chosen(&self) -> impl Iterator<Item = &'static Set> + use<> {
        let chosen: Vec<_> =
            SETS.iter().filter(|set| self.setting.options.has_case(set.name)).collect();
        chosen.into_iter()
    }

    /// Seconds of the paper's scheme on both processors, with each of some options; none if the
    /// time is over, or it failed.
    fn sweep(
        &mut self,
        set: &Set,
        k: usize,
        options: impl Iterator<Item = RangesOptions>,
    ) -> Result<Option<Vec<Option<f64>>>> {
        let setting = self.setting;
        if setting.is_over() {
            self.left_out += 1;
            return Ok(None);
        }
        let joins: Vec<KnnJoin> = options.map(|options| ranges::join(k, options)).collect();
        let name = format!("{}, k {k}, options", set.name);
        let took = keep(self.failures, &name, measured(setting, set, k, &joins))?;
        if let Some(took) = &took {
            let told: Vec<String> = took.iter().map(|&took| seconds(took)).collect();
            eprintln!(
                "{:.0} s: {name}: {}",
                setting.began.elapsed().as_secs_f64(),
                told.join(", ")
            );
        }
        Ok(took)
    }
}

fn measured(
    setting: &Setting<'_>,
    set: &Set,
    k: usize,
    joins: &[KnnJoin],
) -> Result<Vec<Option<f64>>> {
    let case = set.case(setting.points, k);
    let drawn = case.draw::<f32>();
    let sides = drawn.sides()?;
    // The GPU's own answer, which is the CPU's: the tables above have compared them.
    let tree = setting.target.on(Device::Gpu, &KnnJoin::new(k));
    let (mut expected, mut arrays) = (Neighbors::new(), Neighbors::new());
    call(&tree, &sides, &mut expected)?;
    call(&tree, &sides, &mut arrays)?;
    let mut engines: Vec<Engine<KnnJoin>> =
        joins.iter().map(|join| Engine::new(setting.target.on(Device::Hybrid, join))).collect();
    in_turn(1, &mut engines, |join| setting.call(&case, join, &sides, (&mut arrays, &expected)))?;
    Ok(engines.iter().map(|engine| engine.ms().map(|ms| ms / 1e3)).collect())
}

fn headed<const N: usize>(title: &str, heads: [String; N]) -> Table {
    let mut all = vec![title, "k"];
    all.extend(heads.iter().map(|head| &head[..]));
    all.push("slowest ÷ fastest");
    Table::new(&all)
}

fn row(set: &Set, k: usize, took: &[Option<f64>]) -> Vec<String> {
    let known = || took.iter().copied().flatten();
    let mut cells = vec![set.name.into(), k.to_string()];
    cells.extend(took.iter().map(|&took| seconds(took)));
    cells.push(times(known().reduce(f64::max), known().reduce(f64::min)));
    cells
}
