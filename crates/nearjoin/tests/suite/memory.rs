//! Memory that is kept from one join to the next. It belongs to the whole process, so that each test
//! has one of its own.

use std::fs::read_to_string;

use nearjoin::{Buffer, Csr, KnnJoin, eps_join, release_memory, sink::Neighbors};

use crate::child::{Child, say};
use crate::data::Data;

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// Pages that the system had to bring for this process.
fn faults() -> u64 {
    let stat = read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(7).unwrap().parse().unwrap()
}

/// A join with arrays of some megabytes.
fn join() -> Csr<f64> {
    let points = Data::Uniform.points::<f64>(300_000, 2, 3);
    eps_join(&points.as_points(), 0.5).unwrap()
}

#[test]
#[ignore = "a part of memory_is_kept_within_bounds_and_released"]
fn print_what_is_kept() {
    let first = join();
    for _ in 0..5 {
        let again = join();
        assert!(again == first, "memory from before changes nothing");
    }
    drop(first);
    let before = resident();
    let released = release_memory();
    say(&format!("{released} {} {}", before - resident().min(before), release_memory()));
}

#[test]
fn memory_is_kept_within_bounds_and_released() {
    let lines = Child::new("memory::print_what_is_kept").lines();
    let numbers: Vec<u64> = lines[0].split(' ').map(|number| number.parse().unwrap()).collect();
    let [released, less_resident, left] = numbers[..] else { panic!("{lines:?}") };
    assert!((4 << 20..=256 << 20).contains(&released), "{released} bytes were kept");
    assert!(less_resident > released / 2, "{less_resident} of {released} bytes are gone");
    assert_eq!(left, 0);
}

#[test]
#[ignore = "a part of a_second_join_meets_fewer_page_faults"]
fn print_page_faults() {
    let points = Data::Uniform.points::<f64>(300_000, 2, 3);
    let points = points.as_points();
    let faults_of = || {
        let before = faults();
        eps_join(&points, 0.5).unwrap();
        let mut neighbors = Neighbors::new();
        KnnJoin::new(8).plan_self(&points).unwrap().run(&mut neighbors).unwrap();
        faults() - before
    };
    faults_of();
    let kept = (0..5).map(|_| faults_of()).min().unwrap();
    let fresh = (0..5).map(|_| (release_memory(), faults_of()).1).min().unwrap();
    say(&format!("{kept} {fresh}"));
}

#[test]
fn a_second_join_meets_fewer_page_faults() {
    let lines = Child::new("memory::print_page_faults").lines();
    let (kept, fresh) = lines[0].split_once(' ').unwrap();
    let (kept, fresh): (u64, u64) = (kept.parse().unwrap(), fresh.parse().unwrap());
    assert!(kept < fresh, "{kept} faults, and {fresh} where nothing is kept");
}

#[test]
#[ignore = "a part of what_is_kept_is_no_reason_to_refuse_memory"]
fn print_what_is_left_after_a_refusal() {
    drop(join());
    // More than is kept, until the system refuses it.
    let mut arrays = Vec::new();
    while let Ok(array) = Buffer::<u64>::zeroed(8 << 20) {
        arrays.push(array);
    }
    say(&format!("{} {}", arrays.len(), release_memory()));
}

#[test]
fn what_is_kept_is_no_reason_to_refuse_memory() {
    let child = Child::new("memory::print_what_is_left_after_a_refusal");
    let lines = child.env("RAYON_NUM_THREADS", "2").with_address_space(2000).lines();
    let (arrays, left) = lines[0].split_once(' ').unwrap();
    assert!(arrays.parse::<u32>().unwrap() > 3, "{lines:?}");
    assert_eq!(left, "0", "the system was asked before all was given back");
}
