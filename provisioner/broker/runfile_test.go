package broker_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/provisioner/broker"
)

// nats-server's own Shutdown panics if a client is authorized between two of its steps: nine of nine runs.
func TestBrokerStopsWhileNodesConnect(t *testing.T) {
	t.Parallel()
	keys, err := broker.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	address, stop := runFile(t, serverFile(t, keys, nil))

	var nodes sync.WaitGroup
	var asked atomic.Int64
	for range 4 {
		nodes.Go(func() {
			for tryConnect(address) == nil { // until it takes no more
				asked.Add(1)
			}
		})
	}
	eventually(t, "node", func() bool { return asked.Load() > 100 })
	stop()
	nodes.Wait()
}

// runFile runs a broker until stop is called or the test ends.
func runFile(t *testing.T, path string) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	log, done := &buffer{}, make(chan error, 1)
	go func() { done <- broker.RunFile(ctx, path, slog.New(slog.NewTextHandler(log, nil))) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := receive(t, "end of the broker", done); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	var running []string
	eventually(t, "broker", func() bool {
		running = regexp.MustCompile(`msg="broker is running" broker=(\S+)`).FindStringSubmatch(log.String())
		return running != nil
	})
	u, err := url.Parse(running[1])
	if err != nil {
		t.Fatal(err)
	}
	return u.Host, stop
}

// The gate takes three seconds. nats-server would send a PING meanwhile, which clients take for a failure.
func TestLateAdmissionSucceeds(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *outside) (url string){
		"embedded": func(t *testing.T, o *outside) string { return start(t, o.config(t)).URL() },
		"broker run": func(t *testing.T, o *outside) string {
			address, _ := runFile(t, serverFile(t, o.keys, nil))
			url := "nats://" + address
			o.provisioner(t, o.keys, url)
			return url
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := broker.NewKeys()
			if err != nil {
				t.Fatal(err)
			}
			o := &outside{site: newSite(t), keys: keys}
			o.takes = 3 * time.Second
			nc, err := nats.Connect(begin(t, o), nats.Token(goodToken), nats.Name(strings.Repeat("A", 22)),
				nats.Timeout(patience))
			if err != nil {
				t.Fatal(err)
			}
			nc.Close()
		})
	}
}

// tryConnect connects with a token and does not wait for the answer.
func tryConnect(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil { // INFO
		return err
	}
	_, err = conn.Write([]byte(`CONNECT {"auth_token":"` + goodToken + `","name":"AAAAAAAAAAAAAAAAAAAAAA","protocol":1}` + "\r\nPING\r\n"))
	return err
}

func TestMissingFileErrorNamesTheCommand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "nats-server.conf")
	err := broker.RunFile(t.Context(), path, slog.New(slog.DiscardHandler))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "muster broker config") {
		t.Errorf("RunFile = %v, want that %s is not there, and how it is made", err, path)
	}
}

// nats-server names the file in some errors only, and accepts an empty file, which admits every client.
func TestBadFileErrorNamesTheFile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"jetstream {", "lissten: 4222", "listen: nonsense:port:x", "",
		"listen: 127.0.0.1:-1\n"} {
		path := filepath.Join(t.TempDir(), "nats-server.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := broker.RunFile(t.Context(), path, slog.New(slog.DiscardHandler))
		if err == nil || strings.Count(err.Error(), path) != 1 || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), "muster broker config") {
			t.Errorf("%s: RunFile = %v, want one line that names %s once, and what to do", text, err, path)
		}
	}
}

// nats-server itself would exit; inside another process it would wait forever.
func TestTakenRoutePortIsAnError(t *testing.T) {
	t.Parallel()
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = occupied.Close() })
	path := filepath.Join(t.TempDir(), "nats-server.conf")
	text := "listen: 127.0.0.1:-1\nauthorization { user: a, password: bcdefghijklmnopq }\n" +
		"cluster { name: muster, listen: \"" + occupied.Addr().String() + "\", routes: [\"nats://127.0.0.1:1\"] }\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // less than what a start may take
	defer cancel()
	if err := broker.RunFile(ctx, path, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "address already in use") {
		t.Errorf("RunFile = %v, want that the port is taken", err)
	}
}
