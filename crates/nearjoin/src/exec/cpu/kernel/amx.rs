//! AMX with bf16: products of 16 queries × 16 candidates × 32 numbers in one instruction.
//!
//! Rust has no stable intrinsics for it, so the instructions are written as assembly. The compiler does
//! not know of tiles: no code of its own touches them, and blocks of assembly stay in their order.

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::OnceLock;

use super::avx512::F32x16;
use super::product::{Found, ProductJob, ProductKernels};
use super::tiles::{GROUPS, LINE, TILE, Tiles, product};
use crate::filter::product::Digits;
use crate::plan::Multiplier;

/// Whether this processor has it, beside AVX-512, and the system lets this process use it. That is asked
/// once.
pub(super) fn is_available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| super::avx512::is_available() && has_tiles() && is_permitted())
}

/// Whether the processor has tiles of bf16, and the system saves them.
fn has_tiles() -> bool {
    const INSTRUCTIONS: u32 = 1 << 22 | 1 << 24;
    const STATE: u64 = 1 << 17 | 1 << 18;
    // Safe from some version of Rust on.
    #[allow(unused_unsafe)]
    // SAFETY: every processor with AVX-512 has this leaf.
    let features = unsafe { __cpuid_count(7, 0) }.edx;
    // SAFETY: the system saves the registers of AVX-512, and says so by this instruction.
    features & INSTRUCTIONS == INSTRUCTIONS && unsafe { saved() } & STATE == STATE
}

/// The states of the processor that the system saves.
#[target_feature(enable = "xsave")]
unsafe fn saved() -> u64 {
    // SAFETY: register 0 is there wherever the instruction is.
    #[allow(unused_unsafe)]
    unsafe {
        _xgetbv(0)
    }
}

/// Linux lets a process use tiles that asks for them: all threads that it has, and will have.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const TILE_DATA: libc::c_ulong = 18;
    // SAFETY: it takes two numbers, and changes nothing but what the process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
}

/// Nothing is known of other systems.
#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// The eight tiles of this thread, from when they were configured until they are released: a thread
/// without has less to save when it is switched.
struct Registers;

/// What a tile is configured by.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: Config = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        (row_bytes[tile], rows[tile]) = (4 * LINE as u16, TILE as u8);
        tile += 1;
    }
    Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

// SAFETY of every block below: the trait asks its caller for a processor that has tiles and a system that
// permits them, and for pointers to whole tiles. There are 8 of them, which were configured by `new`.
impl Tiles for Registers {
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: as above; the configuration is 64 bytes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, preserves_flags, readonly));
        }
        Registers
    }

    #[inline(always)]
    unsafe fn zero<const AT: usize>(&mut self) {
        // SAFETY: as above.
        unsafe {
            asm!("tilezero tmm{}", const AT, options(nostack, preserves_flags, nomem));
        }
    }

    #[inline(always)]
    unsafe fn load<const AT: usize>(&mut self, from: *const u32, stride: usize) {
        // SAFETY: as above.
        unsafe {
            asm!(
                "tileloadd tmm{}, [{} + {}]",
                const AT, in(reg) from, in(reg) 4 * stride,
                options(nostack, preserves_flags, readonly),
            );
        }
    }

    #[inline(always)]
    unsafe fn multiply<const SUMS: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: as above.
        unsafe {
            asm!(
                "tdpbf16ps tmm{}, tmm{}, tmm{}",
                const SUMS, const A, const B,
                options(nostack, preserves_flags, nomem),
            );
        }
    }

    #[inline(always)]
    unsafe fn store<const AT: usize>(&mut self, to: *mut f32, stride: usize) {
        // SAFETY: as above.
        unsafe {
            asm!(
                "tilestored [{} + {}], tmm{}",
                in(reg) to, in(reg) 4 * stride, const AT,
                options(nostack, preserves_flags),
            );
        }
    }
}

impl Drop for Registers {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: whoever made it has seen that the processor has the instruction.
        unsafe {
            asm!("tilerelease", options(nostack, preserves_flags, nomem));
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,popcnt")]
unsafe fn multiply<const PRODUCTS: bool>(job: &ProductJob<'_>, found: &mut Found) {
    // SAFETY: the caller has made sure that the processor has all of it, and checked the job.
    unsafe { product::<F32x16, Registers, 3, PRODUCTS>(job, found) }
}

/// Products of pairs in tiles.
pub(super) fn products() -> ProductKernels {
    let (near, scored) = (multiply::<false> as _, multiply::<true> as _);
    let (digits, multiplier) = (Digits::Bf16, Multiplier::Tiles);
    ProductKernels { digits, multiplier, groups: GROUPS, near, scored }
}
