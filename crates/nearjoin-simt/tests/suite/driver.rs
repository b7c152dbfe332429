//! Memory, streams, and what goes wrong when it is asked to.

// Tests ask for what they have allocated, or for what must be refused.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use nearjoin::gpu::driver::{Args, Driver, Fault};
use nearjoin_simt::Simt;

use crate::help::{Array, kernel, launch};

fn is_memory<T>(result: Result<T, Fault>, bytes: usize) -> bool {
    matches!(result, Err(Fault::Memory { bytes: asked }) if asked == bytes)
}

#[test]
fn memory_is_counted() {
    let simt = Simt::new().memory(1000);
    assert_eq!(simt.properties().memory, 1000);
    let a = simt.allocate(600).unwrap();
    assert!(a.is_multiple_of(256));
    assert_eq!(simt.free_memory(), Ok(400));
    assert!(is_memory(simt.allocate(401), 401));
    let b = simt.allocate(400).unwrap();
    unsafe { simt.release(a, 600) };
    assert_eq!(simt.free_memory(), Ok(600));
    assert_eq!(simt.leaks().len(), 1);
    unsafe { simt.release(b, 400) };
    assert!(simt.leaks().is_empty());
    assert_eq!((simt.counts().allocations, simt.counts().peak), (3, 1000));
}

#[test]
fn memory_begins_with_something_that_shows() {
    let simt = Simt::new();
    assert_eq!(Array::new::<u32>(&simt, 3).read::<u32>(), [0xa5a5_a5a5; 3]);
    assert!(simt.pin(100).unwrap().bytes().iter().all(|&byte| byte == 0xa5));
}

#[test]
#[should_panic(expected = "memory of the device was never given back: 10 bytes of the device")]
fn leaks_are_told() {
    Simt::new().allocate(10).unwrap();
}

#[test]
fn allocations_fail_when_asked_to() {
    let simt = Simt::new().fail_allocation(2).largest_allocation(100).fail_pin(2);
    let first = simt.allocate(10).unwrap();
    assert!(is_memory(simt.allocate(10), 10));
    let third = simt.allocate(100).unwrap();
    assert!(is_memory(simt.allocate(101), 101));
    unsafe { simt.release(first, 10) };
    unsafe { simt.release(third, 100) };
    drop(simt.pin(8).unwrap());
    assert!(is_memory(simt.pin(8), 8));
}

#[test]
fn a_lost_device_does_nothing_more() {
    for simt in [Simt::new().lose_at_launch(3), Simt::new().lose_at_launch(3).lazy()] {
        let array = simt.allocate(128).unwrap();
        unsafe { simt.fill(0, array, 0, 32) }.unwrap();
        let add =
            || unsafe { simt.launch(0, kernel("add"), 1, 32, &Args::new().u64(array).u32(1)) };
        let results = [add(), add(), add(), simt.synchronize(0), add()];
        let reason = "the device was lost at launch 3".to_owned();
        let lost = Fault::Failed { reason };
        assert!(results[..2].iter().all(Result::is_ok));
        assert!(results[3..].iter().all(|result| result.as_ref() == Err(&lost)));
        assert_eq!(simt.allocate(1), Err(lost.clone()));
        assert_eq!(simt.free_memory(), Err(lost.clone()));
        assert_eq!(simt.pin(1).err(), Some(lost));
        unsafe { simt.release(array, 128) };
        assert_eq!(simt.counts().launches, 3);
    }
}

#[test]
fn a_copy_of_a_lost_device_gives_nothing_back() {
    let simt = Simt::new().lazy();
    let array = simt.allocate(8).unwrap();
    let copy = unsafe { simt.copy_out(1, array, simt.pin(8).unwrap(), 8) }.unwrap();
    simt.lose();
    assert!(matches!(copy.wait(), Err(Fault::Failed { .. })));
    unsafe { simt.release(array, 8) };
    assert!(simt.leaks().is_empty());
}

/// A kernel on one stream, and a copy of what it wrote on another.
fn copied_after(simt: &Simt, ordered: bool) -> u32 {
    let array = Array::of(simt, &[1u32; 32]);
    let args = Args::new().u64(array.address).u32(1);
    unsafe { simt.launch(1, kernel("add"), 1, 32, &args) }.unwrap();
    if ordered {
        simt.order(2, 1).unwrap();
    }
    // What is submitted after the order is not waited for.
    unsafe { simt.launch(1, kernel("add"), 1, 32, &args) }.unwrap();
    let copy = unsafe { simt.copy_out(2, array.address, simt.pin(128).unwrap(), 128) }.unwrap();
    let host = copy.wait().unwrap();
    simt.synchronize(1).unwrap();
    u32::from_ne_bytes(host.bytes()[..4].try_into().unwrap())
}

#[test]
fn work_waits_for_who_waits_for_it() {
    assert_eq!(copied_after(&Simt::new(), false), 3);
    assert_eq!(copied_after(&Simt::new().lazy(), true), 2);
    assert_eq!(copied_after(&Simt::new().lazy(), false), 1);
}

#[test]
fn work_of_one_stream_is_done_in_order() {
    let simt = Simt::new().lazy();
    let array = Array::new::<u32>(&simt, 64);
    unsafe { simt.fill(0, array.address, 5, 64) }.unwrap();
    launch(&simt, "add", 2, 32, Args::new().u64(array.address).u32(2));
    assert_eq!(simt.counts().launches, 0);
    assert_eq!(array.read::<u32>(), [7; 64]);
    assert_eq!(simt.counts().launches, 1);
}

#[test]
#[should_panic(expected = "memory was released on which stream 3 has still to work")]
fn memory_in_use_is_not_released() {
    let simt = Simt::new().lazy();
    let array = simt.allocate(128).unwrap();
    let args = Args::new().u64(array).u32(1);
    unsafe { simt.launch(3, kernel("add"), 1, 32, &args) }.unwrap();
    unsafe { simt.release(array, 128) };
}

#[test]
#[should_panic(expected = "are not in one allocation")]
fn copies_stay_within_an_allocation() {
    let simt = Simt::new();
    let array = Array::new::<u32>(&simt, 2);
    unsafe { simt.fill(0, array.address + 4, 0, 2) }.unwrap();
}
