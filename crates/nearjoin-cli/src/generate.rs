//! `nearjoin gen`: files of points to try things with.

use nearjoin::{Buffer, MAX_DIMENSION, MAX_POINTS, PointsBuf, Scalar};
use nearjoin_io::write::{Target, write_points};
use nearjoin_io::{Format, quote};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp, Normal};

mod lifelike;

use lifelike::{Embeddings, Places};

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
    let dim = dimension(args)?;
    interrupt::watch(&Board::default().monitor)?;
    let target = Target::create(&args.output)?;
    let written = match args.dtype {
        Type::F32 => write::<f32>(args, dim, target, format)?,
        Type::F64 => write::<f64>(args, dim, target, format)?,
    };
    if interrupt::pressed() {
        return Err(Failure::Interrupted);
    }
    if !args.quiet {
        let (points, file) = (number::count(args.n.0), quote::path(&args.output));
        tell(format!("{points} points of dimension {dim} → {file} ({})", number::bytes(written)));
    }
    Ok(())
}

/// How many coordinates points have: what was asked for, or what suits the shape.
fn dimension(args: &args::Gen) -> Result<usize> {
    let (most, usual) = (MAX_DIMENSION as u64, args.shape.usual_dimension());
    let Some(asked) = args.d.map(|d| d.0) else { return Ok(usual) };
    let wrong = |must: String| Err(Failure::usage(format!("-d {asked}: {must}")));
    match args.shape {
        Shape::Sphere if asked != 3 => wrong("a sphere has 3".into()),
        Shape::Places if !(2..=3).contains(&asked) => {
            wrong("places have 2, longitude and latitude, or 3, on the unit sphere".into())
        }
        Shape::Embedding if !(2..=most).contains(&asked) => {
            wrong(format!("an embedding has 2 to {most}"))
        }
        _ if !(1..=most).contains(&asked) => wrong(format!("it must be 1 to {most}")),
        _ => Ok(asked as usize),
    }
}

fn write<T: Scalar>(args: &args::Gen, dim: usize, target: Target, format: Format) -> Result<u64> {
    let points = points::<T>(args.shape, args.n.0 as usize, dim, args.seed)?;
    Ok(write_points(target, format, &names(args.shape, dim), &points.as_points())?.bytes)
}

/// `x`, `y`, `z`, or what angles are called; beyond three dimensions `x0`, `x1` and so on.
fn names(shape: Shape, dim: usize) -> Vec<String> {
    let few: &[&str] = match (shape, dim) {
        (Shape::Places, 2) => &["lon", "lat"],
        (_, 1..=3) => &["x", "y", "z"][..dim],
        _ => return (0..dim).map(|j| format!("x{j}")).collect(),
    };
    few.iter().map(ToString::to_string).collect()
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
        Shape::Sphere => fill(&mut data, dim, || lifelike::sphere(random)),
        Shape::Places => {
            let places = Places::new(random);
            match dim {
                2 => fill(&mut data, dim, || lifelike::degrees(places.draw(random))),
                _ => fill(&mut data, dim, || places.draw(random)),
            }
        }
        Shape::Embedding => {
            let embeddings = Embeddings::new(dim, random);
            fill(&mut data, dim, || embeddings.draw(random));
        }
    }
    Ok(PointsBuf::from_buffer(data, dim)?)
}

/// Point after point.
fn fill<T: Scalar, Row: AsRef<[f64]>>(data: &mut [T], dim: usize, mut draw: impl FnMut() -> Row) {
    for point in data.chunks_exact_mut(dim) {
        point.iter_mut().zip(draw().as_ref()).for_each(|(x, &drawn)| *x = T::from_f64(drawn));
    }
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
        for shape in [
            Shape::Uniform,
            Shape::Exponential,
            Shape::Clustered,
            Shape::Sphere,
            Shape::Places,
            Shape::Embedding,
        ] {
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

    /// The mean of something over the rows of 2000 points.
    fn mean(shape: Shape, dim: usize, of: impl Fn(&[f64]) -> f64) -> f64 {
        let points = points::<f64>(shape, 2000, dim, 1).unwrap();
        (0..2000).map(|row| of(points.as_points().row(row))).sum::<f64>() / 2000.0
    }

    #[test]
    fn directions_have_length_one() {
        let squares = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>();
        for (shape, dim) in [(Shape::Sphere, 3), (Shape::Places, 3), (Shape::Embedding, 100)] {
            let off = mean(shape, dim, |row| (squares(row) - 1.0).abs());
            assert!(off < 1e-12, "{shape:?}: {off}");
        }
        // Evenly spread it would be a third.
        assert!(mean(Shape::Sphere, 3, |row| row[2] * row[2]) < 0.2);
    }

    #[test]
    fn places_crowd_in_towns_and_are_the_same_in_degrees() {
        let (on_sphere, in_degrees) = (
            points::<f64>(Shape::Places, 2000, 3, 1).unwrap(),
            points::<f64>(Shape::Places, 2000, 2, 1).unwrap(),
        );
        let cell = |row: &[f64]| (row[0].floor() as i32, row[1].floor() as i32);
        let mut cells = std::collections::HashMap::new();
        for at in 0..2000 {
            let place = in_degrees.as_points();
            let place = place.row(at);
            let [lon, lat] = [place[0].to_radians(), place[1].to_radians()];
            let back = [lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()];
            let there = on_sphere.as_points();
            assert!(back.iter().zip(there.row(at)).all(|(a, b)| (a - b).abs() < 1e-12));
            *cells.entry(cell(place)).or_insert(0) += 1;
        }
        // A degree of 64,800 holds a place in 32 where they are spread evenly.
        assert!(cells.values().max().is_some_and(|&most| most > 50), "{cells:?}");
    }

    #[test]
    fn embeddings_vary_in_few_directions() {
        // In 64 directions the nearest of 2000 are about as far as all are; in eight they are not.
        let points = points::<f64>(Shape::Embedding, 2000, 64, 1).unwrap();
        let points = points.as_points();
        let square = |a: usize, b: usize| -> f64 {
            points.row(a).iter().zip(points.row(b)).map(|(x, y)| (x - y) * (x - y)).sum()
        };
        let mut squares: Vec<f64> = (1..2000).map(|other| square(0, other)).collect();
        squares.sort_by(f64::total_cmp);
        assert!(squares[0] < 0.1 * squares[1000], "{} {}", squares[0], squares[1000]);
    }

    #[test]
    fn no_points_and_many_dimensions() {
        assert!(points::<f64>(Shape::Clustered, 0, 5, 1).unwrap().as_points().is_empty());
        assert_eq!(points::<f64>(Shape::Lattice, 3, 4096, 1).unwrap().as_points().len(), 3);
        assert_eq!(names(Shape::Uniform, 2), ["x", "y"]);
        assert_eq!(names(Shape::Places, 2), ["lon", "lat"]);
        assert_eq!(names(Shape::Places, 3), ["x", "y", "z"]);
        assert_eq!(names(Shape::Embedding, 4), ["x0", "x1", "x2", "x3"]);
    }
}
