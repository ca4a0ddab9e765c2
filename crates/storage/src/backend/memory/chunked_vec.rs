//! A list without gaps that grows without moving what it holds.
//!
//! In: values. Out: where each lies: the last one takes the place of one that goes. A plain list would copy everything
//! whenever it grows, and keep up to half of its room empty.

use std::ops::{Index, IndexMut};

/// How many values lie in one piece.
const CHUNK_SIZE: usize = 512;

pub(super) struct ChunkedVec<T>(Vec<Vec<T>>);

impl<T> Default for ChunkedVec<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ChunkedVec<T> {
    pub(super) fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * CHUNK_SIZE + last.len())
    }

    pub(super) fn push(&mut self, value: T) {
        match self.0.last_mut().filter(|last| last.len() < CHUNK_SIZE) {
            Some(last) => last.push(value),
            None => self.0.push(vec![value]),
        }
    }

    /// Takes a value out; the last one lies in its place afterwards.
    pub(super) fn swap_remove(&mut self, at: usize) {
        let Some(mut last) = self.0.last_mut().and_then(Vec::pop) else { return };
        if at < self.len() {
            std::mem::swap(&mut self[at], &mut last);
        }
        if self.0.last().is_some_and(Vec::is_empty) {
            self.0.pop();
        }
        if self.0.capacity() > 4 * self.0.len() {
            self.0.shrink_to_fit();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }
}

impl<T> Index<usize> for ChunkedVec<T> {
    type Output = T;
    fn index(&self, at: usize) -> &T {
        &self.0[at / CHUNK_SIZE][at % CHUNK_SIZE]
    }
}

impl<T> IndexMut<usize> for ChunkedVec<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.0[at / CHUNK_SIZE][at % CHUNK_SIZE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_a_plain_list_would_be() {
        let (mut random, mut dense, mut plain) = (fastrand::Rng::with_seed(3), ChunkedVec::default(), Vec::new());
        for step in 0..3_000 {
            if random.u32(0..3_000) > step || plain.is_empty() {
                dense.push(step);
                plain.push(step);
            } else {
                let at = random.usize(0..plain.len());
                dense.swap_remove(at);
                plain.swap_remove(at);
            }
            assert_eq!(dense.len(), plain.len());
        }
        assert!(dense.iter().eq(&plain));
        assert!((0..plain.len()).all(|at| dense[at] == plain[at]));
    }
}
