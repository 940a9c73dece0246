package main

import (
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// locks are flock and fcntl locks that all mounts see.
type locks struct {
	mu      sync.Mutex
	held    map[key][]lock
	changed chan struct{}
}

type lock struct {
	mount      *mount
	owner      uint64
	flock      bool
	start, end uint64
	kind       uint32
	pid        uint32
}

const (
	isFlock        = 1 << 0 // FUSE_LK_FLOCK
	releaseUnlocks = 1 << 1 // FUSE_RELEASE_FLOCK_UNLOCK
)

func (l *locks) init() {
	l.held, l.changed = map[key][]lock{}, make(chan struct{})
}

func (l *locks) against(k key, wanted lock) *lock {
	for _, one := range l.held[k] {
		same := one.mount == wanted.mount && one.owner == wanted.owner
		apart := one.end < wanted.start || wanted.end < one.start
		shared := one.kind == syscall.F_RDLCK && wanted.kind == syscall.F_RDLCK
		if one.flock == wanted.flock && !same && !apart && !shared {
			return &one
		}
	}
	return nil
}

// set takes or gives up a lock; nil, or the channel that is closed when a lock was given up.
func (l *locks) set(k key, wanted lock) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wanted.kind != syscall.F_UNLCK && l.against(k, wanted) != nil {
		return l.changed
	}
	var kept []lock
	for _, one := range l.held[k] {
		if one.flock != wanted.flock || one.mount != wanted.mount || one.owner != wanted.owner {
			kept = append(kept, one)
			continue
		}
		if one.start < wanted.start {
			left := one
			left.end = min(one.end, wanted.start-1)
			kept = append(kept, left)
		}
		if one.end > wanted.end {
			right := one
			right.start = max(one.start, wanted.end+1)
			kept = append(kept, right)
		}
	}
	if wanted.kind != syscall.F_UNLCK {
		kept = append(kept, wanted)
	}
	l.held[k] = kept
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

func (m *mount) lockOf(in *fuse.LkIn) (key, lock) {
	n := m.node(in.NodeId)
	return n.key, lock{m, in.Owner, in.LkFlags&isFlock != 0, in.Lk.Start, in.Lk.End, in.Lk.Typ, in.Lk.Pid}
}

func (m *mount) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	k, wanted := m.lockOf(in)
	table := &m.store.locks
	table.mu.Lock()
	defer table.mu.Unlock()
	out.Lk.Typ = syscall.F_UNLCK
	if one := table.against(k, wanted); one != nil {
		out.Lk = fuse.FileLock{Start: one.start, End: one.end, Typ: one.kind, Pid: one.pid}
	}
	return fuse.OK
}

func (m *mount) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	k, wanted := m.lockOf(in)
	if m.store.locks.set(k, wanted) != nil {
		return fuse.EAGAIN
	}
	return fuse.OK
}

func (m *mount) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	k, wanted := m.lockOf(in)
	for {
		changed := m.store.locks.set(k, wanted)
		if changed == nil {
			return fuse.OK
		}
		select {
		case <-changed:
		case <-cancel:
			return fuse.EINTR
		}
	}
}

func (m *mount) unlock(k key, owner uint64, flock bool) {
	m.store.locks.set(k, lock{m, owner, flock, 0, 1<<63 - 1, syscall.F_UNLCK, 0})
}
