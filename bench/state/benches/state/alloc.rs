//! A global allocator that counts the bytes allocated by each thread.
#![allow(unsafe_code, reason = "a global allocator needs unsafe code; this one only counts and delegates")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
}

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The bytes that this thread has allocated and not freed.
pub(crate) fn allocated_bytes() -> isize {
    ALLOCATED.with(Cell::get)
}

fn record(bytes: isize) {
    // The counter may already be destroyed while a thread exits; no measurement runs then.
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + bytes));
}

// SAFETY: every call is delegated unchanged to the system allocator; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(layout.size() as isize);
        // SAFETY: the caller upholds the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record(layout.size() as isize);
        // SAFETY: the caller upholds the contract of the same method.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        record(-(layout.size() as isize));
        // SAFETY: the caller upholds the contract of the same method.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        record(size as isize - layout.size() as isize);
        // SAFETY: the caller upholds the contract of the same method.
        unsafe { System.realloc(at, layout, size) }
    }
}
