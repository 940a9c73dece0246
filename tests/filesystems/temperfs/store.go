package main

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// key is a file of the store, whichever mount names it.
type key struct{ dev, ino uint64 }

func keyOf(stat *syscall.Stat_t) key { return key{uint64(stat.Dev), stat.Ino} }

// store is the servers: what all mounts share.
type store struct {
	*Options
	gate   gate
	mounts []*mount

	mu        sync.Mutex
	opens     map[key]map[*handle]bool
	xattrs    map[key]map[string][]byte
	stubs     map[key]string // to the path of the archived bytes
	shadows   map[key]*shadow
	undo      []undo
	locks     locks
	used      int64 // bytes under the quota
	groups    map[uint32]int64
	failAfter int64 // bytes until writes fail; negative: never
	failWith  syscall.Errno
	serial    uint64

	logMu sync.Mutex
	log   *os.File
}

func newStore(options *Options) (*store, error) {
	s := &store{
		Options: options, opens: map[key]map[*handle]bool{}, xattrs: map[key]map[string][]byte{},
		stubs: map[key]string{}, shadows: map[key]*shadow{}, groups: map[uint32]int64{}, failAfter: -1,
	}
	s.locks.init()
	if options.Log != "" {
		log, err := os.OpenFile(options.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return nil, err
		}
		s.log = log
	}
	return s, os.MkdirAll(options.Side, 0o700)
}

// side is a new name in the folder beside the store. The caller holds s.mu.
func (s *store) side() string {
	s.serial++
	return filepath.Join(s.Side, fmt.Sprintf("%d", s.serial))
}

func (s *store) note(node int, op, path, detail string, status fuse.Status) {
	if s.log == nil {
		return
	}
	s.logMu.Lock()
	defer s.logMu.Unlock()
	fmt.Fprintf(s.log, "%d\t%s\t%s\t%s\t%d\n", node, op, url.PathEscape(path), detail, status)
}

// pathOf is where an open file lies below the store: of several names the one by which it was opened.
func (s *store) pathOf(fd int) string {
	path, err := os.Readlink(proc(fd))
	if err != nil {
		return "?"
	}
	return strings.TrimPrefix(strings.TrimPrefix(path, s.Store), "/")
}

// tree is the quota tree that holds a path; "" for the rest.
func (s *store) tree(path string) string {
	for _, one := range s.QuotaTrees {
		if path == one || strings.HasPrefix(path, one+"/") {
			return one
		}
	}
	return ""
}

func (s *store) isOpen(k key, by *mount) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.opens[k] {
		if !h.closed.Load() && (by == nil || h.mount == by) {
			return true
		}
	}
	return false
}

// push writes bytes into the store: under the quota, or with the error that was ordered.
func (s *store) push(k key, fd int, data []byte, offset int64) syscall.Errno {
	s.mu.Lock()
	if s.failAfter >= 0 {
		if s.failAfter < int64(len(data)) {
			s.mu.Unlock()
			return s.failWith
		}
		s.failAfter -= int64(len(data))
	}
	if s.QuotaBytes > 0 {
		var stat syscall.Stat_t
		if err := syscall.Fstat(fd, &stat); err != nil {
			s.mu.Unlock()
			return errno(err)
		}
		growth := max(0, offset+int64(len(data))-stat.Size)
		if s.used+growth > s.QuotaBytes {
			s.mu.Unlock()
			return syscall.EDQUOT
		}
		s.used += growth
	}
	err := s.shade(k, fd)
	s.mu.Unlock()
	for err == nil && len(data) > 0 {
		var n int
		n, err = syscall.Pwrite(fd, data, offset)
		data, offset = data[max(n, 0):], offset+int64(max(n, 0))
	}
	return errno(err)
}

// resized tells the quota of a truncation, which the quota never refuses. gone tells it of a file that has no name any more.
func (s *store) resized(from, to int64) {
	s.mu.Lock()
	s.used += to - from
	s.mu.Unlock()
}

func (s *store) gone(stat *syscall.Stat_t) {
	if stat.Nlink > 1 || stat.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stat.Mode&syscall.S_IFMT == syscall.S_IFREG {
		s.used -= stat.Size
	}
	delete(s.xattrs, keyOf(stat))
}

// chgrp is whether the group may have these bytes too.
func (s *store) chgrp(stat *syscall.Stat_t, gid uint32) syscall.Errno {
	limit, limited := s.GroupQuota[gid]
	s.mu.Lock()
	defer s.mu.Unlock()
	if limited && stat.Gid != gid && s.groups[gid]+stat.Size > limit {
		return syscall.EDQUOT
	}
	s.groups[gid] += stat.Size
	return 0
}

// archive moves a file's bytes away: what is left has its size and no blocks.
func (s *store) archive(path string) error {
	fd, err := syscall.Open(filepath.Join(s.Store, path), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.stubs[keyOf(&stat)]; there {
		return nil
	}
	place := s.side()
	if err := save(fd, place); err != nil {
		return err
	}
	s.stubs[keyOf(&stat)] = place
	if err := syscall.Ftruncate(fd, 0); err != nil {
		return err
	}
	if err := syscall.Ftruncate(fd, stat.Size); err != nil {
		return err
	}
	return sameTimes(fd, &stat)
}

// recall brings a stub's bytes back; whether there was anything to bring.
func (s *store) recall(k key, fd int) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place, there := s.stubs[k]
	if !there {
		return false, nil
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return true, err
	}
	if err := fill(fd, place); err != nil {
		return true, err
	}
	delete(s.stubs, k)
	os.Remove(place)
	return true, sameTimes(fd, &stat)
}

func (s *store) isStub(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.stubs[k]
	return there
}

// gate lets operations in, or answers them with errors after a power cut.
type gate struct {
	running sync.RWMutex
	dead    bool
}

func (g *gate) enter() fuse.Status {
	g.running.RLock()
	if g.dead {
		g.running.RUnlock()
		return fuse.EIO
	}
	return fuse.OK
}

func (g *gate) leave() { g.running.RUnlock() }

// line is a node's way to the servers: while they are away its calls wait.
type line struct {
	mu   sync.Mutex
	back chan struct{} // closed while the servers answer
}

func (l *line) open() {
	l.back = make(chan struct{})
	close(l.back)
}

func (l *line) wait(cancel <-chan struct{}) fuse.Status {
	l.mu.Lock()
	back := l.back
	l.mu.Unlock()
	// A server that is there answers, also a caller that was interrupted: of two channels that are ready,
	// select takes any.
	select {
	case <-back:
		return fuse.OK
	default:
	}
	select {
	case <-back:
		return fuse.OK
	case <-cancel:
		return fuse.EINTR
	}
}

func (l *line) away() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back = make(chan struct{})
}

func (l *line) answer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.back:
	default:
		close(l.back)
	}
}

// kill waits for what is running; all that comes later is EIO.
func (g *gate) kill() {
	g.running.Lock()
	g.dead = true
	g.running.Unlock()
}

func proc(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if number, ok := err.(syscall.Errno); ok {
		return number
	}
	if pathError, ok := err.(*os.PathError); ok {
		return errno(pathError.Err)
	}
	return syscall.EIO
}

func status(err error) fuse.Status { return fuse.Status(errno(err)) }

// save copies all bytes of an open file to a new file; fill brings them back.
func save(fd int, place string) error {
	out, err := os.OpenFile(place, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, bufio.NewReaderSize(&reader{fd: fd}, 1<<20))
	return err
}

func fill(fd int, place string) error {
	in, err := os.Open(place)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := syscall.Ftruncate(fd, 0); err != nil {
		return err
	}
	buffer, offset := make([]byte, 1<<20), int64(0)
	for {
		n, err := in.Read(buffer)
		if n > 0 {
			if _, err := syscall.Pwrite(fd, buffer[:n], offset); err != nil {
				return err
			}
			offset += int64(n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

type reader struct {
	fd     int
	offset int64
}

func (r *reader) Read(buffer []byte) (int, error) {
	n, err := syscall.Pread(r.fd, buffer, r.offset)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	r.offset += int64(max(n, 0))
	return max(n, 0), err
}

func sameTimes(fd int, stat *syscall.Stat_t) error {
	times := []unix.Timespec{
		{Sec: stat.Atim.Sec, Nsec: stat.Atim.Nsec}, {Sec: stat.Mtim.Sec, Nsec: stat.Mtim.Nsec},
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, proc(fd), times, 0)
}

func pause(seconds float64) {
	if seconds > 0 {
		time.Sleep(time.Duration(seconds * float64(time.Second)))
	}
}
