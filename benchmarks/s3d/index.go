package main

import (
	"fmt"
	"html"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type object struct {
	key, path, etag, crc string
	fixed                string // the header lines of its answers that are always the same
	listed               string // the rest of its place in a listing, after the key
	size                 int64
}

type site struct {
	bucket  string
	objects []object
	byKey   map[string]*object
	rate    int64 // bytes of objects a second and connection; 0: all that it takes
	shared  bool  // the rate is that of all connections together
	turn    sync.Mutex
	due     time.Time // of the shared rate: when the next bytes may be sent; under turn
	sent    atomic.Int64
	made    *made // where not nil, in place of a folder
}

func index(root, bucket string, sums bool) (*site, error) {
	served := &site{bucket: bucket, byKey: map[string]*object{}}
	crcs := map[string]string{}
	if sums {
		if err := stated(root, crcs); err != nil {
			return nil, err
		}
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		key := strings.TrimPrefix(path, root+"/")
		modified := info.ModTime().UTC()
		etag := fmt.Sprintf("\"%x.%x-1\"", info.Size(), modified.UnixNano())
		made := object{key: key, path: path, etag: etag, crc: crcs[key], size: info.Size()}
		made.fixed = fmt.Sprintf("Last-Modified: %s\r\nETag: %s\r\nAccept-Ranges: bytes\r\nContent-Type: binary/octet-stream\r\n",
			modified.Format("Mon, 02 Jan 2006 15:04:05 GMT"), etag)
		made.listed = fmt.Sprintf("</Key><LastModified>%s</LastModified><ETag>%s</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>",
			modified.Format("2006-01-02T15:04:05.000Z"), html.EscapeString(etag), made.size)
		served.objects = append(served.objects, made)
		return nil
	})
	sort.Slice(served.objects, func(a, b int) bool { return served.objects[a].key < served.objects[b].key })
	for at := range served.objects {
		served.byKey[served.objects[at].key] = &served.objects[at]
	}
	return served, err
}

// Lines of "<base64> <key>", made with the data.
func stated(root string, crcs map[string]string) error {
	files, err := filepath.Glob(filepath.Join(root, "*.crc64nvme"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(text), "\n") {
			if crc, key, found := strings.Cut(line, " "); found {
				crcs[key] = crc
			}
		}
	}
	return nil
}
