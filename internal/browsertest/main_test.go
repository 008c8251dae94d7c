package browsertest

import (
	"context"
	"fmt"
	"muster/internal/testproc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// limit bounds one test, far above its usual time.
const limit = 4 * time.Minute

// chromium starts one browser for all tests; each has its own context.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, fmt.Errorf("no chromium in PATH: `make deps` installs it")
	}
	allocator, _ := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox,                               // tests run as root
		chromedp.Flag("ignore-certificate-errors", true), // the authority is the test's
		chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(time.Minute),
	)...)
	browser, _ := chromedp.NewContext(allocator)
	return browser, chromedp.Run(browser)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if testproc.InCI() {
		if browser, err := chromium(); err == nil {
			_ = chromedp.Cancel(browser)
		}
	}
	os.Exit(code) //nolint:forbidigo // TestMain ends with the tests' code
}

// A tab is a browser tab with its own cookies.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string // of the console

	mu       sync.Mutex
	problems []string // guarded by mu: errors in the browser's console
	dialogs  int      // guarded by mu
	asked    []string // guarded by mu: addresses
}

// window opens a window with its own cookies. Chromium needs one before it opens such a tab, and
// [chromedp.WithNewBrowserContext] does not ask for it.
func window(browser context.Context) (target.ID, error) {
	ctx := cdp.WithExecutor(browser, chromedp.FromContext(browser).Browser)
	own, err := target.CreateBrowserContext().WithDisposeOnDetach(true).Do(ctx)
	if err != nil {
		return "", err
	}
	return target.CreateTarget("about:blank").WithBrowserContextID(own).WithNewWindow(true).Do(ctx)
}

// open opens a tab.
func open(t *testing.T, url string) *tab {
	t.Helper()
	if !testproc.InCI() {
		t.Skip("needs a browser: `make browser` runs it")
	}
	browser, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	id, err := window(browser)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithTargetID(id))
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, limit)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, url: url}
	chromedp.ListenTarget(ctx, b.listen)
	b.do(network.Enable(), log.Enable(), runtime.Enable())
	return b
}

// listen collects events of the browser.
func (b *tab) listen(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *log.EventEntryAdded:
		// The browser reports failed pages too.
		if e.Entry.Level == log.LevelError && e.Entry.Source != log.SourceNetwork {
			b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, e.ExceptionDetails.Error())
	case *page.EventJavascriptDialogOpening:
		b.dialogs++
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	}
}

// requests returns the addresses that the tab has asked for.
func (b *tab) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.asked)
}

// sound fails the test if the browser reported an error.
func (b *tab) sound(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Errorf("%s: the browser says: %s", where, p)
	}
	if b.dialogs > 0 {
		b.t.Errorf("%s: a foreign script has opened a dialog", where)
	}
	b.problems, b.dialogs = nil, 0
}

// do acts in the tab.
func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// visit goes to a page of the console.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url+path), chromedp.WaitReady("main", chromedp.ByQuery))
}

// evaluate returns the value of an expression in the page.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	var v T
	b.do(chromedp.Evaluate(expression, &v, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true)
	}))
	return v
}

// far above the second or two that are needed
const patience = 40 * time.Second

// eventually waits until an expression is true, on whatever page is shown by then.
func (b *tab) eventually(what, expression string) {
	b.t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for {
		var is bool
		err := chromedp.Run(b.ctx, chromedp.Evaluate("Boolean("+expression+")", &is))
		if err == nil && is {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("not within %v: %s: %v\n%s", patience, what, err,
				evaluate[string](b, "location.href + document.body.innerText"))
		}
	}
}

// look sets the tab's size and preferred colors.
func (b *tab) look(width, height int64, scheme string) {
	b.t.Helper()
	b.do(
		emulation.SetDeviceMetricsOverride(width, height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
			Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
	)
}

// picture writes a picture of the whole page.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("MUSTER_SCREENSHOTS")
	if dir == "" {
		dir = b.t.ArtifactDir()
	}
	var png []byte
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, _, _, _, _, size, err := page.GetLayoutMetrics().Do(ctx)
		if err != nil {
			return err
		}
		png, err = page.CaptureScreenshot().WithCaptureBeyondViewport(true).
			WithClip(&page.Viewport{Width: size.Width, Height: min(size.Height, 6000), Scale: 1}).Do(ctx)
		return err
	}))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// press presses a key in the tab, as a person would.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}
