//! The driver at work, where there is a GPU; elsewhere, that its absence is told.

// Tests ask for what they have allocated, or for what must be refused.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use std::sync::Arc;

use nearjoin_kernels::{Module, Other};

use super::{Cuda, open};
use crate::exec::gpu::driver::{Args, Driver, Fault, Kernel};

mod sham;

/// Adds a number to each of `n` words, one thread each.
static ADD: Other = Other {
    name: "test_add",
    ptx: "
.version 7.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 words, .param .u32 n, .param .u32 more)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [more];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p, %r6, %r1;
    @%p bra DONE;
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r6, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r7, [%rd3];
    add.u32 %r7, %r7, %r2;
    st.global.u32 [%rd3], %r7;
DONE:
    ret;
}
",
};

static BROKEN: Other = Other {
    name: "test_broken",
    ptx: ".version 7.0\n.target sm_75\n.entry add()\n{ nonsense; }\n",
};

fn gpu() -> Option<Arc<Cuda>> {
    match open() {
        Ok(gpu) => Some(gpu),
        Err(reason) => {
            assert!(reason.contains(": "), "what is missing, and what to do: {reason}");
            assert_eq!(open().unwrap_err(), reason);
            None
        }
    }
}

#[test]
fn words_go_there_and_come_back_changed() {
    let Some(gpu) = gpu() else { return };
    const N: usize = 100_000;
    let (bytes, kernel) = (4 * N, Kernel { module: Module::Other(&ADD), name: "add" });
    let address = gpu.allocate(bytes).unwrap();
    assert_eq!(address % 256, 0);
    let mut host = gpu.pin(bytes).unwrap();
    assert_eq!(host.bytes().len(), bytes);
    for (at, word) in host.bytes_mut().as_chunks_mut().0.iter_mut().enumerate() {
        *word = (at as u32).to_ne_bytes();
    }
    let args = Args::new().u64(address).u32(N as u32).u32(5);
    let sent = unsafe { gpu.copy_in(0, host, address, bytes) }.unwrap();
    gpu.order(1, 0).unwrap();
    unsafe { gpu.launch(1, kernel, N.div_ceil(256) as u32, 256, &args) }.unwrap();
    gpu.order(2, 1).unwrap();
    let other = gpu.pin(bytes).unwrap();
    let received = unsafe { gpu.copy_out(2, address, other, bytes) }.unwrap();
    drop(sent);
    let host = received.wait().unwrap();
    for (at, &word) in host.bytes().as_chunks().0.iter().enumerate() {
        assert_eq!(u32::from_ne_bytes(word), at as u32 + 5);
    }
    unsafe { gpu.fill(3, address, 7, N) }.unwrap();
    let host = unsafe { gpu.copy_out(3, address, host, bytes) }.unwrap().wait().unwrap();
    assert!(host.bytes().as_chunks().0.iter().all(|&word| u32::from_ne_bytes(word) == 7));
    gpu.synchronize(3).unwrap();
    unsafe { gpu.release(address, bytes) };
}

#[test]
fn all_threads_can_use_it() {
    if gpu().is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(words_go_there_and_come_back_changed);
        }
    });
}

#[test]
fn nothing_is_easily_done() {
    let Some(gpu) = gpu() else { return };
    let address = gpu.allocate(0).unwrap();
    let host = unsafe { gpu.copy_in(0, gpu.pin(0).unwrap(), address, 0) }.unwrap().wait().unwrap();
    let host = unsafe { gpu.copy_out(0, address, host, 0) }.unwrap().wait().unwrap();
    assert!(host.bytes().is_empty());
    unsafe { gpu.fill(0, address, 1, 0) }.unwrap();
    unsafe {
        gpu.launch(0, Kernel { module: Module::Other(&ADD), name: "add" }, 0, 32, &Args::new())
    }
    .unwrap();
    unsafe { gpu.release(address, 0) };
}

#[test]
fn too_much_memory_is_a_fault_that_does_no_harm() {
    let Some(gpu) = gpu() else { return };
    for bytes in [1 << 45, usize::MAX] {
        assert_eq!(gpu.allocate(bytes).unwrap_err(), Fault::Memory { bytes });
    }
    assert!(gpu.free_memory().unwrap() <= gpu.properties().memory);
    words_go_there_and_come_back_changed();
}

#[test]
fn what_cannot_be_launched_says_why() {
    let Some(gpu) = gpu() else { return };
    let launch = |module, name, args: Args| match unsafe {
        gpu.launch(0, Kernel { module, name }, 1, 32, &args)
    } {
        Err(Fault::Failed { reason }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(launch(Module::Other(&ADD), "subtract", Args::new()).contains("subtract of test_add"));
    assert!(launch(Module::Other(&ADD), "add", Args::new().u64(0)).contains("arguments"));
    let reason = launch(Module::Other(&BROKEN), "add", Args::new());
    assert!(reason.contains("test_broken") && reason.contains("ptxas"), "{reason}");
    // None of these has harmed the context.
    gpu.synchronize(0).unwrap();
}
