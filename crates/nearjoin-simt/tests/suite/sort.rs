//! The engine's own running sums and radix sort, at sizes around those of their tiles.

use nearjoin::gpu::driver::{Args, Kernel};
use nearjoin_simt::Simt;

use crate::help::{Array, Number, run, scrambled};

const THREADS: u32 = 256;
/// Elements of a block: of running sums and of keys.
const TILE: usize = 16 * 256;
const TILE_U32: usize = 24 * 256;
const TILE_U64: usize = 16 * 256;

fn launch(simt: &Simt, name: &'static str, blocks: usize, threads: u32, args: Args) {
    run(
        simt,
        Kernel { module: nearjoin_kernels::Module::Sort, name },
        blocks as u32,
        threads,
        args,
    );
}

/// Running sums in place, with those of all at the end.
fn running_sums(simt: &Simt, values: &Array<'_>, len: usize) {
    let tiles = len / TILE + 1;
    let sums = Array::new::<u32>(simt, tiles);
    let args = || Args::new().u64(values.address).u64(len as u64).u64(sums.address);
    launch(simt, "tile_sums_u32", tiles, THREADS, args());
    let all = Args::new().u64(sums.address).u64(tiles as u64);
    launch(simt, "scan_sums_u32", 1, 64, all);
    launch(simt, "scan_tiles_u32", tiles, THREADS, args().u64(values.address));
    // Waits, so that the sums may go.
    sums.read::<u32>();
}

/// One pass of the sort.
fn pass<K: Number>(
    simt: &Simt,
    [count, scatter]: [&'static str; 2],
    keys: &[K],
    values: Option<&[u32]>,
    shift: u32,
    width: u32,
) -> (Vec<K>, Vec<u32>) {
    let tile = if K::SIZE == 4 { TILE_U32 } else { TILE_U64 };
    let (len, tiles) = (keys.len(), keys.len().div_ceil(tile));
    let (from, mask) = (Array::of(simt, keys), (1 << width) - 1);
    let values = values.map(|values| Array::of(simt, values));
    let counts = Array::new::<u32>(simt, (tiles << width) + 1);
    let (keys_out, values_out) = (Array::new::<K>(simt, len), Array::new::<u32>(simt, len));
    let args = Args::new().u64(from.address).u64(len as u64).u32(shift).u32(mask);
    launch(simt, count, tiles, THREADS, args.u64(counts.address));
    running_sums(simt, &counts, tiles << width);
    let args = Args::new().u64(from.address).u64(values.as_ref().map_or(0, |v| v.address));
    let args = args.u64(len as u64).u32(shift).u32(mask).u64(counts.address);
    let args = args.u64(keys_out.address).u64(values_out.address);
    launch(simt, scatter, tiles, THREADS, args);
    (keys_out.read(), values_out.read())
}

/// Checks two digits of keys against a stable sort by both.
fn check<K: Number + Ord + core::fmt::Debug>(
    names: [&'static str; 2],
    keys: &[K],
    [low, high]: [(u32, u32); 2],
    part: impl Fn(K) -> u64,
) {
    for simt in [Simt::new(), Simt::new().backwards()] {
        let (once, places) = pass(&simt, names, keys, None, low.0, low.1);
        let (twice, places) = pass(&simt, names, &once, Some(&places), high.0, high.1);
        let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
        let digit = |key: K, (shift, width): (u32, u32)| part(key) >> shift & ((1 << width) - 1);
        expected.sort_by_key(|&at| {
            let key = keys[at as usize];
            (digit(key, high), digit(key, low))
        });
        assert_eq!(places, expected, "{} keys", keys.len());
        let expected: Vec<K> = expected.iter().map(|&at| keys[at as usize]).collect();
        assert_eq!(twice, expected, "{} keys", keys.len());
    }
}

fn sizes(tile: usize) -> [usize; 9] {
    [1, 2, 31, 33, 1000, tile - 1, tile, tile + 1, 3 * tile + 17]
}

#[test]
fn keys_of_32_bits_are_sorted_stably() {
    let names = ["radix_count_u32", "radix_scatter_u32"];
    for len in sizes(TILE_U32) {
        let keys = scrambled(len as u32);
        check(names, &keys, [(0, 8), (8, 8)], u64::from);
        // The topmost bits, in digits of different lengths.
        check(names, &keys, [(17, 8), (25, 7)], u64::from);
        // Few digits, and those of the keys that the last tile lacks among them.
        let few: Vec<u32> =
            keys.iter().map(|key| if key % 3 == 0 { u32::MAX } else { 7 }).collect();
        check(names, &few, [(0, 3), (3, 1)], u64::from);
        check(names, &few, [(16, 8), (24, 8)], u64::from);
        check(names, &vec![5u32; len], [(0, 2), (2, 2)], u64::from);
    }
}

#[test]
fn keys_of_64_bits_are_sorted_stably() {
    let names = ["radix_count_u64", "radix_scatter_u64"];
    for len in sizes(TILE_U64) {
        let wide = |key: &u32| u64::from(*key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let keys: Vec<u64> = scrambled(len as u32).iter().map(wide).collect();
        check(names, &keys, [(28, 7), (35, 8)], |key| key);
        check(names, &keys, [(48, 8), (56, 8)], |key| key);
        check(names, &vec![u64::MAX; len], [(0, 8), (56, 8)], |key| key);
    }
}

#[test]
fn running_sums_end_with_the_total() {
    for simt in [Simt::new(), Simt::new().backwards()] {
        for len in [0, 1, 33, TILE - 1, TILE, TILE + 1, 2 * TILE, 70 * TILE + 5] {
            let mut values: Vec<u32> = scrambled(len as u32).iter().map(|x| x % 100).collect();
            let array = Array::of(&simt, &[&values[..], &[77]].concat());
            running_sums(&simt, &array, len);
            let mut sum = 0;
            values.push(0);
            for value in &mut values {
                sum += core::mem::replace(value, sum);
            }
            assert_eq!(array.read::<u32>(), values, "{len} values");
        }
    }
}
