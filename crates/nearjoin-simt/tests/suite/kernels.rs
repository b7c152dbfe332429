//! What kernels rely on: barriers, warps, atomics, parameters, rounding.

use nearjoin::gpu::driver::{Args, Driver};
use nearjoin_simt::Simt;

use crate::help::{Array, launch, scrambled};

#[test]
fn blocks_share_memory_and_meet_at_barriers() {
    for simt in [Simt::new(), Simt::new().backwards()] {
        let values: Vec<u32> = scrambled(1000).iter().map(|x| x % 1000).collect();
        let input = Array::of(&simt, &values);
        let output = Array::new::<u32>(&simt, 4);
        launch(&simt, "sum", 4, 256, Args::new().u64(input.address).u32(1000).u64(output.address));
        let sums: Vec<u32> = values.chunks(256).map(|block| block.iter().sum()).collect();
        assert_eq!(output.read::<u32>(), sums);
    }
}

#[test]
fn lanes_vote_match_and_shuffle() {
    for simt in [Simt::new(), Simt::new().backwards()] {
        let values: Vec<u32> = scrambled(32).iter().map(|x| x % 11).collect();
        let input = Array::of(&simt, &values);
        let output = Array::new::<u32>(&simt, 32 * 5);
        launch(&simt, "warp", 1, 32, Args::new().u64(input.address).u64(output.address));

        let lanes = |test: &dyn Fn(u32) -> bool| {
            (0..32).filter(|&lane| test(values[lane])).fold(0, |mask, lane| mask | 1u32 << lane)
        };
        let greatest = *values[..16].iter().max().unwrap();
        for (lane, found) in output.read::<u32>().chunks(5).enumerate() {
            assert_eq!(found[0], lanes(&|x| x % 2 == 1));
            assert_eq!(found[1], lanes(&|x| x == values[lane]));
            assert_eq!(found[2], values[..=lane].iter().sum());
            assert_eq!(found[3], if lane < 16 { greatest } else { values[31] });
            assert_eq!(found[4], u32::from(values.contains(&7)) | 2);
        }
    }
}

#[test]
fn atomics_count() {
    let simt = Simt::new();
    let values: Vec<u32> = scrambled(1000).iter().map(|x| x % 40).collect();
    let input = Array::of(&simt, &values);
    let counts = Array::of(&simt, &[0u32; 9]);
    let total = Array::of(&simt, &[0u64]);
    let greatest = Array::of(&simt, &[0u32]);
    let least = Array::of(&simt, &[u32::MAX]);
    let args = Args::new().u64(input.address).u32(1000).u64(counts.address);
    let args = args.u64(total.address).u64(greatest.address).u64(least.address);
    launch(&simt, "tally", 4, 256, args);

    let mut expected: Vec<u32> =
        (0..8).map(|x| values.iter().filter(|&&value| value == x).count() as u32).collect();
    expected.push(values.iter().fold(0, |mask, x| mask | 1 << (x % 32)));
    assert_eq!(counts.read::<u32>(), expected);
    assert_eq!(total.read::<u64>(), [values.iter().map(|&x| u64::from(x)).sum::<u64>()]);
    assert_eq!(greatest.read::<u32>(), [*values.iter().max().unwrap()]);
    assert_eq!(least.read::<u32>(), [*values.iter().min().unwrap()]);
}

#[test]
fn parameters_arrive_whatever_their_sizes() {
    let simt = Simt::new();
    let output = Array::new::<f64>(&simt, 8);
    let args = Args::new().u32(1).structure(&[2, 3, 4.5f64.to_bits()]).f32(5.5).f64(6.5);
    launch(&simt, "parameters", 1, 32, args.u32(7).u64(8).u64(output.address));
    assert_eq!(output.read::<f64>(), [1.0, 2.0, 3.0, 4.5, 5.5, 6.5, 7.0, 8.0]);
}

#[test]
#[should_panic(expected = "kernel sum has parameters at [0, 8, 16, 24]")]
fn parameters_are_checked() {
    let simt = Simt::new();
    launch(&simt, "sum", 1, 32, Args::new().u64(0).u64(0).u32(0));
}

#[test]
#[should_panic(expected = "there is no kernel difference in module test")]
fn kernels_are_found_by_name() {
    launch(&Simt::new(), "difference", 1, 32, Args::new());
}

#[test]
fn a_product_is_rounded_only_where_it_is_not_fused() {
    let simt = Simt::new();
    // 1 + 2⁻³⁰ squared is 1 + 2⁻²⁹ + 2⁻⁶⁰, and the last does not fit.
    let wide: Vec<f64> =
        (0..32).flat_map(|i| [1.0 + (f64::from(i) + 1.0) * 2f64.powi(-30), -1.0]).collect();
    let narrow: Vec<f32> =
        (0..32u8).flat_map(|i| [1.0 + (f32::from(i) + 1.0) * 2f32.powi(-13), -1.0]).collect();
    let (a, b) = (Array::of(&simt, &wide), Array::new::<f64>(&simt, 32));
    let (c, d) = (Array::of(&simt, &narrow), Array::new::<f32>(&simt, 32));
    let args = Args::new().u64(a.address).u64(b.address).u64(c.address).u64(d.address);
    launch(&simt, "fused", 1, 32, args);
    let fused: Vec<f64> = wide.chunks(2).map(|x| x[0].mul_add(x[0], x[1])).collect();
    assert_eq!(b.read::<f64>(), fused);
    let fused_narrow: Vec<f32> = narrow.chunks(2).map(|x| x[0].mul_add(x[0], x[1])).collect();
    assert_eq!(d.read::<f32>(), fused_narrow);

    launch(&simt, "apart", 1, 32, Args::new().u64(a.address).u64(b.address));
    let apart: Vec<f64> = wide.chunks(2).map(|x| x[0] * x[0] + x[1]).collect();
    assert_eq!(b.read::<f64>(), apart);
    assert_ne!(fused, apart);
}

#[test]
fn vectors_are_loaded_and_stored_whole() {
    let simt = Simt::new();
    let values: Vec<f32> = (0..128u8).map(f32::from).collect();
    let (input, output) = (Array::of(&simt, &values), Array::new::<u32>(&simt, 128));
    launch(&simt, "turn", 1, 32, Args::new().u64(input.address).u64(output.address));
    let turned: Vec<u32> =
        values.chunks(4).flat_map(|four| four.iter().rev().map(|x| x.to_bits())).collect();
    assert_eq!(output.read::<u32>(), turned);
}

#[test]
#[should_panic(expected = "kernel some_at_the_barrier, block 2: thread 0 is at __syncthreads \
                           and waits for thread 8, which is at its end")]
fn a_barrier_that_not_all_reach_is_told() {
    launch(&Simt::new(), "some_at_the_barrier", 4, 64, Args::new().u32(136));
}

#[test]
#[should_panic(expected = "kernel some_in_the_vote, block 0: thread 32 is at a vote \
                           and waits for thread 40, which is at its end")]
fn a_vote_of_lanes_that_are_gone_is_told() {
    launch(&Simt::new(), "some_in_the_vote", 1, 64, Args::new().u32(40));
}

#[test]
#[should_panic(expected = "kernel different_masks, block 0: thread")]
fn lanes_that_disagree_on_their_mask_are_told() {
    launch(&Simt::new(), "different_masks", 1, 32, Args::new());
}

#[test]
fn a_race_shows_backwards() {
    let run = |simt: Simt| {
        let output = Array::new::<u32>(&simt, 64);
        launch(&simt, "race", 2, 32, Args::new().u64(output.address));
        output.read::<u32>()
    };
    assert_ne!(run(Simt::new()), run(Simt::new().backwards()));
}

#[test]
fn the_device_works_after_another_was_stuck() {
    let stuck = Simt::new();
    let panic = std::panic::catch_unwind(|| {
        launch(&stuck, "some_at_the_barrier", 1, 32, Args::new().u32(0));
    });
    assert!(panic.is_err());
    assert!(stuck.synchronize(0).unwrap_err().to_string().contains("some_at_the_barrier"));
    launch(&Simt::new(), "some_at_the_barrier", 3, 1024, Args::new().u32(9999));
}

/// AddressSanitizer ends the program where a kernel writes too far: a program of its own.
#[cfg(sanitize_address)]
#[test]
fn a_kernel_that_goes_too_far_is_told() {
    for name in ["too_far::in_memory", "too_far::in_shared_memory"] {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--no-capture", &format!("kernels::{name}")])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success() && said.contains("kernels.cu:"), "{name}: {said}");
    }
}

#[cfg(sanitize_address)]
mod too_far {
    use super::*;

    #[test]
    #[ignore = "ends the program"]
    fn in_memory() {
        let simt = Simt::new();
        let output = Array::new::<u32>(&simt, 32);
        launch(&simt, "beyond", 1, 32, Args::new().u64(output.address).u32(1));
    }

    #[test]
    #[ignore = "ends the program"]
    fn in_shared_memory() {
        let simt = Simt::new();
        let output = Array::new::<u32>(&simt, 32);
        launch(&simt, "beyond_shared", 1, 32, Args::new().u64(output.address));
    }
}
