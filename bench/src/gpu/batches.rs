//! The model of batches (GPU-SJ, §5.4) beside what happens: fitted to two runs, it predicts the
//! best of several sizes.

use nearjoin::Points;
use nearjoin::gpu::{BatchModel, GpuOptions};

use super::cases::PAPERS;
use super::measure::{self, Arrays, Timed};
use super::{Target, data};
use crate::Result;
use crate::args::Options;
use crate::call::agree;
use crate::table::{Table, grouped, milliseconds};

pub(super) const ABOUT: &str = "\
`R = T₁ + T₂(b) + θ · n(b)`, fitted to the repeated calls with the smallest and the middle size:
T₁ and θ are theirs, T₂ is the time to pin the buffers at 2 GB/s. First: the first call of this
process with this size, sizes ascending, so that its buffers are not pinned yet; repeated: the
best of later calls, for which T₂ is 0. Each set has a process of its own.
";

/// Bytes of a piece that crosses the bus, ascending.
const CHUNKS: [u64; 7] = [1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26];
/// Bytes of the result that the device makes at a time, ascending.
const BATCHES: [u64; 6] = [1 << 24, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29];
/// Buffers that the engine keeps under way, and the seconds to pin a byte of them.
const BUFFERS: f64 = 4.0;
const PINNING: f64 = 0.5e-9;

/// One size: how many batches it made, and the calls.
#[derive(Clone, Copy, Debug)]
struct Run {
    bytes: u64,
    batches: usize,
    first: f64,
    repeated: f64,
}

/// Both tables of the set of this name.
pub(super) fn here(name: &str, target: &Target, options: &Options) -> Result<String> {
    let set = PAPERS.iter().find(|set| set.name == name).ok_or("no such set")?;
    let set = set.scaled(options.points);
    let data: Vec<f32> = data::draw(set.law, set.points, set.dimension);
    let points = Points::new(&data, set.dimension)?;
    let join = |gpu: GpuOptions| target.join(set.eps(), gpu);
    // The arrays and the kernels, with buffers that are smaller than any that is measured.
    let small = join(GpuOptions::new().chunk_bytes(1 << 18));
    let (timed, mut arrays) = measure::fresh(&small, &points)?;
    let pairs = timed.stats.pairs;
    let total = pairs * 4;
    let mut runs = |sizes: &[u64], option: fn(GpuOptions, u64) -> GpuOptions, pieces: Pieces| {
        let run = |&bytes: &u64| {
            let join = join(option(GpuOptions::new(), bytes));
            let call = |arrays: &mut Arrays| {
                let timed = measure::reused(&join, &points, arrays)?;
                agree(&format!("{name}, {bytes} bytes"), timed.stats.pairs, pairs).map(|()| timed)
            };
            let first = call(&mut arrays)?;
            let mut repeated = call(&mut arrays)?.time;
            for _ in 1..options.reps {
                repeated = repeated.min(call(&mut arrays)?.time);
            }
            let batches = pieces(&first, total, bytes);
            let (first, repeated) = (first.time.as_secs_f64(), repeated.as_secs_f64());
            Ok(Run { bytes, batches, first, repeated })
        };
        sizes.iter().map(run).collect::<Result<Vec<Run>>>()
    };
    let chunks = runs(
        &fitting(&CHUNKS, total),
        |gpu, bytes| gpu.chunk_bytes(bytes as usize),
        |_, total, bytes| total.div_ceil(bytes) as usize,
    )?;
    let batches = runs(&fitting(&BATCHES, total), GpuOptions::batch_bytes, |timed, _, _| {
        timed.stats.gpu.as_ref().map_or(0, |gpu| gpu.batches)
    })?;
    Ok(format!(
        "{}\n{}",
        table(&format!("{name}: chunk"), total, &chunks, PINNING),
        // Batches stay on the device, where nothing is pinned.
        table(&format!("{name}: batch"), total, &batches, 0.0)
    ))
}

/// How many pieces a call made, of its total bytes in pieces of some.
type Pieces = fn(&Timed, u64, u64) -> usize;

/// What was measured and predicted for every size, and the best of each.
fn table(title: &str, total: u64, runs: &[Run], pinning: f64) -> String {
    let of = |run: Run| (run.bytes, run.batches, run.repeated);
    let ends = [runs[0], runs[runs.len() / 2]].map(of);
    let model = BatchModel::fit(0.0, BUFFERS, ends).map(|model| BatchModel { pinning, ..model });
    let mut table =
        Table::new(&[title, "batches", "first, ms", "predicted", "repeated, ms", "predicted"]);
    let predicted = |bytes: u64, pinned: u64| {
        milliseconds(model.map(|model| model.seconds(total, bytes, pinned) * 1e3))
    };
    for run in runs {
        table.row(vec![
            size(run.bytes),
            grouped(run.batches as u64),
            milliseconds(Some(run.first * 1e3)),
            predicted(run.bytes, 0),
            milliseconds(Some(run.repeated * 1e3)),
            predicted(run.bytes, u64::MAX),
        ]);
    }
    let Some(model) = model else {
        return format!("{table}\nOne number of batches at both ends: there is nothing to fit.\n");
    };
    let sizes: Vec<u64> = runs.iter().map(|run| run.bytes).collect();
    let best = |pinned: u64| model.best(total, pinned, &sizes).unwrap_or(0);
    format!(
        "{table}\nT₁ {:.3} ms, θ {:.1} µs.\n{}{}",
        model.work * 1e3,
        model.batch * 1e6,
        verdict("first", best(0), runs, |run| run.first),
        verdict("repeated", best(u64::MAX), runs, |run| run.repeated)
    )
}

/// The size that was predicted to be best beside the one that was.
fn verdict(what: &str, predicted: u64, runs: &[Run], seconds: fn(&Run) -> f64) -> String {
    let chosen = runs.iter().find(|run| run.bytes == predicted);
    let measured = runs.iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    let Some((chosen, measured)) = chosen.zip(measured) else { return String::new() };
    format!(
        "- {what}: predicted best {} ({:.3} ms measured), measured best {} \
         ({:.3} ms), {:.2} × of it\n",
        size(chosen.bytes),
        seconds(chosen) * 1e3,
        size(measured.bytes),
        seconds(measured) * 1e3,
        seconds(chosen) / seconds(measured)
    )
}

/// Sizes of which a result of `total` bytes has several: no larger than it, and all of them
/// smaller where that leaves few.
fn fitting(sizes: &[u64], total: u64) -> Vec<u64> {
    let too_large = (0..).find(|shift| sizes[3] >> shift <= total.max(1)).unwrap_or(0);
    let smaller = sizes.iter().map(|size| (size >> too_large).max(1));
    smaller.filter(|&size| size <= total.max(1)).collect()
}

fn size(bytes: u64) -> String {
    match bytes.trailing_zeros() {
        20.. => format!("{} MiB", bytes >> 20),
        10.. => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_as_the_model_is_predicted() {
        let made = BatchModel { work: 0.05, pinning: PINNING, buffers: BUFFERS, batch: 1e-4 };
        let total = 1u64 << 30;
        let runs = CHUNKS.map(|bytes| Run {
            bytes,
            batches: total.div_ceil(bytes) as usize,
            first: made.seconds(total, bytes, 0),
            repeated: made.seconds(total, bytes, u64::MAX),
        });
        let text = table("chunk", total, &runs, PINNING);
        assert!(text.contains("T₁ 50.000 ms, θ 100.0 µs"), "{text}");
        assert!(text.contains("- first: predicted best 8 MiB ("), "{text}");
        assert!(text.contains("- repeated: predicted best 64 MiB ("), "{text}");
        assert_eq!(text.matches("1.00 × of it").count(), 2, "{text}");
    }

    #[test]
    fn sizes_cut_the_result() {
        assert_eq!(fitting(&CHUNKS, 1 << 40), CHUNKS);
        assert_eq!(fitting(&CHUNKS, 20 << 20).last(), Some(&(16 << 20)));
        assert_eq!(fitting(&CHUNKS, 1000), [64, 128, 256, 512]);
        assert_eq!(fitting(&CHUNKS, 0), [1, 1, 1, 1]);
        assert_eq!([1 << 26, 1 << 16, 100].map(size), ["64 MiB", "64 KiB", "100 B"]);
    }

    #[test]
    fn without_a_difference_there_is_no_model() {
        let run = Run { bytes: 1, batches: 1, first: 1.0, repeated: 1.0 };
        assert!(table("chunk", 1, &[run; 3], 0.0).contains("nothing to fit"));
    }
}
