// Program temperfs mounts one ordinary folder several times, each mount as one node of a cluster would see a
// parallel or network file system with certain tempers (tempers.go). It takes commands on its standard input,
// a JSON object a line, answers each by a line, and ends, unmounted, when that input ends: nothing of it
// outlives who started it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: %s OPTIONS.json", os.Args[0])
	}
	options, err := readOptions(os.Args[1])
	if err != nil {
		return err
	}
	syscall.Umask(0)
	many := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &many); err == nil {
		many.Cur = many.Max
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &many)
	}
	s, err := newStore(options)
	if err != nil {
		return err
	}
	defer s.unmount()
	for number, point := range options.Mounts {
		if err := s.mount(number, point); err != nil {
			return fmt.Errorf("%s: %w", point, err)
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		s.unmount()
		os.Exit(0)
	}()
	fmt.Println("{}")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		reply := map[string]string{}
		if err := s.obey(lines.Bytes()); err != nil {
			reply["error"] = err.Error()
		}
		json.NewEncoder(os.Stdout).Encode(reply)
	}
	return nil
}

type order struct {
	Do    string `json:"do"`
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Errno string `json:"errno"`
	Nodes []int  `json:"nodes"` // of away and back; none: all
}

func (s *store) obey(line []byte) error {
	var order order
	if err := json.Unmarshal(line, &order); err != nil {
		return err
	}
	switch order.Do {
	case "away": // the servers do not answer any more: calls wait
		for _, m := range s.of(order.Nodes) {
			m.line.away()
		}
	case "back":
		for _, m := range s.of(order.Nodes) {
			m.line.answer()
		}
	case "cut": // the power is gone
		s.cut()
	case "fail": // writes fail after so many bytes
		number, known := errnos[order.Errno]
		if !known {
			return fmt.Errorf("no errno %q", order.Errno)
		}
		s.mu.Lock()
		s.failAfter, s.failWith = order.Bytes, number
		s.mu.Unlock()
	case "stub": // a file's bytes go to the archive
		return s.archive(order.Path)
	default:
		return fmt.Errorf("no order %q", order.Do)
	}
	return nil
}

func (s *store) of(nodes []int) []*mount {
	if len(nodes) == 0 {
		return s.mounts
	}
	var found []*mount
	for _, number := range nodes {
		found = append(found, s.mounts[number])
	}
	return found
}

func (s *store) answer() {
	for _, m := range s.mounts {
		m.line.answer()
	}
}

func (s *store) mount(number int, point string) error {
	m, err := newMount(s, number)
	if err != nil {
		return err
	}
	server, err := fuse.NewServer(m, point, &fuse.MountOptions{
		AllowOther: true, Options: []string{"default_permissions"}, FsName: s.Name, Name: "temperfs",
		MaxWrite: 1 << 20, MaxBackground: 64, IgnoreSecurityLabels: true, EnableLocks: !s.LocalLocks,
		ExplicitDataCacheControl: s.Cache == "close-to-open", DisableReadDirPlus: true, DirectMountStrict: true,
	})
	if err != nil {
		return err
	}
	m.server = server
	s.mounts = append(s.mounts, m)
	go server.Serve()
	return server.WaitMount()
}

// unmount lets go of whoever waits, and of the mounts, in use or not.
func (s *store) unmount() {
	s.answer()
	for _, point := range s.Mounts {
		syscall.Unmount(point, unix.MNT_DETACH)
	}
}

func statAt(fd int, name string, stat *syscall.Stat_t) error {
	return unix.Fstatat(fd, name, (*unix.Stat_t)(unsafe.Pointer(stat)), unix.AT_SYMLINK_NOFOLLOW)
}

func sillyName(number uint64) string { return fmt.Sprintf(".nfs%016x", number) }

// entries are the names of an open folder, from the first.
func entries(fd int) ([]fuse.DirEntry, error) {
	if _, err := syscall.Seek(fd, 0, 0); err != nil {
		return nil, err
	}
	var found []fuse.DirEntry
	buffer := make([]byte, 1<<16)
	for {
		count, err := unix.Getdents(fd, buffer)
		if err != nil || count <= 0 {
			return found, err
		}
		for rest := buffer[:count]; len(rest) > 0; {
			entry := (*unix.Dirent)(unsafe.Pointer(&rest[0]))
			name := rest[unsafe.Offsetof(entry.Name):entry.Reclen]
			end := 0
			for end < len(name) && name[end] != 0 {
				end++
			}
			found = append(found, fuse.DirEntry{Name: string(name[:end]), Ino: entry.Ino, Mode: uint32(entry.Type) << 12})
			rest = rest[entry.Reclen:]
		}
	}
}
