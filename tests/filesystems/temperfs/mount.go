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
		dirty: map[key]*written{}, last: 1,
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
		if m.store.log != nil {
			m.store.note(m.number, op, filepath.Join(m.store.pathOf(n.fd), name), "", *status)
		}
		m.store.gate.leave()
	}, fuse.OK
}

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
	if w := m.writtenOf(n.key); w != nil {
		w.mu.Lock()
		out.Size = max(out.Size, uint64(w.end))
		w.mu.Unlock()
	}
	for _, one := range []*uint32{&out.Atimensec, &out.Mtimensec, &out.Ctimensec} {
		if grain := m.store.TimeGrain; grain > 0 {
			*one -= uint32(int64(*one) % grain)
		}
	}
	return nil
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

func (m *mount) findIn(parent *node, name string, out *fuse.EntryOut) (*node, error) {
	fd, err := syscall.Openat(parent.fd, name, pathOnly, 0)
	if err != nil {
		return nil, err
	}
	return m.found(fd, out)
}

func (m *mount) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) (result fuse.Status) {
	parent, end, refused := m.begin(cancel, "lookup", in.NodeId, name)
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	_, err := m.findIn(parent, name, out)
	if err == syscall.ENOENT && m.store.AbsentSeconds > 0 {
		out.SetEntryTimeout(seconds(m.store.AbsentSeconds))
		return fuse.OK
	}
	return status(err)
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

// own gives what was made to who made it, in the group of a setgid folder.
func (m *mount) own(parent *node, name string, owner fuse.Owner, folder bool, mode uint32) error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(parent.fd, &stat); err != nil {
		return err
	}
	gid := owner.Gid
	if stat.Mode&syscall.S_ISGID != 0 {
		gid = stat.Gid
		if folder {
			mode |= syscall.S_ISGID
		}
	}
	if err := unix.Fchownat(parent.fd, name, int(owner.Uid), int(gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if mode != 0 {
		return unix.Fchmodat(parent.fd, name, mode, 0)
	}
	return nil
}

func (m *mount) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) (result fuse.Status) {
	parent, end, refused := m.begin(cancel, "mkdir", in.NodeId, name)
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	mode := m.store.FolderMask.of(in.Mode & 07777)
	if err := unix.Mkdirat(parent.fd, name, 0o700); err != nil {
		return status(err)
	}
	m.made(parent, name)
	if err := m.own(parent, name, in.Owner, true, mode); err != nil {
		return status(err)
	}
	_, err := m.findIn(parent, name, out)
	return status(err)
}

func (m *mount) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) (result fuse.Status) {
	parent, end, refused := m.begin(cancel, "mknod", in.NodeId, name)
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	mode := m.store.FileMask.of(in.Mode & 07777)
	if err := unix.Mknodat(parent.fd, name, in.Mode&syscall.S_IFMT|0o600, int(in.Rdev)); err != nil {
		return status(err)
	}
	m.made(parent, name)
	if err := m.own(parent, name, in.Owner, false, mode); err != nil {
		return status(err)
	}
	n, err := m.findIn(parent, name, out)
	if err == nil && in.Mode&syscall.S_IFMT == syscall.S_IFREG {
		m.store.created(n.key, n.fd)
	}
	return status(err)
}

func (m *mount) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) (result fuse.Status) {
	parent, end, refused := m.begin(cancel, "symlink", in.NodeId, name)
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	if err := unix.Symlinkat(target, parent.fd, name); err != nil {
		return status(err)
	}
	m.made(parent, name)
	if err := m.own(parent, name, in.Owner, false, 0); err != nil {
		return status(err)
	}
	_, err := m.findIn(parent, name, out)
	return status(err)
}

func (m *mount) Readlink(cancel <-chan struct{}, in *fuse.InHeader) (target []byte, result fuse.Status) {
	n, end, refused := m.begin(cancel, "readlink", in.NodeId, "")
	if refused != fuse.OK {
		return nil, refused
	}
	defer end(&result)
	buffer := make([]byte, 4096)
	count, err := unix.Readlinkat(n.fd, "", buffer)
	if err != nil {
		return nil, status(err)
	}
	return buffer[:count], fuse.OK
}

// made notes a new name for a power cut.
func (m *mount) made(parent *node, name string) {
	if to := m.store.place(parent, name); to != nil {
		m.store.making(to)()
	}
}

func (m *mount) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) (result fuse.Status) {
	parent, end, refused := m.begin(cancel, "unlink", in.NodeId, name)
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	var stat syscall.Stat_t
	if err := statAt(parent.fd, name, &stat); err != nil {
		return status(err)
	}
	if m.store.SillyRename && stat.Nlink == 1 && m.silly(parent, name, keyOf(&stat)) {
		return fuse.OK
	}
	done := m.store.removing(m.store.place(parent, name))
	if err := unix.Unlinkat(parent.fd, name, 0); err != nil {
		return status(err)
	}
	done()
	m.store.gone(&stat)
	return fuse.OK
}

// silly gives a file that this mount has open another name; whether there was such a file.
func (m *mount) silly(parent *node, name string, k key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, h := range m.handles {
		if h.node == nil || h.node.key != k || h.closed.Load() || h.names != nil {
			continue
		}
		fd, err := unix.Dup(parent.fd)
		if err != nil {
			return false
		}
		h.silly = &place{fd, parent.key, sillyName(id)}
		return unix.Renameat(parent.fd, name, parent.fd, h.silly.name) == nil
	}
	return false
}

func (m *mount) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) (result fuse.Status) {
	parent, end, refused := m.begin(cancel, "rmdir", in.NodeId, name)
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	done := m.store.removing(m.store.place(parent, name))
	if err := unix.Unlinkat(parent.fd, name, unix.AT_REMOVEDIR); err != nil {
		return status(err)
	}
	done()
	return fuse.OK
}

func (m *mount) Rename(cancel <-chan struct{}, in *fuse.RenameIn, old, name string) (result fuse.Status) {
	from, end, refused := m.begin(cancel, "rename", in.NodeId, old)
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	return status(m.rename(from, old, m.node(in.Newdir), name, in.Flags))
}

// rename, by the tempers; the first row that fits is what happens.
//
//	| what is renamed                                              | it is                             |
//	|--------------------------------------------------------------|-----------------------------------|
//	| anything, with flags, under no_rename_flags                  | EINVAL                            |
//	| a folder over anything, under folder_over_nothing            | EEXIST                            |
//	| anything into another quota tree                             | EXDEV                             |
//	| a file that is open into another folder, under busy_rename   | EBUSY, or EXDEV                   |
//	| a file into another folder, under two_step_rename            | under both names for a time       |
//	| all else                                                     | renamed in one step               |
func (m *mount) rename(from *node, old string, to *node, name string, flags uint32) error {
	s := m.store
	if flags != 0 {
		if s.NoRenameFlags {
			return syscall.EINVAL
		}
		return unix.Renameat2(from.fd, old, to.fd, name, uint(flags))
	}
	var stat, there syscall.Stat_t
	if err := statAt(from.fd, old, &stat); err != nil {
		return err
	}
	replaces := statAt(to.fd, name, &there) == nil
	kind := stat.Mode & syscall.S_IFMT
	if s.FolderOverNothing && replaces && kind == syscall.S_IFDIR {
		return syscall.EEXIST
	}
	if len(s.QuotaTrees) > 0 && s.tree(s.pathOf(from.fd)) != s.tree(s.pathOf(to.fd)) {
		return syscall.EXDEV
	}
	moves := from.key != to.key && kind == syscall.S_IFREG
	if moves && s.BusyRename != "" && s.isOpen(keyOf(&stat), nil) {
		return errnos[s.BusyRename]
	}
	done := s.renaming(s.place(from, old), s.place(to, name))
	if moves && s.TwoStepRename > 0 {
		temporary := sillyName(stat.Ino)
		if err := unix.Linkat(from.fd, old, to.fd, temporary, 0); err != nil {
			return err
		}
		if err := unix.Renameat(to.fd, temporary, to.fd, name); err != nil {
			return err
		}
		pause(s.TwoStepRename)
		if err := unix.Unlinkat(from.fd, old, 0); err != nil {
			return err
		}
	} else if err := unix.Renameat(from.fd, old, to.fd, name); err != nil {
		return err
	}
	done()
	if replaces && keyOf(&there) != keyOf(&stat) {
		s.gone(&there)
	}
	return nil
}

func (m *mount) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) (result fuse.Status) {
	parent, end, refused := m.begin(cancel, "link", in.NodeId, name)
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	n := m.node(in.Oldnodeid)
	source, folder := m.store.pathOf(n.fd), m.store.pathOf(parent.fd)
	inside := filepath.Dir("/"+source) == filepath.Join("/", folder)
	switch {
	case len(m.store.QuotaTrees) > 0 && m.store.tree(source) != m.store.tree(folder):
		return fuse.EXDEV
	case m.store.Links == "none", m.store.Links == "folder" && !inside:
		return fuse.EPERM
	case m.store.Links == "symlink":
		target, err := filepath.Rel("/"+folder, "/"+source)
		if err == nil {
			err = unix.Symlinkat(target, parent.fd, name)
		}
		if err != nil {
			return status(err)
		}
		// The kernel wants the linked file itself as the answer; it finds the link at its next look.
		return m.again(n, out)
	}
	if err := unix.Linkat(unix.AT_FDCWD, proc(n.fd), parent.fd, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return status(err)
	}
	m.made(parent, name)
	_, err := m.findIn(parent, name, out)
	return status(err)
}

func (m *mount) again(n *node, out *fuse.EntryOut) fuse.Status {
	m.mu.Lock()
	n.lookups++
	m.mu.Unlock()
	out.NodeId, out.Generation = n.id, 1
	return status(m.attributes(n, &out.Attr))
}

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
	out.Fh, _ = m.add(n, fd)
	return fuse.OK
}

func (m *mount) Read(cancel <-chan struct{}, in *fuse.ReadIn, buffer []byte) (read fuse.ReadResult, result fuse.Status) {
	n, end, refused := m.begin(cancel, "read", in.NodeId, "")
	if refused != fuse.OK {
		return nil, refused
	}
	defer end(&result)
	h := m.used(in.Fh)
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
	_, end, refused := m.begin(cancel, "readdir", in.NodeId, "")
	if refused != fuse.OK {
		return refused
	}
	defer end(&result)
	h := m.handle(in.Fh)
	if in.Offset == 0 {
		names, err := entries(h.fd)
		if err != nil {
			return status(err)
		}
		h.names = names
	}
	for i := int(in.Offset); i < len(h.names); i++ {
		entry := h.names[i]
		entry.Off = uint64(i + 1)
		if !out.AddDirEntry(entry) {
			break
		}
	}
	return fuse.OK
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
