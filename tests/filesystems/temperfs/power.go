package main

import (
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// What a power cut leaves. A file whose bytes no fsync covered is what it was at its last one: empty where
// there was none. With `names_by_fsync` a name that no fsync of its folder covered is as before, too.

type shadow struct {
	fd    int
	saved string // the bytes of the last fsync; "" for none
}

type undo struct {
	folders [2]key // an fsync of either makes the change durable
	back    func()
	forget  func()
}

// shade keeps what a file holds before its first change since it was synced. The caller holds s.mu.
func (s *store) shade(k key, fd int) error {
	if !s.Power || s.shadows[k] != nil {
		return nil
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return err
	}
	own, err := syscall.Open(proc(fd), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	made := &shadow{fd: own}
	if stat.Size > 0 {
		made.saved = s.side()
		if err := save(own, made.saved); err != nil {
			return err
		}
	}
	s.shadows[k] = made
	return nil
}

// created notes a file that never was synced.
func (s *store) created(k key, fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shade(k, fd)
}

// synced: the bytes of a file are durable.
func (s *store) synced(k key) {
	if !s.Power {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(k)
}

func (s *store) drop(k key) {
	if made := s.shadows[k]; made != nil {
		syscall.Close(made.fd)
		if made.saved != "" {
			os.Remove(made.saved)
		}
		delete(s.shadows, k)
	}
}

// folderSynced: what a journal in ordered mode commits with a folder.
func (s *store) folderSynced(k key, fd int) {
	if !s.Power || s.FolderFsyncNothing {
		return
	}
	names, _ := os.ReadDir(proc(fd))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.NamesByFsync {
		for _, name := range names {
			var stat syscall.Stat_t
			if syscall.Lstat(filepath.Join(proc(fd), name.Name()), &stat) == nil {
				s.drop(keyOf(&stat))
			}
		}
	}
	kept := s.undo[:0]
	for _, one := range s.undo {
		if one.folders[0] == k || one.folders[1] == k {
			one.forget()
		} else {
			kept = append(kept, one)
		}
	}
	s.undo = kept
}

// making, removing and renaming note a change of names, so that a cut can take it back; each returns what is
// to be called when the change was made.
func (s *store) making(to *place) func() {
	return s.changing(to, nil, func() { os.RemoveAll(to.path()) })
}

func (s *store) removing(from *place) func() {
	if from == nil {
		return func() {}
	}
	var stat syscall.Stat_t
	folder := syscall.Lstat(from.path(), &stat) == nil && stat.Mode&syscall.S_IFMT == syscall.S_IFDIR
	return s.changing(from, from, func() {
		if folder {
			os.Mkdir(from.path(), os.FileMode(stat.Mode&0o777))
		}
	})
}

func (s *store) renaming(from, to *place) func() {
	if from == nil || to == nil {
		return func() {}
	}
	done := s.changing(to, to, func() { unix.Renameat(to.fd, to.name, from.fd, from.name) })
	return func() {
		done()
		s.mu.Lock()
		defer s.mu.Unlock()
		last := &s.undo[len(s.undo)-1]
		last.folders[1] = from.folder
		forget := last.forget
		last.forget = func() { forget(); syscall.Close(from.fd) }
	}
}

// changing: `lost` is the name under which something lies that is about to go, or nil; `back` takes the
// change back, after which what was lost is put there again.
func (s *store) changing(at, lost *place, back func()) func() {
	if at == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := ""
	if lost != nil {
		kept = s.side()
		if unix.Linkat(lost.fd, lost.name, unix.AT_FDCWD, kept, 0) != nil {
			kept = ""
		}
	}
	made := undo{
		folders: [2]key{at.folder, at.folder},
		back: func() {
			back()
			if kept != "" {
				unix.Linkat(unix.AT_FDCWD, kept, at.fd, at.name, 0)
			}
		},
		forget: func() {
			syscall.Close(at.fd)
			if kept != "" {
				os.Remove(kept)
			}
		},
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.undo = append(s.undo, made)
	}
}

// cut takes the power away: everything that is not durable is gone, and all later operations fail.
func (s *store) cut() {
	s.answer()
	s.gate.kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, made := range s.shadows {
		syscall.Ftruncate(made.fd, 0)
		if made.saved != "" {
			fill(made.fd, made.saved)
		}
		s.drop(k)
	}
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i].back()
		s.undo[i].forget()
	}
	s.undo = nil
}

// place is a name in a folder, with a descriptor of its own.
type place struct {
	fd     int
	folder key
	name   string
}

func (p *place) path() string { return filepath.Join(proc(p.fd), p.name) }

func (s *store) place(n *node, name string) *place {
	if !s.Power || !s.NamesByFsync {
		return nil
	}
	fd, err := unix.Dup(n.fd)
	if err != nil {
		return nil
	}
	return &place{fd, n.key, name}
}
