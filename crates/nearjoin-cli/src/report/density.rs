//! Where points are dense: counts on a grid, and the grid as a picture.

use super::colour::Ramp;

/// The largest grid of a picture, in cells.
const LARGEST: [usize; 2] = [640, 480];

/// A picture is at most so many times as wide as high, or as high as wide. Points that are
/// spread more unevenly are drawn with unequal scales.
const LONGEST: f64 = 4.0;

/// Grids are coarsened, for scattered points to be seen, but not below so many columns.
const COARSEST: usize = 80;

/// The ranges of two coordinates, ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extent {
    pub(crate) x: [f64; 2],
    pub(crate) y: [f64; 2],
}

impl Extent {
    /// The smallest extent that holds all rows; `None` without rows.
    pub(crate) fn of(rows: impl IntoIterator<Item = [f64; 2]>) -> Option<Self> {
        rows.into_iter().fold(None, |extent: Option<Self>, [x, y]| {
            let Extent { x: [left, right], y: [low, high] } =
                extent.unwrap_or(Extent { x: [x, x], y: [y, y] });
            Some(Extent { x: [left.min(x), right.max(x)], y: [low.min(y), high.max(y)] })
        })
    }

    /// The same with room where a range has no width.
    fn opened(self) -> Self {
        let other = |range: [f64; 2]| (range[1] / 2.0 - range[0] / 2.0).max(0.0);
        let open = |[low, high]: [f64; 2], other: f64| {
            if low < high {
                return [low, high];
            }
            // Half the other range, or half the value, or one half; never nothing.
            let room = if other > 0.0 { other } else { low.abs() / 2.0 }.max(low.abs() * 1e-9);
            let room = if room > 0.0 { room } else { 0.5 };
            [(low - room).max(-f64::MAX), (low + room).min(f64::MAX)]
        };
        Extent { x: open(self.x, other(self.y)), y: open(self.y, other(self.x)) }
    }

    /// Height over width.
    fn aspect(&self) -> f64 {
        half_span(self.y) / half_span(self.x)
    }
}

/// Half the width of a range; the whole may be too large for a float.
fn half_span([low, high]: [f64; 2]) -> f64 {
    high / 2.0 - low / 2.0
}

/// How many points lie in each cell of a grid.
#[derive(Clone, Debug)]
pub(crate) struct Density {
    pub(crate) extent: Extent,
    /// Columns and rows.
    pub(crate) size: [usize; 2],
    /// Row by row from the top, which is where y is largest.
    pub(crate) counts: Vec<u64>,
    /// Points counted: those within the extent.
    pub(crate) points: u64,
}

impl Density {
    /// Counts points for a picture of the extent, in cells that suit their number.
    pub(crate) fn of(rows: impl IntoIterator<Item = [f64; 2]>, extent: Extent) -> Self {
        let extent = extent.opened();
        let size = fit(extent.aspect(), LARGEST, 8);
        let mut density = Density::sized(rows, extent, size);
        let crowded = |density: &Density| density.points as usize * 2 >= density.counts.len();
        for _ in 0..3 {
            if !crowded(&density) && density.size[0] / 2 >= COARSEST {
                density = density.coarsened();
            }
        }
        density
    }

    /// Counts points on a grid of so many columns and rows.
    pub(crate) fn sized(
        rows: impl IntoIterator<Item = [f64; 2]>,
        extent: Extent,
        size: [usize; 2],
    ) -> Self {
        let extent = extent.opened();
        let mut counts = vec![0; size[0] * size[1]];
        let mut points = 0;
        for [x, y] in rows {
            let column = cell(x, extent.x, size[0]);
            let row = cell(y, extent.y, size[1]);
            if let (Some(column), Some(row)) = (column, row) {
                counts[(size[1] - 1 - row) * size[0] + column] += 1;
                points += 1;
            }
        }
        Density { extent, size, counts, points }
    }

    /// The grid that fits into `largest` columns and rows and keeps the shape of `extent`.
    pub(crate) fn fitting(extent: Extent, largest: [usize; 2]) -> [usize; 2] {
        fit(extent.opened().aspect(), largest, 1)
    }

    /// Points in the fullest cell.
    pub(crate) fn most(&self) -> u64 {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// How many cells ε spans across and up.
    pub(crate) fn cells_of(&self, epsilon: f64) -> [f64; 2] {
        let cells = |range, size: usize| epsilon / 2.0 / half_span(range) * size as f64;
        [cells(self.extent.x, self.size[0]), cells(self.extent.y, self.size[1])]
    }

    /// Each cell's count on a logarithmic scale from 0, for empty, to 1, for the fullest.
    pub(crate) fn levels(&self) -> impl Iterator<Item = f64> {
        let most = (self.most() as f64).ln_1p();
        self.counts.iter().map(move |&count| match count {
            0 => 0.0,
            _ => (count as f64).ln_1p() / most,
        })
    }

    /// A quarter of the cells.
    fn coarsened(self) -> Self {
        let [columns, rows] = self.size.map(|cells| cells / 2);
        let mut counts = vec![0; columns * rows];
        for (cell, count) in self.counts.iter().enumerate() {
            let (row, column) = (cell / self.size[0], cell % self.size[0]);
            counts[row / 2 * columns + column / 2] += count;
        }
        Density { size: [columns, rows], counts, ..self }
    }

    /// The picture as the address of an image. Empty cells are transparent.
    pub(crate) fn data_uri(&self, ramp: &Ramp) -> String {
        format!("data:image/png;base64,{}", base64(&self.png(ramp)))
    }

    fn png(&self, ramp: &Ramp) -> Vec<u8> {
        // Index 0 is empty; the others run from a single point to the fullest cell.
        let most = (self.most() as f64).ln();
        let pixels: Vec<u8> = self
            .counts
            .iter()
            .map(|&count| match count {
                0 => 0,
                _ if most == 0.0 => 128,
                _ => 1 + ((count as f64).ln() / most * 254.0).round() as u8,
            })
            .collect();
        let mut palette = vec![0; 3];
        palette.extend((0..255).flat_map(|index| ramp.at(f64::from(index) / 254.0)));

        let mut bytes = Vec::new();
        let [columns, rows] = self.size.map(|cells| cells as u32);
        let mut encoder = png::Encoder::new(&mut bytes, columns, rows);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(palette);
        encoder.set_trns(vec![0]);
        encoder.set_compression(png::Compression::High);
        encoder.set_filter(png::Filter::NoFilter);
        encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(&pixels))
            .expect("memory takes every byte, and the picture has the size of its grid");
        bytes
    }
}

/// The largest grid within `largest` of the given height over width, within reason, in
/// multiples of `multiple`.
fn fit(aspect: f64, largest: [usize; 2], multiple: usize) -> [usize; 2] {
    let aspect = if aspect.is_nan() { 1.0 } else { aspect.clamp(1.0 / LONGEST, LONGEST) };
    let [width, height] = largest.map(|cells| cells as f64);
    let width = width.min(height / aspect);
    let round = |cells: f64| ((cells / multiple as f64).round() as usize).max(1) * multiple;
    [round(width), round(width * aspect)]
}

/// The cell of a value in a range; `None` outside.
fn cell(value: f64, [low, high]: [f64; 2], cells: usize) -> Option<usize> {
    if !(low..=high).contains(&value) {
        return None;
    }
    let part = half_span([low, value]) / half_span([low, high]);
    Some(((part * cells as f64) as usize).min(cells - 1))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            text.push(if digit <= chunk.len() {
                DIGITS[(word >> (18 - 6 * digit) & 63) as usize] as char
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::colour::{DARK, LIGHT};
    use super::*;

    const UNIT: Extent = Extent { x: [0.0, 1.0], y: [0.0, 1.0] };

    #[test]
    fn extents_hold_their_points() {
        assert_eq!(Extent::of([]), None);
        let extent = Extent::of([[1.0, 5.0], [-2.0, 7.0]]);
        assert_eq!(extent, Some(Extent { x: [-2.0, 1.0], y: [5.0, 7.0] }));
    }

    #[test]
    fn cells_count_their_points_from_the_top() {
        let rows = [[0.0, 0.0], [1.0, 1.0], [0.9, 0.9], [0.1, 0.9], [2.0, 0.0], [f64::NAN, 0.0]];
        let density = Density::sized(rows, UNIT, [2, 2]);
        assert_eq!(density.counts, [1, 2, 1, 0]);
        assert_eq!((density.points, density.most()), (4, 2));
        assert_eq!(density.cells_of(0.25), [0.5, 0.5]);
    }

    #[test]
    fn pictures_keep_the_shape_of_their_extent() {
        let size = |x, y| Density::of([], Extent { x: [0.0, x], y: [0.0, y] }).size;
        // Without points the grid is as coarse as it gets.
        assert_eq!(size(1.0, 1.0), [120, 120]);
        assert_eq!(size(4.0, 3.0), [80, 60]);
        assert_eq!(size(1e9, 1.0), [80, 20]);
        assert_eq!(size(1.0, 1e9), [120, 480]);
        assert_eq!(Density::fitting(UNIT, [160, 80]), [80, 80]);
    }

    #[test]
    fn many_points_have_fine_cells() {
        let rows = (0..400_000u32).map(|i| [f64::from(i % 631) / 631.0, f64::from(i) / 4e5]);
        let density = Density::of(rows, UNIT);
        assert_eq!(density.size, [480, 480]);
        assert_eq!(density.counts.iter().sum::<u64>(), 400_000);
    }

    #[test]
    fn coarser_cells_keep_the_points() {
        let rows = (0..1000u32).map(|i| [f64::from(i % 31) / 31.0, f64::from(i) / 1e3]);
        let density = Density::of(rows, UNIT);
        assert_eq!(density.size, [120, 120]);
        assert_eq!(density.counts.iter().sum::<u64>(), 1000);
    }

    #[test]
    fn odd_extents_are_drawn_all_the_same() {
        for extent in [
            Extent { x: [3.0, 3.0], y: [4.0, 4.0] },
            Extent { x: [0.0, 0.0], y: [0.0, 0.0] },
            Extent { x: [1e300, 1e300], y: [0.0, 1.0] },
            Extent { x: [-f64::MAX, f64::MAX], y: [0.0, 5e-324] },
            Extent { x: [f64::MAX, f64::MAX], y: [f64::MAX, f64::MAX] },
        ] {
            let density = Density::of([[extent.x[0], extent.y[0]]], extent);
            assert_eq!(density.points, 1, "{extent:?}");
            assert!(density.size.iter().all(|&cells| cells > 0));
            assert!(density.data_uri(&LIGHT).len() > 100);
        }
    }

    #[test]
    fn pictures_decode_to_their_cells() {
        let rows = [[0.1, 0.9], [0.9, 0.1], [0.9, 0.1], [0.9, 0.2], [0.1, 0.1], [0.1, 0.2]];
        let bytes = Density::sized(rows, UNIT, [2, 2]).png(&DARK);
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().expect("a header");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        reader.next_frame(&mut pixels).expect("a picture");
        let [low, high] = [DARK.at(0.0), DARK.at(1.0)];
        assert_eq!(pixels[..4], [low[0], low[1], low[2], 255]);
        assert_eq!(pixels[7], 0, "an empty cell is transparent");
        assert_eq!(pixels[12..], [high[0], high[1], high[2], 255]);
    }

    #[test]
    fn base64_pads() {
        let texts = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }
}
