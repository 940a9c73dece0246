// s3d serves one folder, as it was when it started, over S3's read-only requests: a server so
// cheap that a benchmark measures its clients. Ranges leave by sendfile (over TLS by copy),
// listings come from memory, signatures are not looked at. Standard library only.
//
// GET /-/cpu answers the CPU seconds that the server itself has used, so that its share is known.
package main

import (
	"crypto/tls"
	"encoding/base64"
	"flag"
	"fmt"
	"html"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type object struct {
	key, path, etag, crc string
	listed               string // the rest of its place in a listing, after the key
	size                 int64
	modified             time.Time
}

type site struct {
	bucket  string
	objects []object
	byKey   map[string]*object
}

func main() {
	root := flag.String("root", "", "the folder that is served")
	bucket := flag.String("bucket", "bench", "its name")
	portFile := flag.String("port-file", "", "where the port is written once it listens")
	cert := flag.String("tls-cert", "", "serve https with this certificate")
	key := flag.String("tls-key", "", "and this key")
	sums := flag.Bool("checksums", false, "state the CRC64NVME of <root>/*.crc64nvme where it is asked for")
	flag.Parse()
	served, err := index(*root, *bucket, *sums)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: served, ErrorLog: log.New(io.Discard, "", 0)}
	// Object stores speak HTTP/1.1; Go would offer HTTP/2 to those clients that take it.
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	port := listener.Addr().(*net.TCPAddr).Port
	temporary := *portFile + ".new"
	if err := os.WriteFile(temporary, []byte(strconv.Itoa(port)), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := os.Rename(temporary, *portFile); err != nil {
		log.Fatal(err)
	}
	go func() {
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
		<-told
		os.Exit(0)
	}()
	if *cert != "" {
		log.Fatal(server.ServeTLS(listener, *cert, *key))
	}
	log.Fatal(server.Serve(listener))
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
		etag := fmt.Sprintf("\"%x.%x-1\"", info.Size(), info.ModTime().UnixNano())
		made := object{key: key, path: path, etag: etag, crc: crcs[key], size: info.Size(), modified: info.ModTime()}
		made.listed = fmt.Sprintf("</Key><LastModified>%s</LastModified><ETag>%s</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>",
			made.modified.UTC().Format("2006-01-02T15:04:05.000Z"), html.EscapeString(etag), made.size)
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

func (served *site) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/-/cpu" {
		var usage syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
		seconds := time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
		fmt.Fprintf(answer, "%f", seconds)
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	if bucket != served.bucket {
		refuse(answer, http.StatusNotFound, "NoSuchBucket")
		return
	}
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		refuse(answer, http.StatusMethodNotAllowed, "MethodNotAllowed")
		return
	}
	if key == "" {
		served.list(answer, request)
		return
	}
	found := served.byKey[key]
	if found == nil {
		refuse(answer, http.StatusNotFound, "NoSuchKey")
		return
	}
	file, err := os.Open(found.path)
	if err != nil {
		refuse(answer, http.StatusNotFound, "NoSuchKey")
		return
	}
	defer file.Close()
	header := answer.Header()
	header.Set("ETag", found.etag)
	header.Set("Content-Type", "binary/octet-stream")
	if found.crc != "" && request.Header.Get("X-Amz-Checksum-Mode") != "" && whole(request, found.size) {
		header.Set("X-Amz-Checksum-Crc64nvme", found.crc)
		header.Set("X-Amz-Checksum-Type", "FULL_OBJECT")
	}
	http.ServeContent(answer, request, "", found.modified, file)
}

var slashes = strings.NewReplacer("%2F", "/", "+", "%20")

// Whether a listing that is encoded as a URL writes a character otherwise.
func special(letter rune) bool {
	return !(letter >= 'a' && letter <= 'z' || letter >= 'A' && letter <= 'Z' || letter >= '0' && letter <= '9' ||
		letter == '/' || letter == '-' || letter == '_' || letter == '.' || letter == '~')
}

func whole(request *http.Request, size int64) bool {
	asked := request.Header.Get("Range")
	return asked == "" || asked == "bytes=0-" || asked == fmt.Sprintf("bytes=0-%d", size-1)
}

func refuse(answer http.ResponseWriter, status int, code string) {
	answer.Header().Set("Content-Type", "application/xml")
	answer.WriteHeader(status)
	fmt.Fprintf(answer, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func (served *site) list(answer http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	if query.Has("location") {
		fmt.Fprint(answer, "<LocationConstraint/>")
		return
	}
	prefix, delimiter := query.Get("prefix"), query.Get("delimiter")
	after := query.Get("start-after")
	if token := query.Get("continuation-token"); token != "" {
		raw, _ := base64.URLEncoding.DecodeString(token)
		after = string(raw)
	} else if marker := query.Get("marker"); marker != "" {
		after = marker
	}
	most := 1000
	if asked, err := strconv.Atoi(query.Get("max-keys")); err == nil && asked < most {
		most = asked
	}
	code := html.EscapeString
	if query.Get("encoding-type") == "url" {
		code = func(key string) string {
			if !strings.ContainsFunc(key, special) {
				return key
			}
			return slashes.Replace(url.QueryEscape(key))
		}
	}
	all := served.objects
	at := sort.Search(len(all), func(at int) bool {
		key := all[at].key
		return key >= prefix && key > after && !(delimiter != "" && strings.HasSuffix(after, delimiter) && strings.HasPrefix(key, after))
	})
	var out strings.Builder
	out.Grow(256 * most)
	count, last := 0, ""
	for at < len(all) && count < most && strings.HasPrefix(all[at].key, prefix) {
		found := &all[at]
		count++
		if delimiter != "" {
			if cut := strings.Index(found.key[len(prefix):], delimiter); cut >= 0 {
				last = found.key[:len(prefix)+cut+len(delimiter)]
				fmt.Fprintf(&out, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", code(last))
				for at < len(all) && strings.HasPrefix(all[at].key, last) {
					at++
				}
				continue
			}
		}
		last = found.key
		at++
		out.WriteString("<Contents><Key>")
		out.WriteString(code(found.key))
		out.WriteString(found.listed)
	}
	more := at < len(all) && strings.HasPrefix(all[at].key, prefix)
	answer.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(answer, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>%s</Name><Prefix>%s</Prefix><KeyCount>%d</KeyCount><MaxKeys>%d</MaxKeys><IsTruncated>%t</IsTruncated>",
		served.bucket, code(prefix), count, most, more)
	if query.Get("encoding-type") == "url" {
		fmt.Fprint(answer, "<EncodingType>url</EncodingType>")
	}
	if more {
		fmt.Fprintf(answer, "<NextContinuationToken>%s</NextContinuationToken><NextMarker>%s</NextMarker>",
			base64.URLEncoding.EncodeToString([]byte(last)), code(last))
	}
	fmt.Fprintf(answer, "%s</ListBucketResult>", out.String())
}
