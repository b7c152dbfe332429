//! Running sums and radix sort on the device.

use nearjoin_kernels::Module;

use super::device::{Array, Stage, THREADS};
use super::driver::{Args, Result};

/// Elements that a block of the kernels takes.
const TILE: usize = 4096;
/// Bits of a digit, and its values.
const DIGIT: u32 = 8;
const DIGITS: usize = 1 << DIGIT;
/// Threads of the one block that adds up the sums of all tiles, at the most.
const SUMMING: u32 = 1024;

/// A type of keys, with the names of its kernels.
pub(super) trait Key: bytemuck::Pod {
    const COUNT: &'static str;
    const SCATTER: &'static str;
}

impl Key for u32 {
    const COUNT: &'static str = "radix_count_u32";
    const SCATTER: &'static str = "radix_scatter_u32";
}

impl Key for u64 {
    const COUNT: &'static str = "radix_count_u64";
    const SCATTER: &'static str = "radix_scatter_u64";
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
    let tiles = len.div_ceil(TILE);
    let counts = stage.array::<u32>(DIGITS * tiles + 1)?;
    let mut keys_out = stage.array::<K>(len)?;
    let mut values_out = stage.array::<u32>(len)?;
    let mut address = values.as_ref().map_or(0, Array::address);
    let mut values = match values {
        Some(values) => values,
        None => stage.array(len)?,
    };
    // At least one digit, so that the values are written.
    for shift in (0..bits.max(1)).step_by(DIGIT as usize) {
        let args = Args::new().u64(keys.address()).u64(len as u64).u32(shift);
        stage.launch_blocks(
            Module::Sort,
            K::COUNT,
            tiles as u64,
            THREADS,
            args.u64(counts.address()),
        )?;
        running_sums::<u32>(stage, counts.address(), DIGITS * tiles, counts.address())?;
        let args = Args::new().u64(keys.address()).u64(address).u64(len as u64).u32(shift);
        let args = args.u64(counts.address()).u64(keys_out.address()).u64(values_out.address());
        stage.launch_blocks(Module::Sort, K::SCATTER, tiles as u64, THREADS, args)?;
        core::mem::swap(&mut keys, &mut keys_out);
        core::mem::swap(&mut values, &mut values_out);
        address = values.address();
    }
    Ok(Sorted { keys, values })
}
