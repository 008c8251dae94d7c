package chaos_test

import (
	"encoding/binary"
	"os"
	"testing"
	"time"
)

// A clock moves the date of the processes with its environment while they run. Their timers are not affected, as on a
// machine whose date is set.
type clock struct {
	t    *testing.T
	path string
}

func newClock(t *testing.T, path string) *clock {
	t.Helper()
	c := &clock{t, path}
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// env returns the environment for a process that follows the clock.
func (c *clock) env() string { return clockEnv + "=" + c.path }

// move sets how far the clock is from the machine's.
func (c *clock) move(by time.Duration) {
	c.t.Helper()
	f, err := os.OpenFile(c.path, os.O_WRONLY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	b := binary.NativeEndian.AppendUint64(nil, uint64(by/time.Second))
	if _, err := f.WriteAt(b, 0); err != nil {
		c.t.Fatal(err)
	}
}
