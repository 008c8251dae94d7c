package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnAllowListThatIsGoneStaysInForce takes the file away for longer than it
// takes to look at it again, as when a disk is not mounted, and puts it back.
func TestAnAllowListThatIsGoneStaysInForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "allow-list.yaml")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("allow: [{pattern: web1.example.net}]\n")
		l, err := loadAllowList(path, Options{Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.run(ctx) }()
		check := func(when string, web1, web2 bool) {
			t.Helper()
			<-time.After(3 * allowCheck)
			synctest.Wait()
			if got := l.match("web1.example.net") != nil; got != web1 {
				t.Errorf("%s: web1 is covered %v", when, got)
			}
			if got := l.match("web2.example.net") != nil; got != web2 {
				t.Errorf("%s: web2 is covered %v", when, got)
			}
		}
		check("at first", true, false)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		check("while the file is gone", true, false)
		write("allow: [")
		check("with a mistake in it", true, false)
		write("allow: [{pattern: web2.example.net}]\n")
		check("once it is back", false, true)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run = %v", err)
		}
	})
}
