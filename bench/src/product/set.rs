//! Points of many dimensions, our calls on them, and what peers find there.

use std::time::Duration;

use nearjoin::sink::{Count, CsrSink, Neighbors};
use nearjoin::{Device, EpsJoin, KnnJoin, Points, Strategy};

use super::{Case, STRATEGIES};
use crate::Result;
use crate::args::Options;
use crate::call::{agree, timed};
use crate::crossover::{Ask, K};
use crate::gpu::knn::measure::same;
use crate::gpu::measure::{Engine, Timed, in_turn_unless};
use crate::gpu::product::epsilons;
use crate::peers::{Given, Outcome, Peer, Python};
use crate::table::grouped;

/// A call of ours that takes longer is made once: its first counts.
pub(super) const SLOW: Duration = Duration::from_secs(5);

/// The points of a case, and what every answer must be.
pub(super) struct Set<'a> {
    pub(super) case: &'a Case,
    data: &'a [f32],
    options: &'a Options,
    eps: f64,
    pairs: u64,
    nearest: Neighbors<f32>,
    /// What rounding allows peers to find.
    allowed: Allowed,
}

/// What rounding allows those to find who compute |x|² + |y|² − 2xy in `f32`.
struct Allowed {
    /// The least and the most pairs.
    pairs: [u64; 2],
    /// The largest share by which a distance to the nearest may differ.
    share: f64,
}

impl<'a> Set<'a> {
    pub(super) fn of(case: &'a Case, data: &'a [f32], options: &'a Options) -> Result<Self> {
        let points = Points::new(data, case.dimension)?;
        let [eps, _] = epsilons(&points);
        let count = |eps: f64| -> Result<u64> {
            let join = EpsJoin::new(eps).device(Device::Cpu);
            Ok(join.plan_self(&points)?.run(&mut Count::new())?.pairs)
        };
        let mut nearest = Neighbors::new();
        KnnJoin::new(K).device(Device::Cpu).plan_self(&points)?.run(&mut nearest)?;
        let error = error_of_squares(data, case.dimension);
        let least = nearest.distances().iter().fold(f32::INFINITY, |least, &x| least.min(x));
        let allowed = Allowed {
            pairs: [
                count((eps * eps - error).max(0.0).sqrt())?,
                count((eps * eps + error).sqrt())?,
            ],
            share: error / f64::from(least).powi(2),
        };
        Ok(Set { case, data, options, eps, pairs: count(eps)?, nearest, allowed })
    }

    /// The case in words.
    pub(super) fn title(&self) -> String {
        format!("{}, {} × {}", self.case.name, grouped(self.points() as u64), self.case.dimension)
    }

    pub(super) fn points(&self) -> usize {
        self.data.len() / self.case.dimension
    }

    /// Our times for an answer, in the order of `STRATEGIES`.
    pub(super) fn ours(&self, ask: Ask, threads: usize) -> Result<[Engine<Strategy>; 3]> {
        let mut engines = STRATEGIES.map(Engine::new);
        in_turn_unless(SLOW, self.options.reps, &mut engines, |&strategy| {
            self.call(ask, strategy, threads)
        })?;
        Ok(engines)
    }

    /// One call of ours, which must find what the others do.
    fn call(&self, ask: Ask, strategy: Strategy, threads: usize) -> Result<Timed> {
        let within = EpsJoin::new(self.eps).device(Device::Cpu).strategy(strategy).threads(threads);
        let nearest = KnnJoin::new(K).device(Device::Cpu).strategy(strategy).threads(threads);
        let (mut count, mut rows, mut found) = (Count::new(), CsrSink::new(), Neighbors::new());
        let (seconds, stats) = timed(self.data, self.case.dimension, |points| match ask {
            Ask::Count => within.plan_self(points)?.run(&mut count),
            Ask::Rows => within.plan_self(points)?.run(&mut rows),
            Ask::Nearest => nearest.plan_self(points)?.run(&mut found),
        })?;
        match ask {
            Ask::Nearest => same(&strategy.to_string(), &found, &self.nearest)?,
            _ => agree(&strategy.to_string(), stats.pairs, self.pairs)?,
        }
        Ok(Timed { time: Duration::from_secs_f64(seconds), stats })
    }

    /// What peers are given.
    fn given(&self, value: f64, threads: usize) -> Given<'_, f32> {
        Given {
            name: self.case.file,
            data: self.data,
            dimension: self.case.dimension,
            value,
            distances: None,
            threads: Some(threads),
            reps: self.options.peer_reps,
        }
    }

    /// What a product of so many points takes in numpy, and its multiply-adds.
    pub(super) fn product(
        &self,
        rows: usize,
        threads: usize,
        python: &Python,
    ) -> Result<Vec<Peer<f64>>> {
        let given = Given { reps: self.options.reps, ..self.given(rows as f64, threads) };
        python.product(&given, self.options)
    }

    /// The peers' answers to a question, judged. Nobody but us counts without rows.
    pub(super) fn peers(&self, ask: Ask, threads: usize, python: &Python) -> Result<Vec<Judged>> {
        if !self.case.has_peers {
            return Ok(Vec::new());
        }
        Ok(match ask {
            Ask::Count => Vec::new(),
            Ask::Rows => {
                let peers = python.flat_within(&self.given(self.eps, threads), self.options)?;
                judged(peers, |&found| self.allowed.pairs(found, self.pairs))
            }
            Ask::Nearest => {
                let distances = Some(self.nearest.distances());
                let given = Given { distances, ..self.given(K as f64, threads) };
                let peers = python.flat_nearest(&given, self.options)?;
                judged(peers, |&share| self.allowed.distances(share))
            }
        })
    }
}

/// The most by which |x|² + |y|² − 2xy in `f32` and our own square of a distance differ: each of the
/// d + 3 roundings of either moves it by less than 2⁻²⁴ of (|x| + |y|)², which is at most four times the
/// largest square of a norm.
fn error_of_squares(data: &[f32], dimension: usize) -> f64 {
    let square = |row: &[f32]| row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
    let largest = data.chunks(dimension).map(square).fold(0.0, f64::max);
    let roundoff = f64::from(f32::EPSILON) / 2.0;
    2.0 * (dimension + 3) as f64 * roundoff * 4.0 * largest
}

/// What to say of a peer's answer.
pub(super) enum Verdict {
    /// It is ours.
    Same,
    /// It is ours but for rounding: how it differs.
    Rounded(String),
    Wrong(String),
    /// There is none, for this reason.
    Skipped(String),
}

/// A peer's time, and what came of it.
pub(super) struct Judged {
    pub(super) name: &'static str,
    pub(super) seconds: Option<f64>,
    pub(super) verdict: Verdict,
}

/// Peers, with what `judge` says of what they found.
fn judged<Found>(peers: Vec<Peer<Found>>, judge: impl Fn(&Found) -> Verdict) -> Vec<Judged> {
    let of = |peer: Peer<Found>| {
        let (name, seconds) = (peer.name, peer.seconds());
        let verdict = match peer.outcome {
            Outcome::Skipped(reason) => Verdict::Skipped(reason),
            Outcome::Ran(timed) => judge(&timed.found),
        };
        Judged { name, seconds, verdict }
    };
    peers.into_iter().map(of).collect()
}

impl Allowed {
    /// What to say of so many pairs, where these are ours.
    fn pairs(&self, found: u64, ours: u64) -> Verdict {
        let [least, most] = self.pairs;
        let by = found as i64 - ours as i64;
        let [pairs, low, high] = [ours, least, most].map(grouped);
        let text = format!("{by:+} of {pairs} pairs; rounding explains {low} to {high}");
        match (least..=most).contains(&found) {
            true if by == 0 => Verdict::Same,
            true => Verdict::Rounded(text),
            false => Verdict::Wrong(text),
        }
    }

    /// What to say of distances of which one differs by this share.
    fn distances(&self, share: f64) -> Verdict {
        let most = self.share;
        let text = format!(
            "distances differ by up to {share:.1e} of themselves; rounding explains {most:.1e}"
        );
        match share {
            0.0 => Verdict::Same,
            _ if share <= most => Verdict::Rounded(text),
            _ => Verdict::Wrong(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crossover::Spread;

    #[test]
    fn only_rounding_is_forgiven() {
        let allowed = Allowed { pairs: [90, 120], share: 1e-5 };
        assert!(matches!(allowed.pairs(100, 100), Verdict::Same));
        assert!(matches!(allowed.pairs(120, 100), Verdict::Rounded(_)));
        assert!(matches!(allowed.pairs(89, 100), Verdict::Wrong(_)));
        assert!(matches!(allowed.distances(0.0), Verdict::Same));
        assert!(matches!(allowed.distances(1e-6), Verdict::Rounded(_)));
        assert!(matches!(allowed.distances(1e-4), Verdict::Wrong(_)));
        assert!(matches!(allowed.distances(f64::NAN), Verdict::Wrong(_)));
    }

    #[test]
    fn sums_of_squares_err_by_less_than_is_allowed() {
        let data = Spread::Inner(5).draw(200, 40);
        let allowed = error_of_squares(&data, 40);
        let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f32>();
        let mut worst = 0.0f64;
        for x in data.chunks(40) {
            for y in data.chunks(40) {
                let expanded = dot(x, x) + dot(y, y) - 2.0 * dot(x, y);
                let of = |(x, y): (&f32, &f32)| (f64::from(*x) - f64::from(*y)).powi(2);
                let exact: f64 = x.iter().zip(y).map(of).sum();
                worst = worst.max((f64::from(expanded) - exact).abs());
            }
        }
        assert!(worst > 0.0 && worst < allowed, "{worst} of {allowed}");
    }
}
