//! The functions of the CUDA driver that are used here, and what their codes mean.
//!
//! cudarc is the authority on types, constants and signatures, but its functions are not
//! called, for three reasons. They panic when the library or a symbol is missing. They take
//! the first library that answers to one of seventeen names, which need not be the driver.
//! And they return an `enum` of the codes known when the bindings were made: a newer driver
//! returns newer codes, and an `enum` with a value it does not have is undefined behaviour.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt;
use core::ptr::null;

use cudarc::driver::sys;
use libloading::Library;

use crate::exec::gpu::driver::Fault;

/// What a function of the driver returns; 0 is success.
pub(super) type Code = c_int;

/// The codes that are treated apart. All others are named by the driver.
pub(super) mod code {
    use super::{Code, sys::CUresult};

    pub(crate) const OUT_OF_MEMORY: Code = CUresult::CUDA_ERROR_OUT_OF_MEMORY as Code;
    pub(crate) const STUB_LIBRARY: Code = CUresult::CUDA_ERROR_STUB_LIBRARY as Code;
    pub(crate) const NO_DEVICE: Code = CUresult::CUDA_ERROR_NO_DEVICE as Code;
    pub(crate) const DRIVER_MISMATCH: Code = CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH as Code;
}

macro_rules! functions {
    ($($name:ident($($type:ty),*);)+) => {
        /// Functions of the driver by the names they have there.
        #[allow(non_snake_case)]
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "system" fn($($type),*) -> Code,)+
            cuGetErrorName: Naming,
            cuGetErrorString: Naming,
        }

        // The types below are those of the driver's header, or this does not compile.
        $(const _: unsafe fn($($type),*) -> sys::CUresult = sys::$name;)+

        impl Api {
            /// Finds all of them, or tells which one is missing.
            #[allow(non_snake_case)]
            pub(super) fn find(library: &Library) -> Result<Self, &'static str> {
                $(
                    // SAFETY: the driver's function of this name has this type: cudarc took
                    // it from the driver's header, and the constants above compare. A change
                    // of type has always come with a change of name (`_v2`).
                    let $name = *unsafe { library.get(concat!(stringify!($name), "\0")) }
                        .map_err(|_| stringify!($name))?;
                )+
                // SAFETY: these have the type `Naming`, see there.
                let (cuGetErrorName, cuGetErrorString) = unsafe {
                    (
                        *library.get("cuGetErrorName\0").map_err(|_| "cuGetErrorName")?,
                        *library.get("cuGetErrorString\0").map_err(|_| "cuGetErrorString")?,
                    )
                };
                Ok(Api { $($name,)+ cuGetErrorName, cuGetErrorString })
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut sys::CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, sys::CUdevice);
    cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
    cuDeviceTotalMem_v2(*mut usize, sys::CUdevice);
    cuDevicePrimaryCtxRetain(*mut sys::CUcontext, sys::CUdevice);
    cuCtxGetCurrent(*mut sys::CUcontext);
    cuCtxSetCurrent(sys::CUcontext);
    cuCtxPushCurrent_v2(sys::CUcontext);
    cuCtxPopCurrent_v2(*mut sys::CUcontext);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut sys::CUdeviceptr, usize);
    cuMemFree_v2(sys::CUdeviceptr);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemcpyHtoDAsync_v2(sys::CUdeviceptr, *const c_void, usize, sys::CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, sys::CUdeviceptr, usize, sys::CUstream);
    cuMemsetD32Async(sys::CUdeviceptr, c_uint, usize, sys::CUstream);
    cuStreamCreateWithPriority(*mut sys::CUstream, c_uint, c_int);
    cuStreamSynchronize(sys::CUstream);
    cuStreamWaitEvent(sys::CUstream, sys::CUevent, c_uint);
    cuEventCreate(*mut sys::CUevent, c_uint);
    cuEventRecord(sys::CUevent, sys::CUstream);
    cuEventSynchronize(sys::CUevent);
    cuModuleLoadDataEx(
        *mut sys::CUmodule, *const c_void, c_uint, *mut sys::CUjit_option, *mut *mut c_void
    );
    cuModuleGetFunction(*mut sys::CUfunction, sys::CUmodule, *const c_char);
    cuFuncSetAttribute(sys::CUfunction, sys::CUfunction_attribute, c_int);
    cuLaunchKernel(
        sys::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, sys::CUstream,
        *mut *mut c_void, *mut *mut c_void
    );
}

/// The two functions that are given a code. To them too it is a number here, since it may be
/// one that cudarc's `enum` does not have; both are four bytes.
type Naming = unsafe extern "system" fn(Code, *mut *const c_char) -> Code;
const _: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult = sys::cuGetErrorName;
const _: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult = sys::cuGetErrorString;
const _: () = assert!(size_of::<sys::CUresult>() == size_of::<Code>());

/// Calls a function of the driver; what it returns becomes a result. To be used in `unsafe`.
macro_rules! call {
    ($api:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $api.check(stringify!($name), ($api.$name)($($argument),*))
    };
}
pub(super) use call;

impl Api {
    /// Makes a result of what a call returned.
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<(), Refusal> {
        match code {
            0 => Ok(()),
            code => Err(Refusal { call, code, meaning: self.meaning(code) }),
        }
    }

    /// A code in the driver's words.
    fn meaning(&self, code: Code) -> String {
        let text = |function: Naming| {
            let mut text = null();
            // SAFETY: the function takes any code, and writes the address of a text that
            // lives as long as the library, or null where it does not know the code.
            unsafe {
                function(code, &mut text);
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        match (text(self.cuGetErrorName), text(self.cuGetErrorString)) {
            (Some(name), Some(text)) => format!("{name}, {text}"),
            (Some(name), None) => name,
            (None, _) => format!("error {code}"),
        }
    }
}

/// A call that the driver did not carry out, or that reports the failure of an earlier one.
#[derive(Debug)]
pub(super) struct Refusal {
    call: &'static str,
    pub(super) code: Code,
    meaning: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed ({})", self.call, self.meaning)
    }
}

impl Refusal {
    /// The fault of a request for so many bytes.
    pub(super) fn of(self, bytes: usize) -> Fault {
        match self.code {
            code::OUT_OF_MEMORY => Fault::Memory { bytes },
            _ => Fault::Failed { reason: self.to_string() },
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        refusal.of(0)
    }
}
