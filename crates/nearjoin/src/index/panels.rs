//! Points side by side, rounded, for products of many with many.
//!
//! ```text
//! panel 0: x₀ … x₄₇ y₀ … y₄₇ z₀ … z₄₇ …   panel 1: x₄₈ … x₉₅ y₄₈ … y₉₅ …
//! ```
//! Of numbers of 16 bits, two of a point are in one word: x₀y₀ … x₄₇y₄₇ z₀… …
//!
//! What products with a point are compared with stands in two numbers beside it: see
//! [`product`](crate::filter::product).

use rayon::prelude::*;

use crate::error::Result;
use crate::exec::cpu::kernel::{PANEL, ProductKernels, Standing};
use crate::filter::product::{Digits, Frame, Rounded};
use crate::memory::Buffer;
use crate::points::Points;
use crate::scalar::Scalar;
use crate::summary::{median, middle, spread};

/// Points whose middle is the centre of a frame, and those that tell how far rounding moves them.
const SAMPLES: usize = 4096;
const ROUNDED: usize = 64;

/// All candidates of a join, in panels.
pub(crate) struct Panels {
    frame: Frame,
    kernels: ProductKernels,
    words: usize,
    coords: Buffer<u32>,
    beside: [Buffer<f32>; 2],
}

impl Panels {
    /// Rounds points. `beside` tells of each what its products are compared with.
    pub(crate) fn new<T: Scalar>(
        points: Points<'_, T>,
        frame: Frame,
        kernels: ProductKernels,
        beside: impl Fn(Rounded) -> [f32; 2] + Sync,
    ) -> Result<Self> {
        let (digits, padded) = (kernels.digits, points.len().next_multiple_of(PANEL));
        let words = kernels.words(points.dimension());
        let mut coords = Buffer::faulted_in(padded * words)?;
        let (mut first, mut second) = (Buffer::zeroed(padded)?, Buffer::zeroed(padded)?);
        let numbers = first.par_chunks_mut(PANEL).zip(second.par_chunks_mut(PANEL));
        let panels = coords.par_chunks_mut(PANEL * words).zip(numbers).enumerate();
        panels.for_each(|(panel, (coords, (first, second)))| {
            let rows = panel * PANEL..points.len().min((panel + 1) * PANEL);
            let mut rounded = [Rounded::default(); PANEL];
            let rounding = (&frame, digits);
            pack(rounding, Standing::PANEL, points, rows.clone(), coords, &mut rounded);
            // Nothing is near to what is no point.
            first.fill(f32::INFINITY);
            second.fill(f32::INFINITY);
            for (at, &of_point) in rounded.iter().enumerate().take(rows.len()) {
                [first[at], second[at]] = beside(of_point);
            }
        });
        Ok(Panels { frame, kernels, words, coords, beside: [first, second] })
    }

    /// How points become words.
    pub(crate) fn rounding(&self) -> (&Frame, Digits) {
        (&self.frame, self.kernels.digits)
    }

    /// Words of a point.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    pub(crate) fn kernels(&self) -> &ProductKernels {
        &self.kernels
    }

    /// The coordinates of some panels, and what products with their points are compared with.
    pub(crate) fn some(&self, panels: core::ops::Range<usize>) -> (&[u32], [&[f32]; 2]) {
        let points = panels.start * PANEL..panels.end * PANEL;
        let coords = &self.coords[points.start * self.words..points.end * self.words];
        let [first, second] = &self.beside;
        (coords, [&first[points.clone()], &second[points]])
    }

    pub(crate) fn bytes(&self) -> usize {
        let [first, second] = &self.beside;
        size_of_val(&self.coords[..]) + size_of_val(&first[..]) + size_of_val(&second[..])
    }
}

/// A frame for points with these extents, around the middle of some.
pub(crate) fn frame<T: Scalar>(points: Points<'_, T>, extents: &[(f64, f64)]) -> Frame {
    let rows: Vec<&[T]> = some(points, SAMPLES).map(|row| points.row(row)).collect();
    Frame::new(extents, &middle(&rows, points.dimension()), 0)
}

/// How far most points are from the centre, and how far rounding moves them.
pub(crate) fn usual<T: Scalar>(points: Points<'_, T>, frame: &Frame, digits: Digits) -> Rounded {
    let mut words = vec![0; PANEL * digits.words(points.dimension())];
    let of_rows = some(points, ROUNDED).map(|row| {
        let mut rounded = [Rounded::default()];
        pack((frame, digits), Standing::PANEL, points, row..row + 1, &mut words, &mut rounded);
        rounded[0]
    });
    let (mut norms, mut errors): (Vec<f64>, Vec<f64>) =
        of_rows.map(|Rounded { norm, error }| (norm, error)).collect();
    match norms.is_empty() {
        true => Rounded::default(),
        false => Rounded { norm: median(&mut norms), error: median(&mut errors) },
    }
}

/// Rows from all over the input, so many or all.
fn some<T: Scalar>(points: Points<'_, T>, most: usize) -> impl Iterator<Item = usize> {
    let (len, of) = (points.len(), most.min(points.len()));
    (0..of).map(move |sample| spread(sample, of, len))
}

/// Rounds as many points as stand together, or fewer, and writes their words; 0 where there is no point,
/// and in words and halves of them that no dimension has.
pub(crate) fn pack<T: Scalar>(
    (frame, digits): (&Frame, Digits),
    standing: Standing,
    points: Points<'_, T>,
    rows: core::ops::Range<usize>,
    to: &mut [u32],
    rounded: &mut [Rounded],
) {
    let words = digits.words(points.dimension());
    if rows.len() < standing.points || words * standing.points < to.len() {
        to.fill(0);
    }
    for (at, row) in rows.enumerate() {
        let (mut norm, mut lost) = (0.0, 0.0);
        for (j, &x) in points.row(row).iter().enumerate() {
            let place = frame.place(j, x);
            let h = digits.round(place);
            match digits {
                Digits::F32 => to[standing.place(at, j)] = h.to_bits(),
                Digits::Bf16 if j.is_multiple_of(2) => {
                    to[standing.place(at, j / 2)] = h.to_bits() >> 16;
                }
                Digits::Bf16 => to[standing.place(at, j / 2)] |= h.to_bits(),
            }
            norm += f64::from(h) * f64::from(h);
            lost += (place - f64::from(h)) * (place - f64::from(h));
        }
        rounded[at] = Rounded::new(norm, lost);
    }
}
