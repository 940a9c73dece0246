package main

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Open folders, and the file system as a whole.

func (m *mount) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "opendir", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	fd, err := syscall.Open(proc(n.fd), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return status(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	m.handles[m.last] = &handle{mount: m, node: n, fd: fd, names: []fuse.DirEntry{}}
	out.Fh = m.last
	return fuse.OK
}

func (m *mount) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "readdir", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	h := m.handle(in.Fh)
	if in.Offset == 0 {
		names, err := m.names(n.key, h.fd)
		if err != nil {
			return status(err)
		}
		h.names = names
	}
	for i := int(in.Offset); i < len(h.names); i++ {
		entry := h.names[i]
		entry.Off = uint64(i + 1)
		entry.Ino = m.store.number(entry.Ino)
		if !out.AddDirEntry(entry) {
			break
		}
	}
	return fuse.OK
}

// listing is what a mount read of a folder, and when.
type listing struct {
	names []fuse.DirEntry
	at    time.Time
}

// names lists a folder, or shows what this mount listed not long ago (Tempers.ListSeconds).
func (m *mount) names(k key, fd int) ([]fuse.DirEntry, error) {
	m.mu.Lock()
	before := m.listed[k]
	m.mu.Unlock()
	if before != nil && time.Since(before.at) < seconds(m.store.ListSeconds) {
		return before.names, nil
	}
	at := time.Now()
	names, err := entries(fd)
	if err != nil || m.store.ListSeconds == 0 {
		return names, err
	}
	m.mu.Lock()
	m.listed[k] = &listing{names, at}
	m.mu.Unlock()
	return names, nil
}

func (m *mount) forgetListing(k key) {
	m.mu.Lock()
	delete(m.listed, k)
	m.mu.Unlock()
}

func (m *mount) ReleaseDir(in *fuse.ReleaseIn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.handles[in.Fh]; h != nil {
		syscall.Close(h.fd)
		delete(m.handles, in.Fh)
	}
}

func (m *mount) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "fsyncdir", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	if h := m.handle(in.Fh); h != nil {
		m.store.folderSynced(n.key, h.fd)
	}
	return fuse.OK
}

func (m *mount) StatFs(cancel <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "statfs", max(in.NodeId, 1), "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(n.fd, &stat); err != nil {
		return status(err)
	}
	out.FromStatfsT(&stat)
	if m.store.StatvfsZero {
		out.Files, out.Ffree = 0, 0
	}
	if s := m.store; s.QuotaShown && s.tree(s.pathOf(n.fd)) != "" {
		s.mu.Lock()
		left := uint64(max(0, s.QuotaBytes-s.used))
		s.mu.Unlock()
		out.Blocks = uint64(s.QuotaBytes) / uint64(out.Bsize)
		out.Bfree = left / uint64(out.Bsize)
		out.Bavail = out.Bfree
	}
	return fuse.OK
}
