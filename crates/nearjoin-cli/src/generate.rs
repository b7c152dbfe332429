//! `nearjoin gen`: files of points to try things with.

use nearjoin::{Buffer, MAX_DIMENSION, MAX_POINTS, PointsBuf, Scalar};
use nearjoin_io::write::{Target, write_points};
use nearjoin_io::{Format, quote};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp, Normal};

use crate::args::{self, Shape, Type};
use crate::failure::{Failure, Result, tell};
use crate::interrupt;
use crate::number;
use crate::progress::Board;

const CLUSTERS: usize = 20;
/// Clusters lie in [0, SIDE]^d, and one point in so many lies anywhere in it.
const SIDE: f64 = 10.0;
const BACKGROUND: u32 = 20;
/// Standard deviations of the clusters.
const SIGMA: std::ops::Range<f64> = 0.03..0.3;

pub(crate) fn run(args: &args::Gen) -> Result {
    // Other endings that are read would promise tabs, or a stream.
    let ending = args.output.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let plain = ["parquet", "arrow", "feather", "csv", "npy"].contains(&ending);
    let format = Format::of(&args.output).filter(|_| plain).ok_or_else(|| {
        Failure::usage(format!(
            "{}: the name of the output must end in .parquet, .arrow, .csv or .npy",
            quote::path(&args.output)
        ))
    })?;
    if args.n.0 > MAX_POINTS as u64 {
        return Err(Failure::usage(format!("-n {}: at most {MAX_POINTS} points", args.n.0)));
    }
    if args.d.0 == 0 || args.d.0 > MAX_DIMENSION as u64 {
        return Err(Failure::usage(format!("-d {}: it must be 1 to {MAX_DIMENSION}", args.d.0)));
    }
    interrupt::watch(&Board::default().monitor)?;
    let target = Target::create(&args.output)?;
    let written = match args.dtype {
        Type::F32 => write::<f32>(args, target, format)?,
        Type::F64 => write::<f64>(args, target, format)?,
    };
    if interrupt::pressed() {
        return Err(Failure::Interrupted);
    }
    if !args.quiet {
        let (points, file) = (number::count(args.n.0), quote::path(&args.output));
        tell(format!(
            "{points} points of dimension {} → {file} ({})",
            args.d.0,
            number::bytes(written)
        ));
    }
    Ok(())
}

fn write<T: Scalar>(args: &args::Gen, target: Target, format: Format) -> Result<u64> {
    let dim = args.d.0 as usize;
    let points = points::<T>(args.shape, args.n.0 as usize, dim, args.seed)?;
    Ok(write_points(target, format, &names(dim), &points.as_points())?.bytes)
}

/// `x`, `y`, `z`; beyond three dimensions `x0`, `x1` and so on.
fn names(dim: usize) -> Vec<String> {
    match dim {
        1..=3 => ["x", "y", "z"][..dim].iter().map(ToString::to_string).collect(),
        _ => (0..dim).map(|j| format!("x{j}")).collect(),
    }
}

/// Draws `n` points. The same seed gives the same points, in `f32` those of `f64` rounded.
pub(crate) fn points<T: Scalar>(
    shape: Shape,
    n: usize,
    dim: usize,
    seed: u64,
) -> Result<PointsBuf<T>> {
    let mut data = Buffer::zeroed(n * dim)?;
    let mut random = StdRng::seed_from_u64(seed);
    let random = &mut random;
    match shape {
        Shape::Uniform => {
            data.iter_mut().for_each(|x| *x = T::from_f64(random.random_range(0.0..100.0)));
        }
        Shape::Exponential => {
            let law = Exp::new(40.0).map_err(|e| Failure::failed(e.to_string()))?;
            data.iter_mut().for_each(|x| *x = T::from_f64(law.sample(random)));
        }
        Shape::Clustered => clustered(&mut data, dim, random)?,
        Shape::Lattice => lattice(&mut data, n, dim),
    }
    Ok(PointsBuf::from_buffer(data, dim)?)
}

fn clustered<T: Scalar>(data: &mut [T], dim: usize, random: &mut StdRng) -> Result {
    let mut clusters = Vec::new();
    for _ in 0..CLUSTERS {
        let centre: Vec<f64> = (0..dim).map(|_| random.random_range(0.0..SIDE)).collect();
        let sigma = random.random_range(SIGMA.start.ln()..SIGMA.end.ln()).exp();
        let law = Normal::new(0.0, sigma).map_err(|e| Failure::failed(e.to_string()))?;
        clusters.push((centre, law));
    }
    for point in data.chunks_exact_mut(dim) {
        if random.random_ratio(1, BACKGROUND) {
            point.iter_mut().for_each(|x| *x = T::from_f64(random.random_range(0.0..SIDE)));
            continue;
        }
        let (centre, law) = &clusters[random.random_range(0..CLUSTERS)];
        for (x, centre) in point.iter_mut().zip(centre) {
            *x = T::from_f64(centre + law.sample(random));
        }
    }
    Ok(())
}

/// The first `n` points of the smallest cube of the grid that has as many.
fn lattice<T: Scalar>(data: &mut [T], n: usize, dim: usize) {
    let mut side = (n as f64).powf(1.0 / dim as f64).floor().max(1.0) as usize;
    while (side as f64).powi(dim as i32) < n as f64 {
        side += 1;
    }
    for (number, point) in data.chunks_exact_mut(dim).enumerate() {
        let mut rest = number;
        for x in point.iter_mut().rev() {
            *x = T::from_f64((rest % side) as f64);
            rest /= side;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lattice_is_a_grid() {
        let points = points::<f64>(Shape::Lattice, 9, 2, 0).unwrap();
        let points = points.as_points();
        assert_eq!(points.row(0), [0.0, 0.0]);
        assert_eq!(points.row(5), [1.0, 2.0]);
        assert_eq!(points.row(8), [2.0, 2.0]);
        let cube = super::points::<f32>(Shape::Lattice, 1000, 3, 0).unwrap();
        assert_eq!(cube.as_points().row(999), [9.0, 9.0, 9.0]);
    }

    #[test]
    fn the_same_seed_gives_the_same_points() {
        for shape in [Shape::Uniform, Shape::Exponential, Shape::Clustered] {
            let draw = |seed| points::<f64>(shape, 100, 3, seed).unwrap();
            assert_eq!(draw(1).as_points().as_slice(), draw(1).as_points().as_slice());
            assert_ne!(draw(1).as_points().as_slice(), draw(2).as_points().as_slice());
            let rounded = points::<f32>(shape, 100, 3, 1).unwrap();
            let wide = draw(1);
            let same = rounded
                .as_points()
                .as_slice()
                .iter()
                .zip(wide.as_points().as_slice())
                .all(|(a, b)| *a == *b as f32);
            assert!(same);
        }
    }

    #[test]
    fn no_points_and_many_dimensions() {
        assert!(points::<f64>(Shape::Clustered, 0, 5, 1).unwrap().as_points().is_empty());
        assert_eq!(points::<f64>(Shape::Lattice, 3, 4096, 1).unwrap().as_points().len(), 3);
        assert_eq!(names(2), ["x", "y"]);
        assert_eq!(names(4), ["x0", "x1", "x2", "x3"]);
    }
}
