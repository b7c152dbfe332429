//! Finds the driver and its first GPU, step by step, each of which may be the last.

use core::ffi::{CStr, c_int};
use core::mem::{ManuallyDrop, size_of_val};
use core::ptr::null_mut;
use std::error::Error;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute, CUdevice_attribute::*};
use libloading::Library;

use super::api::{Api, Code, Refusal, call};
use super::verdict;
use crate::exec::gpu::driver::Properties;

/// A GPU that can be used.
pub(super) struct Gpu {
    pub(super) api: Api,
    pub(super) context: CUcontext,
    pub(super) properties: Properties,
}

const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// The GPU that the driver names first, which the user chooses by `CUDA_VISIBLE_DEVICES`; or
/// why there is none.
pub(super) fn probe() -> Result<Gpu, String> {
    let visible = std::env::var_os("CUDA_VISIBLE_DEVICES");
    let visible = visible.as_ref().map(|value| value.to_string_lossy());
    let visible = visible.as_deref();

    let library = library()?;
    // Before all other functions: an old driver has not all of them, and its version says more.
    let version = verdict::version(version(&library)?)?;
    let api = Api::find(&library).map_err(verdict::missing)?;

    // SAFETY: the function takes a number, which must be 0, and may be called again.
    unsafe { call!(api, cuInit(0)) }
        .map_err(|refusal| verdict::not_started(refusal.code, &refusal.to_string(), visible))?;
    let mut devices = 0;
    // SAFETY: the address is that of a number to be written.
    unsafe { call!(api, cuDeviceGetCount(&mut devices)) }
        .map_err(|refusal| verdict::not_started(refusal.code, &refusal.to_string(), visible))?;
    verdict::enough(devices, visible)?;

    let unnamed = |refusal: Refusal| verdict::not_opened("0", refusal.code, &refusal.to_string());
    let mut device = 0;
    // SAFETY: the address is that of a number to be written; and there is a device 0.
    unsafe { call!(api, cuDeviceGet(&mut device, 0)) }.map_err(unnamed)?;
    let properties = properties(&api, device, version).map_err(unnamed)?;
    verdict::capable(&properties.name, properties.capability)?;

    // The primary context, which is that of all other users of CUDA in this process. It is
    // held until the process ends, and so is all that belongs to it.
    let mut context = null_mut();
    // SAFETY: the address is that of a handle to be written, the device is the driver's.
    unsafe { call!(api, cuDevicePrimaryCtxRetain(&mut context, device)) }.map_err(|refusal| {
        verdict::not_opened(&properties.name, refusal.code, &refusal.to_string())
    })?;
    Ok(Gpu { api, context, properties })
}

/// The driver's library. It is never closed: it may have threads of its own by then.
fn library() -> Result<ManuallyDrop<Library>, String> {
    // SAFETY: opening a library runs what it does at its start. This name is that of the
    // system's driver, on which every program that uses a GPU relies in the same way.
    let library = unsafe { Library::new(LIBRARY) };
    library.map(ManuallyDrop::new).map_err(|error| {
        let said = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        verdict::no_library(LIBRARY, &said)
    })
}

/// The version of CUDA that the driver is for, as its number.
fn version(library: &Library) -> Result<c_int, String> {
    const NAME: &str = "cuDriverGetVersion";
    const _: unsafe fn(*mut c_int) -> sys::CUresult = sys::cuDriverGetVersion;
    type GetVersion = unsafe extern "system" fn(*mut c_int) -> Code;
    // SAFETY: the function has this type, as cudarc took it from the driver's header.
    let get = unsafe { library.get::<GetVersion>(NAME) }.map_err(|_| verdict::missing(NAME))?;
    let mut number = 0;
    // SAFETY: the address is that of a number to be written. It may be called before `cuInit`.
    match unsafe { get(&mut number) } {
        0 => Ok(number),
        code => Err(verdict::not_started(code, &format!("{NAME} failed (error {code})"), None)),
    }
}

fn properties(api: &Api, device: CUdevice, driver: (u32, u32)) -> Result<Properties, Refusal> {
    let attribute = |attribute: CUdevice_attribute| -> Result<u32, Refusal> {
        let mut value = 0;
        // SAFETY: the address is that of a number to be written, the device is the driver's.
        unsafe { call!(api, cuDeviceGetAttribute(&mut value, attribute, device)) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let (mut name, mut memory) = ([0u8; 256], 0);
    // SAFETY: the addresses are those of so many bytes and of a number to be written.
    unsafe {
        let room = size_of_val(&name) as c_int;
        call!(api, cuDeviceGetName(name.as_mut_ptr().cast(), room, device))?;
        call!(api, cuDeviceTotalMem_v2(&mut memory, device))?;
    }
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
    let multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let capability = (
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let properties = Properties::new(name, memory as u64, multiprocessors);
    Ok(Properties { capability, driver, ..properties })
}
