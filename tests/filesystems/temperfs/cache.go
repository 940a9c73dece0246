package main

import (
	"sync"
	"syscall"
)

// written is what one mount wrote to one file and the store does not have yet.
type written struct {
	mu     sync.Mutex
	key    key
	fd     int
	pieces []piece
	bytes  int
	end    int64
	err    syscall.Errno // of a write-back that nobody was told of
}

type piece struct {
	offset int64
	data   []byte
}

// held is how much a mount keeps back of one file; beyond that it writes back by itself.
const held = 64 << 20

func (m *mount) writtenOf(k key) *written {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dirty[k]
}

func (m *mount) keep(n *node, data []byte, offset int64) syscall.Errno {
	m.mu.Lock()
	w := m.dirty[n.key]
	if w == nil {
		fd, err := syscall.Open(proc(n.fd), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		if err != nil {
			m.mu.Unlock()
			return errno(err)
		}
		w = &written{key: n.key, fd: fd}
		m.dirty[n.key] = w
	}
	m.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pieces = append(w.pieces, piece{offset, append([]byte(nil), data...)})
	w.bytes += len(data)
	w.end = max(w.end, offset+int64(len(data)))
	if w.bytes > held {
		w.writeBack(m.store)
	}
	return 0
}

// writeBack empties the cache into the store. What fails is lost, and its error waits for a caller.
func (w *written) writeBack(s *store) {
	for _, one := range w.pieces {
		if err := s.push(w.key, w.fd, one.data, one.offset); err != 0 {
			w.err = err
		}
	}
	w.pieces, w.bytes, w.end = nil, 0, 0
}

// flush writes a file's cache back. `tell`: the error is returned, and is told once.
func (m *mount) flush(k key, tell bool) syscall.Errno {
	w := m.writtenOf(k)
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeBack(m.store)
	if !tell {
		return 0
	}
	err := w.err
	w.err = 0
	return err
}

// recallFrom makes the other mounts write back what this one is about to look at.
func (m *mount) recallFrom(k key) {
	if m.store.Cache != "coherent" {
		return
	}
	for _, other := range m.store.mounts {
		if other != m {
			other.flush(k, false)
		}
	}
}

// released forgets a cache that holds nothing, when its file's last handle goes.
func (m *mount) released(k key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.handles {
		if h.node != nil && h.node.key == k {
			return
		}
	}
	if w := m.dirty[k]; w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.pieces) == 0 {
			syscall.Close(w.fd)
			delete(m.dirty, k)
		}
	}
}

// over puts what this mount wrote over what the store holds; returns the bytes that are valid.
func (m *mount) over(n *node, fd int, buffer []byte, offset int64) (int, syscall.Errno) {
	count, err := syscall.Pread(fd, buffer, offset)
	if err != nil {
		return 0, errno(err)
	}
	w := m.writtenOf(n.key)
	if w == nil {
		return count, 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	end := min(w.end, offset+int64(len(buffer)))
	if end > offset+int64(count) {
		clear(buffer[count : end-offset])
		count = int(end - offset)
	}
	for _, one := range w.pieces {
		from, to := max(one.offset, offset), min(one.offset+int64(len(one.data)), offset+int64(count))
		if from < to {
			copy(buffer[from-offset:to-offset], one.data[from-one.offset:])
		}
	}
	return count, 0
}
