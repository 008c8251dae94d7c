package backup_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/provisioner/backup"
)

var header = backup.Header{ID: "b1", Installation: "i1", CAFingerprint: "ca",
	StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), By: "root"}

// sample writes a backup with two streams.
func sample(t testing.TB, messages int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := backup.NewWriter(&b, header)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"ONE", "TWO"} {
		for i := range messages {
			if err := w.Message(stream, uint64(2*i+1), fmt.Sprintf("%s.%d", stream, i),
				[]byte(`"`+strings.Repeat("x", i)+`"`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.Close(header.StartedAt.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read reads a backup to its end and returns the number of messages.
func read(file []byte) (n int, s *backup.Summary, err error) {
	r, err := backup.NewReader(bytes.NewReader(file))
	if err != nil {
		return 0, nil, err
	}
	defer r.Close()
	for {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n, r.Summary(), nil
		}
		if err != nil {
			return n, nil, err
		}
		if want := fmt.Sprintf("%s.%d", m.Stream, len(m.Data)-2); m.Subject != want {
			return n, nil, fmt.Errorf("subject %s, want %s", m.Subject, want)
		}
		n++
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	file := sample(t, 300)
	n, s, err := read(file)
	if err != nil || n != 600 || s.Messages() != 600 || !s.EndedAt.Equal(header.StartedAt.Add(time.Minute)) {
		t.Fatalf("read %d messages, %+v, %v", n, s, err)
	}
	r, err := backup.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := header
	want.Version = backup.Version
	if diff := cmp.Diff(want, r.Header); diff != "" {
		t.Errorf("header:\n%s", diff)
	}
}

// all returns the contents of a backup as text.
func all(file []byte) (string, error) {
	r, err := backup.NewReader(bytes.NewReader(file))
	if err != nil {
		return "", err
	}
	defer r.Close()
	text := fmt.Sprintf("%+v\n", r.Header)
	for {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return text + fmt.Sprintf("%+v", *r.Summary()), nil
		}
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("%+v\n", *m)
	}
}

// TestDamage cuts a backup at every place and flips every bit: no result passes as complete with different contents.
// Some bits of zstd's headers have no meaning.
func TestDamage(t *testing.T) {
	t.Parallel()
	file := sample(t, 20)
	whole, err := all(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range file {
		if _, _, err := read(file[:i]); !errors.Is(err, backup.ErrDamaged) {
			t.Fatalf("cut to %d of %d bytes: %v, want ErrDamaged", i, len(file), err)
		}
		for bit := range 8 {
			altered := bytes.Clone(file)
			altered[i] ^= 1 << bit
			if has, err := all(altered); err == nil && has != whole {
				t.Fatalf("bit %d of byte %d of %d altered: taken for whole", bit, i, len(file))
			}
		}
	}
	for _, more := range []string{"x", string(file), strings.Repeat("\x00", 40)} {
		if _, _, err := read(append(bytes.Clone(file), more...)); !errors.Is(err, backup.ErrDamaged) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("with %d bytes behind its end: %v, want ErrDamaged on one line", len(more), err)
		}
	}
}

// TestUnfinished reads the output of a writer that died.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w, err := backup.NewWriter(&b, header)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Message("ONE", 1, "a", []byte("{")); err == nil {
		t.Error("a message that is no JSON is written")
	}
	if err := w.Message("ONE", 3, "a", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := w.Message("ONE", 3, "b", []byte("{}")); err == nil {
		t.Error("a sequence is written twice")
	}
	if _, _, err := read(b.Bytes()); !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("%v, want ErrDamaged", err)
	}
}

// FuzzReader feeds invalid backups: the reader returns an error, and takes little memory.
func FuzzReader(f *testing.F) {
	file := sample(f, 3)
	f.Add(file)
	f.Add(file[:len(file)/2])
	f.Add([]byte("muster backup 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := backup.NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		defer r.Close()
		for {
			if _, err := r.Next(); err != nil {
				if errors.Is(err, io.EOF) && len(b) < 16 {
					t.Errorf("%d bytes are a whole backup", len(b))
				}
				return
			}
		}
	})
}
