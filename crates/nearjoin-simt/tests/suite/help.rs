//! Memory with a type, and launches in a line.

// Tests ask for what they have allocated, or for what must be refused.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use nearjoin::gpu::driver::{Args, Driver, Kernel};
use nearjoin_kernels::{Module, Other};
use nearjoin_simt::Simt;

static TEST: Other = Other { name: "test", ptx: "" };

/// Numbers that go to the device and back as their bytes.
pub(crate) trait Number: Copy {
    const SIZE: usize = size_of::<Self>();
    fn put(self, to: &mut [u8]);
    fn get(from: &[u8]) -> Self;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn put(self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_ne_bytes());
            }
            fn get(from: &[u8]) -> Self {
                Self::from_ne_bytes(from.try_into().unwrap())
            }
        }
    )*};
}
number!(u32, u64, f32, f64);

/// Device memory that is given back.
pub(crate) struct Array<'a> {
    simt: &'a Simt,
    pub(crate) address: u64,
    bytes: usize,
}

impl<'a> Array<'a> {
    pub(crate) fn new<T: Number>(simt: &'a Simt, len: usize) -> Self {
        let bytes = len * T::SIZE;
        Array { simt, address: simt.allocate(bytes).unwrap(), bytes }
    }

    pub(crate) fn of<T: Number>(simt: &'a Simt, values: &[T]) -> Self {
        let array = Self::new::<T>(simt, values.len());
        let mut host = simt.pin(array.bytes).unwrap();
        for (value, to) in values.iter().zip(host.bytes_mut().chunks_exact_mut(T::SIZE)) {
            value.put(to);
        }
        unsafe { simt.copy_in(0, host, array.address, array.bytes) }.unwrap().wait().unwrap();
        array
    }

    pub(crate) fn read<T: Number>(&self) -> Vec<T> {
        let host = self.simt.pin(self.bytes).unwrap();
        let copy = unsafe { self.simt.copy_out(0, self.address, host, self.bytes) }.unwrap();
        copy.wait().unwrap().bytes().chunks_exact(T::SIZE).map(T::get).collect()
    }
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        unsafe { self.simt.release(self.address, self.bytes) };
    }
}

pub(crate) fn kernel(name: &'static str) -> Kernel {
    Kernel { module: Module::Other(&TEST), name }
}

pub(crate) fn launch(simt: &Simt, name: &'static str, blocks: u32, threads: u32, args: Args) {
    run(simt, kernel(name), blocks, threads, args);
}

/// Launches a kernel of any module.
pub(crate) fn run(simt: &Simt, kernel: Kernel, blocks: u32, threads: u32, args: Args) {
    unsafe { simt.launch(0, kernel, blocks, threads, &args) }.unwrap();
}

/// Numbers that repeat no pattern of a test's.
pub(crate) fn scrambled(n: u32) -> Vec<u32> {
    (0..n).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect()
}
