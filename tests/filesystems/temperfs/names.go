package main

import (
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Names: looking them up, making, moving and removing them.

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
