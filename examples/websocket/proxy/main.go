// Command proxy is an HTTP proxy for the example: it connects to whatever it is
// asked for with CONNECT, says so on standard output, and does nothing else.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: proxy HOST:PORT")
		os.Exit(2) //nolint:forbidigo // this is main
	}
	s := &http.Server{Addr: os.Args[1], Handler: http.HandlerFunc(connect), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, "proxy:", s.ListenAndServe())
	os.Exit(1) //nolint:forbidigo // this is main
}

// connect opens a tunnel and keeps it until one end is closed.
func connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	there, err := net.DialTimeout("tcp", r.Host, 10*time.Second) //nolint:gosec // going where it is told is a proxy's business
	if err != nil {
		http.Error(w, "no connection", http.StatusBadGateway)
		return
	}
	defer there.Close() //nolint:errcheck // nothing to do about it
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close() //nolint:errcheck // likewise
	_, _ = fmt.Fprintln(os.Stdout, "tunnel to", r.Host)
	if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(there, here)
		_ = there.Close()
	}()
	_, _ = io.Copy(here, there)
}
