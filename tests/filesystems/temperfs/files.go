package main

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Open files and their bytes.

func (m *mount) add(n *node, fd int) (uint64, *handle) {
	h := &handle{mount: m, node: n, fd: fd}
	m.mu.Lock()
	m.last++
	id := m.last
	m.handles[id] = h
	m.mu.Unlock()
	m.store.mu.Lock()
	if m.store.opens[n.key] == nil {
		m.store.opens[n.key] = map[*handle]bool{}
	}
	m.store.opens[n.key][h] = true
	m.store.mu.Unlock()
	return id, h
}

// kept are the flags of an open that mean something to the store.
const kept = syscall.O_ACCMODE | syscall.O_NOFOLLOW | syscall.O_NOATIME

func (m *mount) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) (result fuse.Status) {
	parent, end, refused := m.begin(cancel, "create", in.NodeId, name)
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	fd, err := syscall.Openat(parent.fd, name, syscall.O_CREAT|syscall.O_EXCL|syscall.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	fresh := err == nil
	if err == syscall.EEXIST && in.Flags&syscall.O_EXCL == 0 {
		fd, err = syscall.Openat(parent.fd, name, int(in.Flags)&kept|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		return status(err)
	}
	if fresh {
		m.made(parent, name)
		if err = m.own(parent, name, in.Owner, false, m.store.FileMask.of(in.Mode&07777)); err != nil {
			syscall.Close(fd)
			return status(err)
		}
	}
	n, err := m.findIn(parent, name, &out.EntryOut)
	if err != nil {
		syscall.Close(fd)
		return status(err)
	}
	if fresh {
		m.store.created(n.key, fd)
	}
	out.Fh, _ = m.add(n, fd)
	return fuse.OK
}

func (m *mount) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "open", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	if _, err := m.recall(n); err != nil {
		return status(err)
	}
	m.recallFrom(n.key)
	var stat syscall.Stat_t
	if err := syscall.Fstat(n.fd, &stat); err != nil {
		return status(err)
	}
	if stat.Nlink == 0 {
		return fuse.Status(syscall.ESTALE) // the kernel looks the name up anew
	}
	if m.store.AttrSeconds > 0 {
		m.server.InodeNotify(n.id, -1, 0) // an open asks the server for size and times
	}
	flags := int(in.Flags)&kept&^syscall.O_NOFOLLOW | syscall.O_CLOEXEC
	if flags&syscall.O_ACCMODE == syscall.O_WRONLY {
		flags = flags&^syscall.O_ACCMODE | syscall.O_RDWR
	}
	fd, err := syscall.Open(proc(n.fd), flags, 0)
	if err != nil {
		return status(err)
	}
	var h *handle
	out.Fh, h = m.add(n, fd)
	m.joins(h, in.Flags, out)
	if m.store.StatedMost != nil {
		out.OpenFlags |= fuse.FOPEN_DIRECT_IO
	}
	return fuse.OK
}

func (m *mount) Read(cancel <-chan struct{}, in *fuse.ReadIn, buffer []byte) (read fuse.ReadResult, result fuse.Status) {
	n, end, refused := m.begin(cancel, "read", in.NodeId, "")
	if refused != fuse.OK {
		return nil, refused
	}
	defer end(&result)
	h := m.used(in.Fh)
	if m.refuses(h, in) {
		return nil, fuse.Status(syscall.EREMOTEIO)
	}
	if in.Flags&syscall.O_DIRECT != 0 {
		m.flush(n.key, false)
	}
	m.recallFrom(n.key)
	count, err := m.over(n, h.fd, buffer[:min(int(in.Size), len(buffer))], int64(in.Offset))
	if err != 0 {
		return nil, fuse.Status(err)
	}
	return fuse.ReadResultData(buffer[:count]), fuse.OK
}

func (m *mount) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (count uint32, result fuse.Status) {
	n, end, refused := m.begin(cancel, "write", in.NodeId, "")
	if refused != fuse.OK {
		return 0, refused
	}
	defer end(&result)
	h := m.used(in.Fh)
	var err syscall.Errno
	switch {
	case m.store.Cache == "":
		err = m.store.push(n.key, h.fd, data, int64(in.Offset))
	case in.Flags&syscall.O_DIRECT != 0:
		m.flush(n.key, false)
		err = m.store.push(n.key, h.fd, data, int64(in.Offset))
	default:
		err = m.keep(n, data, int64(in.Offset))
	}
	if err != 0 {
		return 0, fuse.Status(err)
	}
	return uint32(len(data)), fuse.OK
}

func (m *mount) Flush(cancel <-chan struct{}, in *fuse.FlushIn) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "close", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	if h := m.handle(in.Fh); h != nil {
		h.closed.Store(true)
	}
	if !m.store.LocalLocks {
		m.unlock(n.key, in.LockOwner, false)
	}
	return fuse.Status(m.flush(n.key, m.store.LateErrors == ""))
}

func (m *mount) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "fsync", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	m.used(in.Fh)
	if err := m.flush(n.key, true); err != 0 {
		return fuse.Status(err)
	}
	m.store.synced(n.key)
	return fuse.OK
}

func (m *mount) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	m.mu.Lock()
	h := m.handles[in.Fh]
	delete(m.handles, in.Fh)
	m.mu.Unlock()
	if h == nil {
		return
	}
	if in.ReleaseFlags&releaseUnlocks != 0 {
		m.unlock(h.node.key, in.LockOwner, true)
	}
	m.flush(h.node.key, false)
	m.leaves(h)
	m.released(h.node.key)
	m.store.mu.Lock()
	delete(m.store.opens[h.node.key], h)
	if len(m.store.opens[h.node.key]) == 0 {
		delete(m.store.opens, h.node.key)
	}
	m.store.mu.Unlock()
	if h.silly != nil {
		unix.Unlinkat(h.silly.fd, h.silly.name, 0)
		syscall.Close(h.silly.fd)
	}
	syscall.Close(h.fd)
}

func (m *mount) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "fallocate", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	if m.store.NoFallocate {
		return fuse.ENOTSUP
	}
	h := m.used(in.Fh)
	m.flush(n.key, false)
	m.store.mu.Lock()
	err := m.store.shade(n.key, h.fd)
	m.store.mu.Unlock()
	var before, after syscall.Stat_t
	if err == nil {
		err = syscall.Fstat(h.fd, &before)
	}
	if err == nil {
		err = syscall.Fallocate(h.fd, in.Mode, int64(in.Offset), int64(in.Length))
	}
	if err == nil && syscall.Fstat(h.fd, &after) == nil {
		m.store.resized(before.Size, after.Size)
	}
	return status(err)
}
