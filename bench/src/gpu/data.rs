//! Points by all threads: where time on a machine is scarce, none is spent on drawing them.

use nearjoin::Scalar;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp, LogNormal, StandardNormal};
use rayon::prelude::*;

/// Coordinates that one generator draws, so that the points do not depend on the threads.
const CHUNK: usize = 1 << 16;
const SEED: u64 = 0x6770_755f_6a6f_696e;

/// How points are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Law {
    /// Evenly in [0, 100]^d.
    Uniform,
    /// Each coordinate exponential with λ = 40.
    Exponential,
    /// Each coordinate standard normal.
    Normal,
    /// Each coordinate lognormal with σ = 3: most are below 10, some above 10⁵.
    Lognormal,
}

/// Points of a law, row-major: the same ones, but for rounding, in either type.
pub(crate) fn draw<T: Scalar>(law: Law, points: usize, dimension: usize) -> Vec<T> {
    let exponential = Exp::new(40.0).expect("λ is positive");
    let lognormal = LogNormal::new(0.0, 3.0).expect("σ is positive");
    let mut data = vec![T::ZERO; points * dimension];
    data.par_chunks_mut(CHUNK).enumerate().for_each(|(at, chunk)| {
        let seed = SEED ^ (dimension as u64) << 48 ^ at as u64;
        let mut random = StdRng::seed_from_u64(seed);
        let mut fill = |draw: &dyn Fn(&mut StdRng) -> f64| {
            chunk.fill_with(|| T::from_f64(draw(&mut random)));
        };
        match law {
            Law::Uniform => fill(&|random| random.random_range(0.0..100.0)),
            Law::Exponential => fill(&|random| exponential.sample(random)),
            Law::Normal => fill(&|random| StandardNormal.sample(random)),
            Law::Lognormal => fill(&|random| lognormal.sample(random)),
        }
    });
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_points_in_either_type_and_with_any_threads() {
        let points = CHUNK / 2 + 1000;
        for law in [Law::Uniform, Law::Exponential, Law::Normal, Law::Lognormal] {
            let wide: Vec<f64> = draw(law, points, 2);
            let narrow: Vec<f32> = draw(law, points, 2);
            assert!(wide.iter().zip(&narrow).all(|(&wide, &narrow)| wide as f32 == narrow));
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            assert_eq!(wide, pool.install(|| draw::<f64>(law, points, 2)));
            assert_ne!(wide[0], wide[CHUNK], "every chunk has a seed of its own");
        }
    }

    #[test]
    fn laws_have_their_means() {
        let mean = |law| draw::<f64>(law, 100_000, 1).iter().sum::<f64>() / 1e5;
        assert!((mean(Law::Uniform) - 50.0).abs() < 0.5);
        assert!((mean(Law::Exponential) - 1.0 / 40.0).abs() < 0.001);
        assert!(mean(Law::Normal).abs() < 0.01);
        let logs: f64 = draw::<f64>(Law::Lognormal, 100_000, 1).iter().map(|x| x.ln()).sum();
        assert!((logs / 1e5).abs() < 0.03);
    }
}
