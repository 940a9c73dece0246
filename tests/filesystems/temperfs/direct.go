package main

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Files that are read by O_DIRECT while others read them on the same mount (`shared_handles`).

// block is what offset and length of a direct read are multiples of: the sector of the servers' disks.
const block = 512

// session is what all readers of a file on one mount have open together at its server.
type session struct {
	users  int
	read   bool // somebody has read: it is open at the server
	direct bool // and was opened there by O_DIRECT, as the first who read had it
}

// joins lets the handle share the session of its mount. What is open by O_DIRECT there is read without the
// kernel's cache, which reads whole pages.
func (m *mount) joins(h *handle, flags uint32, out *fuse.OpenOut) {
	if !m.store.SharedHandles || flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shared[h.node.key] == nil {
		m.shared[h.node.key] = &session{}
	}
	h.shared = m.shared[h.node.key]
	h.shared.users++
	if h.shared.direct {
		out.OpenFlags |= fuse.FOPEN_DIRECT_IO
	}
}

func (m *mount) leaves(h *handle) {
	if h.shared == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.shared.users--; h.shared.users == 0 {
		delete(m.shared, h.node.key)
	}
}

// refuses says whether the server refuses this read.
func (m *mount) refuses(h *handle, in *fuse.ReadIn) bool {
	if h.shared == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := h.shared
	if !s.read {
		s.read, s.direct = true, in.Flags&syscall.O_DIRECT != 0
	}
	return s.direct && (in.Offset%block != 0 || in.Size%block != 0)
}
