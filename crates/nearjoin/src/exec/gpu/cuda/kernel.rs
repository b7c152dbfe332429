//! Modules that are loaded, and the kernels found in them.

use core::ffi::c_void;
use core::ptr::null_mut;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError, RwLock};

use cudarc::driver::sys::{CUfunc_st, CUjit_option, CUmod_st};
use nearjoin_kernels::Module;

use super::api::call;
use super::{Device, Handle, lock, ptx};
use crate::exec::gpu::driver::{Args, Fault, Kernel, Result};

/// Modules and kernels by name. Once loaded they stay.
#[derive(Default)]
pub(super) struct Kernels {
    /// Held while a module is loaded, so that none is loaded twice. That takes the driver's
    /// compiler up to seconds, during which kernels that are known can be launched.
    modules: Mutex<HashMap<&'static str, Handle<CUmod_st>>>,
    found: RwLock<HashMap<(&'static str, &'static str), Found>>,
}

/// A kernel, and the sizes of its parameters. They are found once, so what is leaked here is
/// as much as there are kernels.
#[derive(Clone, Copy)]
struct Found {
    function: Handle<CUfunc_st>,
    parameters: &'static [usize],
}

impl Device {
    pub(super) fn launch(
        &self,
        stream: usize,
        kernel: Kernel,
        blocks: u32,
        threads: u32,
        args: &Args,
    ) -> Result<()> {
        if blocks == 0 || threads == 0 {
            return Ok(());
        }
        let _current = self.enter()?;
        let found = self.kernel(kernel)?;
        if !ptx::fit(args, found.parameters) {
            return Err(failed(kernel, "was given arguments that are not its own"));
        }
        // The values where each is aligned to its size: words are aligned to 8.
        let mut values = vec![0u64; args.bytes().len().div_ceil(8)];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        bytes[..args.bytes().len()].copy_from_slice(args.bytes());
        let base = bytes.as_mut_ptr();
        let mut pointers: Vec<*mut c_void> =
            args.offsets().iter().map(|&at| base.wrapping_add(at).cast()).collect();
        // SAFETY: there is a pointer for each parameter, to as many bytes as it has, by the
        // comparison above; the call copies them before it returns. The handles are of this
        // context and are never destroyed. What the kernel does, it does to the memory of the
        // device, or to pinned memory that the engine has given it the address of.
        unsafe {
            call!(
                self.api,
                cuLaunchKernel(
                    found.function.0,
                    blocks,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    0,
                    self.streams[stream].0,
                    pointers.as_mut_ptr(),
                    null_mut()
                )
            )
        }
        .map_err(|refusal| match refusal.of(0) {
            Fault::Failed { reason } => failed(kernel, &format!("was not launched: {reason}")),
            fault => fault,
        })
    }

    /// A kernel that is known, or else one that is looked up, in a module that is loaded if it
    /// is not yet. The context must be current.
    fn kernel(&self, kernel: Kernel) -> Result<Found> {
        let Kernel { module, name } = kernel;
        let key = (module.name, name);
        let found = &self.kernels.found;
        if let Some(&found) = found.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(found);
        }
        let parameters = ptx::parameters(module.ptx, name);
        let parameters = parameters.ok_or_else(|| failed(kernel, "is not in its module"))?;
        let symbol = CString::new(name).map_err(|_| failed(kernel, "is no name"))?;
        let loaded = self.module(module)?;
        let mut function = null_mut();
        // SAFETY: the first address is that of a handle to be written, the module is loaded and
        // stays so, and the name ends with NUL.
        unsafe {
            call!(self.api, cuModuleGetFunction(&mut function, loaded.0, symbol.as_ptr()))?;
        }
        let function = Found { function: Handle(function), parameters: parameters.leak() };
        found.write().unwrap_or_else(PoisonError::into_inner).insert(key, function);
        Ok(function)
    }

    fn module(&self, module: &'static Module) -> Result<Handle<CUmod_st>> {
        let mut modules = lock(&self.kernels.modules);
        if let Some(&loaded) = modules.get(module.name) {
            return Ok(loaded);
        }
        let loaded = self.load(module)?;
        modules.insert(module.name, loaded);
        Ok(loaded)
    }

    /// Has the driver compile PTX. What its compiler says of a failure is part of the reason.
    fn load(&self, module: &'static Module) -> Result<Handle<CUmod_st>> {
        let failed = |reason| Fault::Failed {
            reason: format!("the module {} could not be loaded: {reason}", module.name),
        };
        let ptx = CString::new(module.ptx).map_err(|error| failed(error.to_string()))?;
        let mut log = vec![0u8; 8 << 10];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // The last byte is not the compiler's, so the log ends with NUL.
        let mut values =
            [log.as_mut_ptr().cast::<c_void>(), core::ptr::without_provenance_mut(log.len() - 1)];
        let mut loaded = null_mut();
        // SAFETY: the first address is that of a handle to be written and the text ends with
        // NUL. There are two options with two values: a buffer, which outlives the call, and
        // less than its size, which is passed as if it were a pointer.
        let result = unsafe {
            call!(
                self.api,
                cuModuleLoadDataEx(
                    &mut loaded,
                    ptx.as_ptr().cast(),
                    2,
                    options.as_mut_ptr(),
                    values.as_mut_ptr()
                )
            )
        };
        match result.map_err(|refusal| refusal.of(module.ptx.len())) {
            Ok(()) => Ok(Handle(loaded)),
            Err(Fault::Failed { reason }) => {
                let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
                let log = log.split_whitespace().collect::<Vec<_>>().join(" ");
                Err(failed(if log.is_empty() { reason } else { format!("{reason}: {log}") }))
            }
            Err(fault) => Err(fault),
        }
    }
}

fn failed(kernel: Kernel, what: &str) -> Fault {
    let reason = format!("the kernel {} of {} {what}", kernel.name, kernel.module.name);
    Fault::Failed { reason }
}
