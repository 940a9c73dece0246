// A web server over a folder: Go's own net/http, with a strong etag for each file, as nginx and Caddy have it.
// Prints its port.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

func main() {
	root := os.Args[1]
	files := http.FileServer(http.Dir(root))
	handler := func(answer http.ResponseWriter, asked *http.Request) {
		info, err := os.Stat(filepath.Join(root, filepath.FromSlash(asked.URL.Path)))
		if err == nil && !info.IsDir() {
			answer.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
		}
		files.ServeHTTP(answer, asked)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, http.HandlerFunc(handler)))
}
