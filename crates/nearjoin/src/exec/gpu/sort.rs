//! Running sums and radix sort on the device.

use nearjoin_kernels::Module;

use super::device::{Array, Stage, THREADS};
use super::driver::{Args, Result};

/// Elements that a block of the running sums takes.
const TILE: usize = 4096;
/// Bits of a digit, at the most.
pub(super) const DIGIT: u32 = 8;
/// Threads of the one block that adds up the sums of all tiles, at the most.
const SUMMING: u32 = 1024;

/// A type of keys, with the names of its kernels.
pub(super) trait Key: bytemuck::Pod {
    const COUNT: &'static str;
    const SCATTER: &'static str;
    /// Keys that a block of them takes.
    const TILE: usize;
}

impl Key for u32 {
    const COUNT: &'static str = "radix_count_u32";
    const SCATTER: &'static str = "radix_scatter_u32";
    const TILE: usize = 24 * THREADS as usize;
}

impl Key for u64 {
    const COUNT: &'static str = "radix_count_u64";
    const SCATTER: &'static str = "radix_scatter_u64";
    const TILE: usize = 16 * THREADS as usize;
}

/// A type of running sums of `u32`, with the names of its kernels.
pub(super) trait Sum: bytemuck::Pod {
    const NAMES: [&'static str; 3];
}

impl Sum for u32 {
    const NAMES: [&'static str; 3] = ["tile_sums_u32", "scan_sums_u32", "scan_tiles_u32"];
}

impl Sum for u64 {
    const NAMES: [&'static str; 3] = ["tile_sums_u64", "scan_sums_u64", "scan_tiles_u64"];
}

/// The sums of all values before each of the first `len`, and of all: `out` has an element
/// more, and may be the array itself.
pub(super) fn running_sums<S: Sum>(stage: &Stage, values: u64, len: usize, out: u64) -> Result<()> {
    // The total needs a thread too.
    let tiles = len / TILE + 1;
    let sums = stage.array::<S>(tiles)?;
    let [tile_sums, scan_sums, scan_tiles] = S::NAMES;
    let args = || Args::new().u64(values).u64(len as u64).u64(sums.address());
    stage.launch_blocks(Module::Sort, tile_sums, tiles as u64, THREADS, args())?;
    let all = Args::new().u64(sums.address()).u64(tiles as u64);
    let summing = SUMMING.min(tiles.next_multiple_of(32) as u32);
    stage.launch_blocks(Module::Sort, scan_sums, 1, summing, all)?;
    stage.launch_blocks(Module::Sort, scan_tiles, tiles as u64, THREADS, args().u64(out))
}

/// Keys in ascending order, and with each its value.
pub(super) struct Sorted<K> {
    pub(super) keys: Array<K>,
    pub(super) values: Array<u32>,
}

/// Sorts by the lowest `bits` of the keys; equal keys keep their order. Without values, that
/// of a key is its place.
pub(super) fn sort_by_key<K: Key>(
    stage: &Stage,
    mut keys: Array<K>,
    values: Option<Array<u32>>,
    bits: u32,
) -> Result<Sorted<K>> {
    let len = keys.len();
    let tiles = len.div_ceil(K::TILE);
    let counts = stage.array::<u32>((tiles << DIGIT) + 1)?;
    let mut keys_out = stage.array::<K>(len)?;
    let mut values_out = stage.array::<u32>(len)?;
    let mut address = values.as_ref().map_or(0, Array::address);
    let mut values = match values {
        Some(values) => values,
        None => stage.array(len)?,
    };
    for (shift, width) in digits(bits) {
        let mask = (1 << width) - 1;
        let args = Args::new().u64(keys.address()).u64(len as u64).u32(shift).u32(mask);
        stage.launch_blocks(
            Module::Sort,
            K::COUNT,
            tiles as u64,
            THREADS,
            args.u64(counts.address()),
        )?;
        running_sums::<u32>(stage, counts.address(), tiles << width, counts.address())?;
        let args = Args::new().u64(keys.address()).u64(address).u64(len as u64);
        let args = args.u32(shift).u32(mask).u64(counts.address());
        let args = args.u64(keys_out.address()).u64(values_out.address());
        stage.launch_blocks(Module::Sort, K::SCATTER, tiles as u64, THREADS, args)?;
        core::mem::swap(&mut keys, &mut keys_out);
        core::mem::swap(&mut values, &mut values_out);
        address = values.address();
    }
    Ok(Sorted { keys, values })
}

/// The digits of keys, from the lowest: where each begins, and its bits. As few as there can be,
/// and none longer than it must, for keys of few digits leave a tile in long runs. At least one
/// digit, so that the values are written.
fn digits(bits: u32) -> impl Iterator<Item = (u32, u32)> {
    let bits = bits.max(1);
    let count = bits.div_ceil(DIGIT);
    let begin = move |digit: u32| bits * digit / count;
    (0..count).map(move |digit| (begin(digit), begin(digit + 1) - begin(digit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_few_and_alike() {
        let of = |bits: u32| digits(bits).collect::<Vec<_>>();
        assert_eq!(of(0), [(0, 1)]);
        assert_eq!(of(8), [(0, 8)]);
        assert_eq!(of(9), [(0, 4), (4, 5)]);
        assert_eq!(of(26), [(0, 6), (6, 7), (13, 6), (19, 7)]);
        for bits in 1..=64 {
            let ends: Vec<u32> = of(bits).iter().map(|(shift, width)| shift + width).collect();
            assert!(of(bits).iter().all(|&(_, width)| (1..=DIGIT).contains(&width)));
            assert_eq!(ends.last(), Some(&bits));
        }
    }
}
