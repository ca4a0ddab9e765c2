//! SQLite VFS with fault injection: counts syncs, fails on demand, and loses unsynced data in a simulated power failure.
//!
//! The VFS wraps SQLite's default VFS for the whole test binary and forwards everything except for operations on files in a
//! watched folder.
#![allow(unsafe_code, reason = "a SQLite VFS is a table of C functions")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "all blocks only forward pointers passed by SQLite")]

use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_int, c_void},
    fs, mem,
    path::{Path, PathBuf},
    ptr,
    sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError},
};

use fastrand::Rng;
use rusqlite::ffi;

/// The simulated disk of one folder.
#[derive(Default)]
pub(crate) struct FaultyDisk(Mutex<State>);

#[derive(Default)]
struct State {
    files: HashMap<PathBuf, Contents>,
    syncs: usize,
    /// This many syncs succeed, then this many fail.
    failing_syncs: (usize, usize),
    full: bool,
    /// Number of writes and syncs until the process aborts.
    steps_until_abort: Option<usize>,
}

impl State {
    fn count_down(&mut self) {
        if let Some(remaining) = &mut self.steps_until_abort {
            if *remaining == 0 {
                std::process::abort();
            }
            *remaining -= 1;
        }
    }
}

/// The durable content, and the operations since the last sync.
#[derive(Default)]
struct Contents {
    durable: Vec<u8>,
    unsynced: Vec<UnsyncedOp>,
}

enum UnsyncedOp {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl UnsyncedOp {
    fn apply_to(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write(at, bytes) => {
                file.resize(file.len().max(at + bytes.len()), 0);
                file[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Self::Truncate(length) => file.resize(*length, 0),
        }
    }
}

static DISKS: LazyLock<Mutex<HashMap<PathBuf, Arc<FaultyDisk>>>> = LazyLock::new(Mutex::default);

/// The simulated disk of this file, if its folder is watched.
unsafe fn disk_of(name: *const c_char) -> Option<(PathBuf, Arc<FaultyDisk>)> {
    if name.is_null() {
        return None;
    }
    let path = PathBuf::from(unsafe { CStr::from_ptr(name) }.to_str().unwrap());
    let disk = DISKS.lock().unwrap().get(path.parent()?).cloned()?;
    Some((path, disk))
}

impl FaultyDisk {
    /// Watches a folder from now on. Must be called before the first file in it is opened.
    pub(crate) fn watch(folder: &Path) -> Arc<Self> {
        register();
        let disk = Arc::<Self>::default();
        DISKS.lock().unwrap().insert(fs::canonicalize(folder).unwrap(), disk.clone());
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of syncs since the last call.
    pub(crate) fn syncs(&self) -> usize {
        mem::take(&mut self.state().syncs)
    }

    /// After `after` syncs, the next `count` syncs fail. The dirty data of a failed sync is lost for good.
    pub(crate) fn fail_syncs(&self, after: usize, count: usize) {
        self.state().failing_syncs = (after, count);
    }

    /// Blocks all I/O until the guard is dropped.
    pub(crate) fn block_io(&self) -> impl Drop + '_ {
        self.state()
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// Aborts the process after this many writes and syncs.
    pub(crate) fn die_after(&self, steps: usize) {
        self.state().steps_until_abort = Some(steps);
    }

    /// Writes the files as a power failure now would leave them: all synced data, and a random part of the rest.
    pub(crate) fn cut_power(&self, into: &Path, random: &mut Rng) {
        for (path, contents) in &self.state().files {
            let mut file = contents.durable.clone();
            let loss = random.u8(0..3);
            for op in &contents.unsynced {
                if loss == 2 || loss == 1 && random.bool() {
                    op.apply_to(&mut file);
                }
            }
            fs::write(into.join(path.file_name().unwrap()), file).unwrap();
        }
    }
}

/// An open file: the wrapper, followed in memory by the file of the default VFS.
#[repr(C)]
struct WrappedFile {
    base: ffi::sqlite3_file,
    watched: *mut WatchedFile,
}

struct WatchedFile {
    disk: Arc<FaultyDisk>,
    path: PathBuf,
}

unsafe fn inner_file(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    unsafe { file.cast::<u8>().add(mem::size_of::<WrappedFile>()).cast() }
}

unsafe fn inner_methods<'a>(file: *mut ffi::sqlite3_file) -> &'a ffi::sqlite3_io_methods {
    unsafe { &*(*inner_file(file)).pMethods }
}

unsafe fn watched_file<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a WatchedFile> {
    unsafe { (*file.cast::<WrappedFile>()).watched.as_ref() }
}

unsafe fn inner_vfs(vfs: *mut ffi::sqlite3_vfs) -> *mut ffi::sqlite3_vfs {
    unsafe { (*vfs).pAppData.cast() }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    unsafe {
        (*file.cast::<WrappedFile>()).watched = ptr::null_mut();
        (*file).pMethods = ptr::null();
        let result = (*inner_vfs(vfs)).xOpen.unwrap()(inner_vfs(vfs), name, inner_file(file), flags, out);
        if (*inner_file(file)).pMethods.is_null() {
            return result;
        }
        (*file).pMethods = &raw const METHODS;
        if let Some((path, disk)) = disk_of(name) {
            disk.state().files.entry(path.clone()).or_default();
            (*file.cast::<WrappedFile>()).watched = Box::into_raw(Box::new(WatchedFile { disk, path }));
        }
        result
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    unsafe {
        if let Some((path, disk)) = disk_of(name) {
            disk.state().count_down();
            disk.state().files.remove(&path);
        }
        (*inner_vfs(vfs)).xDelete.unwrap()(inner_vfs(vfs), name, sync)
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    unsafe {
        let watched = mem::replace(&mut (*file.cast::<WrappedFile>()).watched, ptr::null_mut());
        if !watched.is_null() {
            drop(Box::from_raw(watched));
        }
        inner_methods(file).xClose.unwrap()(inner_file(file))
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, length: c_int, at: i64) -> c_int {
    unsafe {
        if let Some(WatchedFile { disk, path }) = watched_file(file) {
            let mut state = disk.state();
            state.count_down();
            if state.full {
                return ffi::SQLITE_FULL;
            }
            let bytes = std::slice::from_raw_parts(from.cast::<u8>(), length as usize).to_vec();
            state.files.entry(path.clone()).or_default().unsynced.push(UnsyncedOp::Write(at as usize, bytes));
        }
        inner_methods(file).xWrite.unwrap()(inner_file(file), from, length, at)
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    unsafe {
        if let Some(WatchedFile { disk, path }) = watched_file(file) {
            disk.state().files.entry(path.clone()).or_default().unsynced.push(UnsyncedOp::Truncate(length as usize));
        }
        inner_methods(file).xTruncate.unwrap()(inner_file(file), length)
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    if let Some(WatchedFile { disk, path }) = unsafe { watched_file(file) } {
        let state = &mut *disk.state();
        state.count_down();
        state.syncs += 1;
        let contents = state.files.entry(path.clone()).or_default();
        let ops = mem::take(&mut contents.unsynced);
        match &mut state.failing_syncs {
            (0, 0) => {}
            (0, count) => {
                *count -= 1;
                return ffi::SQLITE_IOERR_FSYNC;
            }
            (after, _) => *after -= 1,
        }
        ops.iter().for_each(|op| op.apply_to(&mut contents.durable));
        return ffi::SQLITE_OK;
    }
    unsafe { inner_methods(file).xSync.unwrap()(inner_file(file), 0) }
}

/// Functions that forward to the default VFS.
macro_rules! forward {
    ($($name:ident = $method:ident ( $($argument:ident : $type:ty),* );)*) => {$(
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file, $($argument: $type),*) -> c_int {
            unsafe { inner_methods(file).$method.unwrap()(inner_file(file), $($argument),*) }
        }
    )*};
}

forward! {
    read = xRead(to: *mut c_void, length: c_int, at: i64);
    file_size = xFileSize(size: *mut i64);
    lock = xLock(level: c_int);
    unlock = xUnlock(level: c_int);
    check_reserved = xCheckReservedLock(out: *mut c_int);
    control = xFileControl(op: c_int, argument: *mut c_void);
    sector_size = xSectorSize();
    characteristics = xDeviceCharacteristics();
    shm_map = xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void);
    shm_lock = xShmLock(offset: c_int, count: c_int, flags: c_int);
    shm_unmap = xShmUnmap(delete: c_int);
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    unsafe { inner_methods(file).xShmBarrier.unwrap()(inner_file(file)) }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Registers the VFS as the default, once.
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| unsafe {
        let inner = ffi::sqlite3_vfs_find(ptr::null());
        let mut vfs = ptr::read(inner);
        vfs.szOsFile += mem::size_of::<WrappedFile>() as c_int;
        vfs.zName = c"watched".as_ptr();
        vfs.pAppData = inner.cast();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        vfs.pNext = ptr::null_mut();
        assert_eq!(ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 1), ffi::SQLITE_OK);
    });
}
