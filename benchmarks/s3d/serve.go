package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	headRoom = 64 << 10
	block    = 256 << 10
	msgMore  = 0x8000 // MSG_MORE of Linux, which package syscall does not name
)

// One connection: requests are read one after the other, without net/http, whose share of a small
// object's cost is larger than sendfile's.
type line struct {
	site    *site
	raw     syscall.RawConn // of a plain connection
	secure  *tls.Conn
	gather  *gathering
	room    []byte // what was received and not yet understood
	from    int
	to      int
	head    []byte // the answer's head, as it grows
	content []byte // a block on its way into TLS
	due     time.Time
}

type asked struct {
	method, target, span, match string
	sums, last                  bool
}

func (served *site) talk(connection *net.TCPConn, config *tls.Config) {
	defer connection.Close()
	one := &line{site: served, room: make([]byte, headRoom), head: make([]byte, 0, 1024)}
	var source interface{ Read([]byte) (int, error) } = connection
	if config != nil {
		one.gather = &gathering{Conn: connection}
		one.secure = tls.Server(one.gather, config)
		if one.secure.Handshake() != nil {
			return
		}
		one.gather.on, one.content = true, make([]byte, block)
		source = one.secure
	} else {
		raw, err := connection.SyscallConn()
		if err != nil {
			return
		}
		one.raw = raw
	}
	for {
		stop := bytes.Index(one.room[one.from:one.to], []byte("\r\n\r\n"))
		if stop < 0 {
			one.to = copy(one.room, one.room[one.from:one.to])
			one.from = 0
			count, err := source.Read(one.room[one.to:])
			if err != nil || count == 0 {
				return
			}
			one.to += count
			continue
		}
		request := understand(one.room[one.from : one.from+stop])
		one.from += stop + 4
		if one.answer(request) != nil || request.last {
			return
		}
	}
}

func understand(head []byte) asked {
	first, rest, _ := bytes.Cut(head, []byte("\r\n"))
	parts := bytes.SplitN(first, []byte(" "), 3)
	if len(parts) < 3 {
		return asked{last: true}
	}
	request := asked{method: string(parts[0]), target: string(parts[1])}
	for len(rest) > 0 {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(field, []byte(":"))
		switch len(name) { // the names that matter differ in length
		case 5:
			if bytes.EqualFold(name, []byte("Range")) {
				request.span = string(bytes.TrimSpace(value))
			}
		case 8:
			if bytes.EqualFold(name, []byte("If-Match")) {
				request.match = string(bytes.TrimSpace(value))
			}
		case 10:
			if bytes.EqualFold(name, []byte("Connection")) {
				request.last = bytes.EqualFold(bytes.TrimSpace(value), []byte("close"))
			}
		case 19:
			if bytes.EqualFold(name, []byte("X-Amz-Checksum-Mode")) {
				request.sums = true
			}
		}
	}
	return request
}

func (one *line) answer(request asked) error {
	path, query, _ := strings.Cut(request.target, "?")
	if strings.HasPrefix(path, "http://") {
		_, path, _ = strings.Cut(path[len("http://"):], "/")
		path = "/" + path
	}
	if strings.IndexByte(path, '%') >= 0 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	if path == "/-/cpu" {
		var usage syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
		seconds := time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
		return one.text(request, "200 OK", "text/plain", fmt.Sprintf("%f", seconds))
	}
	if path == "/-/sent" {
		return one.text(request, "200 OK", "text/plain", strconv.FormatInt(one.site.sent.Load(), 10))
	}
	if request.method != "GET" && request.method != "HEAD" {
		// Its body, if there is one, is not read: the connection ends.
		_ = one.refuse(request, "405 Method Not Allowed", "MethodNotAllowed")
		return syscall.ECONNRESET
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if bucket != one.site.bucket {
		return one.refuse(request, "404 Not Found", "NoSuchBucket")
	}
	if key == "" {
		values, err := url.ParseQuery(query)
		if err != nil {
			return one.refuse(request, "400 Bad Request", "InvalidArgument")
		}
		return one.text(request, "200 OK", "application/xml", one.site.listing(values))
	}
	found := one.site.byKey[key]
	var content []byte
	if one.site.made != nil {
		found, content = one.site.made.object(key)
	}
	if found == nil {
		return one.refuse(request, "404 Not Found", "NoSuchKey")
	}
	if request.match != "" && request.match != found.etag && request.match != "*" {
		return one.refuse(request, "412 Precondition Failed", "PreconditionFailed")
	}
	return one.object(request, found, content)
}

// An object's bytes are `content`, or those of its file where that is nil.
func (one *line) object(request asked, found *object, content []byte) error {
	start, end, part := int64(0), found.size, false
	if request.span != "" {
		var good bool
		start, end, part, good = span(request.span, found.size)
		if !good {
			return one.refuse(request, "416 Requested Range Not Satisfiable", "InvalidRange")
		}
	}
	head := one.begin("200 OK", part)
	head = append(head, found.fixed...)
	if part {
		head = append(head, "Content-Range: bytes "...)
		head = strconv.AppendInt(head, start, 10)
		head = append(head, '-')
		head = strconv.AppendInt(head, end-1, 10)
		head = append(head, '/')
		head = strconv.AppendInt(head, found.size, 10)
		head = append(head, "\r\n"...)
	}
	if found.crc != "" && request.sums && end-start == found.size {
		head = append(head, "x-amz-checksum-crc64nvme: "...)
		head = append(head, found.crc...)
		head = append(head, "\r\nx-amz-checksum-type: FULL_OBJECT\r\n"...)
	}
	head = append(head, "Content-Length: "...)
	head = strconv.AppendInt(head, end-start, 10)
	head = append(head, "\r\n\r\n"...)
	one.head = head
	if request.method == "HEAD" || start == end {
		return one.write(head)
	}
	if content != nil {
		one.site.sent.Add(end - start)
		return one.write(append(head, content[start:end]...))
	}
	file, err := syscall.Open(found.path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(file)
	send := one.sent
	if one.secure != nil {
		send = one.sealed
	}
	for at := start; at < end; {
		upto := end
		if one.site.rate > 0 {
			upto = least(end, at+one.site.rate/100)
			one.wait(upto - at)
		}
		if err := send(file, at, upto); err != nil {
			return err
		}
		one.head, at = one.head[:0], upto
	}
	return nil
}

// Waits until so many bytes more may be sent on this connection, or on all where they share the rate; what was
// not used is lost.
func (one *line) wait(count int64) {
	due := &one.due
	if one.site.shared {
		one.site.turn.Lock()
		due = &one.site.due
	}
	now := time.Now()
	if due.Before(now) {
		*due = now
	}
	left := due.Sub(now)
	*due = due.Add(time.Duration(count) * time.Second / time.Duration(one.site.rate))
	if one.site.shared {
		one.site.turn.Unlock()
	}
	time.Sleep(left)
}

// The head and the file's bytes, as few segments as can be.
func (one *line) sent(file int, start, end int64) error {
	head, at := one.head, start
	flags := syscall.MSG_NOSIGNAL
	if start < end {
		flags |= msgMore
	}
	var failed error
	err := one.raw.Write(func(fd uintptr) bool {
		for len(head) > 0 {
			count, err := syscall.SendmsgN(int(fd), head, nil, nil, flags)
			if err == syscall.EAGAIN {
				return false
			}
			if err != nil {
				failed = err
				return true
			}
			head = head[count:]
		}
		for at < end {
			count, err := syscall.Sendfile(int(fd), file, &at, int(least(end-at, 1<<30)))
			if count > 0 {
				one.site.sent.Add(int64(count))
			}
			if err == syscall.EAGAIN {
				return false
			}
			if err != nil || count == 0 {
				failed = syscall.EIO
				return true
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	return failed
}

func (one *line) sealed(file int, start, end int64) error {
	if len(one.head) > 0 {
		if _, err := one.secure.Write(one.head); err != nil {
			return err
		}
	}
	for start < end {
		count, err := syscall.Pread(file, one.content[:least(int64(len(one.content)), end-start)], start)
		if err != nil || count == 0 {
			return syscall.EIO
		}
		if _, err := one.secure.Write(one.content[:count]); err != nil {
			return err
		}
		start += int64(count)
		one.site.sent.Add(int64(count))
		if err := one.gather.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (one *line) write(data []byte) error {
	if one.secure == nil {
		one.head = data
		return one.sent(-1, 0, 0)
	}
	if _, err := one.secure.Write(data); err != nil {
		return err
	}
	return one.gather.flush()
}

func (one *line) text(request asked, status, kind, body string) error {
	head := one.begin(status, false)
	head = append(head, fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n\r\n", kind, len(body))...)
	if request.method != "HEAD" {
		head = append(head, body...)
	}
	return one.write(head)
}

func (one *line) refuse(request asked, status, code string) error {
	return one.text(request, status, "application/xml", fmt.Sprintf("<Error><Code>%s</Code><Message>%s</Message></Error>", code, code))
}

func (one *line) begin(status string, part bool) []byte {
	if part {
		status = "206 Partial Content"
	}
	head := append(one.head[:0], "HTTP/1.1 "...)
	head = append(head, status...)
	head = append(head, "\r\nDate: "...)
	head = append(head, today()...)
	return append(head, "\r\nServer: s3d\r\n"...)
}

type second struct {
	at   int64
	text string
}

var clock atomic.Pointer[second]

func today() string {
	now := time.Now()
	seen := clock.Load()
	if seen == nil || seen.at != now.Unix() {
		seen = &second{now.Unix(), now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}
		clock.Store(seen)
	}
	return seen.text
}

// span reads "bytes=a-b", "bytes=a-" and "bytes=-n"; anything else asks for the whole.
func span(text string, size int64) (start, end int64, part, good bool) {
	first, last, two := strings.Cut(strings.TrimPrefix(text, "bytes="), "-")
	if !strings.HasPrefix(text, "bytes=") || !two || strings.IndexByte(text, ',') >= 0 {
		return 0, size, false, true
	}
	if first == "" {
		count, err := strconv.ParseInt(last, 10, 64)
		if err != nil || count <= 0 {
			return 0, 0, false, false
		}
		return size - least(size, count), size, true, size > 0
	}
	start, err := strconv.ParseInt(first, 10, 64)
	if err != nil || start < 0 || start >= size {
		return 0, 0, false, false
	}
	end = size
	if last != "" {
		stop, err := strconv.ParseInt(last, 10, 64)
		if err != nil || stop < start {
			return 0, 0, false, false
		}
		end = least(size, stop+1)
	}
	return start, end, true, true
}

func least(one, two int64) int64 {
	if one < two {
		return one
	}
	return two
}

// gathering joins the records that TLS writes one by one: a system call for many, not for each.
type gathering struct {
	net.Conn
	on   bool
	held []byte
}

func (held *gathering) Write(data []byte) (int, error) {
	if !held.on {
		return held.Conn.Write(data)
	}
	held.held = append(held.held, data...)
	return len(data), nil
}

func (held *gathering) flush() error {
	_, err := held.Conn.Write(held.held)
	held.held = held.held[:0]
	return err
}
