package choria_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"muster/provisioner/choria"
)

// A step is the message of an exchange with which it is stopped: the request or the reply of an action.
type step struct {
	action string
	reply  bool
}

func (s step) String() string {
	if s.reply {
		return s.action + " answered"
	}
	return s.action + " asked"
}

// A proxy stands between a server and muster's broker. Such a server verifies no certificate, so that the proxy reads
// all messages. It holds back the message of the step, as a slow network would, until it is released: then it cuts the
// connections, and lets later ones pass.
type proxy struct {
	address     string // HOST:PORT
	upstream    string
	certificate tls.Certificate
	step        step

	held     chan struct{} // closed when the message has come
	released chan struct{}
	once     sync.Once
}

func newProxy(t testing.TB, f *fleet, upstream string, at step) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		address:     l.Addr().String(),
		upstream:    upstream,
		certificate: f.certificate,
		step:        at,
		held:        make(chan struct{}),
		released:    make(chan struct{}),
	}
	var all sync.WaitGroup
	done := make(chan struct{})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.pass(c, done) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		close(done)
		all.Wait()
	})
	return p
}

// pass carries one connection until either side ends it, or done is closed.
func (p *proxy) pass(server net.Conn, done chan struct{}) {
	defer server.Close()
	broker, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return // as without a proxy: nothing listens
	}
	defer broker.Close()
	info, err := bufio.NewReaderSize(broker, 1<<16).ReadString('\n') // the broker waits for the handshake then
	if err != nil {
		return
	}
	if _, err := io.WriteString(server, direct(info)); err != nil {
		return
	}
	inner := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{p.certificate}})
	outer := tls.Client(broker, &tls.Config{InsecureSkipVerify: true})
	ended := make(chan struct{}, 2)
	transparent := closed(p.released)
	for _, pump := range []func(){
		func() { p.pump(outer, inner, true, transparent) },
		func() { p.pump(inner, outer, false, transparent) },
	} {
		go func() {
			pump()
			ended <- struct{}{}
		}()
	}
	cut := p.released
	if transparent {
		cut = nil
	}
	select {
	case <-ended:
	case <-cut:
	case <-done:
	}
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// direct removes the addresses of other brokers from a broker's INFO.
func direct(line string) string {
	text, ok := strings.CutPrefix(line, "INFO ")
	var info map[string]any
	if !ok || json.Unmarshal([]byte(text), &info) != nil {
		return line
	}
	delete(info, "connect_urls")
	b, _ := json.Marshal(info)
	return "INFO " + string(b) + "\r\n"
}

// pump carries messages from one side to the other.
func (p *proxy) pump(to io.Writer, from io.Reader, replies, transparent bool) {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		var payload, message []byte // with and without headers
		switch verb, _, _ := strings.Cut(line, " "); verb {
		case "PUB", "MSG", "HPUB", "HMSG":
			fields := strings.Fields(line)
			size, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				return
			}
			payload = make([]byte, size+2)
			if _, err := io.ReadFull(r, payload); err != nil {
				return
			}
			message = payload
			if headers, err := strconv.Atoi(fields[len(fields)-2]); err == nil && verb[0] == 'H' && headers <= size {
				message = payload[headers:]
			}
		case "INFO":
			line = direct(line)
		}
		if !transparent && p.step.reply == replies && p.step.action == actionOf(message, replies) {
			p.once.Do(func() { close(p.held) })
			<-p.released
			return
		}
		if _, err := to.Write(append([]byte(line), payload...)); err != nil {
			return
		}
	}
}

// actionOf returns the action that a message is about, or "".
func actionOf(payload []byte, reply bool) string {
	var body []byte
	if reply {
		r, err := choria.DecodeReply(payload)
		if err != nil {
			return ""
		}
		body = r.Body
	} else {
		r, _, err := choria.DecodeRequest(payload)
		if err != nil {
			return ""
		}
		body = r.Body
	}
	var named struct {
		Action string `json:"action"`
	}
	_ = json.Unmarshal(body, &named)
	return named.Action
}
