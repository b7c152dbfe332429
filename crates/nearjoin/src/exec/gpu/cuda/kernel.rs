//! Modules that are loaded, and the kernels found in them.

use core::ffi::c_void;
use core::ptr::null_mut;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cudarc::driver::sys::{CUfunc_st, CUfunction_attribute, CUjit_option, CUmod_st};
use nearjoin_kernels::Module;
use nearjoin_kernels::image::Image;

use super::api::{Refusal, call, code};
use super::{Device, Handle, lock};
use crate::exec::gpu::driver::{Args, Fault, Kernel, Result};

/// Modules, and kernels by name. Once loaded they stay.
#[derive(Default)]
pub(super) struct Kernels {
    /// Held while a module is loaded, so that none is loaded twice. That may take the driver's
    /// compiler some tenths of a second, during which kernels that are known can be launched.
    modules: Mutex<HashMap<Module, Arc<Loaded>>>,
    found: RwLock<HashMap<(Module, &'static str), Arc<Found>>>,
}

/// A module, and what it was loaded from, without its code.
struct Loaded {
    module: Handle<CUmod_st>,
    image: Image,
}

/// A kernel, and the sizes of its parameters.
struct Found {
    function: Handle<CUfunc_st>,
    parameters: Vec<usize>,
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
        if !fit(args, &found.parameters) {
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
                    kernel.module.shared_bytes(),
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
    fn kernel(&self, kernel: Kernel) -> Result<Arc<Found>> {
        let Kernel { module, name } = kernel;
        let found = &self.kernels.found;
        let known = found.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&(module, name)) {
            return Ok(found.clone());
        }
        drop(known);
        let loaded = self.module(module)?;
        let parameters = loaded.image.parameters(name);
        let parameters = parameters.ok_or_else(|| failed(kernel, "is not in its module"))?.to_vec();
        let symbol = CString::new(name).map_err(|_| failed(kernel, "is no name"))?;
        let mut function = null_mut();
        // SAFETY: the first address is that of a handle to be written, the module is loaded and
        // stays so, and the name ends with NUL.
        unsafe {
            call!(self.api, cuModuleGetFunction(&mut function, loaded.module.0, symbol.as_ptr()))?;
        }
        let shared = kernel.module.shared_bytes();
        if shared > 0 {
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is one of a module that stays loaded.
            unsafe { call!(self.api, cuFuncSetAttribute(function, most, shared as i32))? };
        }
        let function = Arc::new(Found { function: Handle(function), parameters });
        found
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((module, name), function.clone());
        Ok(function)
    }

    fn module(&self, module: Module) -> Result<Arc<Loaded>> {
        let mut modules = lock(&self.kernels.modules);
        if let Some(loaded) = modules.get(&module) {
            return Ok(loaded.clone());
        }
        let (handle, mut image) = self.load(module)?;
        image.code = Vec::new();
        let loaded = Arc::new(Loaded { module: handle, image });
        modules.insert(module, loaded.clone());
        Ok(loaded)
    }

    /// Loads ready-made code, or has the driver compile PTX where there is none for this GPU or
    /// the driver will not have it.
    fn load(&self, module: Module) -> Result<(Handle<CUmod_st>, Image)> {
        if let Some(image) = Image::ready_made(module, self.properties.capability) {
            match self.load_image(&image.code, None) {
                Ok(loaded) => return Ok((loaded, image)),
                Err(refusal) if refusal.code == code::OUT_OF_MEMORY => {
                    return Err(refusal.of(image.code.len()));
                }
                Err(_) => {}
            }
        }
        let image = Image::ptx(module);
        self.compile(module, &image.code).map(|loaded| (loaded, image))
    }

    /// Has the driver compile PTX. What its compiler says of a failure is part of the reason.
    fn compile(&self, module: Module, ptx: &[u8]) -> Result<Handle<CUmod_st>> {
        let failed = |reason| Fault::Failed {
            reason: format!("the module {module} could not be loaded: {reason}"),
        };
        let ptx = CString::new(ptx).map_err(|error| failed(error.to_string()))?;
        let mut log = vec![0u8; 8 << 10];
        let result = self.load_image(ptx.as_bytes_with_nul(), Some(&mut log));
        match result.map_err(|refusal| refusal.of(ptx.count_bytes())) {
            Err(Fault::Failed { reason }) => {
                let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
                let log = log.split_whitespace().collect::<Vec<_>>().join(" ");
                Err(failed(if log.is_empty() { reason } else { format!("{reason}: {log}") }))
            }
            result => result,
        }
    }

    /// Hands an image to the driver, PTX with a NUL at its end; `log` is for what its compiler
    /// says.
    fn load_image(
        &self,
        image: &[u8],
        log: Option<&mut [u8]>,
    ) -> core::result::Result<Handle<CUmod_st>, Refusal> {
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let (log, size) = match log {
            // The last byte is not the compiler's, so the log ends with NUL.
            Some(log) => (log.as_mut_ptr(), log.len().saturating_sub(1)),
            None => (null_mut(), 0),
        };
        let count = if size > 0 { options.len() as u32 } else { 0 };
        let mut values = [log.cast::<c_void>(), core::ptr::without_provenance_mut(size)];
        let mut loaded = null_mut();
        // SAFETY: the first address is that of a handle to be written. The image is PTX that ends
        // with NUL, or code whose length is written in it. There are two options with two values,
        // or none: a buffer, which outlives the call, and less than its size, which is passed as if
        // it were a pointer.
        unsafe {
            call!(
                self.api,
                cuModuleLoadDataEx(
                    &mut loaded,
                    image.as_ptr().cast(),
                    count,
                    options.as_mut_ptr(),
                    values.as_mut_ptr()
                )
            )
        }?;
        Ok(Handle(loaded))
    }
}

/// Whether arguments are as many, and each as large, as the parameters.
fn fit(args: &Args, parameters: &[usize]) -> bool {
    let begins = args.offsets();
    let ends = begins.iter().skip(1).copied().chain([args.bytes().len()]);
    begins.len() == parameters.len()
        && begins.iter().zip(ends).zip(parameters).all(|((at, end), size)| at + size <= end)
}

fn failed(kernel: Kernel, what: &str) -> Fault {
    let reason = format!("the kernel {} of {} {what}", kernel.name, kernel.module);
    Fault::Failed { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_do_not_fit_are_seen() {
        let several = [8, 8, 48, 4];
        let args = Args::new().u64(1).u64(2).structure(&[0; 6]);
        assert!(!fit(&args, &several));
        assert!(fit(&args.clone().f32(1.0), &several));
        assert!(!fit(&args.f32(1.0).u32(2), &several));
        assert!(!fit(&Args::new().u64(1).u64(2).structure(&[0; 5]).f32(1.0), &several));
        assert!(!fit(&Args::new().u32(1), &[8]));
        assert!(fit(&Args::new(), &[]));
    }
}
