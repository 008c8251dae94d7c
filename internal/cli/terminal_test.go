package cli_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/internal/cli"
)

// openTerminal returns both ends of a new terminal: what a person holds, and
// what a program has as its standard streams.
func openTerminal(tb testing.TB) (person, program *os.File) {
	tb.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil { // unlock the other end
		tb.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		tb.Fatal(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = program.Close() })
	return person, program
}

// echoes reports whether the terminal shows what is typed.
func echoes(tb testing.TB, f *os.File) bool {
	tb.Helper()
	state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		tb.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// awaitSilence waits until the terminal no longer echoes, which is when the
// program has begun to read.
func awaitSilence(tb testing.TB, f *os.File) {
	tb.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for echoes(tb, f) {
		select {
		case <-deadline:
			tb.Fatal("the terminal still echoes after 10s")
		case <-tick.C:
		}
	}
}

func TestAskSecretOnTerminal(t *testing.T) {
	t.Parallel()
	person, program := openTerminal(t)
	var out bytes.Buffer
	type answer struct {
		secret []byte
		err    error
	}
	got := make(chan answer, 1)
	go func() {
		secret, err := cli.AskSecret(t.Context(), program, &out, "Passphrase: ")
		got <- answer{secret, err}
	}()
	awaitSilence(t, program)
	if _, err := person.WriteString("hunter2\n"); err != nil {
		t.Fatal(err)
	}
	a := <-got
	if string(a.secret) != "hunter2" || a.err != nil {
		t.Errorf("AskSecret = %q, %v, want hunter2", a.secret, a.err)
	}
	if out.String() != "Passphrase: \n" {
		t.Errorf("AskSecret wrote %q", out.String())
	}
	if !echoes(t, program) {
		t.Error("the terminal stays silent afterwards")
	}
}

func TestAskSecretTwice(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		typed []string
		want  string // "" means an error
	}{
		"equal":        {[]string{"a", "a"}, "a"},
		"second try":   {[]string{"a", "b", "", "", "c", "c"}, "c"},
		"never equal":  {[]string{"a", "b", "a", "c", "a", "d"}, ""},
		"always empty": {[]string{"", "", "", "", "", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			person, program := openTerminal(t)
			if _, err := person.WriteString(strings.Join(tt.typed, "\n") + "\n"); err != nil {
				t.Fatal(err)
			}
			got, err := cli.AskSecretTwice(t.Context(), program, io.Discard, "Passphrase: ")
			if string(got) != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("AskSecretTwice = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestWithoutTerminal(t *testing.T) {
	t.Parallel()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if cli.IsTerminal(f) || cli.IsTerminal(&bytes.Buffer{}) || cli.IsTerminal((*os.File)(nil)) {
		t.Error("something that is no terminal passes for one")
	}
	if secret, err := cli.AskSecret(t.Context(), f, io.Discard, "?"); secret != nil || !errors.Is(err, cli.ErrNoTerminal) {
		t.Errorf("AskSecret = %q, %v, want %v", secret, err, cli.ErrNoTerminal)
	}
	var out bytes.Buffer
	p := cli.NewProgress(&out, "provisioned", "nodes", 2)
	p.Add(2)
	p.Done()
	if out.Len() != 0 {
		t.Errorf("a progress bar without a terminal: %q", out.String())
	}
}

func TestProgressOnTerminal(t *testing.T) {
	t.Parallel()
	person, program := openTerminal(t)
	p := cli.NewProgress(program, "provisioned", "nodes", 2)
	p.Add(1)
	p.Done()
	b := make([]byte, 4096)
	n, err := person.Read(b)
	if err != nil || !strings.Contains(string(b[:n]), "provisioned") || strings.Contains(string(b[:n]), "\x1b") {
		t.Errorf("progress bar = %q, %v", b[:n], err)
	}
}
