//! Kernels: found by name, and run.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nearjoin::gpu::driver::{Args, Kernel};

/// The lanes of a warp; the most threads of a block.
const WARP: u32 = 32;
const MOST_THREADS: u32 = 1024;

/// `simt::Entry` of `cpp/simt.h`.
#[repr(C)]
pub(crate) struct Entry {
    name: *const c_char,
    call: extern "C" fn(*const u8),
    offsets: *const usize,
    count: usize,
    next: *const Entry,
}

unsafe extern "C" {
    static simt_modules: [*const c_char; 0];
    fn simt_kernels_of(module: *const c_char) -> *const Entry;
    fn simt_set_unit_error(error: f64);
    fn simt_runs_alone(module: *const c_char) -> bool;
    fn simt_run(
        kernel: *const Entry,
        arguments: *const u8,
        blocks: u32,
        threads: u32,
        backwards: bool,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
}

/// A kernel with its grid and arguments, checked.
pub(crate) struct Launch {
    pub(crate) module: String,
    pub(crate) name: &'static str,
    alone: bool,
    entry: &'static Entry,
    blocks: u32,
    threads: u32,
    /// In words, for their alignment.
    arguments: Vec<u64>,
}

// SAFETY: an entry is constant once the program has begun.
unsafe impl Send for Launch {}

impl Launch {
    /// Panics where a device would refuse the launch, or take arguments for what they are not.
    pub(crate) fn new(kernel: Kernel, blocks: u32, threads: u32, args: &Args) -> Self {
        let Kernel { module, name } = kernel;
        let module = module.to_string();
        let module_name = CString::new(&*module).expect("names of modules have no zeros");
        let entry = find(&module_name, name)
            .unwrap_or_else(|| panic!("there is no kernel {name} in module {module}"));
        assert!(
            (1..=i32::MAX as u32).contains(&blocks)
                && (1..=MOST_THREADS).contains(&threads)
                && threads.is_multiple_of(WARP),
            "kernel {name} cannot be launched over {blocks} blocks of {threads} threads"
        );
        // SAFETY: `cpp/simt.h` lists so many offsets, and the end of the last parameter.
        let offsets = unsafe { slice::from_raw_parts(entry.offsets, entry.count + 1) };
        let given: Vec<usize> =
            args.offsets().iter().copied().chain([args.bytes().len()]).collect();
        assert!(
            given == offsets,
            "kernel {name} has parameters at {offsets:?}, and is given arguments at {given:?}: \
             the bytes at which each begins, and the end"
        );
        let mut arguments = Vec::new();
        for word in args.bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            arguments.push(u64::from_ne_bytes(bytes));
        }
        // SAFETY: a string that ends with 0.
        let alone = unsafe { simt_runs_alone(module_name.as_ptr()) };
        Launch { module, name, alone, entry, blocks, threads, arguments }
    }

    /// Runs it, from the last thread of the last block where `backwards`, with matrix units that err
    /// so many times as much as they may; or says what the kernel did wrong.
    pub(crate) fn run(&self, backwards: bool, unit_error: f64) -> Result<(), String> {
        let mut message = [0 as c_char; 512];
        // SAFETY: it sets a number of this thread, which runs the kernel.
        unsafe { simt_set_unit_error(unit_error) };
        let _alone = self.alone.then(|| alone(&self.module));
        // SAFETY: the arguments are the kernel's by number, place and size, as was checked, and
        // no other kernel runs with the same shared memory. That the kernel touches no memory
        // but the device's is what is being tested.
        let done = unsafe {
            simt_run(
                self.entry,
                self.arguments.as_ptr().cast(),
                self.blocks,
                self.threads,
                backwards,
                message.as_mut_ptr(),
                message.len(),
            )
        };
        // SAFETY: the message ends with 0 within its capacity, also where none was written.
        let message = unsafe { CStr::from_ptr(message.as_ptr()) };
        if done { Ok(()) } else { Err(message.to_string_lossy().into_owned()) }
    }

    /// Whether an argument, or a member of one, is an address in this range.
    pub(crate) fn names(&self, range: &std::ops::Range<u64>) -> bool {
        self.arguments.iter().any(|word| range.contains(word))
    }
}

/// Keeps others from running a module. What its blocks share is the module's, of most modules:
/// each has it for itself only because they run one after the other, those of other devices too.
fn alone(module: &str) -> MutexGuard<'static, ()> {
    static MODULES: Mutex<BTreeMap<String, &Mutex<()>>> = Mutex::new(BTreeMap::new());
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let module = *modules.entry(module.into()).or_insert_with(|| Box::leak(Box::default()));
    drop(modules);
    module.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(module: &CStr, kernel: &str) -> Option<&'static Entry> {
    kernels_of(module).find(|entry| entry.name().to_bytes() == kernel.as_bytes())
}

impl Entry {
    fn name(&self) -> &'static CStr {
        // SAFETY: a string of the program's.
        unsafe { CStr::from_ptr(self.name) }
    }
}

fn kernels_of(module: &CStr) -> impl Iterator<Item = &'static Entry> {
    // SAFETY: a string that ends with 0; the list that comes back lives as long as the program.
    let first = unsafe { simt_kernels_of(module.as_ptr()).as_ref() };
    // SAFETY: null, or an entry of the program's.
    std::iter::successors(first, |entry| unsafe { entry.next.as_ref() })
}

/// Every kernel that there is, as module and name.
pub(crate) fn all() -> BTreeSet<(String, String)> {
    let text = |name: &CStr| name.to_string_lossy().into_owned();
    let mut all = BTreeSet::new();
    for number in 0.. {
        // SAFETY: an array of the program's whose end is null.
        let module = unsafe { *simt_modules.as_ptr().add(number) };
        if module.is_null() {
            break;
        }
        // SAFETY: a string of the program's.
        let module = unsafe { CStr::from_ptr(module) };
        all.extend(kernels_of(module).map(|entry| (text(module), text(entry.name()))));
    }
    all
}
