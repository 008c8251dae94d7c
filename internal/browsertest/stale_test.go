package browsertest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"

	"muster/provisioner"
)

// TestAPageThatIsNotUpToDateSaysSo cuts a page off without a word, as a network does, and has
// it asked for in vain: it says so each time, and is live again by itself.
func TestAPageThatIsNotUpToDateSaysSo(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	b := signIn(t, f, "anna", provisioner.RoleOperator)
	b.visit("/nodes/web1.example.net")
	b.eventually("the stream is open", streamOpen)
	chromedp.ListenTarget(b.ctx, func(e any) {
		if asked, ok := e.(*fetch.EventRequestPaused); ok { // in a goroutine of the listener's, which must not wait
			go func() { _ = chromedp.Run(b.ctx, fetch.FulfillRequest(asked.RequestID, 503)) }()
		}
	})
	b.do(fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: b.url + "/nodes/*"}}))
	f.Revoke("web1.example.net")
	b.eventually("it could not be made anew", `document.querySelector("#live").innerText === "Not live" && document.querySelector("#live-note").innerText.includes("could not make this page anew")`)
	b.picture("not-made-anew")
	b.do(fetch.Disable())
	b.eventually("it is live again", streamOpen+` && document.querySelector("#live-note").innerText === "" && `+chip+` === "revoked"`)

	line := newCut(t, f.Daemon().APIURL())
	token := operator(t, f, "ben", provisioner.RoleOperator)
	far := open(t, line.url)
	far.enter(token)
	far.eventually("the stream is open", streamOpen)
	line.cut()
	evaluate[bool](far, `(() => { const now = Date.now.bind(Date); Date.now = () => now() + 60000; return true })()`) // a minute goes by
	far.eventually("it is cut off", `document.querySelector("#live").innerText === "Not live" && document.querySelector("#live-note").innerText.includes("not up to date")`)
	far.picture("cut-off")
	line.mend()
	far.eventually("it is live again", streamOpen+` && document.querySelector("#live-note").innerText === ""`)
}

// A cut is a line to the console that can be cut: what is sent over it then is lost, and
// nobody is told.
type cut struct {
	url string // of the console, over the line

	mu    sync.Mutex
	is    bool       // guarded by mu
	conns []net.Conn // guarded by mu: all that there were
}

func newCut(t *testing.T, console string) *cut {
	t.Helper()
	to, err := url.Parse(console)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cut{url: "https://" + l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to.Host)
			if err != nil {
				_ = near.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, near, far)
			c.mu.Unlock()
			all.Go(func() { c.carry(near, far) })
			all.Go(func() { c.carry(far, near) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.mend()
		all.Wait()
	})
	return c
}

// carry takes to one end what comes from the other one, unless the line is cut.
func (c *cut) carry(to io.WriteCloser, from io.ReadCloser) {
	defer func() { _, _ = to.Close(), from.Close() }()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		c.mu.Lock()
		is := c.is
		c.mu.Unlock()
		if is {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (c *cut) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.is = true
}

// mend carries what comes over connections that are made from now on. Of those before, something
// is lost.
func (c *cut) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.is = false
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}
