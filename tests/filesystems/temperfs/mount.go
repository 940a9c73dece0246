package main

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// mount is one node's view of the store: what the kernel knows of it, its open files and its cache.
type mount struct {
	fuse.RawFileSystem
	store  *store
	number int
	server *fuse.Server
	line   line

	mu      sync.Mutex
	nodes   map[uint64]*node
	byKey   map[key]*node
	handles map[uint64]*handle
	dirty   map[key]*written
	listed  map[key]*listing
	shared  map[key]*session
	last    uint64
}

// node is a file that the kernel knows. Its descriptor (O_PATH) finds it whatever it is called meanwhile.
type node struct {
	id      uint64
	fd      int
	key     key
	lookups uint64
}

// handle is an open file, or an open folder with its names.
type handle struct {
	mount  *mount
	node   *node
	fd     int
	silly  *place      // where a removed file went that this mount had open
	closed atomic.Bool // flushed, and not used since: the kernel tells of the release itself later
	names  []fuse.DirEntry
	shared *session // nil: none
}

const pathOnly = unix.O_PATH | syscall.O_NOFOLLOW | syscall.O_CLOEXEC

func newMount(s *store, number int) (*mount, error) {
	fd, err := syscall.Open(s.Store, unix.O_PATH|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	m := &mount{
		RawFileSystem: fuse.NewDefaultRawFileSystem(), store: s, number: number,
		nodes: map[uint64]*node{}, byKey: map[key]*node{}, handles: map[uint64]*handle{},
		dirty: map[key]*written{}, listed: map[key]*listing{}, last: 1, shared: map[key]*session{},
	}
	m.line.open()
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	root := &node{1, fd, keyOf(&stat), 1}
	m.nodes[1], m.byKey[root.key] = root, root
	return m, nil
}

func (m *mount) String() string { return m.store.Name }

func (m *mount) node(id uint64) *node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[id]
}

func (m *mount) handle(id uint64) *handle {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.handles[id]
}

// used is the handle of an operation that shows that its file is open still.
func (m *mount) used(id uint64) *handle {
	h := m.handle(id)
	if h != nil {
		h.closed.Store(false)
	}
	return h
}

// begin lets an operation in, and gives what ends it: that writes the line of the log.
func (m *mount) begin(cancel <-chan struct{}, op string, id uint64, name string) (*node, func(*fuse.Status), fuse.Status) {
	if status := m.line.wait(cancel); status != fuse.OK {
		return nil, nil, status
	}
	if status := m.store.gate.enter(); status != fuse.OK {
		return nil, nil, status
	}
	n := m.node(id)
	return n, func(status *fuse.Status) {
		if name != "" && op != "lookup" {
			m.forgetListing(n.key)
		}
		if m.store.log != nil {
			m.store.note(m.number, op, filepath.Join(m.store.pathOf(n.fd), name), "", *status)
		}
		m.store.gate.leave()
	}, fuse.OK
}

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

// found makes the kernel know a file by the descriptor that was opened of it.
func (m *mount) found(fd int, out *fuse.EntryOut) (*node, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	m.mu.Lock()
	n := m.byKey[keyOf(&stat)]
	if n == nil {
		m.last++
		n = &node{m.last, fd, keyOf(&stat), 0}
		m.nodes[n.id], m.byKey[n.key] = n, n
	} else {
		syscall.Close(fd)
	}
	n.lookups++
	m.mu.Unlock()
	out.NodeId, out.Generation = n.id, 1
	out.SetEntryTimeout(seconds(m.store.EntrySeconds))
	out.SetAttrTimeout(seconds(m.store.AttrSeconds))
	if err := m.attributes(n, &out.Attr); err != nil {
		m.Forget(n.id, 1)
		return nil, err
	}
	return n, nil
}

func (m *mount) Forget(id, count uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[id]
	if n == nil || id == 1 {
		return
	}
	n.lookups -= min(count, n.lookups)
	if n.lookups == 0 {
		syscall.Close(n.fd)
		delete(m.nodes, id)
		delete(m.byKey, n.key)
	}
}

// recall brings a stub's bytes back before they are used.
func (m *mount) recall(n *node) (bool, error) {
	if !m.store.isStub(n.key) {
		return false, nil
	}
	if m.store.Stubs == "refuse" {
		return false, syscall.EWOULDBLOCK
	}
	fd, err := syscall.Open(proc(n.fd), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer syscall.Close(fd)
	restored, err := m.store.recall(n.key, fd)
	if restored {
		m.store.note(m.number, "restore", m.store.pathOf(n.fd), "", status(err))
	}
	return restored, err
}
