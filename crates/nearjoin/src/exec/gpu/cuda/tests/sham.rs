//! The tests of this folder once more in a process of their own, which finds `sham.c` for a
//! driver; and those that only a driver of ours can make fail at the right moment.

// Tests ask for what they have allocated, or for what must be refused.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use core::ptr::null_mut;
use std::process::Command;
use std::sync::Arc;

use super::super::api::call;
use super::{Cuda, gpu, words_go_there_and_come_back_changed};
use crate::exec::gpu::driver::{Driver, Fault};

/// In the environment of the process that has the driver.
const INSIDE: &str = "NEARJOIN_TEST_SHAM";

#[test]
#[cfg(target_os = "linux")]
fn all_of_it_with_a_sham_driver() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("nearjoin-sham-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("sham.c"), include_str!("sham.c")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-w", "-o", "libcuda.so.1", "sham.c"]).current_dir(&folder);
    // Without a compiler there is nothing to try.
    if let Ok(compiled) = compiler.output() {
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let mut tests = Command::new(std::env::current_exe().unwrap());
        tests.args(["exec::gpu::cuda::tests::", "--test-threads=1"]);
        // The device stays open as long as the process: the sham never gives its memory back.
        tests.env("ASAN_OPTIONS", "detect_leaks=0");
        let ran = tests.env("LD_LIBRARY_PATH", &folder).env(INSIDE, "").output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
        assert!(!said.contains("running 0 tests"), "{said}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The sham driver, in the process that has it; there it must be found.
fn sham() -> Option<Arc<Cuda>> {
    std::env::var_os(INSIDE)?;
    let gpu = gpu().expect("the sham driver");
    assert_eq!(gpu.properties().name, "Sham");
    Some(gpu)
}

#[test]
fn memory_is_kept_and_given_up_when_it_is_short() {
    let Some(gpu) = sham() else { return };
    let all = gpu.properties().memory as usize;
    let first = gpu.allocate(all * 5 / 8).unwrap();
    unsafe { gpu.release(first, all * 5 / 8) };
    assert_eq!(gpu.free_memory().unwrap(), all as u64);
    // A little less is served from what is kept, much less is not.
    let again = gpu.allocate(all / 2).unwrap();
    assert_eq!(again, first);
    unsafe { gpu.release(again, all / 2) };
    let small = gpu.allocate(all / 8).unwrap();
    assert_ne!(small, first);
    unsafe { gpu.release(small, all / 8) };
    // And all of it, only when nothing is kept.
    let whole = gpu.allocate(all).unwrap();
    assert_eq!(gpu.allocate(1).unwrap_err(), Fault::Memory { bytes: 1 });
    unsafe { gpu.release(whole, all) };
    assert_eq!(gpu.free_memory().unwrap(), all as u64);
}

#[test]
fn memory_of_a_copy_that_failed_is_never_seen_again() {
    let Some(gpu) = sham() else { return };
    const BYTES: usize = 64 << 10;
    let address = gpu.allocate(BYTES).unwrap();
    for dropped in [false, true] {
        let host = gpu.pin(BYTES).unwrap();
        let lost = host.bytes().as_ptr();
        unsafe { gpu.fill(0, address, 0xdead_beef, 1) }.unwrap();
        let copy = unsafe { gpu.copy_out(0, address, host, BYTES) }.unwrap();
        if dropped {
            drop(copy);
        } else {
            let Err(Fault::Failed { reason }) = copy.wait() else { panic!("it must fail") };
            assert!(reason.contains("cuEventSynchronize"), "{reason}");
            assert!(reason.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{reason}");
        }
        let others: Vec<_> = (0..64).map(|_| gpu.pin(BYTES).unwrap()).collect();
        assert!(others.iter().all(|other| other.bytes().as_ptr() != lost));
    }
    unsafe { gpu.release(address, BYTES) };
}

#[test]
fn copies_end_where_memory_does() {
    let Some(gpu) = sham() else { return };
    let address = gpu.allocate(100).unwrap();
    let host = gpu.pin(100).unwrap();
    assert!(unsafe { gpu.copy_out(0, address, host, 101) }.is_err());
    unsafe { gpu.release(address, 100) };
}

#[test]
fn the_context_of_others_stays_current() {
    let Some(gpu) = sham() else { return };
    std::thread::spawn(move || {
        let api = &gpu.0.api;
        let others = core::ptr::without_provenance_mut(0xbad);
        // SAFETY: to the sham driver a context is a number.
        unsafe { call!(api, cuCtxSetCurrent(others)) }.unwrap();
        words_go_there_and_come_back_changed();
        let mut current = null_mut();
        // SAFETY: the address is that of a handle to be written.
        unsafe { call!(api, cuCtxGetCurrent(&mut current)) }.unwrap();
        assert_eq!(current, others);
    })
    .join()
    .unwrap();
}
