//! What stands in for the CUDA driver where nearjoin is built without it.

#![allow(unsafe_code)]

use std::sync::Arc;

use super::driver::{Args, Driver, HostMemory, Kernel, Properties, Result, Transfer};

/// A driver that nobody has.
#[derive(Debug)]
pub(super) enum Disabled {}

pub(super) fn open() -> core::result::Result<Arc<Disabled>, String> {
    Err("this nearjoin was built without the feature `cuda`: build it with the feature".into())
}

impl Driver for Disabled {
    fn properties(&self) -> &Properties {
        match *self {}
    }

    fn free_memory(&self) -> Result<u64> {
        match *self {}
    }

    fn allocate(&self, _: usize) -> Result<u64> {
        match *self {}
    }

    unsafe fn release(&self, _: u64, _: usize) {
        match *self {}
    }

    fn pin(&self, _: usize) -> Result<Box<dyn HostMemory>> {
        match *self {}
    }

    unsafe fn copy_in(
        &self,
        _: usize,
        _: Box<dyn HostMemory>,
        _: u64,
        _: usize,
    ) -> Result<Box<dyn Transfer>> {
        match *self {}
    }

    unsafe fn copy_out(
        &self,
        _: usize,
        _: u64,
        _: Box<dyn HostMemory>,
        _: usize,
    ) -> Result<Box<dyn Transfer>> {
        match *self {}
    }

    unsafe fn fill(&self, _: usize, _: u64, _: u32, _: usize) -> Result<()> {
        match *self {}
    }

    unsafe fn launch(&self, _: usize, _: Kernel, _: u32, _: u32, _: &Args) -> Result<()> {
        match *self {}
    }

    fn order(&self, _: usize, _: usize) -> Result<()> {
        match *self {}
    }

    fn synchronize(&self, _: usize) -> Result<()> {
        match *self {}
    }
}
