// s3d serves one folder, as it was when it started, over S3's read-only requests: a server so
// cheap that a benchmark measures its clients. Ranges leave by sendfile (over TLS in one write for
// many records), listings come from memory, signatures are not looked at. Standard library only.
//
// GET /-/cpu answers the CPU seconds that the server itself has used, so that its share is known;
// GET /-/sent the bytes of objects that it has sent so far.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	root := flag.String("root", "", "the folder that is served")
	bucket := flag.String("bucket", "bench", "its name")
	portFile := flag.String("port-file", "", "where the port is written once it listens")
	cert := flag.String("tls-cert", "", "serve https with this certificate")
	key := flag.String("tls-key", "", "and this key")
	sums := flag.Bool("checksums", false, "state the CRC64NVME of <root>/*.crc64nvme where it is asked for")
	rate := flag.Int64("rate", 0, "bytes a second that one connection gets of objects; 0: all that it takes")
	shared := flag.Bool("shared", false, "the rate is that of all connections together")
	objects := flag.Int("made", 0, "serve so many objects that are made up, in place of a folder")
	changed := flag.Int("changed", 0, "of these, each such one is another version; 0: none")
	mixed := flag.Bool("mixed", false, "listings of these come in no order")
	flag.Parse()
	served := &site{bucket: *bucket, made: &made{count: *objects, changed: *changed, mixed: *mixed}}
	if *objects == 0 {
		var err error
		if served, err = index(*root, *bucket, *sums); err != nil {
			log.Fatal(err)
		}
	}
	served.rate, served.shared = *rate, *shared
	var config *tls.Config
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil {
			log.Fatal(err)
		}
		// Whole records from the first one: a store's connections are warm.
		config = &tls.Config{Certificates: []tls.Certificate{pair}, DynamicRecordSizingDisabled: true}
	}
	settings := net.ListenConfig{Control: congestion}
	listener, err := settings.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
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
	for {
		accepted, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go served.talk(accepted.(*net.TCPConn), config)
	}
}

// Where the machine's default is one that paces (BBR), its timers would be part of every answer over
// loopback, whoever asks.
func congestion(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CONGESTION, "reno")
	})
}
