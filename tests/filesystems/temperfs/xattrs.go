package main

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Extended attributes.

// stateName is the extended attribute that says whether a file is a stub, in place of the vendors' commands.
const stateName = "user.temperfs.state"

func (m *mount) GetXAttr(cancel <-chan struct{}, in *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	n := m.node(in.NodeId)
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	value, there := m.store.xattrs[n.key][name]
	if name == stateName {
		value, there = []byte("local"), true
		if _, stub := m.store.stubs[n.key]; stub {
			value = []byte("offline")
		}
	} else if m.store.XattrBytes < 0 {
		return 0, fuse.ENOTSUP
	}
	if !there {
		return 0, fuse.ENOATTR
	}
	return answer(value, dest)
}

func answer(value, dest []byte) (uint32, fuse.Status) {
	if len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	copy(dest, value)
	return uint32(len(value)), fuse.OK
}

func (m *mount) ListXAttr(cancel <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	if m.store.XattrBytes < 0 {
		return 0, fuse.ENOTSUP
	}
	n := m.node(in.NodeId)
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	var names []byte
	for name := range m.store.xattrs[n.key] {
		names = append(append(names, name...), 0)
	}
	return answer(names, dest)
}

func (m *mount) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, data []byte) fuse.Status {
	n := m.node(in.NodeId)
	if m.store.XattrBytes < 0 || len(name) < 5 || name[:5] != "user." {
		return fuse.ENOTSUP
	}
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	own := m.store.xattrs[n.key]
	total := len(name) + len(data)
	for other, value := range own {
		if other != name {
			total += len(other) + len(value)
		}
	}
	if m.store.XattrBytes > 0 && total > m.store.XattrBytes {
		return fuse.Status(syscall.ENOSPC)
	}
	_, there := own[name]
	if in.Flags&unix.XATTR_CREATE != 0 && there {
		return fuse.Status(syscall.EEXIST)
	}
	if in.Flags&unix.XATTR_REPLACE != 0 && !there {
		return fuse.ENOATTR
	}
	if own == nil {
		own = map[string][]byte{}
		m.store.xattrs[n.key] = own
	}
	own[name] = append([]byte(nil), data...)
	return fuse.OK
}

func (m *mount) RemoveXAttr(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	n := m.node(in.NodeId)
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if _, there := m.store.xattrs[n.key][name]; !there {
		return fuse.ENOATTR
	}
	delete(m.store.xattrs[n.key], name)
	return fuse.OK
}
