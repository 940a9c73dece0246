package main

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Sizes, times, owners and modes.

// attributes as this mount sees them: with what it wrote itself.
func (m *mount) attributes(n *node, out *fuse.Attr) error {
	m.recallFrom(n.key)
	var stat syscall.Stat_t
	if err := syscall.Fstat(n.fd, &stat); err != nil {
		return err
	}
	if m.store.StaleHandles && stat.Nlink == 0 && stat.Mode&syscall.S_IFMT == syscall.S_IFREG {
		return syscall.ESTALE
	}
	out.FromStat(&stat)
	out.Ino = m.store.number(out.Ino)
	if w := m.writtenOf(n.key); w != nil {
		w.mu.Lock()
		out.Size = max(out.Size, uint64(w.end))
		w.mu.Unlock()
	}
	if most := m.store.StatedMost; most != nil && stat.Mode&syscall.S_IFMT == syscall.S_IFREG {
		out.Size = min(out.Size, *most)
	}
	for _, one := range []*uint32{&out.Atimensec, &out.Mtimensec, &out.Ctimensec} {
		if grain := m.store.TimeGrain; grain > 0 {
			*one -= uint32(int64(*one) % grain)
		}
	}
	return nil
}

func (m *mount) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "getattr", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	out.SetTimeout(seconds(m.store.AttrSeconds))
	return status(m.attributes(n, &out.Attr))
}

func (m *mount) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) (result fuse.Status) {
	n, end, refused := m.begin(cancel, "setattr", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	// As fs/nfs/inode.c nfs_setattr: what waits is written back first, else it would change the time again.
	m.flush(n.key, false)
	if err := m.setAttributes(n, in); err != nil {
		return status(err)
	}
	out.SetTimeout(seconds(m.store.AttrSeconds))
	return status(m.attributes(n, &out.Attr))
}

func (m *mount) setAttributes(n *node, in *fuse.SetAttrIn) error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(n.fd, &stat); err != nil {
		return err
	}
	uid, setsUid := in.GetUID()
	gid, setsGid := in.GetGID()
	if setsUid || setsGid {
		pause(m.store.RoundSeconds)
		if setsGid {
			if err := m.store.chgrp(&stat, gid); err != 0 {
				return err
			}
		}
		owner, group := -1, -1
		if setsUid {
			owner = int(uid)
		}
		if setsGid {
			group = int(gid)
		}
		if err := unix.Fchownat(n.fd, "", owner, group, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if mode, ok := in.GetMode(); ok {
		if err := syscall.Chmod(proc(n.fd), mode); err != nil {
			return err
		}
	}
	if size, ok := in.GetSize(); ok {
		if _, err := m.recall(n); err != nil {
			return err
		}
		if err := m.resize(n, &stat, int64(size)); err != nil {
			return err
		}
	}
	accessed, setsAccessed := in.GetATime()
	modified, setsModified := in.GetMTime()
	if !setsAccessed && !setsModified {
		return nil
	}
	if _, sized := in.GetSize(); !sized {
		pause(m.store.RoundSeconds)
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	for i, moment := range []time.Time{accessed, modified} {
		if (i == 0 && setsAccessed) || (i == 1 && setsModified) {
			times[i] = unix.NsecToTimespec(moment.UnixNano())
		}
	}
	if stat.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		return nil // no kernel of today sets a link's time by its descriptor
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, proc(n.fd), times, 0)
}

func (m *mount) resize(n *node, stat *syscall.Stat_t, size int64) error {
	fd, err := syscall.Open(proc(n.fd), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	m.store.mu.Lock()
	err = m.store.shade(n.key, fd)
	m.store.mu.Unlock()
	if err == nil {
		err = syscall.Ftruncate(fd, size)
	}
	if err == nil {
		m.store.resized(stat.Size, size)
	}
	return err
}
